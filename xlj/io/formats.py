"""Detects the formats of files by name and by content, and refuses unsupported formats."""

import re
from collections.abc import Collection
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.io.storage import AnyPath

HEAD_BYTES = 1 << 12
"""How many bytes of the beginning of a file `detect` uses."""


class Format(NamedTuple):
    """A file format.

    Attributes:
      name: the name of the format, for errors.
      endings: the endings of names of files in this format.
      content: a regular expression that matches the first bytes of a file in this format.
      is_text: whether files in this format are text.
      hint: what the user can do if a command does not read this format.
    """

    name: str
    endings: tuple[str, ...]
    content: bytes
    is_text: bool
    hint: str


_ADD_ENDING = "add {} to its name"
_CONVERT_TO_TEXT = "convert it to plain text with one sentence per line"

FORMATS = (
    Format("tar", (".tar", ".tgz"), rb".{257}ustar", False, "unpack it and name the files in it"),
    Format(
        "Excel or Word",
        (".xlsx", ".xls", ".docx", ".ods"),
        rb"PK\x03\x04.{26}\[Content_Types\]|\xd0\xcf\x11\xe0",
        False,
        "save it as tab-separated text in UTF-8",
    ),
    Format("zip", (".zip",), rb"PK\x03\x04", False, "unpack it and name the files in it"),
    Format("7z", (".7z",), rb"7z\xbc\xaf\x27\x1c", False, "unpack it and name the files in it"),
    Format("lz4", (".lz4",), rb"\x04\x22\x4d\x18", False, "compress it as .zst or .gz instead"),
    Format("gzip", (), rb"\x1f\x8b\x08", False, _ADD_ENDING.format(".gz")),
    Format("bzip2", (), rb"BZh[1-9]1AY", False, _ADD_ENDING.format(".bz2")),
    Format("xz", (), rb"\xfd7zXZ\0", False, _ADD_ENDING.format(".xz")),
    Format("Zstandard", (), rb"\x28\xb5\x2f\xfd", False, _ADD_ENDING.format(".zst")),
    Format(
        "Parquet",
        (".parquet",),
        rb"PAR1",
        False,
        f"{_CONVERT_TO_TEXT}; data.mono, data.parallel and fine-tuning read Parquet",
    ),
    Format(
        "Arrow", (".arrow", ".feather"), rb"ARROW1", False, "convert it to Parquet or JSON lines"
    ),
    Format(
        "TMX",
        (".tmx",),
        rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*(<!DOCTYPE tmx|<tmx\b)",
        True,
        "write a line `source TAB target` for each unit; xlj.align and data.parallel read TMX",
    ),
    Format("XML", (".xml", ".xlf", ".xliff"), rb"\s*<\?xml\b", True, _CONVERT_TO_TEXT),
    Format(
        "JSON",
        (".jsonl", ".ndjson", ".json"),
        rb'\s*(\[\s*)?\{\s*"',
        True,
        f"{_CONVERT_TO_TEXT} (`jq -r .KEY FILE`); data.mono, data.parallel and fine-tuning read "
        "JSON lines",
    ),
    Format("CSV", (".csv",), rb"(?!)", True, f"{_CONVERT_TO_TEXT}; fine-tuning reads CSV"),
    Format(
        "|||",
        (),
        rb"[^\t\n]*\S \|\|\| \S",
        True,
        f"{_CONVERT_TO_TEXT}, in two files; xlj.align reads `|||`",
    ),
)
"""All formats, in order: the first match is the format of a file. A text file without a match
contains plain lines, or lines of columns."""


def detect(path: AnyPath, head: bytes = b"") -> Format | None:
    """Returns the format of a file; None if it is plain text or unknown.

    Args:
      path: the file; an ending of a compressed file, such as .gz, is ignored.
      head: the first bytes of the content; empty to use only the name.
    """
    name = strip_compression(path.name.lower())
    for file_format in FORMATS:
        if name.endswith(file_format.endings) or re.match(file_format.content, head, re.DOTALL):
            return file_format
    return None


def strip_compression(name: str) -> str:
    """Returns the name of a file without the ending of a compressed file, such as `.gz`."""
    return re.sub(r"\.(gz|bz2|xz|zst)$", "", name)


def refuse(path: AnyPath, head: bytes = b"", readable: Collection[str] = ()) -> None:
    """Refuses a file in a known format that the caller does not read.

    Args:
      path: the file.
      head: the first bytes of the content; empty to use only the name.
      readable: names of formats that the caller reads.

    Raises:
      ConfigError: if the file is in another format; the message names the format and a remedy.
    """
    file_format = detect(path, head)
    if file_format and file_format.name not in readable:
        raise ConfigError(
            f"{path}: this is {file_format.name}, which is not supported here; {file_format.hint}"
        )


def refuse_binary(path: AnyPath, head: bytes) -> None:
    """Refuses a file that is not text.

    Args:
      path: the file.
      head: the first bytes of the content.

    Raises:
      ConfigError: if the file is not text; the message names the format and a remedy.
    """
    refuse(path, head, [file_format.name for file_format in FORMATS if file_format.is_text])
