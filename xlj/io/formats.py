"""Detects the formats of files by name and by content, for all commands that read."""

import re
from collections.abc import Collection
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.io.storage import AnyPath

HEAD_BYTES = 1 << 12
"""How many bytes of a file's beginning `of` uses."""


class Format(NamedTuple):
    """A file format.

    Attributes:
      endings: endings of its files.
      content: a regular expression that matches the beginning of its content.
      is_text: whether it is text.
      hint: what a user can do if a command does not read it.
    """

    name: str
    endings: tuple[str, ...]
    content: bytes
    is_text: bool
    hint: str


_NAMED = "add {} to its name"
_TEXT = "convert it to plain text with one sentence per line"

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
    Format("gzip", (), rb"\x1f\x8b\x08", False, _NAMED.format(".gz")),
    Format("bzip2", (), rb"BZh[1-9]1AY", False, _NAMED.format(".bz2")),
    Format("xz", (), rb"\xfd7zXZ\0", False, _NAMED.format(".xz")),
    Format("Zstandard", (), rb"\x28\xb5\x2f\xfd", False, _NAMED.format(".zst")),
    Format(
        "Parquet",
        (".parquet",),
        rb"PAR1",
        False,
        f"{_TEXT}; data.mono, data.parallel and fine-tuning read Parquet",
    ),
    Format(
        "Arrow", (".arrow", ".feather"), rb"ARROW1", False, "convert it to Parquet or JSON lines"
    ),
    Format(
        "TMX",
        (".tmx",),
        rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*(<!DOCTYPE tmx|<tmx\b)",
        True,
        "write a line `source TAB target` for each unit; xlj.align reads TMX",
    ),
    Format("XML", (".xml", ".xlf", ".xliff"), rb"\s*<\?xml\b", True, _TEXT),
    Format(
        "JSON",
        (".jsonl", ".ndjson", ".json"),
        rb'\s*(\[\s*)?\{\s*"',
        True,
        f"{_TEXT} (`jq -r .KEY FILE`); data.mono, data.parallel and fine-tuning read JSON lines",
    ),
    Format("CSV", (".csv",), rb"(?!)", True, f"{_TEXT}; fine-tuning reads CSV"),
    Format(
        "|||", (), rb"[^\t\n]*\S \|\|\| \S", True, f"{_TEXT}, in two files; xlj.align reads `|||`"
    ),
)
"""The first match is the format of a file. Text without a match is lines, or lines of columns."""


def of(path: AnyPath, head: bytes = b"") -> Format | None:
    """Returns the format of a file, by its name (without compression) and its first bytes."""
    name = re.sub(r"\.(gz|bz2|xz|zst)$", "", path.name.lower())
    for form in FORMATS:
        if name.endswith(form.endings) or re.match(form.content, head, re.DOTALL):
            return form
    return None


def refuse(path: AnyPath, head: bytes = b"", readable: Collection[str] = ()) -> None:
    """Refuses a file in a known format.

    Args:
      readable: names of formats that the caller reads.

    Raises:
      ConfigError: with the name of the format, and what to do.
    """
    form = of(path, head)
    if form and form.name not in readable:
        raise ConfigError(f"{path}: this is {form.name}, which is not supported here; {form.hint}")


def refuse_binary(path: AnyPath, head: bytes) -> None:
    """Refuses content that is not text; raises as `refuse`."""
    refuse(path, head, [form.name for form in FORMATS if form.is_text])


def split_columns(line: str) -> list[str]:
    """Splits a line into columns at tabs, or, if it has none, at `|||`.

    fast_align and awesome-align write pairs with `|||`.
    """
    return line.split("\t") if "\t" in line else re.split(r"(?:^| +)\|\|\|(?: +|$)", line)
