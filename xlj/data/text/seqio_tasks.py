"""Registers the text as seqio Tasks for use in other programs; rows are built from the same text.

A language is the Task `xlj.text.en` with the feature `text` (an empty text ends a document). A pair
is `xlj.pairs.en_de` with `source` and `target`. All features are strings, cleaned and not
shuffled. The shards of a Task are its units, so that several hosts can share it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from xlj.config import Data
from xlj.data.text.reading import ReadOptions, UnitReader
from xlj.data.text.text_tasks import TextTask
from xlj.io.quiet import import_quietly

FEATURES = {1: ("text",), 2: ("source", "target")}
"""The features of tasks by number of columns."""


def seqio_name(task: str) -> str:
    """Returns the seqio name of a task of the row store; names of seqio have no hyphens."""
    return f"xlj.{task.replace('-', '_')}"


def register(task: TextTask, data: Data) -> None:
    """Registers the seqio Task of one language or pair; replaces an earlier Task of that name.

    It is read with the options of `data`, except excluded lines and duplicates.
    """
    seqio = import_quietly("seqio")
    import tensorflow as tf

    features = FEATURES[len(task.languages)]
    units, reading = task.units(data.unit_bytes), ReadOptions.of(data)

    def blocks(chosen: Sequence[int]) -> Iterator[dict[str, Sequence[str]]]:
        for index in chosen:
            for chunk in UnitReader(units[index], index, reading).chunks():
                yield dict(zip(features, chunk.columns, strict=True))

    class Units(seqio.DataSource):  # type: ignore[name-defined]
        """The text as a seqio source; its shards are the units."""

        def __init__(self) -> None:
            super().__init__(splits=["train"], num_input_examples=None)

        @property
        def supports_arbitrary_sharding(self) -> bool:
            return False

        def list_shards(self, split: str) -> list[str]:
            return [f"{task.name}-{index}" for index in range(len(units))]

        def get_dataset(
            self,
            split: str = "train",
            shuffle: bool = False,
            seed: int | None = None,
            shard_info: Any = None,
        ) -> Any:
            chosen = range(len(units))
            if shard_info is not None:
                chosen = chosen[shard_info.index :: shard_info.num_shards]
            # Generates blocks of lines, since single lines are slow.
            signature = dict.fromkeys(features, tf.TensorSpec([None], tf.string))
            return tf.data.Dataset.from_generator(
                lambda: blocks(chosen), output_signature=signature
            ).unbatch()

    string = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=0)
    name = seqio_name(task.name)
    if name in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add(
        name, source=Units(), preprocessors=[], output_features=dict.fromkeys(features, string)
    )
