"""The rows of every step: a run's streams over a row store."""

import sys

import numpy as np

from xlj.config import Config, ConfigError
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.draws import Phase, Stream, draws_per_block, rates
from xlj.data.rows.fetching import Fetcher
from xlj.data.rows.store import RowStore, RowStoreError, row_crcs
from xlj.data.tokenizer.layout import PAD


class Batches:
    """Batches of each objective, as a pure function of the step: the phases of the run's config
    say which batch sizes and alpha hold when. An objective without rows of its kind is a
    `ConfigError`."""

    def __init__(self, store: RowStore, config: Config):
        self.store = store
        self.corpus = Corpus.of(store)
        self._config = config
        self._fetcher = Fetcher(store, at_once=store.at_once)
        self._pads = config.data.damaged_rows == "pad"
        self._streams: dict[str, Stream] = {}
        self._lengths: dict[str, int] = {}
        self._text: dict[str, int] = {}  # tokens of a row, without labels
        self._languages: dict[str, np.ndarray] = {}  # of each task's sides, [tasks, 2]
        for name, options in config.objectives_on().items():
            tasks = [task for task in store.tasks(options.rows) if task.train.rows]
            if not tasks:
                raise ConfigError(f"objectives.{name} is on, but {store.path} has no rows for it")
            sizes = {task.name: getattr(task.train, options.sampled_by) for task in tasks}
            phases = []
            for phase, active in zip(config.schedule, config.objectives_by_phase, strict=True):
                counts = draws_per_block(rates(sizes, phase.config.data.alpha))
                rows = active[name].batch_rows if name in active else 0
                phases.append(Phase(phase.start, rows, tuple(counts[task.name] for task in tasks)))
            self._streams[name] = Stream(
                name,
                config.train.seed,
                [task.name for task in tasks],
                [task.train.rows for task in tasks],
                phases,
            )
            self._lengths[name] = tasks[0].length
            self._text[name] = options.text_length(tasks[0].length)
            sides = [self.corpus.sides(task.languages) for task in tasks]
            self._languages[name] = np.array(sides, np.int32)

    def shapes(self, step: int) -> dict[str, tuple[int, int]]:
        """(rows, length) of the batch of each objective that is on at `step`."""
        active = self._config.phase_at(step).config.objectives.active()
        return {name: (options.batch_rows, self._lengths[name]) for name, options in active.items()}

    def tokens(self, objective: str, rows: np.ndarray) -> int:
        """How many tokens of some rows are text, not padding."""
        return int(np.count_nonzero(rows[:, : self._text[objective]] != PAD))

    def draw(self, objective: str, step: int, slots: np.ndarray) -> list[tuple[str, int]]:
        """(task, row) of some slots of the batch of `step`."""
        stream = self._streams[objective]
        found = stream.draw(step, slots)
        return [(stream.tasks[t], int(r)) for t, r in zip(found.tasks, found.rows, strict=True)]

    def read(self, objective: str, step: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of some slots, int64 [n] below batch_rows, of the batch of `step`: uint16 or
        uint32 [n, length]; and the languages of each side, int32 [n, 2], indices into the corpus's.

        Raises:
          RowStoreError: if a row is damaged, unless `data.damaged_rows` is pad: then its slot is
            padding.
        """
        stream = self._streams[objective]
        found = stream.draw(step, slots)
        dtype = np.dtype(self.store.manifest.dtype)
        batch = np.empty((len(slots), self._lengths[objective]), dtype)
        self._fetcher.bring([stream.tasks[t] for t in found.tasks], found.rows, found.ahead)
        for task in np.unique(found.tasks):
            chosen, name = np.flatnonzero(found.tasks == task), stream.tasks[task]
            rows = found.rows[chosen]
            records = self._fetcher.read(name, rows, found.ahead[chosen])
            batch[chosen] = records["ids"]
            for bad in np.flatnonzero(row_crcs(records["ids"]) != records["crc"]):
                damage = self.store.damage(name, "train", int(rows[bad]))
                if not self._pads:
                    raise RowStoreError(damage)
                print(f"step {step}: {damage}; its slot is padding", file=sys.stderr, flush=True)
                batch[chosen[bad]] = PAD
        return batch, self._languages[objective][found.tasks]
