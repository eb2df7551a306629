"""The rows of every step: a run's streams over a row store."""

import sys

import numpy as np

from xlj.config import Config, ConfigError
from xlj.config import Phase as ConfigPhase
from xlj.data.rows import mixture
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.draws import Phase, Stream
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
        self._options = config.objectives_on()
        self._lengths: dict[tuple[str, int], int] = {}  # by objective and the phase's first step
        self._languages: dict[str, np.ndarray] = {}  # of each task's sides, [tasks, 2]
        for name, options in self._options.items():
            tasks = [task for task in store.tasks(options.rows) if task.train.rows]
            phases = []
            for phase, active in zip(config.schedule, config.objectives_by_phase, strict=True):
                drawn = mixture.tasks(store, options, phase.config)
                rows = active[name].batch_rows if name in active else 0
                if rows and not drawn:
                    where = f" in phase {phase.name}" * bool(phase.name)
                    raise ConfigError(
                        f"objectives.{name} is on{where}, but {store.path} has no rows for it"
                    )
                counts = mixture.counts(store, options, phase.config) if rows else {}
                of_tasks = tuple(counts.get(task.name, 0) for task in tasks)
                self._lengths[name, phase.start] = drawn[0].length if rows else 0
                phases.append(Phase(phase.start, rows, of_tasks, _smaller(phase, rows)))
            self._streams[name] = Stream(
                name,
                config.train.seed,
                [task.name for task in tasks],
                [task.train.rows for task in tasks],
                phases,
            )
            sides = [self.corpus.sides(task.languages) for task in tasks]
            self._languages[name] = np.array(sides, np.int32)

    def shapes(self, step: int) -> dict[str, tuple[int, int]]:
        """(rows, length) of the batch of each objective that is on at `step`."""
        phase = self._config.phase_at(step)
        return {
            name: (options.batch_rows, self._lengths[name, phase.start])
            for name, options in phase.config.objectives.active().items()
        }

    def tokens(self, objective: str, rows: np.ndarray) -> int:
        """How many tokens of some rows are text, not padding."""
        text = self._options[objective].text_length(rows.shape[1])  # without labels
        return int(np.count_nonzero(rows[:, :text] != PAD))

    def draw(self, objective: str, step: int, slots: np.ndarray) -> list[tuple[str, int]]:
        """(task, row) of some slots of the batch of `step`, but for those that are empty."""
        stream = self._streams[objective]
        found = stream.draw(step, self._places(step, slots)[0])
        return [(stream.tasks[t], int(r)) for t, r in zip(found.tasks, found.rows, strict=True)]

    def _places(self, step: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of some slots of a batch those that have rows: their draws, from the step's first on, and
        their indices, both int64 [n]. Slot s is in microbatch s mod `train.accumulation`, and the
        first of these have rows."""
        microbatches, parts = self._config.microbatches(step), self._config.phase_at(step).parts
        filled = np.flatnonzero(slots % parts < microbatches)
        return slots[filled] // parts * microbatches + slots[filled] % parts, filled

    def read(self, objective: str, step: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of some slots, int64 [n] below batch_rows, of the batch of `step`: uint16 or
        uint32 [n, length]; and the languages of each side, int32 [n, 2], indices into the corpus's.
        Slots that are empty in a smaller batch are padding.

        Raises:
          RowStoreError: if a row is damaged, unless `data.damaged_rows` is pad: then its slot is
            padding.
        """
        stream = self._streams[objective]
        places, filled = self._places(step, slots)
        found = stream.draw(step, places)
        dtype = np.dtype(self.store.manifest.dtype)
        length = self._lengths[objective, self._config.phase_at(step).start]
        batch = np.full((len(slots), length), PAD, dtype)
        self._fetcher.bring([stream.tasks[t] for t in found.tasks], found.rows, found.ahead)
        for task in np.unique(found.tasks):
            chosen, name = np.flatnonzero(found.tasks == task), stream.tasks[task]
            rows = found.rows[chosen]
            records = self._fetcher.read(name, rows, found.ahead[chosen])
            batch[filled[chosen]] = records["ids"]
            for bad in np.flatnonzero(row_crcs(records["ids"]) != records["crc"]):
                damage = self.store.damage(name, "train", int(rows[bad]))
                if not self._pads:
                    raise RowStoreError(damage)
                print(f"step {step}: {damage}; its slot is padding", file=sys.stderr, flush=True)
                batch[filled[chosen[bad]]] = PAD
        languages = np.zeros((len(slots), 2), np.int32)
        languages[filled] = self._languages[objective][found.tasks]
        return batch, languages


def _smaller(phase: ConfigPhase, rows: int) -> tuple[tuple[int, int], ...]:
    """The batch warm-up of an objective with so many rows in a whole batch, as `Phase.smaller`."""
    warmup = phase.config.batch_warmup
    if phase.start or not warmup:
        return ()
    return tuple((start, size * rows // warmup.parts) for start, size in warmup.stretches())
