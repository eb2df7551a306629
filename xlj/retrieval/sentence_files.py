"""Files of retrieval: sentences, lists of sentences that are translations, and vectors, which are
written to a .npy file block by block.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic, files, formats
from xlj.io.malformed import Skipping
from xlj.io.quoting import quoted, shortened


class Sentences(NamedTuple):
    """The sentences of a file, and the ids of the sentences; None if the file has no ids."""

    texts: list[str]
    ids: list[str] | None


class RetrievalTask(NamedTuple):
    """A retrieval task: the sentences of both sides.

    Attributes:
      translations: int64 [targets], the index of the source that each target translates; None if
        source i and target i are translations.
    """

    source: list[str]
    target: list[str]
    translations: np.ndarray | None


def lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file, stripped of surrounding whitespace; includes blank lines."""
    return map(str.strip, files.lines(path))


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Returns the sentences of a file with line numbers.

    Blank lines end documents, as in xlj's training text, and are skipped.

    Raises:
      ConfigError: if the file cannot be read, has no sentence, or has another format.
    """
    formats.refuse(path, files.head(path))
    numbered = [(n, line) for n, line in enumerate(files.lines(path), 1) if line.strip()]
    if not numbered:
        raise ConfigError(f"{path} is empty; expected one sentence per line")
    return numbered


def read(path: Path) -> list[str]:
    """Reads the sentences of a file, one per line. Blank lines end documents, and are skipped.

    Raises:
      ConfigError: if the file cannot be read, has no sentence, or has another format.
    """
    return [text.strip() for _, text in _numbered(path)]


def read_parallel(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Reads the sentences of two files that are translations line by line.

    Raises:
      ConfigError: if a file cannot be read, has no sentence or has another format, or if the files
        differ in their blank lines or numbers of sentences.
    """
    sides = _numbered(source), _numbered(target)
    numbers = [[number for number, _ in side] for side in sides]
    sizes = tuple(map(len, sides))
    if sizes[0] != sizes[1] and numbers[0][-1] != numbers[1][-1]:
        raise ConfigError(
            f"{source} has {sizes[0]} sentences, but {target} has {sizes[1]}; expected "
            "translations line by line, or --gold with the translations"
        )
    if numbers[0] != numbers[1]:
        number = min(set(numbers[0]) ^ set(numbers[1]))
        blank, other = (target, source) if number in numbers[0] else (source, target)
        raise ConfigError(
            f"{blank}:{number}: the line is blank, but this line of {other} is not; expected "
            "translations line by line"
        )
    first, second = ([text.strip() for _, text in side] for side in sides)
    return first, second


def read_with_ids(*paths: Path) -> Sentences:
    """Reads the sentences of files with lines `sentence`, or lines `id TAB sentence` (as in BUCC).

    All lines must have the same form. Blank lines end documents, and are skipped.

    Raises:
      ConfigError: if a file cannot be read, has no sentence or has another format, lines have
        different columns, or an id occurs twice.
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
    """Checks rows, and adds their ids to `ids`.

    Args:
      rows: (line number, columns).
      columns: the expected number of columns.
      ids: the place FILE:LINE of each id so far.

    Raises:
      ConfigError: if a row has a wrong number of columns, a blank column or a repeated id.
    """
    for number, row in rows:
        if "" in row:
            raise ConfigError(f"{path}:{number}: a column is blank; expected text in all columns")
        if len(row) != columns or columns > 2:
            raise ConfigError(
                f"{path}:{number}: {len(row)} columns; expected a sentence without tabs on all "
                "lines, or `id TAB sentence` on all lines"
            )
        if columns == 2:
            first_place = ids.setdefault(row[0], f"{path}:{number}")
            if first_place != f"{path}:{number}":
                where = first_place.removeprefix(f"{path}:")
                raise ConfigError(
                    f"{path}:{number}: the id {shortened(row[0])} is also the id of line {where}; "
                    "expected distinct ids"
                )


def read_task(
    source: Path, target: Path, gold: Path | None, is_numbered: bool = False
) -> RetrievalTask:
    """Reads a retrieval task from two files of sentences.

    Args:
      gold: a file with XTREME's labels (`read_indices`); None if the files are parallel line by
        line.
      is_numbered: whether the output contains line numbers. With line numbers, or with `gold`,
        blank lines are an error.

    Raises:
      ConfigError: if a file cannot be read, or the files do not fit together.
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
        return RetrievalTask(*sides, read_indices(gold, *sizes))
    for path, side, other in ((source, *sides), (target, *sides[::-1])):
        if len(side) >= 10 and side == sorted(side) and other != sorted(other):
            print(
                f"{path} is sorted, like the English side of XTREME's Tatoeba; if the files are "
                "not translations line by line, set --gold to the file with the labels",
                file=sys.stderr,
            )
    return RetrievalTask(*sides, None)


