"""A teacher's vectors of a text, which are computed once and read when rows are packed.

Each chunk of each unit of the text (`text_units.Chunk`) has a file, which is written when the chunk
is embedded. So an interrupted computation resumes with the next chunk.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from xlj.config import ConfigError
from xlj.config.languages import matches_any
from xlj.data.rows.row_kind import Teacher
from xlj.data.text.text_tasks import TextTask
from xlj.data.text.text_units import Chunk
from xlj.data.tokenizer.layout import Ragged
from xlj.io import atomic, storage
from xlj.io.progress import Advance
from xlj.io.storage import AnyPath


class Embed(Protocol):
    """Computes a teacher's vectors of sentences, float32 [sentences, width]."""

    def __call__(self, sentences: Sequence[str], progress: Advance, /) -> np.ndarray: ...


FORMAT = 1
"""Version of the files of vectors; a part of the hash that names their folder."""

_FINISHED = "finished.json"


@dataclasses.dataclass(frozen=True)
class TextVectors:
    """The folder of a teacher's vectors of the text of a task; small enough to send to workers.

    Attributes:
      folder: the folder.
      width: number of dimensions of the vectors.
      column: the column of the text that the teacher reads.
    """

    folder: AnyPath
    width: int
    column: int

    @property
    def is_finished(self) -> bool:
        """Whether the vectors of the whole text are computed."""
        return (self.folder / _FINISHED).is_file()

    def finish(self, sentences: int) -> None:
        """Marks the vectors as complete."""
        content = {"sentences": sentences, "width": self.width}
        atomic.write(self.folder / _FINISHED, json.dumps(content).encode())

    def count(self, chunk: Chunk) -> int:
        """Returns the number of sentences of a chunk that the teacher reads."""
        return sum(map(bool, chunk.columns[self.column]))

    def has(self, unit: int, number: int, chunk: Chunk) -> bool:
        """Whether the vectors of a chunk are computed.

        Args:
          unit: the index of the unit of the chunk.
          number: the number of the chunk in its unit.
        """
        file, size = self._file(unit, number), self.count(chunk) * self._dtype.itemsize
        return file.is_file() and file.stat().st_size == size

    def embed(
        self, unit: int, number: int, chunk: Chunk, embed: Embed, progress: Advance = bool
    ) -> None:
        """Computes the vectors of a chunk.

        Args:
          unit, number: the arguments of `has`.

        Raises:
          ConfigError: if a vector has another width, or numbers that are not finite.
        """
        lines = chunk.columns[self.column]
        has_text = np.array([bool(line) for line in lines], bool)
        distinct = {line: i for i, line in enumerate(dict.fromkeys(filter(None, lines)))}
        vectors = np.empty((0, self.width), np.float32)
        if distinct:
            vectors = embed([*distinct], progress)
        if vectors.shape != (len(distinct), self.width) or not np.isfinite(vectors).all():
            raise ConfigError(
                f"the teacher computed vectors {list(vectors.shape)} of {len(distinct)} sentences; "
                f"expected {self.width} finite numbers each"
            )
        records = np.empty(int(has_text.sum()), self._dtype)
        records["place"] = chunk.indices[has_text]
        records["vector"] = vectors[[distinct[line] for line in lines if line]]
        atomic.write(self._file(unit, number), records.tobytes())
        progress(len(records) - len(distinct))

    def read(self, unit: int, number: int, chunk: Chunk) -> Ragged:
        """Returns the vector of each record of a chunk; zeros for a blank line.

        Args:
          chunk: some or all records of the chunk that was embedded.
        """
        records = storage.memory_map(self._file(unit, number), self._dtype)
        has_text = np.array([bool(line) for line in chunk.columns[self.column]], bool)
        chosen = np.searchsorted(records["place"], chunk.indices[has_text])
        vectors = np.zeros((len(has_text), self.width), np.float32)
        vectors[has_text] = records["vector"][chosen]
        return Ragged(vectors.ravel(), np.full(len(vectors), self.width))

    def _file(self, unit: int, number: int) -> AnyPath:
        return self.folder / f"{unit:08d}.{number:05d}.vectors"

    @property
    def _dtype(self) -> np.dtype:
        """The type of a record: the index of a sentence in its unit, and its vector."""
        return np.dtype([("place", "<i8"), ("vector", "<f4", (self.width,))])


def column_of(teacher: Teacher, task: TextTask) -> int:
    """Returns the column of the text of a task that a teacher reads: the first in one of its
    languages.

    Raises:
      ConfigError: if no column is in the language of the teacher.
    """
    if not teacher.languages:
        return 0
    columns = [i for i, code in enumerate(task.languages) if matches_any(teacher.languages, code)]
    if not columns:
        raise ConfigError(
            f"{task.name} has no sentences in a language that the teacher reads, "
            f"objectives.sentence_distillation.languages={','.join(teacher.languages)}; remove the "
            "pair from data.pairs, or add a language"
        )
    return columns[0]
