"""Draws the rows of a batch: a pure function of (rows, phases, seed, step), with no iterator.

Draws come in blocks of `BLOCK`. In each block every task is drawn an exact number of times,
in an order given by a hash; the k-th draw of a task takes row `permutation_e(k mod rows)` of it,
where e = k div rows counts the epochs of that task. So every row of a task is seen once before any
is seen twice, whatever the rates do from phase to phase.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.io.hashing import combine, hash64, name_hash, permute

BLOCK = 65_536
"""Draws in a block: inside each, every task is drawn an exact number of times."""


def rates(tokens: Mapping[str, int], alpha: float) -> dict[str, float]:
    """Sampling probability of each task, p_j = m_j^alpha / sum_k m_k^alpha.

    Source: XLM section 3.1, ERNIE-M section 4.1.

    Args:
      tokens: m_j, the number of tokens of each task; tasks with none are left out.
      alpha: 1 samples in proportion to size, 0 samples all tasks alike.
    """
    powers = {task: float(count) ** alpha for task, count in tokens.items() if count > 0}
    total = sum(powers.values())
    return {task: power / total for task, power in powers.items()}


def draws_per_block(probabilities: Mapping[str, float]) -> dict[str, int]:
    """How often each task is drawn in a block: largest remainder of `BLOCK * p`, at least 1.

    Every count is within one of `BLOCK * p`, except where that is impossible because many tasks are
    rarer than 1 / BLOCK: then the largest tasks give one draw more each.
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
    """Draws from `start_step` on. `counts` is how often a block draws each task (sum BLOCK)."""

    start_step: int
    batch_rows: int
    counts: tuple[int, ...]


class Stream:
    """The rows of one objective, step by step.

    Args:
      name, seed: of the objective and of the run; they decide the order.
      tasks, rows: names of the tasks that are drawn from, and how many rows each has.
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
        self._phases = tuple(phases)
        self._order_key = combine(seed, name_hash("order"), name_hash(name))
        row_keys = [combine(seed, name_hash("rows"), name_hash(f"{name}/{t}")) for t in tasks]
        self._row_keys = np.asarray(row_keys, np.uint64)
        self._block = functools.lru_cache(maxsize=4)(self._make_block)
        before = np.zeros(len(tasks), np.int64)
        self._drawn_before = [before]
        for index in range(len(phases) - 1):
            steps = phases[index + 1].start_step - phases[index].start_step
            before = before + self._drawn(index, steps * phases[index].batch_rows)
            self._drawn_before.append(before)

    def draw(self, step: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The task (an index into `tasks`) and the row of some slots of the batch of `step`, which
        are below batch_rows of the step's phase; all int64 [n]."""
        index = max(i for i, phase in enumerate(self._phases) if phase.start_step <= step)
        phase = self._phases[index]
        draws = (step - phase.start_step) * phase.batch_rows + slots.astype(np.int64)
        blocks, within = np.divmod(draws, BLOCK)
        tasks, ordinals = np.empty_like(draws), np.empty_like(draws)
        for block in np.unique(blocks):
            chosen = blocks == block
            order, rank = self._block(index, int(block))
            tasks[chosen] = order[within[chosen]]
            earlier = self._drawn_before[index] + block * np.asarray(phase.counts, np.int64)
            ordinals[chosen] = earlier[tasks[chosen]] + rank[within[chosen]]
        sizes = self._rows[tasks]
        epochs, indices = np.divmod(ordinals, sizes)
        keys = hash64(epochs.astype(np.uint64), self._row_keys[tasks])
        return tasks, permute(indices, sizes, keys)

    def _drawn(self, phase: int, draws: int) -> np.ndarray:
        """Draws of each task among the first `draws` of a phase, int64 [tasks]."""
        blocks, rest = divmod(draws, BLOCK)
        order, _ = self._block(phase, blocks)
        counts = np.asarray(self._phases[phase].counts, np.int64)
        return blocks * counts + np.bincount(order[:rest], minlength=len(counts))

    def _make_block(self, phase: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """The task of each draw of a block, and the draws of that task before it in the block."""
        counts = self._phases[phase].counts
        key = combine(self._order_key, phase, block)
        shuffle = np.argsort(hash64(np.arange(BLOCK, dtype=np.uint64), key), kind="stable")
        order = np.repeat(np.arange(len(counts)), counts)[shuffle]
        by_task = np.argsort(order, kind="stable")
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rank = np.empty(BLOCK, np.int64)
        rank[by_task] = np.arange(BLOCK) - starts
        return order, rank
