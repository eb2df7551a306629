"""Reads sentence pairs as words from files in several formats, with optional gold alignments."""

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
from xlj.word_alignment.gold_alignments import Gold
from xlj.word_alignment.words import SPLITS


class Pair(NamedTuple):
    """The words of two sentences, their place (FILE:LINE), and their gold alignment."""

    where: str
    source: list[str]
    target: list[str]
    gold: Gold | None = None


class Form(NamedTuple):
    """The format of sentence pairs and gold links.

    Attributes:
      columns: the columns of source, target and, if requested, gold links: numbers from 1, names in
        the first line, keys of JSON, columns of Parquet, or the two languages of TMX. Empty: the
        first columns.
      words: how to split words, one of `words.SPLITS`.
      gold_from: the number of the first word in gold links; None means 0, and 1 in the WPT format.
    """

    columns: tuple[str, ...] = ()
    words: str = "spaces"
    gold_from: int | None = None


PLAIN = Form()


def checked(
    path: Path, gold: str | None, skipping: Skipping | None = None, form: Form = PLAIN
) -> tuple[int, Iterator[Pair]]:
    """Reads all pairs once to find errors early; returns their number and an iterator over them.

    Pairs of a pipe, which cannot be read twice, are held in memory. Suspicious gold links are
    reported.

    Args:
      gold: a file of gold links; empty if the third column has them; None without gold links.
      skipping: as in `parsed`.

    Raises:
      ConfigError: as `read` and `gold_alignments.read`, or if there are not as many gold lines as
        pairs.
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
                f"{gold} has links of {len(golds)} sentence pairs, but {path} has {len(sizes)} "
                "pairs; expected as many"
            )
        sizes = [(*size[:3], links) for size, links in zip(sizes, golds, strict=True)]
        pairs = (pair._replace(gold=links) for pair, links in zip(pairs, golds, strict=True))
    _report_odd_links(gold or f"{path}", sizes, form)
    return len(sizes), pairs


def _report_odd_links(
    gold: str, sizes: Sequence[tuple[str, int, int, Gold | None]], form: Form
) -> None:
    """Prints the number of gold links outside their sentences or to NULL. It also warns if no link
    has a word 0, because words may then count from 1."""
    beyond, total, nulls, from_zero = [], 0, 0, False
    for where, source, target, links in sizes:
        if links is None:
            continue
        nulls += links.nulls
        for i, j in links.sure | links.possible:
            total += 1
            from_zero |= not (i and j)
            if not (0 <= i < source and 0 <= j < target):
                beyond.append(where)
    hint = "" if form.gold_from else "; if their words count from 1, set --gold_from=1"
    if nulls:
        print(f"{gold}: ignoring {nulls:,} links to NULL (word 0)", file=sys.stderr)
    if beyond:
        print(
            f"{gold}: {len(beyond):,} of {total:,} gold links are outside their sentences and "
            f"count as missed (the first: {beyond[0]}){hint}",
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

    The format is recognised by the file's name and content: lines as in `parsed`; two files `A|B`
    that are parallel line by line; TMX; JSON lines; Parquet.

    Raises:
      ConfigError: if the file cannot be read, or a line is malformed (with file and line).
    """
    if "|" in f"{path}" and not path.exists():
        yield from _of_two_files(path, with_gold, skipping, form)
        return
    known = formats.detect(path)
    if not known or known.is_text:
        known = formats.detect(path, files.head(path))
    name = known.name if known else ""
    if name == "TMX":
        if with_gold:
            raise ConfigError(f"{path}: TMX has no column of gold links; give them in a file")
        for unit in tmx.read(path, form.columns):
            yield _pair(unit.place, [unit.source, unit.target], form)
    elif name in ("JSON", "Parquet"):
        yield from _of_records(path, with_gold, form)
    else:
        formats.refuse(path, files.head(path), ("|||",))
        lines = files.lines(path, skipping)
        yield from parsed(lines, f"{path}:", with_gold, skipping=skipping, form=form)