def _refuse_blank_lines(path: Path) -> None:
    for number, line in enumerate(lines(path), 1):
        if not line:
            raise ConfigError(
                f"{path}:{number}: the line is blank, but XTREME's labels and predictions count "
                f"lines; remove blank lines: grep '[^[:space:]]' {path}"
            )


def read_indices(path: Path, sources: int, targets: int) -> np.ndarray:
    """Reads XTREME's labels for Tatoeba: the source that each target translates, int64 [targets].

    Line i of the file contains the zero-based index of the source that target i translates. The
    targets are the English side, which XTREME sorts.

    Args:
      sources, targets: the numbers of sentences.

    Raises:
      ConfigError: if the file does not have `targets` lines, or a line is not the index of a
        source.
    """
    indices = []
    for number, line in enumerate(lines(path), 1):
        if not (line.isdecimal() and len(line) < 10 and int(line) < sources):
            raise ConfigError(
                f"{path}:{number}: {quoted(line)} is not the index of a source line; expected 0 to "
                f"{sources - 1}"
            )
        indices.append(int(line))
    if len(indices) != targets:
        raise ConfigError(
            f"{path} has {len(indices)} lines, but there are {targets} target "
            "sentences; expected equal numbers"
        )
    return np.array(indices)


def write_indices(path: Path, indices: np.ndarray) -> None:
    """Writes predictions in XTREME's format: the index of the nearest source of each target, one
    per line.

    Args:
      indices: int [targets].
    """
    atomic.write(path, "".join(f"{place}\n" for place in indices).encode())


def read_pairs(path: Path, source_ids: list[str], target_ids: list[str]) -> set[tuple[str, str]]:
    """Reads BUCC's gold pairs from lines `source id TAB target id`.

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
                raise ConfigError(
                    f"{path}:{number}: {shortened(name)} is not the id of a {side} sentence"
                )
        pairs.add((row[0], row[1]))
    return pairs


@contextmanager
def writing_vectors(
    path: Path, width: int, dtype: str, skipping: Skipping | None = None
) -> Iterator[Callable[[np.ndarray], None]]:
    """Context manager that yields a function which appends rows [n, width] to a .npy file.

    If the `with` block ends without an error, the complete file appears at `path`. Otherwise no
    file appears.

    Args:
      dtype: one of `choices.VECTOR_TYPES`, stored little-endian.
      skipping: the rows with the indices `skipping.rows` are set to NaN.

    Raises:
      ConfigError: raised by the yielded function if a number is not finite, or too large for
        `dtype`.
    """
    storage_type, rows = np.dtype(dtype).newbyteorder("<"), 0
    with atomic.writing(path) as file:

        def write_header() -> None:  # NumPy reserves space in the header for any number of rows
            shape = {"descr": storage_type.str, "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, shape)

        def append(vectors: np.ndarray) -> None:
            nonlocal rows
            with np.errstate(over="ignore"):  # overflow is reported below, with the line
                block = np.array(vectors, storage_type, order="C")
            not_finite = np.flatnonzero(~np.isfinite(block).all(1))
            if len(not_finite):
                other_type = "" if dtype == "float32" else "use float32, or "
                raise ConfigError(
                    f"{path}: the vector of line {rows + not_finite[0] + 1} is too large for "
                    f"{dtype}, or not finite; {other_type}check the weights of the model"
                )
            skipped = [row - rows for row in (skipping.rows if skipping else ()) if row >= rows]
            block[[row for row in skipped if row < len(block)]] = np.nan
            file.write(block.tobytes())
            rows += len(block)

        write_header()
        yield append
        file.seek(0)
        write_header()
