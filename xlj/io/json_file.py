"""JSON files, and values in them that must be there: what is wrong is said with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xlj.config import ConfigError
from xlj.io import files


def read(path: Path) -> Any:
    """The value of a whole file, plain or compressed.

    Raises:
      ConfigError: if it cannot be read, is not UTF-8, or is no JSON; with file and line.
    """
    try:
        return json.loads("\n".join(files.lines(path)))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: it is no JSON ({error.msg})") from None


def items(path: Path, parent: Any, key: str, at: str) -> list[tuple[Any, str]]:
    """The entries of a list within an object, each with its place.

    Args:
      at: the place of `parent`, `data[0].paragraphs[3]`; empty for the whole file.

    Raises:
      ConfigError: if there is no such list.
    """
    entries = parent.get(key) if isinstance(parent, dict) else None
    where = f"{at}.{key}".lstrip(".")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: there is no list {where}, as SQuAD's JSON has it")
    return [(entry, f"{where}[{index}]") for index, entry in enumerate(entries)]


def text(path: Path, parent: Any, key: str, at: str) -> str:
    """A string within an object.

    Raises:
      ConfigError: if it is not there, or holds half a surrogate pair, which no UTF-8 can.
    """
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(found, str):
        raise ConfigError(f"{path}: {at}.{key} is {found!r}, which is no text")
    if not is_text(found):
        raise ConfigError(f"{path}: {at}.{key} holds half a surrogate pair, which is no character")
    return found


def is_text(found: str) -> bool:
    """Whether UTF-8 can hold a string: JSON's escapes may make one that it cannot."""
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True
