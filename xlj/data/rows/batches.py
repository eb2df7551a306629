"""Reads the batch of each step from a row store, in ranges of consecutive rows, ahead of the
batches that use them.
"""

import functools
import itertools
import sys
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xlj.config import Config, ConfigError
from xlj.data.rows import row_kind
from xlj.data.rows.draws import Sampler, SamplingPhase, count_draws, select_tasks
from xlj.data.rows.row_kind import Field, Rows
from xlj.data.rows.store import Corpus, RowStore, RowStoreError
from xlj.data.tokenizer.layout import PAD


class Batches:
    """The batches of each objective, as a pure function of the step.

    The phases of the config determine the batch size and the sampling rates at each step. A batch
    of labelled rows is cut to a width that is a power of two times 32, and at least its longest
    row, since most labelled examples are much shorter than their rows.

    Args:
      store: the row store.
      config: the config.

    Attributes:
      store: the row store.
      corpus: vocabulary size and languages of the row store.
      cuts: whether there are objectives whose batches are cut.

    Raises:
      ConfigError: if the store has no rows for an objective that is on.
    """

    def __init__(self, store: RowStore, config: Config):
        self.store = store
        self.corpus = Corpus.of(store)
        self._config = config
        self._fetcher = Fetcher(store, concurrent_reads=store.concurrent_reads)
        self._pads = config.data.damaged_rows == "pad"
        self._streams: dict[str, Sampler] = {}
        self._options = config.objectives_on()
        self._lengths: dict[tuple[str, int], int] = {}  # by objective and first step of the phase
        self._fields: dict[tuple[str, int], tuple[Field, ...]] = {}
        self._languages: dict[str, np.ndarray] = {}  # language ids of all sides, [tasks, sides]
        self._axes = {name: options.token_axes for name, options in self._options.items()}
        self.cuts = any(self._axes.values())
        self._longest_rows = functools.lru_cache(maxsize=16)(self._find_longest_rows)
        self._row_widths = functools.cache(self._measure_rows)
        for name, options in self._options.items():
            tasks = [task for task in store.tasks(options.rows_name) if task.train.rows]
            phases = []
            for phase, active in zip(config.schedule, config.objectives_by_phase, strict=True):
                tasks_of_phase = select_tasks(store, options, phase.config)
                rows = active[name].batch_size if name in active else 0
                if rows and not tasks_of_phase:
                    in_phase = f" in phase {phase.name}" * bool(phase.name)
                    raise ConfigError(
                        f"objectives.{name} is on{in_phase}, but {store.path} has no training rows "
                        f"of kind {options.rows_name} for it; prepare rows with this config, or "
                        f"set objectives.{name}.batch_size=0"
                    )
                draws_by_task = count_draws(store, options, phase.config) if rows else {}
                counts = tuple(draws_by_task.get(task.name, 0) for task in tasks)
                if rows:
                    self._lengths[name, phase.start] = tasks_of_phase[0].length
                    self._fields[name, phase.start] = tasks_of_phase[0].fields
                sizes = phase.batch_sizes.ranges()
                batches = tuple(
                    (first, size * rows // phase.accumulation_steps) for first, size in sizes
                )
                group = active[name].draws_together if rows else 1
                phases.append(SamplingPhase(phase.start, batches, counts, group))
            self._streams[name] = Sampler(
                name,
                config.train.seed,
                [task.name for task in tasks],
                [task.train.rows for task in tasks],
                phases,
            )
            sides = [self.corpus.sides(task.languages) for task in tasks]
            self._languages[name] = np.array(sides, np.int32)

    def shapes(self, step: int) -> dict[str, tuple[int, int]]:
        """Returns the shape (rows, length) of the batch of each objective that is on at a step."""
        phase = self._config.phase_at(step)
        return {
            name: (options.batch_size, self._width(name, step))
            for name, options in phase.config.objectives.active().items()
        }

    def row_length(self, objective: str, step: int) -> int:
        """Returns the number of tokens of an objective's stored rows, from which batches are
        cut."""
        return self._lengths[objective, self._config.phase_at(step).start]

    def _width(self, objective: str, step: int) -> int:
        """Returns the number of tokens of the rows of a batch, the same in all processes."""
        length = self.row_length(objective, step)
        if not self._axes[objective]:
            return length
        longest = self._longest_rows(objective, step // _STEPS)[step % _STEPS]
        width = _LEAST_WIDTH
        while width < longest:
            width *= 2
        return min(width, length)

    def _find_longest_rows(self, objective: str, block: int) -> np.ndarray:
        """Returns the number of tokens of the longest row of each batch of a block of steps, int64.

        One draw for all steps with batches of equal size is fifty times as fast as a draw for each
        step. The draws of a batch follow those of the batch before.
        """

        def size(step: int) -> tuple[int, int]:
            phase = self._config.phase_at(step)
            rows = phase.config.objectives.active()[objective].batch_size
            return phase.start, rows // phase.accumulation_steps * phase.microbatches(step)

        steps = range(block * _STEPS, min((block + 1) * _STEPS, self._config.train.steps))
        stream, longest = self._streams[objective], list[np.ndarray]()
        for (_, rows), group in itertools.groupby(steps, size):
            first, *others = group
            draws = stream.draw(first, np.arange((1 + len(others)) * rows))
            tokens = np.zeros(len(draws.tasks), np.int64)
            for task in np.unique(draws.tasks):
                at = draws.tasks == task
                tokens[at] = self._row_widths(stream.tasks[task])[draws.rows[at]]
            longest.append(tokens.reshape(-1, rows).max(1))
        return np.concatenate(longest)

    def _measure_rows(self, task: str) -> np.ndarray:
        """Returns the number of tokens of each training row of a task up to its last one that is no
        padding, int64."""
        (found,) = (each for each in self.store.manifest.tasks if each.name == task)
        at_once = max(1, _MEASURED // row_kind.record_dtype(found.fields).itemsize)
        widths = []
        for first in range(0, found.train.rows, at_once):
            records = self.store.fetch(task, first, min(at_once, found.train.rows - first))
            places = np.arange(1, records["tokens"].shape[1] + 1)
            widths.append(np.where(records["tokens"] != PAD, places, 0).max(1))
        return np.concatenate(widths)

    def fields(self, objective: str, step: int) -> tuple[Field, ...]:
        """Returns the fields of an objective's batch at a step (`read`)."""
        start, width = self._config.phase_at(step).start, self._width(objective, step)
        of_rows = [
            field._replace(shape=self._cut(objective, field, width))
            for field in self._fields[objective, start]
        ]
        return (*of_rows, Field("languages", "<i4", self._languages[objective].shape[1:]))

    def _cut(self, objective: str, field: Field, width: int) -> tuple[int, ...]:
        """Returns the shape of a field of rows that are cut to a width."""
        axes = self._axes[objective].get(field.name, (0,) * len(field.shape))
        sizes = zip(field.shape, axes, strict=True)
        return tuple(min(size, -(-width // per)) if per else size for size, per in sizes)

    def tokens(self, objective: str, rows: Rows) -> int:
        """Counts the token ids in rows of an objective, without padding."""
        fields = self.store.tasks(self._options[objective].rows_name)[0].fields
        return row_kind.count_tokens(rows, fields)

    def draw(self, objective: str, step: int, slots: np.ndarray) -> list[tuple[str, int]]:
        """Returns which rows fill some slots of the batch of a step.

        A slot is the place of a row in the batch. In a batch warm-up some slots are empty; the
        result does not contain them.

        Args:
          objective: name of the objective.
          step: the step.
          slots: slots of the batch, int64 [n].

        Returns:
          For each slot that is not empty, the name of the task (a language or pair) and the number
          of the row in this task.
        """
        stream = self._streams[objective]
        draws = stream.draw(step, self._places(step, slots)[0])
        return [(stream.tasks[t], int(r)) for t, r in zip(draws.tasks, draws.rows, strict=True)]

    def _places(self, step: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the slots that contain rows.

        Slot s is in microbatch s modulo the number of microbatches of the phase. In a smaller
        batch (batch warm-up), only the first microbatches contain rows.

        Returns:
          Two arrays, int64 [slots with rows]. The first has, for each slot that contains a row,
          the number of its draw; the draws of a step are numbered from zero. The second has the
          index of the slot in `slots`.
        """
        phase = self._config.phase_at(step)
        microbatches, full = phase.microbatches(step), phase.accumulation_steps
        filled = np.flatnonzero(slots % full < microbatches)
        return slots[filled] // full * microbatches + slots[filled] % full, filled

    def read(self, objective: str, step: int, slots: np.ndarray) -> Rows:
        """Reads some slots of the batch of a step.

        Args:
          objective: name of the objective.
          step: the step.
          slots: slots of the batch, int64 [n], below batch_size.

        Returns:
          The array [n, ...] of each field of the rows, by name, and in the field `languages` the
          language of each side as an index into `corpus.languages`, int32 [n, sides]. A slot
          without a row has padding and zeros only.

        Raises:
          RowStoreError: if a row is damaged and `data.damaged_rows` is not `pad`. With `pad`, the
            slot counts as one without a row, and a message is printed.
        """
        stream = self._streams[objective]
        places, filled = self._places(step, slots)
        draws = stream.draw(step, places)
        fields = self.fields(objective, step)
        parts = {f.name: (slice(None), *map(slice, f.shape)) for f in fields}
        batch = row_kind.empty(fields, len(slots))
        self._fetcher.prefetch([stream.tasks[t] for t in draws.tasks], draws.rows, draws.ahead)
        for task in np.unique(draws.tasks):
            indices, name = np.flatnonzero(draws.tasks == task), stream.tasks[task]
            rows = draws.rows[indices]
            found = self._fetcher.read(name, rows, draws.ahead[indices])
            damaged = row_kind.find_damaged(found)
            for bad in damaged:
                damage = self.store.damage(name, "train", int(rows[bad]))
                if not self._pads:
                    raise RowStoreError(damage)
                print(
                    f"step {step}: {damage}; padding replaces this row",
                    file=sys.stderr,
                    flush=True,
                )
            if damaged.size:
                found, indices = np.delete(found, damaged), np.delete(indices, damaged)
            for field, values in row_kind.to_rows(found).items():
                batch[field][filled[indices]] = values[parts[field]]
        batch["languages"][filled] = self._languages[objective][draws.tasks]
        return batch


_LEAST_WIDTH = 32  # tokens to which a batch is cut at least; each width is compiled
_STEPS = 256  # steps whose longest rows are found together
_MEASURED = 32 << 20  # bytes of rows whose tokens are counted together

CACHE_BYTES = 1 << 30
"""Maximum memory for rows of later batches, in bytes."""


class Fetcher:
    """Reads training rows of a store, and caches rows that later batches need.

    Most rows are read from storage once per epoch.

    Args:
      store: the row store.
      cache_bytes: maximum memory for rows of later batches, in bytes.
      concurrent_reads: number of reads at the same time.

    Attributes:
      fetched: number of bytes read from storage so far.
      fetches: number of reads so far; each read returns consecutive rows.
    """

    def __init__(self, store: RowStore, cache_bytes: int = CACHE_BYTES, concurrent_reads: int = 1):
        self.fetched = self.fetches = 0
        self._store, self._free_bytes = store, cache_bytes
        self._cache: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()
        self._threads = ThreadPoolExecutor(concurrent_reads) if concurrent_reads > 1 else None

    def prefetch(self, tasks: Sequence[str], rows: np.ndarray, ahead: np.ndarray) -> None:
        """Reads the rows of the next calls of `read` into the cache, with concurrent reads.

        Does nothing if `concurrent_reads` is 1, because reading rows from a local disk is fast.

        Args:
          tasks: the task of each row.
          rows: row numbers, int64 [n].
          ahead: how many consecutive rows, starting with each row, are needed soon, int64 [n].
        """
        if self._threads is None:
            return
        runs: list[tuple[str, int, int]] = []
        planned: set[tuple[str, int]] = set()
        for task, row, count in zip(tasks, rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) in self._cache or (task, row) in planned:
                continue
            while count > 1 and (task, row + count - 1) in planned:
                count -= 1
            runs.append((task, row, self._count_missing(task, row, count)))
            planned.update((task, row + i) for i in range(runs[-1][2]))
        fetched = self._threads.map(lambda run: self._store.fetch(*run), runs)
        for (task, row, _), records in zip(runs, fetched, strict=True):
            self._store_in_cache(task, row, records)

    def read(self, task: str, rows: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """Returns records of training rows.

        Args:
          task: name of the task.
          rows: row numbers, int64 [n].
          ahead: how many consecutive rows, starting with each row, are needed soon, int64 [n].

        Returns:
          Records of type `row_kind.record_dtype`, [n].
        """
        result = []
        for row, count in zip(rows.tolist(), ahead.tolist(), strict=True):
            if (task, row) not in self._cache:
                records = self._store.fetch(task, row, self._count_missing(task, row, count))
                self._store_in_cache(task, row, records)
            record = self._cache.pop((task, row))
            self._free_bytes += record.nbytes
            result.append(record)
        return np.concatenate(result)

    def _count_missing(self, task: str, row: int, count: int) -> int:
        """Returns `count` without the rows at the end of the run that are in the cache already."""
        while count > 1 and (task, row + count - 1) in self._cache:
            count -= 1
        return count

    def _store_in_cache(self, task: str, row: int, records: np.ndarray) -> None:
        self.fetched += records.nbytes
        self.fetches += 1
        self._free_bytes -= records.nbytes
        while self._free_bytes < 0 and self._cache:
            self._free_bytes += self._cache.popitem(last=False)[1].nbytes
        for i in range(len(records)):
            old = self._cache.pop((task, row + i), None)  # the same row, read in another epoch
            self._free_bytes += old.nbytes if old is not None else 0
            self._cache[task, row + i] = records[i : i + 1]
