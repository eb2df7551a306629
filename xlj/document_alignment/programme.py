"""The dynamic programme of sentence alignment on a band of cells, in NumPy.

A cell (i, j) means that the first i sentences of the source and the first j of the target are
aligned. A path from (0, 0) to the end consists of pairs of blocks (n sentences with m sentences)
and of sentences without a counterpart, which form gaps. The programme finds the path with the
highest sum of scores among all paths inside the band. Time and memory are linear in the number of
cells.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ROWS = 16
"""How many rows are scored at a time."""
_NEVER = np.float32(-1e30)
_OPEN, _SKIPS_SOURCE = 1, 2  # bits of the step back from a gap

Scores = Callable[[int, int, int, int], np.ndarray]
"""`scores(i, k, lo, hi)` returns the scores of the blocks that end at the rows i to k - 1 and at
the columns lo to hi - 1 of cells, float32 [k - i, sizes of source blocks, sizes of target blocks,
hi - lo]. `-inf` forbids a pair. Row and column 0 are not requested."""


class Band(NamedTuple):
    """The columns of each row that paths may use.

    Attributes:
      starts, stops: int64 [rows]; row i has the columns starts[i] to stops[i] - 1. Both ascend, the
        first row has column 0, and the last row has the last column.
    """

    starts: np.ndarray
    stops: np.ndarray


class Path(NamedTuple):
    """The steps of a path in order.

    Attributes:
      cells: int64 [steps + 1, 2], the cells from (0, 0) to the end.
      score: the sum of the scores of all steps.
    """

    cells: np.ndarray
    score: float

    @property
    def sizes(self) -> np.ndarray:
        """The number of sentences of each side in each step, int64 [steps, 2]."""
        return np.diff(self.cells, axis=0)


def full(rows: int, columns: int) -> Band:
    """Returns the band of all cells of documents with `rows` and `columns` sentences."""
    return Band(np.zeros(rows + 1, np.int64), np.full(rows + 1, columns + 1, np.int64))


def around(cells: np.ndarray, radius: int, rows: int, columns: int) -> Band:
    """Returns the band of all cells at most `radius` rows and columns away from cells of a path.

    Args:
      cells: int64 [n, 2], ascending in both columns, from (0, 0) to (rows, columns).
    """
    first, last = np.full(rows + 1, columns, np.int64), np.zeros(rows + 1, np.int64)
    np.minimum.at(first, cells[:, 0], cells[:, 1])
    np.maximum.at(last, cells[:, 0], cells[:, 1])
    # Rows inside a step have the columns of the step's ends.
    first = np.minimum.accumulate(first[::-1])[::-1]
    last = np.maximum.accumulate(last)
    steps = np.searchsorted(cells[:, 0], np.arange(rows + 1), "right") - 1
    first = np.minimum(first, cells[steps, 1])
    at = np.arange(rows + 1)
    starts = first[np.maximum(at - radius, 0)] - radius
    stops = last[np.minimum(at + radius, rows)] + radius + 1
    return Band(np.maximum(starts, 0), np.minimum(stops, columns + 1))


class _Row(NamedTuple):
    """The best scores of the paths to the cells of a row, float32 [columns], and its first column.

    Attributes:
      pairs: of the paths whose last step is a pair.
      gaps: of the paths whose last step is in a gap.
    """

    start: int
    pairs: np.ndarray
    gaps: np.ndarray


class _Blocks:
    """Reads the scores of one row, which are computed for `ROWS` rows at a time."""

    def __init__(self, scores: Scores, band: Band):
        self._scores, self._band = scores, band
        self._block, self._first, self._start = np.zeros(0), 0, 0

    def row(self, i: int) -> np.ndarray:
        """Returns the scores of row i, [sizes, sizes, columns without column 0]."""
        band = self._band
        if (i - 1) % ROWS == 0:
            stop = min(i + ROWS, len(band.starts))
            self._first, self._start = i, max(1, int(band.starts[i]))
            self._block = self._scores(i, stop, self._start, int(band.stops[stop - 1]))
        start, stop = max(1, int(band.starts[i])), int(band.stops[i])
        return self._block[i - self._first][..., start - self._start : stop - self._start]


def best_path(
    scores: Scores, band: Band, sizes: int, open_gap: float, skip: float, close: float = 0.0
) -> Path:
    """Finds the path with the highest score.

    Args:
      scores: the scores of pairs of blocks.
      sizes: the largest number of sentences of a block.
      open_gap: the score of the start of a gap, at most 0.
      skip: the score of each sentence in a gap, at most 0.
      close: the score of a pair that follows a gap, in addition to the score of the pair.

    Returns:
      The path. Ties go to the pair of the smallest blocks, and to a pair before a gap.
    """
    widths = band.stops - band.starts
    offsets = np.concatenate([[0], np.cumsum(widths)])
    steps = np.zeros((2, offsets[-1]), np.uint8)  # the last step of pairs, and of gaps
    blocks, history = _Blocks(scores, band), list[_Row]()  # the last rows, the latest first
    for i, (start, width) in enumerate(zip(band.starts.tolist(), widths.tolist(), strict=True)):
        cells = slice(offsets[i], offsets[i + 1])
        if i:
            pairs, steps[0, cells] = _pairs(blocks.row(i), history, start, width, close)
        else:
            pairs = np.full(width, _NEVER, np.float32)
            pairs[0] = 0.0
        gaps, steps[1, cells] = _gaps(pairs, history[:1], start, open_gap, skip)
        history = [_Row(start, pairs, gaps), *history[: sizes - 1]]
    last = history[0].pairs[-1], history[0].gaps[-1]
    path = _trace(steps, band, offsets, sizes, bool(last[1] > last[0]))
    return Path(path, float(max(last)))


def _shifted(values: np.ndarray, start: int, first: int, stop: int) -> np.ndarray:
    """Returns the columns first to stop - 1 of a row that begins at the column `start`."""
    result = np.full(stop - first, _NEVER, np.float32)
    begin, end = max(first, start), min(stop, start + len(values))
    if begin < end:
        result[begin - first : end - first] = values[begin - start : end - start]
    return result


def _pairs(
    of_row: np.ndarray, history: list[_Row], start: int, width: int, close: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of the paths that end in a pair, and their last steps.

    A step is 2 * (index of the sizes of both blocks), plus 1 after a gap.
    """
    sizes = of_row.shape[0]
    shift = max(1, start)  # column 0 has no pairs
    stop = start + width
    before = np.full((sizes, stop - shift + sizes - 1), _NEVER, np.float32)
    from_gap = np.zeros(before.shape, bool)
    for n, row in enumerate(history):
        # Column c of `before` is the column shift - sizes + c.
        after_pair = _shifted(row.pairs, row.start, shift - sizes, stop - 1)
        after_gap = _shifted(row.gaps, row.start, shift - sizes, stop - 1) + np.float32(close)
        np.greater(after_gap, after_pair, out=from_gap[n])
        np.maximum(after_gap, after_pair, out=before[n])
    # windows[n, m, c] is m + 1 columns before the column c of this row.
    windows = np.lib.stride_tricks.sliding_window_view(before, stop - shift, axis=1)[:, ::-1]
    total = (windows + of_row).reshape(sizes * sizes, stop - shift)
    choice, at = total.argmax(0), np.arange(stop - shift)
    n, m = np.divmod(choice, sizes)
    best = np.full(width, _NEVER, np.float32)
    steps = np.zeros(width, np.uint8)
    best[shift - start :] = np.maximum(total[choice, at], _NEVER)
    steps[shift - start :] = 2 * choice + from_gap[n, sizes - 1 - m + at]
    return best, steps


