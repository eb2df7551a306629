"""Reads and writes JSON, and checks required values; errors name the place in the file."""

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
"""A value of JSON whose type is not checked yet."""
Record = dict[str, Any]
"""A JSON object with known keys, mostly from files that xlj wrote."""

MAX_BYTES = 1 << 29
"""The maximum decompressed size of a JSON file; its values need several times more memory."""
RECORD_BYTES = 1 << 26
"""The maximum length of a line of JSON lines, in bytes; a line may contain a whole document."""
_SAMPLE_BYTES = 1 << 18  # bytes used to detect the encoding
_MAX_DIGITS = 300  # of an integer, so that a float can represent it; transformers writes 10^30


def read(path: AnyPath, not_finite: bool = False) -> Any:
    """Reads the value of a whole file, which may be compressed.

    Args:
      not_finite: whether to accept NaN and Infinity; JSON does not have them, but Python writes
        them.

    Raises:
      ConfigError: if the file cannot be read, has more than `MAX_BYTES`, or is not valid JSON (see
        `parse`); the message names the file and the line.
    """
    parts, size = [], 0
    for piece in files.pieces(path):
        size += len(piece)
        if size > MAX_BYTES:
            raise ConfigError(
                f"{path}: more than {MAX_BYTES:,} bytes of JSON, the maximum; divide the file, or "
                "write JSON lines (.jsonl)"
            )
        parts.append(piece)
    return parse(b"".join(parts), f"{path}", not_finite)


def write(path: AnyPath, content: Record, indent: int | None = 1) -> None:
    """Writes an object to a file atomically.

    Raises:
      ConfigError: if the file cannot be written.
    """
    atomic.write(path, (json.dumps(content, indent=indent) + "\n").encode())


def values(path: AnyPath) -> Iterator[tuple[Any, str]]:
    """Yields the values of a file, each with its place, such as `FILE:LINE`.

    The values are the lines of JSON lines, or the entries of the list that the file contains, or
    its only value. A file contains JSON lines if its name contains .jsonl or .ndjson, or if its
    first line is valid JSON and another line follows.

    Raises:
      ConfigError: if the file cannot be read or is not valid JSON.
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
    """Reads the object of a whole file.

    Args:
      not_finite: whether to accept NaN and Infinity.

    Raises:
      ConfigError: if the file cannot be read (see `read`), or its value is not an object.
    """
    content = read(path, not_finite)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return content


def parse(content: bytes | str, place: str, not_finite: bool = False) -> Any:
    """Parses JSON.

    Args:
      content: the bytes of a whole file, or a text. Only errors in bytes name the line.
      place: the place of the content, such as the file; error messages begin with it.
      not_finite: whether to accept NaN and Infinity; JSON does not have them, but Python writes
        them.

    Raises:
      ConfigError: if the content is not UTF-8 or not JSON, is nested too deeply, or contains a
        number that a float cannot represent.
    """
    is_file = isinstance(content, bytes)
    try:
        if isinstance(content, bytes):
            malformed.check_encoding(place, content[:_SAMPLE_BYTES])
            content = content.removeprefix(codecs.BOM_UTF8).decode()
        if not_finite:
            return json.loads(content, parse_int=_parse_int)
        return json.loads(
            content, parse_int=_parse_int, parse_float=_parse_finite, parse_constant=_parse_finite
        )
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{place}:{line}: the line is not UTF-8") from None
    except json.JSONDecodeError as error:
        error_place = f"{place}:{error.lineno}" if is_file else place
        raise ConfigError(f"{error_place}: not valid JSON ({error.msg})") from None
    except RecursionError:
        raise ConfigError(f"{place}: its JSON is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{place}: its JSON contains {error}") from None


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _parse_finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{quoted(number)}, expected a finite number")
    return value


def items(path: AnyPath | str, parent: Json, key: str, json_path: str) -> list[tuple[Any, str]]:
    """Returns the entries of a list in an object, each with its JSON path.

    Args:
      path: the file, for the error.
      parent: the object.
      key: the key of the list in the object.
      json_path: the JSON path of `parent`, such as `data[0].paragraphs[3]`; empty for the value of
        the whole file.

    Raises:
      ConfigError: if `parent` is not an object, or its value under `key` is not a list.
    """
    entries = parent.get(key) if isinstance(parent, dict) else None
    list_path = f"{json_path}.{key}".lstrip(".")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: no list {list_path}, which SQuAD's JSON needs")
    return [(entry, f"{list_path}[{index}]") for index, entry in enumerate(entries)]


def text(path: AnyPath | str, parent: Json, key: str, json_path: str) -> str:
    """Returns the string under a key of an object.

    Args:
      path: the file, for errors.
      parent: the object.
      key: the key of the string in the object.
      json_path: the JSON path of `parent`, for errors.

    Raises:
      ConfigError: if the value is not a string, or contains half a surrogate pair, which UTF-8
        cannot encode.
    """
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, str):
        raise ConfigError(f"{path}: {json_path}.{key} is {quoted(value)}, expected a text")
    if not is_text(value):
        raise ConfigError(
            f"{path}: {json_path}.{key} contains half a surrogate pair, not a character; correct "
            "its \\u escapes"
        )
    return value


def is_text(string: str) -> bool:
    """Whether UTF-8 can encode a string; a \\u escape of JSON may produce half a surrogate pair."""
    return not re.search(r"[\ud800-\udfff]", string)
