"""The dynamic programme of sentence alignment on a band of cells, in NumPy.

A cell (i, j) means that the first i sentences of the source and the first j of the target are
aligned. A path from (0, 0) to the end consists of pairs of blocks (n sentences with m sentences) and
of sentences without a counterpart, which form gaps. The programme finds the path with the highest
sum of scores among all paths inside the band. Time and memory are linear in the number of cells.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ROWS = 16
"""How many rows are scored at a time."""
_NEVER = np.float32(-1e30)
_OPEN, _SKIPS_SOURCE = 1, 2  # bits of the step back from a gap

Scores = Callable[[int, int, int, int], np.ndarray]
"""`scores(i, k, lo, hi)` returns the scores of the blocks that end at the rows i to k - 1 and at the
columns lo to hi - 1 of cells, float32 [k - i, sizes of source blocks, sizes of target blocks,
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


def best_path(scores: Scores, band: Band, sizes: int, open_gap: float, skip: float,
              close: float = 0.0) -> Path:  # fmt: skip
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
    rows, columns = len(band.starts) - 1, int(band.stops[-1]) - 1
    widths = band.stops - band.starts
    offsets = np.concatenate([[0], np.cumsum(widths)])
    pair_steps = np.zeros(offsets[-1], np.uint8)  # from which blocks and state a pair comes
    gap_steps = np.zeros(offsets[-1], np.uint8)
    history: list[tuple[np.ndarray, np.ndarray]] = []  # of the rows i - 1, i - 2, ...
    pairs = np.full(widths[0], _NEVER, np.float32)
    block, block_start = np.zeros(0), 0
    for i in range(rows + 1):
        start, stop = int(band.starts[i]), int(band.stops[i])
        cells = slice(offsets[i], offsets[i + 1])
        if i == 0:
            pairs[0] = 0.0
        else:
            if (i - 1) % ROWS == 0:
                last = min(i + ROWS, rows + 1)
                block_start = max(1, start)
                block = scores(i, last, block_start, int(band.stops[last - 1]))
            shift = max(1, start)
            of_row = block[(i - 1) % ROWS][..., shift - block_start : stop - block_start]
            pairs, pair_steps[cells] = _pairs(of_row, history, band, i, sizes, close)
        above = history[0] if history else None
        gaps, gap_steps[cells] = _gaps(pairs, above, band, i, open_gap, skip)
        history = [(pairs, gaps), *history[: sizes - 1]]
    pairs, gaps = history[0]
    is_gap = bool(gaps[-1] > pairs[-1])
    cells = _trace(pair_steps, gap_steps, band, offsets, sizes, (rows, columns), is_gap)
    return Path(cells, float(max(gaps[-1], pairs[-1])))


def _shifted(values: np.ndarray, start: int, first: int, stop: int) -> np.ndarray:
    """Returns the columns first to stop - 1 of a row that begins at the column `start`."""
    result = np.full(stop - first, _NEVER, np.float32)
    begin, end = max(first, start), min(stop, start + len(values))
    if begin < end:
        result[begin - first : end - first] = values[begin - start : end - start]
    return result


def _pairs(of_row, history, band, i, sizes, close):  # noqa: ANN001, ANN202
    start, stop = int(band.starts[i]), int(band.stops[i])
    shift = max(1, start)
    before = np.full((sizes, stop - shift + sizes - 1), _NEVER, np.float32)
    from_gap = np.zeros(before.shape, bool)
    for n, (pairs, gaps) in enumerate(history):
        first = int(band.starts[i - n - 1])
        # column c of `before` is the column shift - sizes + c of the row i - n - 1
        a = _shifted(pairs, first, shift - sizes, stop - 1)
        b = _shifted(gaps, first, shift - sizes, stop - 1) + np.float32(close)
        np.greater(b, a, out=from_gap[n])
        np.maximum(a, b, out=before[n])
    width = stop - shift
    # windows[n, m, c]: the cell m + 1 columns before the cell c of this row
    windows = np.lib.stride_tricks.sliding_window_view(before, width, axis=1)[:, ::-1]
    total = (windows + of_row).reshape(sizes * sizes, width)
    choice = total.argmax(0)
    at = np.arange(width)
    n, m = np.divmod(choice, sizes)
    origin = from_gap[n, sizes - 1 - m + at]
    best = np.full(stop - start, _NEVER, np.float32)
    steps = np.zeros(stop - start, np.uint8)
    best[shift - start :] = np.maximum(total[choice, at], _NEVER)
    steps[shift - start :] = 2 * choice + origin
    return best, steps


def _gaps(pairs, above, band, i, open_gap, skip):  # noqa: ANN001, ANN202
    """Returns the scores of the paths that end in a gap, and their last steps."""
    start, stop = int(band.starts[i]), int(band.stops[i])
    opened = np.float32(open_gap + skip)
    best = np.full(stop - start, _NEVER, np.float32)
    steps = np.zeros(stop - start, np.uint8)
    if above is not None:
        first = int(band.starts[i - 1])
        a = _shifted(above[0], first, start, stop) + opened
        b = _shifted(above[1], first, start, stop) + np.float32(skip)
        best, steps = np.maximum(a, b), np.where(b >= a, 0, _OPEN).astype(np.uint8) | _SKIPS_SOURCE
    from_pair = np.concatenate([[_NEVER], pairs[:-1] + opened]).astype(np.float32)
    is_new = from_pair > best
    best = np.where(is_new, from_pair, best)
    steps = np.where(is_new, np.uint8(_OPEN), steps)
    # A run of skipped targets: the maximum over its beginnings, without the cost of the run.
    fall = np.arange(stop - start, dtype=np.float64) * skip
    level = best - fall
    highest = np.maximum.accumulate(level)
    is_run = np.concatenate([[False], highest[:-1] >= level[1:]])
    steps = np.where(is_run, np.uint8(0), steps)
    return np.maximum((highest + fall).astype(np.float32), _NEVER), steps


def _trace(pair_steps, gap_steps, band, offsets, sizes, end, is_gap):  # noqa: ANN001, ANN202
    """Follows the steps back from the end; returns the cells in order."""
    i, j = end
    cells = [(i, j)]
    while (i, j) != (0, 0):
        at = offsets[i] + j - band.starts[i]
        if is_gap:
            step = int(gap_steps[at])
            i, j = (i - 1, j) if step & _SKIPS_SOURCE else (i, j - 1)
            is_gap = not step & _OPEN
        else:
            choice, is_gap = int(pair_steps[at]) >> 1, bool(pair_steps[at] & 1)
            n, m = divmod(choice, sizes)
            i, j = i - n - 1, j - m - 1
        cells.append((i, j))
    return np.array(cells[::-1], np.int64).reshape(-1, 2)
