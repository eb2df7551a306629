"""Reads sentence pairs, split into words, from files in several formats, with optional gold
links."""

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.data.labelled import records
from xlj.io import files, formats, tmx
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
    """Yields the pairs of a file (plain or compressed) in order.

    The name and the content of the file determine the format: lines (see `parse`), two files `A|B`
    that are parallel line by line, TMX, JSON lines, or Parquet.

    Raises:
      ConfigError: if the file cannot be read, or a line is malformed. The message has the file and
        the line.
    """
    if "|" in f"{path}" and not path.exists():
        yield from _of_two_files(path, with_gold, skipping, form)
        return
    file_format = formats.detect(path)
    if not file_format or file_format.is_text:
        file_format = formats.detect(path, files.head(path))
    name = file_format.name if file_format else ""
    if name == "TMX":
        if with_gold:
            raise ConfigError(
                f"{path}: TMX has no column for gold links; set --gold to a file with gold links"
            )
        for unit in tmx.read(path, form.columns):
            yield _make_pair(unit.place, [unit.source, unit.target], form)
    elif name in ("JSON", "Parquet"):
        yield from _of_records(path, with_gold, form)
    else:
        formats.refuse(path, files.head(path), ("|||",))
        lines = files.lines(path, skipping)
        yield from parse(lines, f"{path}:", with_gold, skipping=skipping, form=form)


def parse(
    lines: Iterable[str],
    place: str,
    with_gold: bool = False,
    is_start: bool = True,
    skipping: Skipping | None = None,
    form: Form = PLAIN,
) -> Iterator[Pair]:
    """Yields the pairs in lines of a file, or of a part of a file.

    A line is `source TAB target`, or `source ||| target` without tabs, as in fast_align. With
    `with_gold`, a third column has gold links (see `gold_alignments.parse`). Further columns are
    ignored. A blank line is a pair without words. The first line is a header if it is `src TAB tgt`
    or `src TAB tgt TAB gold`, or if `form.columns` are names.

    Args:
      place: the text before the line number in errors.
      is_start: whether `lines` starts at the beginning of the file, where a header may be.
      skipping: how to handle a line with too few columns. A skipped line becomes a pair without
        words. With None, such a line is an error.

    Raises:
      ConfigError: if a line is malformed, or `form.columns` are names and `is_start` is False. The
        message for a line has its place.
    """
    count = 2 + with_gold
    column_indices = _parse_numbers(form.columns, count) if _are_numbers(form.columns) else None
    if column_indices is None and not is_start:
        raise ConfigError(
            f"--columns={','.join(form.columns)}: --shard needs column numbers instead of names"
        )
    for number, line in enumerate(lines, 1):
        where, line = f"{place}{number}", line.removesuffix("\r")
        columns = formats.split_columns(line) if line.strip() else []
        if column_indices is None:
            column_indices = _find_columns(form.columns, columns, count, where)
            continue
        if is_start and number == 1:
            if line in ("src\ttgt", "src\ttgt\tgold"):
                continue
            if len(columns) > 2 and not form.columns and re.fullmatch(r"-?\d+\.\d+", columns[0]):
                raise ConfigError(
                    f"{where}: the first column is the number {columns[0]}; set --columns to the "
                    "columns of the sentences, such as --columns=2,3 if the first column is a score"
                )
        if columns and len(columns) <= max(column_indices):
            expected = "source, target and gold links" if with_gold else "source and target"
            if form.columns:
                expected = f"the columns of --columns={','.join(form.columns)}"
            problem = f": {len(columns)} columns; expected {expected}, separated by tabs"
            (skipping or Skipping()).skip(Malformed("wrong number of columns", problem), where)
            columns = []
        chosen = [columns[at] for at in column_indices] if columns else [""] * count
        yield _make_pair(where, chosen, form)


def _make_pair(where: str, columns: Sequence[str], form: Form) -> Pair:
    split = SPLITS[form.words]
    gold = None
    if len(columns) > 2:
        gold = gold_alignments.parse(columns[2], where, form.gold_from or 0)
    return Pair(where, split(columns[0]), split(columns[1]), gold)


def _are_numbers(columns: Sequence[str]) -> bool:
    return all(name.isdecimal() and 0 < int(name) < 10_000 for name in columns)


def _parse_numbers(columns: Sequence[str], count: int) -> list[int]:
    _check_count(columns, count)
    return [int(name) - 1 for name in columns[:count]] or list(range(count))


def _find_columns(
    columns: Sequence[str], names: Sequence[str], count: int, where: str
) -> list[int]:
    """Returns the index of each column in a header.

    Args:
      columns: the names of the columns to find.
      names: the names in the header.
      count: the number of columns to return.
      where: the place of the header, for errors.
    """
    _check_count(columns, count)
    for name in columns:
        if name not in names:
            raise ConfigError(
                f"{where}: --columns names {quoted(name)}, but the columns are "
                f"{shortened(', '.join(names))}"
            )
    return [names.index(name) for name in columns[:count]]


def _check_count(columns: Sequence[str], count: int) -> None:
    if columns and not count <= len(columns) <= 3:
        names = "source, target and gold links" if count == 3 else "source and target"
        raise ConfigError(f"--columns={','.join(columns)}: expected the columns of {names}")


def _of_two_files(
    path: Path, with_gold: bool, skipping: Skipping | None, form: Form
) -> Iterator[Pair]:
    sides = [Path(side).expanduser() for side in f"{path}".split("|")]
    if len(sides) != 2:
        raise ConfigError(f"{path}: {len(sides)} files; expected two files A|B")
    if with_gold or form.columns:
        raise ConfigError(
            f"{path}: two files A|B have no columns; remove --columns, and set --gold to a file "
            "with gold links"
        )
    for side in sides:
        formats.refuse(side, files.head(side))
    all_lines = [files.lines(side, skipping) for side in sides]
    for number, lines in enumerate(itertools.zip_longest(*all_lines), 1):
        if None in lines:
            raise ConfigError(
                f"{sides[0]} and {sides[1]} have different numbers of lines; "
                "expected translations line by line"
            )
        yield _make_pair(f"{sides[0]}:{number}", lines, form)


def _of_records(path: Path, with_gold: bool, form: Form) -> Iterator[Pair]:
    for record, place in records.read(path):
        if not form.columns:
            raise ConfigError(
                f"{place}: set --columns=SOURCE,TARGET to the keys of the sentences; the keys are "
                f"{shortened(', '.join(record))}"
            )
        _check_count(form.columns, 2 + with_gold)
        texts = [_find_text(record, name, place) for name in form.columns[: 2 + with_gold]]
        yield _make_pair(place, texts, form)


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
