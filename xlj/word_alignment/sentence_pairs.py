"""Sentence pairs of a TSV file, as words, with gold alignments if it has them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.io import files
from xlj.io.malformed import Malformed, Skipping
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.gold_alignments import Gold


class Pair(NamedTuple):
    """The words of two sentences, where they stand (FILE:LINE), and their gold alignment."""

    where: str
    source: list[str]
    target: list[str]
    gold: Gold | None = None


def checked(
    path: Path, gold: str | None, skipping: Skipping | None = None
) -> tuple[int, Iterator[Pair]]:
    """The number of pairs, after reading all of them, so that no error in one comes late; and the
    pairs. Those of a pipe, which cannot be read again, are kept.

    Args:
      gold: a file of gold links; empty where the third column has them, None where nothing has.
      skipping: as in `parsed`.

    Raises:
      ConfigError: as `read` and `gold_alignments.read` do, or if the gold is of other pairs.
    """
    pairs = read(path, with_gold=gold == "", skipping=skipping)
    if files.is_stream(path):
        kept = list(pairs)
        count, pairs = len(kept), iter(kept)
    else:
        count = sum(1 for _ in pairs)
        pairs = read(path, with_gold=gold == "", skipping=skipping)
    if not gold:
        return count, pairs
    golds = gold_alignments.read(Path(gold))
    if len(golds) != count:
        raise ConfigError(
            f"{gold} has links of {len(golds)} sentence pairs, but {path} has {count} pairs"
        )
    return count, (pair._replace(gold=links) for pair, links in zip(pairs, golds, strict=True))


def read(path: Path, with_gold: bool = False, skipping: Skipping | None = None) -> Iterator[Pair]:
    """The pairs of a TSV file (.gz, .xz, .zst too), in order.

    A line is `source TAB target`, and with `with_gold` a third column as `gold_alignments.parse`
    reads it; further columns are not read. Words are what whitespace separates. A blank line is a
    pair without words. A first line `src TAB tgt [TAB gold]` is a header, not a pair.

    Raises:
      ConfigError: if a line is not UTF-8, lacks a column, or has malformed gold.
    """
    return parsed(files.lines(path, skipping), f"{path}:", with_gold, skipping=skipping)


def parsed(
    lines: Iterable[str],
    place: str,
    with_gold: bool = False,
    is_start: bool = True,
    skipping: Skipping | None = None,
) -> Iterator[Pair]:
    """The pairs of the lines of a file, or of a stretch of it; it raises as `read`.

    Args:
      place: what errors name each line by, in front of its number.
      is_start: whether the first of them is that of the file, which may be a header.
      skipping: what becomes of a line that lacks a column: if it is skipped, it is a pair without
        words. None: it is an error.
    """
    for number, line in enumerate(lines, 1):
        where, line = f"{place}{number}", line.removesuffix("\r")
        if is_start and number == 1 and line in ("src\ttgt", "src\ttgt\tgold"):
            continue
        columns = line.split("\t") if line.strip() else ["", "", ""]
        if len(columns) < 2 + with_gold:
            wanted = "source, target and gold links" if with_gold else "source and target"
            problem = f": {len(columns)} columns; expected {wanted}, with tabs between"
            (skipping or Skipping()).skip(Malformed("wrong number of columns", problem), where)
            columns = ["", ""]
        gold = gold_alignments.parse(columns[2], where) if with_gold else None
        yield Pair(where, columns[0].split(), columns[1].split(), gold)
