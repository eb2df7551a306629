"""JSON, and values in it that must be there: what is wrong is said with its place."""

import codecs
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from xlj.config import ConfigError
from xlj.io import atomic, files, malformed
from xlj.io.quoting import quoted
from xlj.io.storage import AnyPath

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A value that may be anything JSON holds, until it was looked at."""
Record = dict[str, Any]
"""An object whose reader knows its entries: most are of files that xlj wrote itself."""

MOST_BYTES = 1 << 29
"""The most that a file may hold, decompressed: its values take many times as much memory."""
RECORD_BYTES = 1 << 26
"""The longest line of JSON lines: a document."""
_SAMPLE = 1 << 18  # bytes whose encoding is looked at
_DIGITS = 300  # what floats can hold; transformers writes 10^30


def read(path: AnyPath, not_finite: bool = False) -> Any:
    """The value of a whole file, plain or compressed; raises a `ConfigError` with file and line if
    it cannot be read, holds more than `MOST_BYTES`, or as `parse`."""
    parts, size = [], 0
    for piece in files.pieces(path):
        size += len(piece)
        if size > MOST_BYTES:
            raise ConfigError(f"{path}: it holds more than {MOST_BYTES:,} bytes of JSON")
        parts.append(piece)
    return parse(b"".join(parts), f"{path}", not_finite)


def write(path: AnyPath, content: Record, indent: int | None = 1) -> None:
    """Writes an object as a file, all of it or nothing; raises as `atomic.writing`."""
    atomic.write(path, (json.dumps(content, indent=indent) + "\n").encode())


def values(path: AnyPath) -> Iterator[tuple[Any, str]]:
    """The values of a file, each with its place: the lines of JSON lines, or one value, of which a
    list counts as its entries. What a file holds is seen by its name and its first line.

    Raises:
      ConfigError: as `read` and `files.lines`.
    """
    start = next(files.pieces(path), b"").removeprefix(codecs.BOM_UTF8).lstrip()
    line, feed, rest = start.partition(b"\n")
    if ".jsonl" in path.name or ".ndjson" in path.name or (feed and rest and _is_json(line)):
        for number, text in enumerate(files.lines(path, longest=RECORD_BYTES), 1):
            if text.strip():
                yield parse(text, f"{path}:{number}"), f"{path}:{number}"
        return
    found = read(path)
    if not isinstance(found, list):
        yield found, f"{path}"
        return
    for index, value in enumerate(found):
        yield value, f"{path}: [{index}]"


def _is_json(line: bytes) -> bool:
    try:
        parse(line, "")
    except ConfigError:
        return False
    return True


def read_object(path: AnyPath, not_finite: bool = False) -> Record:
    """The object of a whole file; it raises as `read`, or a `ConfigError` on another value."""
    found = read(path, not_finite)
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: it holds no JSON object")
    return found


def parse(content: bytes | str, place: str, not_finite: bool = False) -> Any:
    """The value that JSON stands for.

    Args:
      content: of a file, bytes, of which errors tell the line; or a text.
      place: of the content, which errors begin with.
      not_finite: whether NaN and Infinity are read, which are no JSON, but which Python writes.

    Raises:
      ConfigError: if it is not UTF-8 or no JSON, is nested too deep, or holds a number that no
        float can.
    """
    is_file = isinstance(content, bytes)
    try:
        if isinstance(content, bytes):
            malformed.check_encoding(place, content[:_SAMPLE])
            content = content.removeprefix(codecs.BOM_UTF8).decode()
        if not_finite:
            return json.loads(content, parse_int=_whole)
        return json.loads(content, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{place}:{line}: the line is not UTF-8") from None
    except json.JSONDecodeError as error:
        at = f"{place}:{error.lineno}" if is_file else place
        raise ConfigError(f"{at}: it is no JSON ({error.msg})") from None
    except RecursionError:
        raise ConfigError(f"{place}: its JSON is nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"{place}: its JSON holds {error}") from None


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"{quoted(number)}, which is no finite number")
    return found


def items(path: AnyPath | str, parent: Json, key: str, at: str) -> list[tuple[Any, str]]:
    """The entries of a list within an object, each with its place; a `ConfigError` if there is no
    such list. `at` is the place of `parent`, `data[0].paragraphs[3]`; empty for the whole file."""
    entries = parent.get(key) if isinstance(parent, dict) else None
    where = f"{at}.{key}".lstrip(".")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: there is no list {where}, as SQuAD's JSON has it")
    return [(entry, f"{where}[{index}]") for index, entry in enumerate(entries)]


def text(path: AnyPath | str, parent: Json, key: str, at: str) -> str:
    """A string within an object; a `ConfigError` if it is not there, or holds half a surrogate
    pair, which no UTF-8 can."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(found, str):
        raise ConfigError(f"{path}: {at}.{key} is {quoted(found)}, which is no text")
    if not is_text(found):
        raise ConfigError(f"{path}: {at}.{key} holds half a surrogate pair, which is no character")
    return found


def is_text(found: str) -> bool:
    """Whether UTF-8 can hold a string: JSON's escapes may make one that it cannot."""
    return not re.search(r"[\ud800-\udfff]", found)