def _gaps(
    pairs: np.ndarray, above: list[_Row], start: int, open_gap: float, skip: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of the paths that end in a gap, and their last steps.

    Args:
      pairs: the scores of the paths that end in a pair in this row.
      above: the row before, if there is one.
    """
    width, opened = len(pairs), np.float32(open_gap + skip)
    best = np.full(width, _NEVER, np.float32)
    steps = np.zeros(width, np.uint8)
    for row in above:
        new = _shifted(row.pairs, row.start, start, start + width) + opened
        old = _shifted(row.gaps, row.start, start, start + width) + np.float32(skip)
        best = np.maximum(new, old)
        steps = np.where(old >= new, 0, _OPEN).astype(np.uint8) | np.uint8(_SKIPS_SOURCE)
    from_pair = np.concatenate([[_NEVER], pairs[:-1] + opened]).astype(np.float32)
    is_new = from_pair > best
    best, steps = np.where(is_new, from_pair, best), np.where(is_new, np.uint8(_OPEN), steps)
    # A run of skipped targets: the maximum over its beginnings, without the score of the run.
    of_run = np.arange(width, dtype=np.float64) * skip
    level = best - of_run
    highest = np.maximum.accumulate(level)
    is_run = np.concatenate([[False], highest[:-1] >= level[1:]])
    return np.maximum((highest + of_run).astype(np.float32), _NEVER), np.where(
        is_run, np.uint8(0), steps
    )


def _trace(
    steps: np.ndarray, band: Band, offsets: np.ndarray, sizes: int, is_gap: bool
) -> np.ndarray:
    """Follows the steps back from the last cell; returns the cells in order.

    Args:
      steps: uint8 [2, cells]: the last steps of pairs, and of gaps.
      offsets: the first cell of each row.
      is_gap: whether the last step is in a gap.
    """
    i, j = len(band.starts) - 1, int(band.stops[-1]) - 1
    cells = [(i, j)]
    while (i, j) != (0, 0):
        step = int(steps[int(is_gap), offsets[i] + j - band.starts[i]])
        if is_gap:
            i, j = (i - 1, j) if step & _SKIPS_SOURCE else (i, j - 1)
            is_gap = not step & _OPEN
        else:
            n, m = divmod(step >> 1, sizes)
            i, j, is_gap = i - n - 1, j - m - 1, bool(step & 1)
        cells.append((i, j))
    return np.array(cells[::-1], np.int64).reshape(-1, 2)
