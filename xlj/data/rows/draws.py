"""Chooses the rows of each batch: a pure function of (rows, phases, seed, step), without iterators.

Draws come in blocks of `BLOCK`. In each block every task is drawn an exact number of times, in the
order of a hash. The k-th draw of a task is in epoch e = k div rows, and the draws of an epoch take
each row of the task once. So every row of a task is seen once before any row is seen twice, even
if rates change between phases.

Within an epoch, rows are assigned to draws so that a host, which reads a part of each batch, reads
contiguous runs of rows. The slots of a batch are divided into `LANES` lanes, and a host reads some
of the lanes. Positions 0, 1, ... of an epoch are mapped to runs of at most `RUN` rows, in the order
of a hash. Within a window of a few blocks, the draws of a lane take consecutive positions of a
task, or alternate between several pieces of consecutive positions.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.io.hashing import combine, hash64, name_hash, permute

BLOCK = 65_536
"""Draws in a block; in each block every task is drawn an exact number of times."""

LANES = 64
"""Parts of a batch; the draws of a part take consecutive rows."""

RUN = 128
"""The most rows that are consecutive both in an epoch and on disk."""

_LEAST_RUNS = 4096  # of a task; smaller tasks are shuffled row by row, and are read whole anyway
_PIECE, _PIECES = 64, 8  # the fewest draws of a piece, and the most pieces of a lane
_MOST_BLOCKS = 16  # of a window; more draws make longer pieces, but take longer to order


def rates(tokens: Mapping[str, int], alpha: float) -> dict[str, float]:
    """Computes the sampling probability of each task, p_j = m_j^alpha / sum_k m_k^alpha.

    Source: XLM section 3.1, ERNIE-M section 4.1.

    Args:
      tokens: m_j, the number of tokens of each task; tasks without tokens are left out.
      alpha: 1 samples in proportion to size, 0 samples all tasks equally.
    """
    powers = {task: float(count) ** alpha for task, count in tokens.items() if count > 0}
    total = sum(powers.values())
    return {task: power / total for task, power in powers.items()}


def draws_per_block(probabilities: Mapping[str, float]) -> dict[str, int]:
    """Computes how often each task is drawn in a block, at least once.

    Rounds `BLOCK * p` with the largest-remainder method. Every count is within one of `BLOCK * p`.
    This is impossible if many tasks are rarer than 1 / BLOCK; then the largest tasks give up one
    more draw each.
    """
    quotas = {task: BLOCK * p for task, p in probabilities.items()}
    counts = {task: max(1, int(quota)) for task, quota in quotas.items()}
    # Ties are broken by name, so that the order of the mapping does not matter.
    by_remainder = sorted(quotas, key=lambda task: (counts[task] - quotas[task], task))
    missing = BLOCK - sum(counts.values())
    for task in by_remainder[: max(0, missing)]:
        counts[task] += 1
    largest = sorted(quotas, key=lambda task: (-quotas[task], task))
    while missing < 0:
        for task in largest[:-missing]:
            if counts[task] > 1:
                counts[task] -= 1
                missing += 1
    return counts


@dataclasses.dataclass(frozen=True)
class Phase:
    """Draws from `start_step` on; `counts` is how often a block draws each task (sum BLOCK)."""

    start_step: int
    batch_rows: int
    counts: tuple[int, ...]
    smaller: tuple[tuple[int, int], ...] = ()
    """Batch warm-up: (first step, counted from `start_step`, rows) of each range of smaller batches
    in order, and of the full batches."""


class _BatchSizes:
    """Maps the steps of a phase to draws, and draws to steps."""

    def __init__(self, phase: Phase):
        starts, rows = zip(*(phase.smaller or [(0, phase.batch_rows)]), strict=True)
        self._starts, self._rows = np.asarray(starts, np.int64), np.asarray(rows, np.int64)
        # Draws before each range of steps.
        self._draws = np.cumsum([0, *(np.diff(self._starts) * self._rows[:-1])])

    def before(self, steps: int) -> int:
        """Counts the draws of the first `steps` steps."""
        index = int(np.searchsorted(self._starts, steps, "right")) - 1
        done = steps - self._starts[index]
        return int(self._draws[index] + done * self._rows[index])

    def batch(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the place of each draw in its batch, and the rows of that batch; int64 [n]."""
        index = np.searchsorted(self._draws, draws, "right") - 1
        rows = self._rows[index]
        return (draws - self._draws[index]) % rows, rows


@dataclasses.dataclass(frozen=True)
class Draws:
    """The rows of some slots of a batch; all arrays are int64 [n].

    Attributes:
      tasks: indices into `Stream.tasks`.
      rows: row numbers in the task.
      ahead: how many consecutive rows, this one included, the slots of the lane draw soon.
    """

    tasks: np.ndarray
    rows: np.ndarray
    ahead: np.ndarray


