"""Sentence pairs of files in several formats, as words, with gold alignments if they have them."""

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
    """The words of two sentences, where they stand (FILE:LINE), and their gold alignment."""

    where: str
    source: list[str]
    target: list[str]
    gold: Gold | None = None


class Form(NamedTuple):
    """How sentence pairs and gold links are written.

    Attributes:
      columns: of source, target and, if they are asked for, gold links: numbers from 1, or names in
        the first line, keys of JSON, columns of Parquet; of TMX its two languages. Empty: the first
        ones.
      words: one of `words.SPLITS`.
      gold_from: the number of the first word in gold links; None: 0, of the WPT format 1.
    """

    columns: tuple[str, ...] = ()
    words: str = "spaces"
    gold_from: int | None = None


PLAIN = Form()


def checked(
    path: Path, gold: str | None, skipping: Skipping | None = None, form: Form = PLAIN
) -> tuple[int, Iterator[Pair]]:
    """The number of pairs, after reading all of them, so that no error in one comes late; and the
    pairs. Those of a pipe, which cannot be read again, are kept. What is odd about gold links is
    printed.

    Args:
      gold: a file of gold links; empty where the third column has them, None where nothing has.
      skipping: as in `parsed`.

    Raises:
      ConfigError: as `read` and `gold_alignments.read` do, or if the gold is of other pairs.
    """
    pairs = read(path, gold == "", skipping, form)
    if files.is_stream(path):
        kept = list(pairs)
        first, pairs = iter(kept), iter(kept)
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
                "pairs"
            )
        sizes = [(*size[:3], links) for size, links in zip(sizes, golds, strict=True)]
        pairs = (pair._replace(gold=links) for pair, links in zip(pairs, golds, strict=True))
    _report_odd_links(gold or f"{path}", sizes, form)
    return len(sizes), pairs


