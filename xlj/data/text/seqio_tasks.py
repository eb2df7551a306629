"""The text as seqio Tasks and Mixtures, which users can reuse, and from which the rows are made.

A language is the Task `xlj.text.en` with the feature `text` (an empty text ends a document), a pair
is `xlj.pairs.en_de` with `source` and `target`; all are strings, cleaned, and not shuffled.
The Mixtures `xlj.text` and `xlj.pairs` draw from them at the rates that training uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from xlj.config import ROW_KINDS, Config
from xlj.data.rows import units
from xlj.data.rows.rates import rates
from xlj.data.rows.recipe import UNIT_LINES, resolve
from xlj.data.rows.store import RowStore
from xlj.data.rows.units import Settings, Unit
from xlj.data.text.text_tasks import TextTask
from xlj.io.quiet_import import import_quietly

FEATURES = {1: ("text",), 2: ("source", "target")}
"""The features of tasks by how many columns they have."""


def seqio_name(task: str) -> str:
    """The seqio Task of a task of the row store: seqio's names have no hyphens."""
    return f"xlj.{task.replace('-', '_')}"


def register(config: Config) -> list[str]:
    """Registers a config's Tasks, and its Mixtures once its rows are made; earlier ones of the same
    names are replaced.

    Returns:
      The names registered.

    Raises:
      ConfigError: what `recipe.resolve` raises.
    """
    recipe = resolve(config)
    names = []
    for task in dict.fromkeys(recipe.tasks + recipe.row_tasks):
        register_task(task)
        names.append(seqio_name(task.name))
    if recipe.finished:
        names += register_mixtures(RowStore(recipe.folder), config.data.alpha)
    return names


def register_task(task: TextTask, skipped: Counter[str] | None = None) -> _Reading:
    """Registers the seqio Task of one language or pair.

    Args:
      skipped: counts lines left out for not being UTF-8.
    """
    seqio = import_quietly("seqio")
    import tensorflow as tf

    reading = _Reading(task, skipped)
    signature = {
        name: tf.TensorSpec([None], tf.string)  # blocks of lines: single ones would be slow
        for name in FEATURES[len(task.languages)]
    }

    def dataset(split: str, shuffle_files: bool, seed: int | None = None) -> Any:
        del split, shuffle_files, seed  # one split, in the order of the sources
        return tf.data.Dataset.from_generator(reading, output_signature=signature).unbatch()

    string = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=0)
    name = seqio_name(task.name)
    if name in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(dataset, splits=["train"]),
        preprocessors=[],
        output_features=dict.fromkeys(FEATURES[len(task.languages)], string),
    )
    return reading


def register_mixtures(store: RowStore, alpha: float) -> list[str]:
    """Registers `xlj.text`, `xlj.pairs` and so on with the sampling rates of a store's tasks.

    Returns:
      The names registered.
    """
    seqio = import_quietly("seqio")
    names = []
    for kind in ROW_KINDS:
        tokens = {task.name: task.train.tokens for task in store.tasks(kind)}
        if not tokens:
            continue
        name = f"xlj.{kind}"
        if name in seqio.MixtureRegistry.names():
            seqio.MixtureRegistry.remove(name)
        probabilities = rates(tokens, alpha)
        seqio.MixtureRegistry.add(name, [(seqio_name(t), p) for t, p in probabilities.items()])
        names.append(name)
    return names


def read_units(task: TextTask, skipped: Counter[str] | None = None) -> Iterator[Unit]:
    """The text of a task, through its seqio Task, in units of `UNIT_LINES` lines.

    Raises:
      ConfigError: if the text cannot be read.
    """
    reading = register_task(task, skipped)
    import tensorflow as tf

    provider = import_quietly("seqio").get_mixture_or_task(seqio_name(task.name))
    dataset = provider.get_dataset(sequence_length=None, split="train", shuffle=False)
    features = FEATURES[len(task.languages)]
    try:
        for index, batch in enumerate(dataset.batch(UNIT_LINES).as_numpy_iterator()):
            columns = tuple([text.decode() for text in batch[name]] for name in features)
            yield Unit(task.name, index, columns)
    except tf.errors.OpError:
        if reading.error is not None:  # TensorFlow made a string of the reader's own error
            raise reading.error from None
        raise


def missing_units(task: TextTask, settings: Settings) -> Iterator[Unit]:
    """The units of a task that have no good shard yet. When the text was read to its end this is
    noted down, so that a finished task is not read again."""
    end = units.read_end(settings, task.name)
    if end is not None and all(_is_made(task, settings, index) for index in range(end.units)):
        return
    skipped: Counter[str] = Counter()
    count = 0
    for unit in read_units(task, skipped):
        count += 1
        if not _is_made(task, settings, unit.index):
            yield unit
    units.write_end(settings, task.name, units.End(count, dict(skipped)))


def _is_made(task: TextTask, settings: Settings, index: int) -> bool:
    return units.read_shard(settings, task.name, index) is not None


class _Reading:
    """The generator function behind a Task's dataset; remembers the error that stopped it."""

    def __init__(self, task: TextTask, skipped: Counter[str] | None):
        self._task, self._skipped = task, skipped
        self.error: Exception | None = None

    def __call__(self) -> Iterator[dict[str, Sequence[str]]]:
        try:
            for block in self._task.blocks(self._skipped):
                yield dict(zip(FEATURES[len(self._task.languages)], block, strict=True))
        except Exception as error:
            self.error = error
            raise
