"""Reads and writes JSON, and checks required values; errors contain the place in the file."""

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
"""Any value of JSON, before its type is checked."""
Record = dict[str, Any]
"""An object with known entries, mostly from files that xlj wrote."""

MOST_BYTES = 1 << 29
"""The largest file, decompressed; its values need several times more memory."""
RECORD_BYTES = 1 << 26
"""The longest line of JSON lines, a document."""
_SAMPLE = 1 << 18  # bytes used to detect the encoding
_DIGITS = 300  # the range of floats; transformers writes 10^30


def read(path: AnyPath, not_finite: bool = False) -> Any:
    """Reads the value of a whole file, plain or compressed.

    Raises:
      ConfigError: with file and line, if it cannot be read, has more than `MOST_BYTES`, or as
        `parse`.
    """
    parts, size = [], 0
    for piece in files.pieces(path):
        size += len(piece)
        if size > MOST_BYTES:
            raise ConfigError(f"{path}: more than {MOST_BYTES:,} bytes of JSON")
        parts.append(piece)
    return parse(b"".join(parts), f"{path}", not_finite)


def write(path: AnyPath, content: Record, indent: int | None = 1) -> None:
    """Writes an object to a file atomically; raises as `atomic.writing`."""
    atomic.write(path, (json.dumps(content, indent=indent) + "\n").encode())


def values(path: AnyPath) -> Iterator[tuple[Any, str]]:
    """Yields the values of a file, each with its place.

    These are the lines of JSON lines, the entries of a list, or a single value. The name and the
    first line determine the kind of file.

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
    content = read(path)
    if not isinstance(content, list):
        yield content, f"{path}"
        return
    for index, value in enumerate(content):
        yield value, f"{path}: [{index}]"


def _is_json(line: bytes) -> bool:
    try:
        parse(line, "")
    except ConfigError:
        return False
    return True


def read_object(path: AnyPath, not_finite: bool = False) -> Record:
    """Reads the object of a whole file; raises as `read`, or a `ConfigError` on another value."""
    content = read(path, not_finite)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return content


def parse(content: bytes | str, place: str, not_finite: bool = False) -> Any:
    """Parses JSON.

    Args:
      content: bytes of a file, for which errors contain the line, or a text.
      place: place of the content, at the beginning of errors.
      not_finite: whether NaN and Infinity are accepted; they are not JSON, but Python writes them.

    Raises:
      ConfigError: if it is not UTF-8 or not JSON, is nested too deeply, or contains a number that
        no float can represent.
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
        raise ConfigError(f"{at}: not valid JSON ({error.msg})") from None
    except RecursionError:
        raise ConfigError(f"{place}: its JSON is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{place}: its JSON contains {error}") from None


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{quoted(number)}, expected a finite number")
    return value


def items(path: AnyPath | str, parent: Json, key: str, at: str) -> list[tuple[Any, str]]:
    """Returns the entries of a list within an object, each with its place.

    Args:
      at: the place of `parent`, such as `data[0].paragraphs[3]`; empty for the whole file.

    Raises:
      ConfigError: if there is no such list.
    """
    entries = parent.get(key) if isinstance(parent, dict) else None
    where = f"{at}.{key}".lstrip(".")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: no list {where}, which SQuAD's JSON needs")
    return [(entry, f"{where}[{index}]") for index, entry in enumerate(entries)]


def text(path: AnyPath | str, parent: Json, key: str, at: str) -> str:
    """Returns a string within an object.

    Raises:
      ConfigError: if it is missing, or contains half a surrogate pair, which UTF-8 cannot encode.
    """
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {at}.{key} is {quoted(value)}, expected a text")
    if not is_text(value):
        raise ConfigError(f"{path}: {at}.{key} contains half a surrogate pair, not a character")
    return value


def is_text(string: str) -> bool:
    """Whether UTF-8 can encode a string; escapes of JSON may produce one that it cannot."""
    return not re.search(r"[\ud800-\udfff]", string)