def _report_odd_links(
    gold: str, sizes: Sequence[tuple[str, int, int, Gold | None]], form: Form
) -> None:
    """Prints how many gold links lead beyond their sentences or to NULL, and whether no word is
    ever 0, so that they may count from 1."""
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
        print(f"{gold}: {nulls:,} links to NULL (word 0) are left out", file=sys.stderr)
    if beyond:
        print(
            f"{gold}: {len(beyond):,} of {total:,} gold links lead beyond their sentences, and "
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
    """The pairs of a file (plain or compressed), in order, in one of these formats, which is seen
    by its name and content: lines as `parsed` reads them; two files `A|B` of which line n of one
    translates line n of the other; TMX; JSON lines and Parquet.

    Raises:
      ConfigError: if the file cannot be read, or does not fit; with file and line.
    """
    if "|" in f"{path}" and not path.exists():
        yield from _of_two_files(path, with_gold, skipping, form)
        return
    known = formats.of(path)
    if not known or known.is_text:
        known = formats.of(path, files.head(path))
    name = known.name if known else ""
    if name == "TMX":
        if with_gold:
            raise ConfigError(f"{path}: TMX has no column of gold links; name a file of them")
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
    """The pairs of the lines of a file, or of a stretch of it; it raises as `read`.

    A line is `source TAB target`, or `source ||| target` if it has no tab, as of fast_align; and
    with `with_gold` a third column as `gold_alignments.parse` reads it. Further columns are not
    read. A blank line is a pair without words. A first line `src TAB tgt [TAB gold]`, or one with
    the names of `form.columns`, is a header, not a pair.

    Args:
      place: what errors name each line by, in front of its number.
      is_start: whether the first of them is that of the file, which may be a header.
      skipping: what becomes of a line that lacks a column: if it is skipped, it is a pair without
        words. None: it is an error.
    """
    wanted = 2 + with_gold
    places = _numbers(form.columns, wanted) if _are_numbers(form.columns) else None
    if places is None and not is_start:
        raise ConfigError(f"--columns={','.join(form.columns)}: with --shard, give their numbers")
    for number, line in enumerate(lines, 1):
        where, line = f"{place}{number}", line.removesuffix("\r")
        columns = formats.split_columns(line) if line.strip() else []
        if places is None:
            places = _named(form.columns, columns, wanted, where)
            continue
        if is_start and number == 1:
            if line in ("src\ttgt", "src\ttgt\tgold"):
                continue
            if len(columns) > 2 and not form.columns and re.fullmatch(r"-?\d+\.\d+", columns[0]):
                raise ConfigError(
                    f"{where}: the first column is the number {columns[0]}; name the columns of "
                    "the sentences, --columns=2,3 if it is a score"
                )
        if columns and len(columns) <= max(places):
            expected = "source, target and gold links" if with_gold else "source and target"
            if form.columns:
                expected = f"those of --columns={','.join(form.columns)}"
            problem = f": {len(columns)} columns; expected {expected}, with tabs between"
            (skipping or Skipping()).skip(Malformed("wrong number of columns", problem), where)
            columns = []
        chosen = [columns[at] for at in places] if columns else [""] * wanted
        yield _pair(where, chosen, form)


def _pair(where: str, columns: Sequence[str], form: Form) -> Pair:
    split = SPLITS[form.words]
    gold = None
    if len(columns) > 2:
        gold = gold_alignments.parse(columns[2], where, form.gold_from or 0)
    return Pair(where, split(columns[0]), split(columns[1]), gold)


def _are_numbers(columns: Sequence[str]) -> bool:
    return all(name.isdecimal() and 0 < int(name) < 10_000 for name in columns)


def _numbers(columns: Sequence[str], wanted: int) -> list[int]:
    _check_count(columns, wanted)
    return [int(name) - 1 for name in columns[:wanted]] or list(range(wanted))


def _named(columns: Sequence[str], names: Sequence[str], wanted: int, where: str) -> list[int]:
    """The places of columns by a header."""
    _check_count(columns, wanted)
    for name in columns:
        if name not in names:
            raise ConfigError(
                f"{where}: there is no column {quoted(name)}, which --columns names; there are "
                f"{shortened(', '.join(names))}"
            )
    return [names.index(name) for name in columns[:wanted]]


def _check_count(columns: Sequence[str], wanted: int) -> None:
    if columns and not wanted <= len(columns) <= 3:
        gold = " and gold links" if wanted == 3 else ""
        raise ConfigError(f"--columns={','.join(columns)}: name those of source, target{gold}")


def _of_two_files(
    path: Path, with_gold: bool, skipping: Skipping | None, form: Form
) -> Iterator[Pair]:
    sides = [Path(side).expanduser() for side in f"{path}".split("|")]
    if len(sides) != 2 or with_gold or form.columns:
        raise ConfigError(f"{path}: two files have no columns, and gold links in a third file")
    for side in sides:
        formats.refuse(side, files.head(side))
    both = [files.lines(side, skipping) for side in sides]
    for number, lines in enumerate(itertools.zip_longest(*both), 1):
        if None in lines:
            raise ConfigError(f"{sides[0]} and {sides[1]} have not as many lines")
        yield _pair(f"{sides[0]}:{number}", lines, form)


def _of_records(path: Path, with_gold: bool, form: Form) -> Iterator[Pair]:
    for record, place in records.read(path):
        if not form.columns:
            raise ConfigError(
                f"{place}: say which keys hold the sentences with --columns=SOURCE,TARGET; there "
                f"are {shortened(', '.join(record))}"
            )
        _check_count(form.columns, 2 + with_gold)
        texts = [_field(record, name, place) for name in form.columns[: 2 + with_gold]]
        yield _pair(place, texts, form)


def _field(record: Any, name: str, place: str) -> str:
    """The text under a key; dots name nested ones, as `translation.en`."""
    for key in name.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    if isinstance(record, list) and all(isinstance(word, str) for word in record):
        record = " ".join(record)
    if not isinstance(record, str):
        raise ConfigError(f"{place}: {name} is {quoted(record)}, which is no text")
    return record
