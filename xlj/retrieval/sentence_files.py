"""Files of retrieval: sentences, lists of sentences that are translations, and vectors, which are
written to a .npy file block by block.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic, files
from xlj.io.columns import RANGE, Layout, join_ranges, open_lines, own_text
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


def _numbered(path: Path, columns: Sequence[str] = ()) -> list[tuple[int, str]]:
    """Returns the sentences of a file with line numbers.

    Blank lines end documents, as in xlj's training text, and are skipped.

    Raises:
      ConfigError: see `columns.open_lines`; also if the file has no sentence.
    """
    layout, texts = open_lines(path, columns)
    return _not_blank(path, enumerate(texts, 1 + layout.has_header))


def _not_blank(path: Path, lines: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    numbered = [(number, text) for number, line in lines if (text := own_text(line))]
    if not numbered:
        raise ConfigError(f"{path} is empty; expected one sentence per line")
    return numbered


def read(path: Path, columns: Sequence[str] = ()) -> list[str]:
    """Reads the sentences of a file, one per line. Blank lines end documents, and are skipped.

    Args:
      columns: see `columns.open_lines`.

    Raises:
      ConfigError: if the file cannot be read, has no sentence, or has another format.
    """
    return [text for _, text in _numbered(path, columns)]


def read_parallel(
    source: Path, target: Path, *, columns: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Reads the sentences of two files that are translations line by line.

    Args:
      columns: see `columns.open_lines`.

    Raises:
      ConfigError: if a file cannot be read, has no sentence or has another format, or if the files
        differ in their blank lines or numbers of sentences.
    """
    opened = [open_lines(path, columns) for path in (source, target)]
    rows = itertools.zip_longest(*(map(str.strip, texts) for _, texts in opened), fillvalue="")
    sides = tuple(
        _not_blank(path, enumerate(texts, 1 + layout.has_header))
        for path, (layout, _), texts in zip(
            (source, target), opened, zip(*join_ranges(rows), strict=True), strict=True
        )
    )
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
    first, second = ([text for _, text in side] for side in sides)
    return first, second


def read_with_ids(*paths: Path, columns: Sequence[str] = ()) -> Sentences:
    """Reads the sentences of files with lines `sentence`, or lines `id TAB sentence` (as in BUCC).

    All lines must have the same form. Blank lines end documents, and are skipped.

    Args:
      columns: see `columns.open_lines`.

    Raises:
      ConfigError: if a file cannot be read, has no sentence or has another format, lines have
        different columns, an id occurs twice, or only some files have ids.
    """
    texts, ids = list[str](), dict[str, str]()
    for path in paths:
        layout, lines = open_lines(path, columns, with_ids=True)
        has_ids, size = len(layout.indices) > 1, len(texts)
        if has_ids != bool(ids) and path != paths[0]:
            raise ConfigError(
                f"{paths[0] if ids else path} has ids, but {path if ids else paths[0]} has none; "
                "expected ids in all files or in none"
            )
        for number, line in enumerate(lines, 1 + layout.has_header):
            row = split_ids(layout, line, f"{path}:{number}") if line.strip() else [""]
            if row[-1] in ("", RANGE):
                continue
            texts.append(row[-1])
            if has_ids:
                add_id(ids, row[0], path, number)
        if len(texts) == size:
            raise ConfigError(f"{path} is empty; expected one sentence per line")
    return Sentences(texts, list(ids) or None)


def split_ids(layout: Layout, line: str, place: str) -> list[str]:
    """Returns the sentence of a line of `open_lines`, after its id if the layout has ids.

    Raises:
      ConfigError: if the line has other columns, or a blank column.
    """
    columns = line.split("\t")
    row: list[str] | None = columns if len(columns) == 1 else None
    if len(layout.indices) > 1:
        row = layout.texts(columns)
    elif layout.indices:
        row = [line]
    if row is None:
        raise ConfigError(
            f"{place}: {len(columns)} columns; expected a sentence without tabs on all lines, or "
            "`id TAB sentence` on all lines"
        )
    row = [column.strip() for column in row]
    if "" in row:
        raise ConfigError(f"{place}: a column is blank; expected text in all columns")
    return row


def add_id(ids: dict[str, str], name: str, path: Path, number: int) -> None:
    """Adds an id with its place.

    Raises:
      ConfigError: if the id is repeated.
    """
    place = f"{path}:{number}"
    first = ids.setdefault(name, place)
    if first != place:
        raise ConfigError(
            f"{place}: the id {shortened(name)} is also the id of line "
            f"{first.removeprefix(f'{path}:')}; expected distinct ids"
        )


def read_task(
    source: Path,
    target: Path,
    gold: Path | None,
    is_numbered: bool = False,
    columns: Sequence[str] = (),
) -> RetrievalTask:
    """Reads a retrieval task from two files of sentences.

    Args:
      gold: a file with XTREME's labels (`read_indices`); None if the files are parallel line by
        line.
      is_numbered: whether the output contains line numbers. With line numbers, or with `gold`,
        blank lines are an error.
      columns: see `columns.open_lines`.

    Raises:
      ConfigError: if a file cannot be read, or the files do not fit together.
    """
    for path in (source, target) if gold or is_numbered else ():
        _refuse_blank_lines(path)
    sides = (
        (read(source, columns), read(target, columns))
        if gold
        else read_parallel(source, target, columns=columns)
    )
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
