"""The text of a config as seqio Tasks, which other programs can use.

- The Task of a language, such as `xlj.text.en`, has the feature `text`. An empty text ends a
  document.
- The Task of a pair, such as `xlj.pairs.en_de`, has the features `source` and `target`.

All features are cleaned strings (`cleaning.clean`), in the order of the files. The shards of a Task
are the units of work of the text (`text_tasks.Unit`), so several hosts can divide a Task.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from xlj.config import Data
from xlj.data.text.text_tasks import TextTask
from xlj.data.text.text_units import ReadOptions, UnitReader
from xlj.io.quiet import import_quietly

FEATURES = {1: ("text",), 2: ("source", "target")}
"""The features of a Task, by its number of languages."""


def seqio_name(task: str) -> str:
    """Returns the name of the seqio Task for a `TextTask.name`; seqio does not allow hyphens."""
    return f"xlj.{task.replace('-', '_')}"


def register_task(task: TextTask, data: Data) -> None:
    """Registers the seqio Task of one language or pair; replaces a Task of the same name.

    The Task applies `data.malformed` and `data.filter`. It does not apply `data.duplicates` and
    `data.exclude`, and it includes held-out lines.
    """
    seqio = import_quietly("seqio")
    import tensorflow as tf

    features = FEATURES[len(task.languages)]
    units, reading = task.units(data.unit_bytes), ReadOptions.of(data)
    reading = dataclasses.replace(reading, languages=task.languages)

    def read_blocks(unit_indices: Sequence[int]) -> Iterator[dict[str, Sequence[str]]]:
        for index in unit_indices:
            for chunk in UnitReader(units[index], index, reading).chunks():
                yield dict(zip(features, chunk.columns, strict=True))

    class Units(seqio.DataSource):  # type: ignore[name-defined]
        """The text as a seqio source, whose shards are the units of work."""

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
            unit_indices = range(len(units))
            if shard_info is not None:
                unit_indices = unit_indices[shard_info.index :: shard_info.num_shards]
            # The generator yields blocks of lines, because yielding single lines is slow.
            signature = dict.fromkeys(features, tf.TensorSpec([None], tf.string))
            return tf.data.Dataset.from_generator(
                lambda: read_blocks(unit_indices), output_signature=signature
            ).unbatch()

    string = seqio.Feature(seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.string, rank=0)
    name = seqio_name(task.name)
    if name in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add(
        name, source=Units(), preprocessors=[], output_features=dict.fromkeys(features, string)
    )
