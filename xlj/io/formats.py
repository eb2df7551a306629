"""The formats of files by name and by content: one list, for all commands that read."""

import re
from collections.abc import Collection
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.io.storage import AnyPath

HEAD_BYTES = 1 << 12
"""As much of a file's beginning as `of` looks at."""


class Format(NamedTuple):
    """A format: its name, the endings of its files, a regular expression that the content begins
    with, whether it is text, and what a user can do where a command does not read it."""

    name: str
    endings: tuple[str, ...]
    content: bytes
    is_text: bool
    way_on: str


_NAMED = "add {} to its name, and it is read"
_TEXT = "write it as plain text, a sentence a line"

FORMATS = (
    Format("tar", (".tar", ".tgz"), rb".{257}ustar", False, "unpack it and name the files in it"),
    Format(
        "Excel or Word",
        (".xlsx", ".xls", ".docx", ".ods"),
        rb"PK\x03\x04.{26}\[Content_Types\]|\xd0\xcf\x11\xe0",
        False,
        "save it as text in UTF-8, tab-separated",
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
    Format("Arrow", (".arrow", ".feather"), rb"ARROW1", False, "write it as Parquet or JSON lines"),
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
"""The first one that fits is a file's. Text that fits none is lines, or lines of columns."""


def of(path: AnyPath, head: bytes = b"") -> Format | None:
    """The format of a file by its name, but for compression, and by how its content begins."""
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
      ConfigError: which names the format, and what to do.
    """
    form = of(path, head)
    if form and form.name not in readable:
        raise ConfigError(f"{path}: this is {form.name}, which is not read here; {form.way_on}")


def refuse_binary(path: AnyPath, head: bytes) -> None:
    """Refuses content that is no text; it raises as `refuse`."""
    refuse(path, head, [form.name for form in FORMATS if form.is_text])


def split_columns(line: str) -> list[str]:
    """The columns of a line: what tabs divide, or, in a line without any, `|||`, as fast_align and
    awesome-align write pairs."""
    return line.split("\t") if "\t" in line else re.split(r"(?:^| +)\|\|\|(?: +|$)", line)
