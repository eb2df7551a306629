"""Reads files of sentences, and files that say which sentences are translations."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic, files, formats
from xlj.io.quoting import quoted, shortened


class Sentences(NamedTuple):
    """The sentences of a file, and their ids if it has ids."""

    texts: list[str]
    ids: list[str] | None


class Task(NamedTuple):
    """A retrieval task.

    Attributes:
      translations: int64 [targets], the source of each target; None if it is on the same line.
    """

    source: list[str]
    target: list[str]
    translations: np.ndarray | None


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file (`files.lines`), including blank ones, stripped of whitespace."""
    return map(str.strip, files.lines(path))


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Returns the sentences of a file with their line numbers.

    Blank lines are skipped: they end documents, as in xlj's training text.

    Raises:
      ConfigError: as `lines`, or if there is no sentence, or the file has another format.
    """
    formats.refuse(path, files.head(path))
    numbered = [(n, line) for n, line in enumerate(files.lines(path), 1) if line.strip()]
    if not numbered:
        raise ConfigError(f"{path} is empty")
    return numbered


def read(path: Path) -> list[str]:
    """Reads the sentences of a file, one per line; skips blank lines, which end documents.

    Raises:
      ConfigError: as `lines`, or if there is no sentence, or the file has another format.
    """
    return [text.strip() for _, text in _numbered(path)]


def read_parallel(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Reads the sentences of two files that are translations line by line.

    Raises:
      ConfigError: as `read`, or if they differ in their blank lines or their number of lines.
    """
    sides = _numbered(source), _numbered(target)
    numbers = [[number for number, _ in side] for side in sides]
    sizes = tuple(map(len, sides))
    if sizes[0] != sizes[1] and numbers[0][-1] != numbers[1][-1]:
        raise ConfigError(
            f"{source} has {sizes[0]} lines but {target} has {sizes[1]}; they must be translations "
            "line by line, unless --gold has the translations"
        )
    if numbers[0] != numbers[1]:
        number = min(set(numbers[0]) ^ set(numbers[1]))
        blank, other = (target, source) if number in numbers[0] else (source, target)
        raise ConfigError(
            f"{blank}:{number}: the line is blank, but not in {other}; the files must be "
            "translations line by line"
        )
    first, second = ([text.strip() for _, text in side] for side in sides)
    return first, second


def read_with_ids(*paths: Path) -> Sentences:
    """Reads the sentences of files with lines `sentence`, or lines `id TAB sentence` (as in BUCC).

    All lines must have the same form. Blank lines, which end documents, are skipped.

    Raises:
      ConfigError: as `read`, or if lines differ in their columns, or an id occurs twice.
    """
    rows, ids, columns = list[list[str]](), dict[str, str](), 0
    for path in paths:
        numbered = [
            (number, [column.strip() for column in line.split("\t")])
            for number, line in _numbered(path)
        ]
        columns = columns or len(numbered[0][1])
        _check_rows(path, numbered, columns, ids)
        rows += [row for _, row in numbered]
    if columns == 1:
        return Sentences([text for (text,) in rows], None)
    return Sentences([text for _, text in rows], list(ids))


def _check_rows(
    path: Path, rows: list[tuple[int, list[str]]], columns: int, ids: dict[str, str]
) -> None:
    """Raises a ConfigError for rows with a wrong number of columns and for repeated ids; adds new
    ids to `ids`, with their place."""
    for number, row in rows:
        if "" in row:
            raise ConfigError(f"{path}:{number}: a column is blank")
        if len(row) != columns or columns > 2:
            raise ConfigError(
                f"{path}:{number}: {len(row)} columns; expected a sentence without tabs on all "
                "lines, or `id TAB sentence` on all lines"
            )
        if columns == 2:
            before = ids.setdefault(row[0], f"{path}:{number}")
            if before != f"{path}:{number}":
                where = before.removeprefix(f"{path}:")
                raise ConfigError(
                    f"{path}:{number}: the id {shortened(row[0])} is also the id of line {where}"
                )


def read_task(source: Path, target: Path, gold: Path | None, is_numbered: bool = False) -> Task:
    """Reads a retrieval task from two files of sentences.

    Args:
      gold: XTREME's labels (`read_places`); None if the files are parallel line by line.
      is_numbered: whether the output refers to line numbers; the files must then not have blank
        lines.

    Raises:
      ConfigError: if a file cannot be read, or the files do not fit each other.
    """
    for path in (source, target) if gold or is_numbered else ():
        _refuse_blank_lines(path)
    sides = (read(source), read(target)) if gold else read_parallel(source, target)
    sizes = len(sides[0]), len(sides[1])
    if sizes == (1, 1):
        raise ConfigError(
            f"{source} and {target} have one sentence each; retrieval needs at least two"
        )
    if gold:
        return Task(*sides, read_places(gold, *sizes))
    for path, side, other in ((source, *sides), (target, *sides[::-1])):
        if len(side) >= 10 and side == sorted(side) and other != sorted(other):
            print(
                f"{path} is sorted, like the English side of XTREME's Tatoeba; if the files are "
                "not translations line by line, give the labels with --gold",
                file=sys.stderr,
            )
    return Task(*sides, None)


def _refuse_blank_lines(path: Path) -> None:
    for number, line in enumerate(lines(path), 1):
        if not line:
            raise ConfigError(
                f"{path}:{number}: the line is blank, but XTREME's labels and predictions count "
                f"lines; remove blank lines: grep '[^[:space:]]' {path}"
            )


def read_places(path: Path, sources: int, targets: int) -> np.ndarray:
    """Reads XTREME's labels for Tatoeba: the source that each target translates, int64 [targets].

    Line i of the file belongs to line i of the targets (the English side, which XTREME sorts). It
    has the index of a line of the sources, from 0.

    Raises:
      ConfigError: if there are not `targets` lines, or one is not an index of a source.
    """
    places = []
    for number, line in enumerate(lines(path), 1):
        if not (line.isdecimal() and len(line) < 10 and int(line) < sources):
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} is not a line of the source; expected 0 to "
                f"{sources - 1}"
            )
        places.append(int(line))
    if len(places) != targets:
        raise ConfigError(f"{path} has {len(places)} lines, but the target has {targets}")
    return np.array(places)


def write_places(path: Path, places: np.ndarray) -> None:
    """Writes XTREME's predictions: the nearest source of each target, int [targets], one per
    line."""
    atomic.write(path, "".join(f"{place}\n" for place in places).encode())


def read_pairs(path: Path, source_ids: list[str], target_ids: list[str]) -> set[tuple[str, str]]:
    """Reads BUCC's gold pairs, lines `source id TAB target id`.

    Raises:
      ConfigError: if a line has other columns, or an unknown id.
    """
    pairs, sides = set(), (set(source_ids), set(target_ids))
    for number, line in enumerate(lines(path), 1):
        row = line.split("\t")
        if len(row) != 2:
            raise ConfigError(
                f"{path}:{number}: {len(row)} columns; expected `source id TAB target id`"
            )
        for name, known, side in zip(row, sides, ("source", "target"), strict=True):
            if name not in known:
                raise ConfigError(f"{path}:{number}: {shortened(name)} is not an id of the {side}")
        pairs.add((row[0], row[1]))
    return pairs