class Stream:
    """The rows of one objective, step by step.

    Args:
      name, seed: name of the objective and seed of the run; they determine the order.
      tasks, rows: names of the tasks that are drawn, and how many rows each has.
      phases: in order of steps; the first starts at step 0.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        tasks: Sequence[str],
        rows: Sequence[int],
        phases: Sequence[Phase],
    ):
        self.tasks = tuple(tasks)
        self._rows = np.asarray(rows, np.int64)
        self._runs = np.clip(self._rows // _LEAST_RUNS, 1, RUN)
        self._phases = tuple(phases)
        self._batches = [_BatchSizes(phase) for phase in phases]
        # Few rows get short windows, so that small runs start quickly.
        blocks = int(self._rows.sum()) // (4 * BLOCK)
        self._blocks = min(_MOST_BLOCKS, 1 << max(0, blocks.bit_length() - 1))
        self._order_key = combine(seed, name_hash("order"), name_hash(name))
        row_keys = [combine(seed, name_hash("rows"), name_hash(f"{name}/{t}")) for t in tasks]
        self._row_keys = np.asarray(row_keys, np.uint64)
        self._window = functools.lru_cache(maxsize=2)(self._make_window)
        before = np.zeros(len(tasks), np.int64)
        self._drawn_before = [before]
        for index in range(len(phases) - 1):
            before = before + self._drawn(index, self._draws(index))
            self._drawn_before.append(before)

    def draw(self, step: int, slots: np.ndarray) -> Draws:
        """Returns the draws of some slots of the batch of `step`.

        Slots beyond the batch belong to the next steps.
        """
        index = max(i for i, phase in enumerate(self._phases) if phase.start_step <= step)
        before = self._batches[index].before(step - self._phases[index].start_step)
        draws = before + slots.astype(np.int64)
        windows, within = np.divmod(draws, self._blocks * BLOCK)
        tasks, ordinals, ahead = (np.empty_like(draws) for _ in range(3))
        for window in np.unique(windows):
            chosen = windows == window
            parts = self._window(index, int(window))
            for target, part in zip((tasks, ordinals, ahead), parts, strict=True):
                target[chosen] = part[within[chosen]]
        rows, left = self._row(tasks, ordinals)
        return Draws(tasks, rows, np.minimum(ahead, left))

    def _row(self, tasks: np.ndarray, ordinals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the row of each draw, and how many consecutive rows the next draws take.

        Whole runs are permuted, and a shorter run stays at the end. Then all rows of the epoch are
        rotated, so that each epoch ends with other rows.
        """
        sizes, runs = self._rows[tasks], self._runs[tasks]
        epochs, positions = np.divmod(ordinals, sizes)
        keys = hash64(epochs.astype(np.uint64), self._row_keys[tasks])
        numbers, within = np.divmod(positions, runs)
        whole = numbers < sizes // runs
        permuted = permute(np.where(whole, numbers, 0), sizes // runs, keys)
        places = np.where(whole, permuted * runs + within, positions)
        shift = (hash64(keys, 0) % sizes.astype(np.uint64)).astype(np.int64)
        rows = (places + np.where(runs > 1, shift, 0)) % sizes
        left = np.where(whole, runs - within, sizes - positions)
        return rows, np.minimum(left, sizes - rows)

    def _draws(self, phase: int) -> int:
        """Counts the draws of a phase that is not the last."""
        steps = self._phases[phase + 1].start_step - self._phases[phase].start_step
        return self._batches[phase].before(steps)

    def _drawn(self, phase: int, draws: int) -> np.ndarray:
        """Counts the draws of each task among the first `draws` of a phase, int64 [tasks]."""
        blocks, rest = divmod(draws, BLOCK)
        counts = np.asarray(self._phases[phase].counts, np.int64)
        if not draws:  # the objective is off; the phase may have no tasks
            return np.zeros_like(counts)
        order = self._order(phase, blocks)
        return blocks * counts + np.bincount(order[:rest], minlength=len(counts))

    def _order(self, phase: int, block: int) -> np.ndarray:
        """Returns the task of each draw of a block."""
        counts = self._phases[phase].counts
        key = combine(self._order_key, phase, block)
        shuffle = np.argsort(hash64(np.arange(BLOCK, dtype=np.uint64), key), kind="stable")
        return np.repeat(np.arange(len(counts)), counts)[shuffle]

    def _make_window(self, phase: int, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns three values for each draw of a window of blocks: the task, the ordinal of the
        draw in the task, and how many consecutive draws follow in its lane, this one included."""
        first = window * self._blocks
        tasks = np.concatenate([self._order(phase, first + i) for i in range(self._blocks)])
        counts = np.asarray(self._phases[phase].counts, np.int64)
        before = self._drawn_before[phase] + first * counts
        numbers = np.arange(len(tasks))
        by_task = np.argsort(tasks, kind="stable")
        here = np.bincount(tasks, minlength=len(counts))
        rank = numbers - np.repeat(np.cumsum(here) - here, here)
        ordinals = before[tasks[by_task]] + rank  # of the draws, sorted by task
        # Within an epoch, the draws of a lane are consecutive.
        places, rows = self._batches[phase].batch(first * BLOCK + by_task)
        lanes = places * LANES // rows
        owners = tasks[by_task]
        epochs = ordinals // self._rows[owners]
        groups = 2 * owners
        if phase + 1 < len(self._phases):  # draws beyond the end of the phase form their own group
            groups += by_task >= self._draws(phase) - first * BLOCK
        groups = (groups * (1 + int(epochs.max())) + epochs) * LANES + lanes
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        sizes = np.repeat(lengths := np.diff(starts, append=len(order)), lengths)
        # A lane alternates between several pieces, so that a batch has rows from many places.
        among = numbers - np.repeat(starts, lengths)
        pieces = np.clip(sizes // _PIECE, 1, _PIECES)
        piece, done = among % pieces, among // pieces
        short, longer = sizes // pieces, sizes % pieces
        ordinals = ordinals[
            np.repeat(starts, lengths) + piece * short + np.minimum(piece, longer) + done
        ]
        ahead = short + (piece < longer) - done
        in_draw_order = np.empty((2, len(tasks)), np.int64)
        in_draw_order[0, by_task[order]], in_draw_order[1, by_task[order]] = ordinals, ahead
        return tasks, in_draw_order[0], in_draw_order[1]