def parsed(
    lines: Iterable[str],
    place: str,
    with_gold: bool = False,
    is_start: bool = True,
    skipping: Skipping | None = None,
    form: Form = PLAIN,
) -> Iterator[Pair]:
    """Yields the pairs of lines of a file, or of a part of it; raises as `read`.

    A line is `source TAB target`, or `source ||| target` without a tab, as in fast_align. With
    `with_gold` it has a third column (see `gold_alignments.parse`). Further columns are ignored. A
    blank line is a pair without words. A first line `src TAB tgt [TAB gold]`, or one with the names
    of `form.columns`, is a header.

    Args:
      place: the place of the lines in errors; the line number is appended.
      is_start: whether the first line is the first line of the file, which may be a header.
      skipping: how to handle a line without enough columns: if it is skipped, it becomes a pair
        without words. None: it is an error.
    """
    count = 2 + with_gold
    places = _numbers(form.columns, count) if _are_numbers(form.columns) else None
    if places is None and not is_start:
        raise ConfigError(
            f"--columns={','.join(form.columns)}: with --shard, give column numbers, not names"
        )
    for number, line in enumerate(lines, 1):
        where, line = f"{place}{number}", line.removesuffix("\r")
        columns = formats.split_columns(line) if line.strip() else []
        if places is None:
            places = _find_columns(form.columns, columns, count, where)
            continue
        if is_start and number == 1:
            if line in ("src\ttgt", "src\ttgt\tgold"):
                continue
            if len(columns) > 2 and not form.columns and re.fullmatch(r"-?\d+\.\d+", columns[0]):
                raise ConfigError(
                    f"{where}: the first column is the number {columns[0]}; set --columns to the "
                    "columns of the sentences, --columns=2,3 if the first one is a score"
                )
        if columns and len(columns) <= max(places):
            expected = "source, target and gold links" if with_gold else "source and target"
            if form.columns:
                expected = f"the columns of --columns={','.join(form.columns)}"
            problem = f": {len(columns)} columns; expected {expected}, separated by tabs"
            (skipping or Skipping()).skip(Malformed("wrong number of columns", problem), where)
            columns = []
        chosen = [columns[at] for at in places] if columns else [""] * count
        yield _pair(where, chosen, form)


def _pair(where: str, columns: Sequence[str], form: Form) -> Pair:
    split = SPLITS[form.words]
    gold = None
    if len(columns) > 2:
        gold = gold_alignments.parse(columns[2], where, form.gold_from or 0)
    return Pair(where, split(columns[0]), split(columns[1]), gold)


def _are_numbers(columns: Sequence[str]) -> bool:
    return all(name.isdecimal() and 0 < int(name) < 10_000 for name in columns)


def _numbers(columns: Sequence[str], count: int) -> list[int]:
    _check_count(columns, count)
    return [int(name) - 1 for name in columns[:count]] or list(range(count))


def _find_columns(
    columns: Sequence[str], names: Sequence[str], count: int, where: str
) -> list[int]:
    """Returns the indices of columns in a header."""
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
    if len(sides) != 2 or with_gold or form.columns:
        raise ConfigError(
            f"{path}: expected two files A|B, without --columns and with gold links in a third file"
        )
    for side in sides:
        formats.refuse(side, files.head(side))
    both = [files.lines(side, skipping) for side in sides]
    for number, lines in enumerate(itertools.zip_longest(*both), 1):
        if None in lines:
            raise ConfigError(f"{sides[0]} and {sides[1]} differ in their number of lines")
        yield _pair(f"{sides[0]}:{number}", lines, form)


def _of_records(path: Path, with_gold: bool, form: Form) -> Iterator[Pair]:
    for record, place in records.read(path):
        if not form.columns:
            raise ConfigError(
                f"{place}: set --columns=SOURCE,TARGET to the keys of the sentences; the keys are "
                f"{shortened(', '.join(record))}"
            )
        _check_count(form.columns, 2 + with_gold)
        texts = [_field(record, name, place) for name in form.columns[: 2 + with_gold]]
        yield _pair(place, texts, form)


def _field(record: Any, name: str, place: str) -> str:
    """Returns the text under a key; dots separate nested keys, such as `translation.en`."""
    for key in name.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    if isinstance(record, list) and all(isinstance(word, str) for word in record):
        record = " ".join(record)
    if not isinstance(record, str):
        raise ConfigError(f"{place}: {name} is {quoted(record)}; expected text or a list of words")
    return record
