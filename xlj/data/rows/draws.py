"""Chooses the rows of each batch: a pure function of (rows, phases, seed, step), without iterators.

A task is the rows of one language or pair. A draw takes one row of a task for one slot of a batch.
Draws come in blocks of `BLOCK` draws. In each block, every task is drawn an exact number of times;
a hash determines the order. Draw k of a task (zero-based) belongs to epoch k // rows, where `rows`
is the number of rows of the task. The draws of an epoch take each row of the task once. So each row
of a task is seen once before any row is seen twice, even if the sampling rates change between
phases.

Each host reads a part of each batch. Within an epoch, rows are assigned to draws so that a host
reads runs of consecutive rows:

- The slots of a batch are divided into `LANES` lanes. A host reads some of the lanes.
- The rows of a task are divided into runs of at most `RUN` consecutive rows. In each epoch, a hash
  orders the runs. The positions 0, 1, ... of an epoch are the rows of its first run, then the rows
  of its second run, and so on.
- A window is a few consecutive blocks. In a window, the draws of a lane take consecutive positions
  of a task, or alternate between several pieces of consecutive positions.

`draws_of_tasks` computes how often a phase of a run draws each language or pair.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import Config, ConfigError, Data, Options, lookup
from xlj.data.rows.store import RowStore, TaskRows
from xlj.io.hashing import combine, hash64, name_hash, permute

BLOCK = 65_536
"""Number of draws in a block."""

LANES = 64
"""Number of lanes of a batch."""

RUN = 128
"""Maximum number of rows that are consecutive both in an epoch and on disk."""

_MIN_RUNS = 4096
"""A task has runs of several rows only if it then has at least this number of runs. All rows of
smaller tasks are soon in memory, so longer runs would not save reads."""
_MIN_PIECE, _MAX_PIECES = 64, 8  # minimum draws of a piece, and maximum pieces of a lane
_MAX_BLOCKS = 16
"""Maximum number of blocks of a window. More blocks make longer pieces, but take longer to sort."""


def sampling_rates(tokens: Mapping[str, int], alpha: float) -> dict[str, float]:
    """Computes the sampling probability of each task, p_j = m_j^alpha / sum_k m_k^alpha.

    Source: XLM section 3.1, ERNIE-M section 4.1.

    Args:
      tokens: m_j, the number of tokens of each task. Tasks without tokens are omitted from the
        result.
      alpha: the exponent: 1 samples tasks in proportion to their size, 0 samples all tasks equally.
    """
    powers = {task: float(count) ** alpha for task, count in tokens.items() if count > 0}
    total = sum(powers.values())
    return {task: power / total for task, power in powers.items()}


def draws_per_block(probabilities: Mapping[str, float], group: int = 1) -> dict[str, int]:
    """Computes how often each task is drawn in a block: about `BLOCK * p` times, at least once.

    Uses the largest-remainder method, so that each count differs from `BLOCK * p` by less than 1.
    If many tasks have a probability below 1 / BLOCK, this is impossible. Then the counts of the
    largest tasks are lowered further.

    Args:
      probabilities: the probability p of each task.
      group: how many consecutive draws take the same task; it divides `BLOCK`.

    Raises:
      ConfigError: if a block has fewer groups than tasks.
    """
    groups = BLOCK // group
    if len(probabilities) > groups:
        raise ConfigError(
            f"{len(probabilities):,} languages and sources cannot have batches of their own of "
            f"{group:,} rows; use at most {BLOCK // len(probabilities):,} rows"
        )
    quotas = {task: groups * p for task, p in probabilities.items()}
    counts = {task: max(1, int(quota)) for task, quota in quotas.items()}
    # Ties are broken by name, so that the order of the mapping does not matter.
    by_remainder = sorted(quotas, key=lambda task: (counts[task] - quotas[task], task))
    missing = groups - sum(counts.values())
    for task in by_remainder[: max(0, missing)]:
        counts[task] += 1
    largest = sorted(quotas, key=lambda task: (-quotas[task], task))
    while missing < 0:
        for task in largest[:-missing]:
            if counts[task] > 1:
                counts[task] -= 1
                missing += 1
    return {task: group * count for task, count in counts.items()}


@dataclasses.dataclass(frozen=True)
class SamplingPhase:
    """The draws of one objective in a phase of a run.

    Attributes:
      start_step: the first step of the phase.
      batches: (first step relative to `start_step`, rows of a batch) of each range of steps with
        batches of equal size. The rows are 0 if the objective is off.
      counts: how often a block draws each task. The sum is `BLOCK`, or 0 if the objective is off.
      group: how many consecutive draws take the same task.
    """

    start_step: int
    batches: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    group: int = 1


class _BatchSizes:
    """Maps steps of a phase to draws, and draws to positions in batches."""

    def __init__(self, phase: SamplingPhase):
        starts, rows = zip(*phase.batches, strict=True)
        self._starts, self._rows = np.asarray(starts, np.int64), np.asarray(rows, np.int64)
        # The number of draws before each range of steps.
        self._first_draws = np.cumsum([0, *(np.diff(self._starts) * self._rows[:-1])])

    def before(self, steps: int) -> int:
        """Counts the draws of the first `steps` steps of the phase."""
        index = int(np.searchsorted(self._starts, steps, "right")) - 1
        steps_in_range = steps - self._starts[index]
        return int(self._first_draws[index] + steps_in_range * self._rows[index])

    def positions(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the place of each draw in its batch.

        Args:
          draws: numbers of draws in the phase, int64 [n].

        Returns:
          The place of each draw in its batch, and the number of rows of this batch; int64 [n].
        """
        index = np.searchsorted(self._first_draws, draws, "right") - 1
        rows = self._rows[index]
        return (draws - self._first_draws[index]) % rows, rows


