"""Tagging: a word and its tag a line, a blank line after each sentence."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled.examples import Words
from xlj.io import files
from xlj.io.quoting import quoted
from xlj.io.storage import AnyPath

_BLANKS = " \t"  # of Unicode's others, some are words


class _Layout(NamedTuple):
    """Of a file: what divides columns (empty: there is one only), how many there are, the indices
    of word and tag, and whether it is CoNLL-U."""

    divider: str
    width: int
    word: int
    tag: int | None
    conllu: bool


class _Row(NamedTuple):
    place: str
    word: str
    tag: str


def read(path: AnyPath, language: str, columns: Sequence[str]) -> list[Words]:
    """The sentences of a file.

    Columns are divided by tabs, or, in a file without any tab, by spaces; all lines have as many.
    `-DOCSTART-` lines are skipped, and so are comments before a sentence's first word: lines that
    begin with `#` and have no tab, in a file without tabs with `# `. Of CoNLL-U (10 columns, ids
    first), multiword tokens `1-2` and empty nodes `3.1` are skipped.

    Args:
      language: if all words of the file begin with `language:`, as in WikiAnn's own files, this
        prefix is left out.
      columns: of word and tag, as numbers from 1. Empty: the first and the last; of CoNLL-U the
        second and the fourth (UPOS). A file that ends right before the column of tags has none,
        and neither has CoNLL-U with `_` for all tags.

    Raises:
      ConfigError: if the file cannot be read, or a line does not fit; with file and line.
    """
    lines = [line.removesuffix("\r").strip(" ") for line in files.lines(path)]
    layout = _layout(path, lines, columns)
    if layout is None:
        return []
    sentences = list(_sentences(path, lines, layout))
    every = [row for rows in sentences for row in rows]
    untagged = layout.conllu and all(row.tag == "_" for row in every)
    prefix = f"{language}:" if all(row.word.startswith(f"{language}:") for row in every) else ""
    for row in every:
        if row.word == prefix:
            raise ConfigError(f"{row.place}: a tag without a word")
    return [
        Words(
            tuple(row.word.removeprefix(prefix) for row in rows),
            None if layout.tag is None or untagged else tuple(row.tag for row in rows),
            rows[0].place,
        )
        for rows in sentences
    ]


def _layout(path: AnyPath, lines: Sequence[str], columns: Sequence[str]) -> _Layout | None:
    """How a file is laid out, by its first line with a tab, or with words; None without any."""
    numbered = [(number, line) for number, line in enumerate(lines, 1) if not _skipped(line)]
    tabbed = [item for item in numbered if "\t" in item[1]]
    first = next(iter(tabbed or [item for item in numbered if not item[1].startswith("# ")]), None)
    if first is None:
        return None
    number, line = first
    divider = "\t" if tabbed else " " if " " in line else ""
    fields = _split(line, divider)
    width = len(fields)
    conllu = width == 10 and bool(re.fullmatch(r"\d+([-.]\d+)?", fields[0]))
    if columns and (len(columns) != 2 or not all(name.isdecimal() for name in columns)):
        raise ConfigError(
            f"task.columns={','.join(columns)}: for tagging, bring two numbers from 1, of the "
            "column of words and that of tags"
        )
    word, tag = (2, 4) if conllu else (1, max(width, 2))
    if columns:
        word, tag = int(columns[0]), int(columns[1])
    if not 0 < word <= width or not 0 < tag <= width + 1:
        raise ConfigError(
            f"{path}:{number}: {width} columns, but task.columns={','.join(columns)} (from 1)"
        )
    return _Layout(divider, width, word - 1, tag - 1 if tag <= width else None, conllu)


def _sentences(path: AnyPath, lines: Sequence[str], layout: _Layout) -> Iterator[list[_Row]]:
    rows: list[_Row] = []
    for number, line in enumerate([*lines, ""], 1):  # the end of the file ends a sentence too
        place = f"{path}:{number}"
        if _skipped(line):
            if rows:
                yield rows
            rows = []
            continue
        if not rows and _is_comment(line, layout, place):
            continue
        fields = _split(line, layout.divider)
        if len(fields) != layout.width:
            wrong = f"{len(fields)} column{'s' * (len(fields) > 1)}"
            hint = "" if layout.divider == "\t" else "; divide columns by tabs if words have spaces"
            raise ConfigError(f"{place}: {wrong}, but the file has {layout.width}{hint}")
        if layout.conllu and not fields[0].isdecimal():
            if not re.fullmatch(r"\d+[-.]\d+", fields[0]):
                raise ConfigError(
                    f"{place}: {quoted(fields[0])} is no id of CoNLL-U, as 1, 1-2 or 1.1"
                )
            continue
        tag = "" if layout.tag is None else fields[layout.tag]
        if layout.tag is not None and not tag:
            raise ConfigError(f"{place}: a word without a tag")
        rows.append(_Row(place, fields[layout.word], tag))


def _skipped(line: str) -> bool:
    """Whether a line is no word, and ends the sentence before it."""
    return not line.strip(_BLANKS) or line.startswith("-DOCSTART-")


def _is_comment(line: str, layout: _Layout, place: str) -> bool:
    if layout.divider == "\t":
        return line.startswith("#") and "\t" not in line
    if not line.startswith("# "):
        return False
    if layout.divider and len(_split(line, layout.divider)) == layout.width:
        raise ConfigError(
            f"{place}: {quoted(line)} may be a comment or the word #; divide columns by tabs, or "
            "leave comments out"
        )
    return True


def _split(line: str, divider: str) -> list[str]:
    if divider == "\t":
        return [field.strip(" ") for field in line.split("\t")]
    return re.split(" +", line)
