"""Files of sentences, and of which ones translate each other."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic, files, formats
from xlj.io.quoting import quoted, shortened


class Sentences(NamedTuple):
    """The sentences of a file, and their ids if it has some."""

    texts: list[str]
    ids: list[str] | None


class Task(NamedTuple):
    """Sentences to find among others."""

    source: list[str]
    target: list[str]
    translations: np.ndarray | None  # int64 [targets], the source of each; None if of its line


def lines(path: Path) -> Iterator[str]:
    """The lines of a file as of `files.lines`, blank ones too, without white space around."""
    return map(str.strip, files.lines(path))


def _numbered(path: Path) -> list[tuple[int, str]]:
    """The sentences of a file with the numbers of their lines. Blank lines are no sentences: they
    end documents, as in the text that xlj trains on.

    Raises:
      ConfigError: as of `lines`, if there is no sentence, or the file has another format.
    """
    formats.refuse(path, files.head(path))
    found = [(n, line) for n, line in enumerate(files.lines(path), 1) if line.strip()]
    if not found:
        raise ConfigError(f"{path} is empty")
    return found


def read(path: Path) -> list[str]:
    """All sentences of a file, one a line, without the blank lines that end documents.

    Raises:
      ConfigError: as of `lines`, if there is none, or the file has another format.
    """
    return [text.strip() for _, text in _numbered(path)]


def read_parallel(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """The sentences of two files of which line i of one translates line i of the other.

    Raises:
      ConfigError: as of `read`, or if they have not the same blank lines, or not as many others.
    """
    sides = _numbered(source), _numbered(target)
    numbers = [[number for number, _ in side] for side in sides]
    sizes = tuple(map(len, sides))
    if sizes[0] != sizes[1] and numbers[0][-1] != numbers[1][-1]:
        raise ConfigError(
            f"{source} has {sizes[0]} lines but {target} has {sizes[1]}; line i of one must be the "
            "translation of line i of the other, or --gold must say which is whose"
        )
    if numbers[0] != numbers[1]:
        number = min(set(numbers[0]) ^ set(numbers[1]))
        blank, other = (target, source) if number in numbers[0] else (source, target)
        raise ConfigError(
            f"{blank}:{number}: the line is blank, but not in {other}; line i of one must be the "
            "translation of line i of the other"
        )
    first, second = ([text.strip() for _, text in side] for side in sides)
    return first, second


def read_with_ids(*paths: Path) -> Sentences:
    """The sentences of files, a line each, or lines `id TAB sentence` (BUCC's): all are what the
    first is. Blank lines, which end documents, are passed over.

    Raises:
      ConfigError: as of `read`, or if a line has other columns than the first, or an id twice.
    """
    rows, ids, columns = list[list[str]](), dict[str, str](), 0
    for path in paths:
        found = [
            (number, [column.strip() for column in line.split("\t")])
            for number, line in _numbered(path)
        ]
        columns = columns or len(found[0][1])
        _check_rows(path, found, columns, ids)
        rows += [row for _, row in found]
    if columns == 1:
        return Sentences([text for (text,) in rows], None)
    return Sentences([text for _, text in rows], list(ids))


def _check_rows(
    path: Path, rows: list[tuple[int, list[str]]], columns: int, ids: dict[str, str]
) -> None:
    """Refuses rows that have not as many columns, and ids that are known; `ids` gets the others,
    with their places."""
    for number, row in rows:
        if "" in row:
            raise ConfigError(f"{path}:{number}: the column is blank")
        if len(row) != columns or columns > 2:
            raise ConfigError(
                f"{path}:{number}: {len(row)} columns; every line must be a sentence without tabs, "
                "or every line `id TAB sentence`"
            )
        if columns == 2:
            before = ids.setdefault(row[0], f"{path}:{number}")
            if before != f"{path}:{number}":
                where = before.removeprefix(f"{path}:")
                raise ConfigError(
                    f"{path}:{number}: the id {shortened(row[0])} is that of line {where} too"
                )


def read_task(source: Path, target: Path, gold: Path | None, is_numbered: bool = False) -> Task:
    """The task of two files, and of XTREME's labels if there are some; a ConfigError if one cannot
    be read, or they do not fit each other.

    Args:
      is_numbered: whether sentences are named by the numbers of their lines, as labels do: then the
        files must not have blank lines.
    """
    for path in (source, target) if gold or is_numbered else ():
        _refuse_blank_lines(path)
    sides = (read(source), read(target)) if gold else read_parallel(source, target)
    sizes = len(sides[0]), len(sides[1])
    if sizes == (1, 1):
        raise ConfigError(f"{source} has one sentence, and so has {target}: there are no others")
    if gold:
        return Task(*sides, read_places(gold, *sizes))
    for path, side, other in ((source, *sides), (target, *sides[::-1])):
        if len(side) >= 10 and side == sorted(side) and other != sorted(other):
            print(
                f"{path} is sorted, as the English side of XTREME's Tatoeba is; if the lines do "
                "not translate each other one by one, give --gold",
                file=sys.stderr,
            )
    return Task(*sides, None)


def _refuse_blank_lines(path: Path) -> None:
    for number, line in enumerate(lines(path), 1):
        if not line:
            raise ConfigError(
                f"{path}:{number}: the line is blank, and XTREME's labels and predictions count "
                f"lines; take blank lines out: grep '[^[:space:]]' {path}"
            )


def read_places(path: Path, sources: int, targets: int) -> np.ndarray:
    """XTREME's labels of Tatoeba: which source each target translates, int64 [targets].

    Line i of the file belongs to line i of the targets (the English side, which XTREME sorts), and
    says the line of the sources, from 0.

    Raises:
      ConfigError: if there are other lines than `targets`, or one is no line of the sources.
    """
    found = []
    for number, line in enumerate(lines(path), 1):
        if not (line.isdecimal() and len(line) < 10 and int(line) < sources):
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} is no line of the source, from 0 to {sources - 1}"
            )
        found.append(int(line))
    if len(found) != targets:
        raise ConfigError(f"{path} has {len(found)} lines, but the target has {targets}")
    return np.array(found)


def write_places(path: Path, places: np.ndarray) -> None:
    """XTREME's predictions: the nearest source of each target, int [targets], a line each."""
    atomic.write(path, "".join(f"{place}\n" for place in places).encode())


def read_pairs(path: Path, source_ids: list[str], target_ids: list[str]) -> set[tuple[str, str]]:
    """BUCC's gold standard: lines `source id TAB target id`.

    Raises:
      ConfigError: if a line has other columns, or an id that is not of that side.
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
                raise ConfigError(f"{path}:{number}: {shortened(name)} is no id of the {side}'s")
        pairs.add((row[0], row[1]))
    return pairs