@dataclasses.dataclass(frozen=True)
class Draws:
    """The rows of some slots of a batch; all arrays are int64 [n].

    Attributes:
      tasks: indices into `Sampler.tasks`.
      rows: row numbers in the task.
      ahead: how many consecutive rows, starting with this row, the lane of the slot draws soon.
    """

    tasks: np.ndarray
    rows: np.ndarray
    ahead: np.ndarray


class Sampler:
    """The rows of one objective at each step.

    Args:
      name: name of the objective; it is part of the hash that determines the order of draws.
      seed: seed of the run; it is part of this hash, too.
      tasks: names of the tasks that are drawn.
      rows: number of rows of each task.
      phases: the phases in order of steps; the first starts at step 0.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        tasks: Sequence[str],
        rows: Sequence[int],
        phases: Sequence[SamplingPhase],
    ):
        self.tasks = tuple(tasks)
        self._rows = np.asarray(rows, np.int64)
        self._runs = np.clip(self._rows // _MIN_RUNS, 1, RUN)
        self._phases = tuple(phases)
        self._batches = [_BatchSizes(phase) for phase in phases]
        # Short windows for few rows, so that runs with little text start quickly.
        blocks = int(self._rows.sum()) // (4 * BLOCK)
        self._blocks = min(_MAX_BLOCKS, 1 << max(0, blocks.bit_length() - 1))
        self._order_key = combine(seed, name_hash("order"), name_hash(name))
        row_keys = [combine(seed, name_hash("rows"), name_hash(f"{name}/{t}")) for t in tasks]
        self._row_keys = np.asarray(row_keys, np.uint64)
        self._window = functools.lru_cache(maxsize=2)(self._make_window)
        draws_before = np.zeros(len(tasks), np.int64)
        self._draws_before = [draws_before]
        for index in range(len(phases) - 1):
            draws_before = draws_before + self._count_draws_by_task(index, self._count_draws(index))
            self._draws_before.append(draws_before)

    def draw(self, step: int, slots: np.ndarray) -> Draws:
        """Returns the draws of some slots of the batch of a step.

        Args:
          step: the step.
          slots: slots of the batch, int64 [n]. Slots beyond the batch belong to the next steps.
        """
        index = max(i for i, phase in enumerate(self._phases) if phase.start_step <= step)
        draws_before = self._batches[index].before(step - self._phases[index].start_step)
        draws = draws_before + slots.astype(np.int64)
        windows, in_window = np.divmod(draws, self._blocks * BLOCK)
        tasks, ordinals, ahead = (np.empty_like(draws) for _ in range(3))
        for window in np.unique(windows):
            is_in_window = windows == window
            drawn = self._window(index, int(window))
            for target, part in zip((tasks, ordinals, ahead), drawn, strict=True):
                target[is_in_window] = part[in_window[is_in_window]]
        rows, consecutive = self._find_rows(tasks, ordinals)
        return Draws(tasks, rows, np.minimum(ahead, consecutive))

    def _find_rows(self, tasks: np.ndarray, ordinals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the row of each draw.

        Runs of full length are permuted, and a shorter last run stays at the end. If runs have more
        than one row, a cyclic shift of the row numbers follows, so that epochs end with different
        rows.

        Args:
          tasks: the task of each draw, int64 [n].
          ordinals: the zero-based number of each draw among all draws of its task, int64 [n].

        Returns:
          The row of each draw, and how many consecutive rows the next draws of the task take,
          starting with this row; int64 [n] each.
        """
        sizes, runs = self._rows[tasks], self._runs[tasks]
        epochs, positions = np.divmod(ordinals, sizes)
        keys = hash64(epochs.astype(np.uint64), self._row_keys[tasks])
        numbers, in_run = np.divmod(positions, runs)
        is_whole = numbers < sizes // runs
        permuted = permute(np.where(is_whole, numbers, 0), sizes // runs, keys)
        unrotated = np.where(is_whole, permuted * runs + in_run, positions)
        shift = (hash64(keys, 0) % sizes.astype(np.uint64)).astype(np.int64)
        rows = (unrotated + np.where(runs > 1, shift, 0)) % sizes
        consecutive = np.where(is_whole, runs - in_run, sizes - positions)
        return rows, np.minimum(consecutive, sizes - rows)

    def _count_draws(self, phase: int) -> int:
        """Counts the draws of a phase, which must not be the last phase."""
        steps = self._phases[phase + 1].start_step - self._phases[phase].start_step
        return self._batches[phase].before(steps)

    def _count_draws_by_task(self, phase: int, draws: int) -> np.ndarray:
        """Counts the draws of each task among the first `draws` of a phase: int64 [tasks]."""
        blocks, rest = divmod(draws, BLOCK)
        counts = np.asarray(self._phases[phase].counts, np.int64)
        if not draws:  # the objective is off; the phase may have no tasks
            return np.zeros_like(counts)
        order = self._order(phase, blocks)
        return blocks * counts + np.bincount(order[:rest], minlength=len(counts))

    def _order(self, phase: int, block: int) -> np.ndarray:
        """Returns the task of each draw of a block: int64 [BLOCK]."""
        group = self._phases[phase].group
        counts = np.asarray(self._phases[phase].counts, np.int64) // group
        key = combine(self._order_key, phase, block)
        numbers = np.arange(BLOCK // group, dtype=np.uint64)
        shuffle = np.argsort(hash64(numbers, key), kind="stable")
        return np.repeat(np.repeat(np.arange(len(counts)), counts)[shuffle], group)

    def _make_window(self, phase: int, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the draws of a window, which is a number of consecutive blocks.

        Args:
          phase: index of the phase.
          window: index of the window in the phase.

        Returns:
          Three values of each draw, int64 [draws]: the task; the zero-based number of the draw
          among all draws of the task; and how many draws of the task with consecutive numbers,
          starting with this draw, its lane takes soon.
        """
        first = window * self._blocks
        tasks = np.concatenate([self._order(phase, first + i) for i in range(self._blocks)])
        counts = np.asarray(self._phases[phase].counts, np.int64)
        draws_before = self._draws_before[phase] + first * counts
        numbers = np.arange(len(tasks))
        by_task = np.argsort(tasks, kind="stable")
        in_window = np.bincount(tasks, minlength=len(counts))
        rank = numbers - np.repeat(np.cumsum(in_window) - in_window, in_window)
        ordinals = draws_before[tasks[by_task]] + rank  # of the draws, sorted by task
        # Within an epoch, each lane gets consecutive draw numbers of each task.
        positions, rows = self._batches[phase].positions(first * BLOCK + by_task)
        lanes = positions * LANES // rows
        owners = tasks[by_task]
        epochs = ordinals // self._rows[owners]
        groups = 2 * owners
        if phase + 1 < len(self._phases):  # draws beyond the end of the phase form other groups
            groups += by_task >= self._count_draws(phase) - first * BLOCK
        groups = (groups * (1 + int(epochs.max())) + epochs) * LANES + lanes
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        sizes = np.repeat(lengths := np.diff(starts, append=len(order)), lengths)
        # A lane alternates between several pieces, so that a batch has rows from many places.
        in_group = numbers - np.repeat(starts, lengths)
        pieces = np.clip(sizes // _MIN_PIECE, 1, _MAX_PIECES)
        piece, in_piece = in_group % pieces, in_group // pieces
        short, longer = sizes // pieces, sizes % pieces  # `longer` pieces have `short` + 1 draws
        ordinals = ordinals[
            np.repeat(starts, lengths) + piece * short + np.minimum(piece, longer) + in_piece
        ]
        ahead = short + (piece < longer) - in_piece
        in_draw_order = np.empty((2, len(tasks)), np.int64)
        in_draw_order[0, by_task[order]], in_draw_order[1, by_task[order]] = ordinals, ahead
        return tasks, in_draw_order[0], in_draw_order[1]


def tasks_of_length(store: RowStore, options: Options, config: Config) -> list[TaskRows]:
    """Returns the tasks with rows of an objective's kind and of the length that a config sets.

    A task is the rows of one language or pair (`store.TaskRows`). If all rows of this kind in the
    store have one length, returns all tasks, even if the config sets another length.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    tasks = store.tasks(options.rows_name)
    if len({task.length for task in tasks}) < 2:
        return list(tasks)
    length = lookup(config, options.row_kind.length)
    return [task for task in tasks if task.length == length]


def select_tasks(store: RowStore, options: Options, config: Config) -> list[TaskRows]:
    """Returns the tasks from which an objective draws rows.

    These are the tasks whose language or pair is in `data.sampled`; if there is no such task, all
    tasks. Tasks without training rows are left out.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    return _select(tasks_of_length(store, options, config), config.data)


def _select(tasks: Sequence[TaskRows], data: Data) -> list[TaskRows]:
    names = data.shares.keys()
    sampled = [task for task in tasks if names & _names_of(task.name)]
    return [task for task in sampled or tasks if task.train.rows]


def count_draws(store: RowStore, options: Options, config: Config) -> Mapping[str, int]:
    """Returns how often a block of `draws.BLOCK` draws takes a row of each task, by name.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    tasks = tasks_of_length(store, options, config)
    return draws_of_tasks(tasks, config.data, options.sampled_by, options.draws_together)


def draws_of_tasks(
    tasks: Sequence[TaskRows], data: Data, sampled_by: str = "tokens", group: int = 1
) -> Mapping[str, int]:
    """Returns how often a block of `draws.BLOCK` draws takes a row of each task, by name.

    Tasks that are not drawn are missing (`select_tasks`).

    Args:
      tasks: tasks with rows of one kind and length.
      data: the section `data` of the config of a phase.
      sampled_by: the size that determines the sampling rates, a field of `store.Split`.
      group: how many consecutive draws take the same task.
    """
    sizes = {task.name: getattr(task.train, sampled_by) for task in _select(tasks, data)}
    shares, factors = sampling_rates(sizes, data.alpha), data.shares
    if any(factor != 1 for factor in factors.values()):
        shares = {
            name: p * math.prod(factors.get(each, 1.0) for each in _names_of(name))
            for name, p in shares.items()
        }
        total = sum(shares.values())
        shares = {name: p / total for name, p in shares.items()}
    return draws_per_block(shares, group)


def _names_of(task: str) -> set[str]:
    """Returns the names by which `data.sampled` may select a task: its language or pair and, for a
    named source of examples, LANGUAGE.SOURCE."""
    corpus = task.partition(".")[2]
    return {corpus, corpus.partition(".")[0]}


def mean_tokens_per_row(store: RowStore, options: Options, config: Config) -> float:
    """Computes the mean number of tokens, without padding, of the rows that an objective draws.

    Args:
      store: the row store.
      options: the options of the objective.
      config: the config of a phase.
    """
    counts = count_draws(store, options, config)
    means = {
        task.name: task.train.tokens / task.train.rows
        for task in store.tasks(options.rows_name)
        if task.train.rows
    }
    return sum(count * means[name] for name, count in counts.items()) / BLOCK
