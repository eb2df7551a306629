"""What a config requests, and the hashes that rows are stored under, all known before any work."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from xlj.config import ROW_KINDS, Config, ConfigError, Data
from xlj.data.rows.packing import PACKING
from xlj.data.rows.shards import SHARD_UNITS, Shards
from xlj.data.rows.store import FORMAT, MANIFEST
from xlj.data.text import reading
from xlj.data.text.cleaning import CLEANING
from xlj.data.text.reading import CHUNK_CHARACTERS, CHUNK_LINES, ReadOptions
from xlj.data.text.text_tasks import TextTask, text_tasks
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import storage
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath

SAMPLED_UNITS = 16
"""Units of each language, at most, that prepasses sample for a vocabulary or row lengths."""

PREPASS_FOLDERS = ("companions", "duplicates", "excluded", "lengths", "vocabularies")
"""Folders of the cache with the results of prepasses."""


@dataclasses.dataclass(frozen=True)
class Request:
    """The rows that a config requests.

    Text is identified by the paths, sizes and times of its files, because reading it takes long.

    Attributes:
      lengths: one or more row lengths of each kind of rows that is built.
      tasks: the text of each language, then of each pair.
      vocabulary: None if a vocabulary is trained.
    """

    data: Data
    lengths: Mapping[str, tuple[int, ...]]
    tasks: tuple[TextTask, ...]
    vocabulary: Vocabulary | None

    @property
    def cache(self) -> AnyPath:
        """The folder of all rows and prepasses."""
        return storage.to_path(self.data.cache)

    @functools.cached_property
    def folder(self) -> AnyPath:
        """The folder of the store, which may not exist yet: the request hash, 16 hex digits."""
        content = {
            "format": FORMAT,
            "text": self.listing(self.tasks),
            "vocabulary": self.vocabulary.digest if self.vocabulary else self._training,
            "lengths": {
                kind: lengths[0] if len(lengths) == 1 else lengths
                for kind, lengths in self.lengths.items()
            },
        }
        return self.cache / hash_of(content)

    @property
    def folders(self) -> list[AnyPath]:
        """The folders of the cache that building writes to."""
        tasks = [task.of_kind(k).name for task in self.tasks for k in self.row_kinds(task)]
        return [self.folder, *(self.cache / name for name in (*PREPASS_FOLDERS, *tasks))]

    @property
    def is_finished(self) -> bool:
        """Whether the store has a manifest."""
        return (self.folder / MANIFEST).is_file()

    @property
    def vocabulary_file(self) -> AnyPath:
        """The file of the vocabulary that is trained for this request; may not exist yet."""
        content = {
            "text": self.listing(self.tasks),
            "sampled_units": SAMPLED_UNITS,
            "vocabulary": self._training,
        }
        return self.cache / "vocabularies" / f"{hash_of(content)}.model"

    @property
    def lengths_file(self) -> AnyPath:
        """The file with the counted lengths of pairs; may not exist yet."""
        content = {
            "text": self.listing(self.tasks),
            "vocabulary": self.vocabulary.digest if self.vocabulary else self._training,
            "kinds": tuple(self.lengths),
        }
        return self.cache / "lengths" / f"{hash_of(content)}.json"

    def listing(self, tasks: Sequence[TextTask]) -> Record:
        """Lists what determines the clean text of tasks and what is held out, as JSON values."""
        return {
            "cleaning": [CLEANING, CHUNK_LINES, CHUNK_CHARACTERS],
            "reading": ReadOptions.of(self.data).identity(),
            "excluded": [source.identity() for source in reading.open_excluded_sources(self.data)],
            "duplicates": self.data.duplicates,
            "held_out_share": self.data.held_out_share,
            "unit_bytes": self.data.unit_bytes,
            "tasks": {
                task.name: [task.languages, [source.identity() for source in task.sources]]
                for task in tasks
            },
        }

    def shards(
        self, task: TextTask, kind: str, length: int, units: int, depends_on: Any, dtype: str
    ) -> Shards:
        """Returns the shards of a task's text as rows of a kind.

        Their folder is named by a hash of all that they depend on. Sampling rates, worker counts
        and other tasks are not part of it.

        Args:
          length: tokens of a row.
          units: number of units of the text.
          depends_on: what else determines the rows, as JSON values: the vocabulary's digest and the
            companions of the task's languages.
        """
        content = {
            "format": FORMAT,
            "packing": PACKING,
            "shard_units": SHARD_UNITS,
            "text": self.listing([task]),
            "kind": kind,
            "length": length,
            "hangs_on": depends_on,  # in the hash of existing folders
        }
        folder = self.cache / task.of_kind(kind).name / hash_of(content)
        return Shards(folder, kind, units, length, dtype)

    def row_kinds(self, task: TextTask) -> list[str]:
        """Returns the kinds of rows that are packed from a task's text."""
        return [k for k in self.lengths if ROW_KINDS[k].source == ROW_KINDS[task.kind].source]

    @property
    def _training(self) -> dict[str, object]:
        return vocabulary_training.settings(self.data)


def request_of(config: Config, vocabulary: Vocabulary | None = None) -> Request:
    """Returns the request of a config.

    Imports neither TensorFlow nor seqio, and reads no text.

    Args:
      vocabulary: the vocabulary of `data.vocabulary`, if it is already loaded.

    Raises:
      ConfigError: if text is missing, or the text or the vocabulary cannot be used.
    """
    data = config.data
    cache = storage.to_path(data.cache)
    try:
        tasks = tuple(text_tasks(data))
    except ConfigError as error:
        stores = sorted(
            storage.find_files_below(cache, f"*/{MANIFEST}"), key=storage.last_modified, reverse=True
        )
        if not stores:
            raise
        names = ", ".join(file.parent.name for file in stores[:3])
        raise ConfigError(
            f"{error}\nto train without text, use rows of {cache}: data.rows={names} (latest first)"
        ) from None
    if data.vocabulary and vocabulary is None:
        vocabulary = Vocabulary.load(data.vocabulary)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data.cache={data.cache} cannot be created: {error}") from error
    return Request(data, config.row_lengths(), tasks, vocabulary)


def hash_of(content: Any) -> str:
    """Returns a hash of JSON values: 16 hex digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
