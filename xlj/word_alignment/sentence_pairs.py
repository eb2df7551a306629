"""Reads sentence pairs, split into words, from files in several formats, with optional gold
links."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import records
from xlj.io import files, formats, tmx
from xlj.io.columns import (
    HEAD_LINES,
    RANGE,
    Choice,
    Layout,
    find_pairs,
    first_lines,
    join_ranges,
    open_lines,
    split,
)
from xlj.io.malformed import Malformed, Skipping
from xlj.io.quoting import quoted, shortened
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.gold_alignments import SPLITS, Gold


class Pair(NamedTuple):
    """The words of two sentences, the place where they were read (FILE:LINE), and gold links."""

    where: str
    source: list[str]
    target: list[str]
    gold: Gold | None = None


class Texts(NamedTuple):
    """The texts of a pair: source, target and, if requested, gold links.

    Attributes:
      where: the place where they were read, FILE:LINE.
      line: the line with the pair; the two sentences with a tab between them if the file has no
        such lines, or the sentences are joined.
    """

    where: str
    texts: tuple[str, ...]
    line: str


class Form(NamedTuple):
    """The format of sentence pairs and gold links.

    Attributes:
      columns: the columns of source, target and (if requested) gold links. In lines, they are
        numbers from 1 or names in the header; if empty, the first columns are used. In JSON and
        Parquet, they are keys, and must be set. In TMX, they are the two languages; if empty,
        `tmx.read` chooses.
      words: how sentences are split into words, one of `gold_alignments.SPLITS`.
      gold_from: the index that gold links give to the first word, 0 or 1. None means 1 in the WPT
        format, and 0 in other formats.
    """

    columns: tuple[str, ...] = ()
    words: str = "spaces"
    gold_from: int | None = None


PLAIN = Form()
RECORDS = ("TMX", "JSON", "Parquet")
"""The names of the formats of pairs that are not lines of columns."""


def read_checked(
    path: Path, gold: str | None, skipping: Skipping | None = None, form: Form = PLAIN
) -> tuple[int, Iterator[Pair]]:
    """Reads all pairs once to find errors early, and then again when they are used.

    Pairs from a pipe cannot be read twice, so they are kept in memory. Suspicious gold links are
    reported on standard error.

    Args:
      gold: the file with gold links; an empty string if the third column of `path` contains them;
        None to read no gold links.
      skipping: how to handle malformed lines (see `parse`).

    Returns:
      The number of pairs, and an iterator over the pairs.

    Raises:
      ConfigError: if a file cannot be read, a line is malformed, or the numbers of pairs and gold
        alignments differ.
    """
    pairs = read(path, gold == "", skipping, form)
    if files.is_stream(path):
        in_memory = list(pairs)
        first, pairs = iter(in_memory), iter(in_memory)
    else:
        first, pairs = pairs, read(path, gold == "", skipping, form)
    if gold is None:
        return sum(1 for _ in first), pairs
    sizes = [(pair.where, len(pair.source), len(pair.target), pair.gold) for pair in first]
    if gold:
        golds = gold_alignments.read(Path(gold), form.gold_from)
        if len(golds) != len(sizes):
            raise ConfigError(
                f"{gold} has gold links for {len(golds)} sentence pairs, but {path} has "
                f"{len(sizes)} pairs; expected equal numbers"
            )
        sizes = [(*size[:3], links) for size, links in zip(sizes, golds, strict=True)]
        pairs = (pair._replace(gold=links) for pair, links in zip(pairs, golds, strict=True))
    _report_odd_links(gold or f"{path}", sizes, form)
    return len(sizes), pairs


def _report_odd_links(
    gold: str, sizes: Sequence[tuple[str, int, int, Gold | None]], form: Form
) -> None:
    """Prints the numbers of gold links to NULL and of gold links outside the sentences.

    If all links are inside their sentences, but no link contains the index 0, it prints a warning,
    unless `form.gold_from` is 1. The file may then count words from 1.

    Args:
      gold: the file with gold links.
      sizes: (place, number of source words, number of target words, gold links) of each pair.
    """
    outside, total, nulls, from_zero = [], 0, 0, False
    for where, source, target, links in sizes:
        if links is None:
            continue
        nulls += links.nulls
        for i, j in links.sure | links.possible:
            total += 1
            from_zero |= not (i and j)
            if not (0 <= i < source and 0 <= j < target):
                outside.append(where)
    hint = "" if form.gold_from else "; if their words count from 1, set --gold_from=1"
    if nulls:
        print(f"{gold}: ignoring {nulls:,} links to NULL (word 0)", file=sys.stderr)
    if outside:
        print(
            f"{gold}: {len(outside):,} of {total:,} gold links are outside their sentences and "
            f"count as missed (the first: {outside[0]}){hint}",
            file=sys.stderr,
        )
    elif total and not from_zero and not form.gold_from:
        print(f"{gold}: no gold link has a word 0{hint}", file=sys.stderr)


def read(
    path: Path,
    with_gold: bool = False,
    skipping: Skipping | None = None,
    form: Form = PLAIN,
) -> Iterator[Pair]:
    """Yields the pairs of a file (plain or compressed) in order, split into words.

    Raises:
      ConfigError: see `read_texts`; also if gold links are malformed.
    """
    for texts in read_texts(path, 2 + with_gold, skipping, form.columns):
        yield make_pair(texts, form)


def read_texts(
    path: Path, count: int = 2, skipping: Skipping | None = None, columns: Sequence[str] = ()
) -> Iterator[Texts]:
    """Yields the texts of the pairs of a file (plain or compressed) in order.

    The name and the content of the file determine the format: lines (see `of_lines`), two files
    `A|B` that are parallel line by line, TMX, JSON lines, or Parquet.

    Args:
      count: the number of texts, 3 with gold links.
      skipping: how to handle malformed lines.
      columns: see `Form`.

    Raises:
      ConfigError: if the file cannot be read, its columns are unclear (`columns.find_pairs`), or a
        line is malformed. The message has the file and the line.
    """
    if is_two_files(path):
        sides = [Path(side).expanduser() for side in f"{path}".split("|")]
        if len(sides) != 2:
            raise ConfigError(f"{path}: {len(sides)} files; expected two files A|B")
        if count > 2 or columns:
            raise ConfigError(
                f"{path}: two files A|B have no columns; remove --columns, and set --gold to a "
                "file with gold links"
            )
        yield from of_two_files(sides[0], sides[1], skipping)
        return
    name = format_of(path)
    if name == "TMX":
        if count > 2:
            raise ConfigError(
                f"{path}: TMX has no column for gold links; set --gold to a file with gold links"
            )
        for unit in tmx.read(path, columns):
            yield Texts(unit.place, (unit.source, unit.target), f"{unit.source}\t{unit.target}")
    elif name in ("JSON", "Parquet"):
        yield from _of_records(path, count, columns)
    else:
        formats.refuse(path, files.head(path), ("|||",))
        lines = files.lines(path, skipping)
        head = list(itertools.islice(lines, HEAD_LINES))
        layout = find_layout(path, count, columns, head)
        yield from of_lines(itertools.chain(head, lines), f"{path}:", layout, skipping)


def is_two_files(path: Path) -> bool:
    """Whether a path names two files, `A|B`."""
    return "|" in f"{path}" and not path.exists()


def format_of(path: Path) -> str:
    """Returns the name of the format of a file of pairs; empty for lines."""
    file_format = formats.detect(path)
    if not file_format or file_format.is_text:
        file_format = formats.detect(path, files.head(path))
    return file_format.name if file_format else ""


def find_layout(
    path: Path, count: int = 2, columns: Sequence[str] = (), head: Sequence[str] | None = None
) -> Layout:
    """Returns the columns of a file of lines; `head` are its first lines, if they were read."""
    if columns and not count <= len(columns) <= 3:
        raise _wrong_columns(columns, count)
    head = first_lines(path) if head is None else head
    return find_pairs(head, path, Choice(columns[:count]), count)


def of_lines(
    lines: Iterable[str],
    place: str,
    layout: Layout,
    skipping: Skipping | None = None,
    is_start: bool = True,
) -> Iterator[Texts]:
    """Yields the texts in lines of a file, or of a part of a file.

    A line is `source TAB target`, or `source ||| target` without tabs, as in fast_align. A third
    column may have gold links (see `gold_alignments.parse`). Further columns are ignored. A blank
    line has empty texts. The text `<range>` joins a line to the line before
    (`columns.join_ranges`).

    Args:
      place: the text before the line number in errors.
      layout: the columns (`find_layout`).
      skipping: how to handle a line with too few columns. A skipped line gets empty texts. With
        None, such a line is an error.
      is_start: whether `lines` starts at the beginning of the file, where a header may be.

    Raises:
      ConfigError: if a line is malformed; the message has its place.
    """
    return _join(_of_lines(lines, place, layout, skipping, is_start))


def _of_lines(
    lines: Iterable[str], place: str, layout: Layout, skipping: Skipping | None, is_start: bool
) -> Iterator[Texts]:
    count = len(layout.indices)
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if number == 1 and is_start and layout.has_header:
            continue
        texts: list[str] | None = [""] * count
        if line.strip():
            texts = layout.texts(columns := split(line))
        if texts is None:
            expected = "source, target and gold links" if count > 2 else "source and target"
            if layout.indices != tuple(range(count)):
                expected = f"the columns of {Choice().of(layout.indices)}"
            problem = f": {len(columns)} columns; expected {expected}, separated by tabs"
            malformed = Malformed("wrong number of columns", problem)
            (skipping or Skipping()).skip(malformed, f"{place}{number}")
            texts = [""] * count
        yield Texts(f"{place}{number}", tuple(texts), line)


def _join(pairs: Iterable[Texts]) -> Iterator[Texts]:
    """Joins the sentences of `<range>` to those before."""
    pairs, same_pairs = itertools.tee(pairs)
    rows = join_ranges(
        [text if text.strip() != RANGE else RANGE for text in pair.texts[:2]] for pair in pairs
    )
    for pair, row in zip(same_pairs, rows, strict=True):
        if tuple(row) != pair.texts[:2]:
            source, target = (str(text) for text in row)
            pair = Texts(pair.where, (source, target, *pair.texts[2:]), f"{source}\t{target}")
        yield pair


def make_pair(texts: Texts, form: Form = PLAIN) -> Pair:
    """Splits the sentences of a pair into words, and parses its gold links."""
    split_words, gold = SPLITS[form.words], None
    if len(texts.texts) > 2:
        gold = gold_alignments.parse(texts.texts[2], texts.where, form.gold_from or 0)
    return Pair(texts.where, split_words(texts.texts[0]), split_words(texts.texts[1]), gold)


def of_two_files(source: Path, target: Path, skipping: Skipping | None = None) -> Iterator[Texts]:
    """Yields the texts of two files that are parallel line by line.

    Raises:
      ConfigError: if a file cannot be read, or the numbers of lines differ. Also if the columns of
        a file are unclear (`columns.open_lines`).
    """
    return _join(_of_two_files(source, target, skipping))


def _of_two_files(source: Path, target: Path, skipping: Skipping | None) -> Iterator[Texts]:
    sides = (open_lines(side, skipping=skipping)[1] for side in (source, target))
    for number, texts in enumerate(itertools.zip_longest(*sides), 1):
        if None in texts:
            raise ConfigError(
                f"{source} and {target} have different numbers of lines; "
                "expected translations line by line"
            )
        # The output separates the sentences by a tab.
        line = "\t".join(" ".join(text.split()) for text in texts)
        yield Texts(f"{source}:{number}", texts, line)


def _of_records(path: Path, count: int, columns: Sequence[str]) -> Iterator[Texts]:
    for record, place in records.read(path):
        if not columns:
            raise ConfigError(
                f"{place}: set --columns=SOURCE,TARGET to the keys of the sentences; the keys are "
                f"{shortened(', '.join(record))}"
            )
        if not count <= len(columns) <= 3:
            raise _wrong_columns(columns, count)
        texts = [_find_text(record, name, place) for name in columns[:count]]
        line = "\t".join(" ".join(text.split()) for text in texts[:2])
        yield Texts(place, tuple(texts), line)


def _wrong_columns(columns: Sequence[str], count: int) -> ConfigError:
    names = "source, target and gold links" if count == 3 else "source and target"
    return ConfigError(f"--columns={','.join(columns)}: expected the columns of {names}")


def _find_text(record: Any, name: str, place: str) -> str:
    """Returns the text of a key. Dots separate nested keys, as in `translation.en`.

    A list of words is joined by spaces.
    """
    for key in name.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    if isinstance(record, list) and all(isinstance(word, str) for word in record):
        record = " ".join(record)
    if not isinstance(record, str):
        raise ConfigError(f"{place}: {name} is {quoted(record)}; expected text or a list of words")
    return record
