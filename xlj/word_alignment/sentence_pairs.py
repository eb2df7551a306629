"""Sentence pairs of a TSV file, as words, with gold alignments if it has them."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.io import files
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.gold_alignments import Gold

_HEADERS = ("src\ttgt", "src\ttgt\tgold")


class Pair(NamedTuple):
    """The words of two sentences, where they stand (FILE:LINE), and their gold alignment."""

    where: str
    source: list[str]
    target: list[str]
    gold: Gold | None = None


def counted(path: Path, with_gold: bool = False) -> tuple[int, Iterator[Pair]]:
    """The number of pairs, after reading all of them, so that no error in one comes late; and the
    pairs. Those of a pipe, which cannot be read again, are kept.

    Raises:
      ConfigError: as `read` does.
    """
    if files.is_stream(path):
        kept = list(read(path, with_gold))
        return len(kept), iter(kept)
    return sum(1 for _ in read(path, with_gold)), read(path, with_gold)


def read(path: Path, with_gold: bool = False) -> Iterator[Pair]:
    """The pairs of a TSV file (.gz, .xz, .zst too), in order.

    A line is `source TAB target`, and with `with_gold` a third column as `gold_alignments.parse`
    reads it; further columns are not read. Words are what whitespace separates. A blank line is a
    pair without words. A first line `src TAB tgt [TAB gold]` is a header, not a pair.

    Raises:
      ConfigError: if a line is not UTF-8, lacks a column, or has malformed gold.
    """
    number = 0
    for block in files.blocks(path):
        for line in block:
            number += 1
            where = f"{path}:{number}"
            if line is None:
                raise ConfigError(f"{where}: the line is not UTF-8")
            line = line.removesuffix("\r")
            if number == 1 and line in _HEADERS:
                continue
            columns = line.split("\t")
            if not line.strip():
                columns = ["", "", ""]
            if len(columns) < 2 + with_gold:
                wanted = "source, target and gold links" if with_gold else "source and target"
                raise ConfigError(
                    f"{where}: {len(columns)} columns; expected {wanted}, with tabs between"
                )
            gold = gold_alignments.parse(columns[2], where) if with_gold else None
            yield Pair(where, columns[0].split(), columns[1].split(), gold)
