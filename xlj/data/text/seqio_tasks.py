"""The text as seqio Tasks, which users can reuse, and through which the rows read it.

A language is the Task `xlj.text.en` with the feature `text` (an empty text ends a document), a pair
is `xlj.pairs.en_de` with `source` and `target`; all are strings, cleaned, and not shuffled.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from xlj.data.text.text_tasks import Block, TextTask
from xlj.io.quiet import import_quietly

FEATURES = {1: ("text",), 2: ("source", "target")}
"""The features of tasks by how many columns they have."""


def seqio_name(task: str) -> str:
    """The seqio Task of a task of the row store: seqio's names have no hyphens."""
    return f"xlj.{task.replace('-', '_')}"


def register(task: TextTask, skipped: Counter[str] | None = None) -> "_Reading":
    """Registers the seqio Task of one language or pair; an earlier one of its name is replaced.

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


def read(task: TextTask, lines: int, skipped: Counter[str] | None = None) -> Iterator[Block]:
    """The text of a task, through its seqio Task, in blocks of so many lines; the last has fewer.

    Args:
      skipped: counts lines left out for not being UTF-8.

    Raises:
      ConfigError: if the text cannot be read.
    """
    reading = register(task, skipped)
    import tensorflow as tf

    provider = import_quietly("seqio").get_mixture_or_task(seqio_name(task.name))
    dataset = provider.get_dataset(sequence_length=None, split="train", shuffle=False)
    features = FEATURES[len(task.languages)]
    try:
        for batch in dataset.batch(lines).as_numpy_iterator():
            yield tuple([text.decode() for text in batch[name]] for name in features)
    except tf.errors.OpError:
        if reading.error is not None:  # TensorFlow made a string of the reader's own error
            raise reading.error from None
        raise


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
