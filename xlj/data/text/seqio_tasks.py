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


def register(task: TextTask, skipped: Counter[str] | None = None) -> list[Exception]:
    """Registers the seqio Task of one language or pair; an earlier one of its name is replaced.
    `skipped` counts lines left out for not being UTF-8.

    Returns:
      The errors that stop readings of it, added as they come: TensorFlow makes strings of them.
    """
    seqio = import_quietly("seqio")
    import tensorflow as tf

    errors: list[Exception] = []
    features = FEATURES[len(task.languages)]

    def blocks() -> Iterator[dict[str, Sequence[str]]]:
        try:
            for block in task.blocks(skipped):
                yield dict(zip(features, block, strict=True))
        except Exception as error:
            errors.append(error)
            raise

    def dataset(split: str, shuffle_files: bool, seed: int | None = None) -> Any:
        del split, shuffle_files, seed  # one split, in the order of the sources
        # Blocks of lines: single ones would be slow.
        signature = dict.fromkeys(features, tf.TensorSpec([None], tf.string))
        return tf.data.Dataset.from_generator(blocks, output_signature=signature).unbatch()

    string = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=0)
    name = seqio_name(task.name)
    if name in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(dataset, splits=["train"]),
        preprocessors=[],
        output_features=dict.fromkeys(features, string),
    )
    return errors


def read(task: TextTask, lines: int, skipped: Counter[str] | None = None) -> Iterator[Block]:
    """The text of a task, through its seqio Task, in blocks of so many lines, the last of fewer; a
    `ConfigError` if it cannot be read. `skipped` counts lines left out for not being UTF-8."""
    errors = register(task, skipped)
    import tensorflow as tf

    provider = import_quietly("seqio").get_mixture_or_task(seqio_name(task.name))
    dataset = provider.get_dataset(sequence_length=None, split="train", shuffle=False)
    features = FEATURES[len(task.languages)]
    try:
        for batch in dataset.batch(lines).as_numpy_iterator():
            yield tuple([text.decode() for text in batch[name]] for name in features)
    except tf.errors.OpError:
        if errors:
            raise errors[0] from None
        raise
