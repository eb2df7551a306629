"""The rows that a config requests, and the hashes under which they are stored."""

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from xlj.config import Config, ConfigError, Data, row_kinds
from xlj.data.rows import vectors
from xlj.data.rows.shards import SHARD_UNITS, Shards
from xlj.data.rows.store import FORMAT, MANIFEST, RowStore, RowStoreError
from xlj.data.rows.vectors import TextVectors
from xlj.data.text import text_units
from xlj.data.text.cleaning import CLEANING
from xlj.data.text.sources import module_digest
from xlj.data.text.text_tasks import TextTask, text_tasks
from xlj.data.text.text_units import CHUNK_CHARACTERS, CHUNK_LINES, ReadOptions
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import storage
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath

SAMPLED_UNITS = 16
"""Maximum number of units that prepasses sample: of each language to train a vocabulary, and of
each language pair to choose a row length. A unit is the part of a text that one process reads."""

PREPASS_FOLDERS = ("companions", "duplicates", "excluded", "lengths", "vectors", "vocabularies")
"""Subfolders of the cache with the results of prepasses."""


@dataclasses.dataclass(frozen=True)
class RowsRequest:
    """The rows that a config requests.

    The names of `folder`, `vocabulary_file` and `lengths_file` are hashes. They identify text by
    the paths, sizes and times of its files, because reading all text would take long. So these
    names are known before any text is read.

    Attributes:
      data: the `data` section of the config.
      lengths: for each kind of rows to build, one or more row lengths, in tokens. 0 means that
        `data.pair_length=auto` is not yet replaced by a number.
      tasks: the text of each language, then of each pair.
      vocabulary: the vocabulary of the config; None if a vocabulary is to be trained.
    """

    data: Data
    lengths: Mapping[str, tuple[int, ...]]
    tasks: tuple[TextTask, ...]
    vocabulary: Vocabulary | None

    @property
    def cache(self) -> AnyPath:
        """The folder of all rows and of all results of prepasses (`data.cache`)."""
        return storage.to_path(self.data.cache)

    @functools.cached_property
    def folder(self) -> AnyPath:
        """The folder of the row store, which may not exist yet.

        The name of the folder is the hash of the request, 16 hex digits.
        """
        content = {
            "format": FORMAT,
            "text": self.listing(self.tasks),
            "vocabulary": self.vocabulary.digest if self.vocabulary else self._training_settings,
            "kinds": {kind: [_identity(kind), lengths] for kind, lengths in self.lengths.items()},
        }
        return self.cache / hash_json(content)

    @property
    def folders(self) -> list[AnyPath]:
        """The folders to which a build writes."""
        tasks = [
            task.of_kind(row_kinds.load(kind)).name
            for task in self.tasks
            for kind in self.row_kinds(task)
        ]
        return [self.folder, *(self.cache / name for name in (*PREPASS_FOLDERS, *tasks))]

    @property
    def is_finished(self) -> bool:
        """Whether the row store is completely built; its manifest is written last."""
        return (self.folder / MANIFEST).is_file()

    @property
    def vocabulary_file(self) -> AnyPath:
        """The file of the vocabulary that is trained for this request; it may not exist yet."""
        content = {
            "text": self.listing(self.tasks),
            "sampled_units": SAMPLED_UNITS,
            "vocabulary": self._training_settings,
        }
        return self.cache / "vocabularies" / f"{hash_json(content)}.model"

    @property
    def lengths_file(self) -> AnyPath:
        """The file with the counts of pairs by length (`lengths.measure`); it may not exist yet."""
        content = {
            "text": self.listing(self.tasks),
            "vocabulary": self.vocabulary.digest if self.vocabulary else self._training_settings,
            "kinds": tuple(self.lengths),
        }
        return self.cache / "lengths" / f"{hash_json(content)}.json"

    def listing(self, tasks: Sequence[TextTask]) -> Record:
        """Returns JSON values that determine the clean text and the held-out lines of tasks."""
        return {
            "cleaning": [CLEANING, CHUNK_LINES, CHUNK_CHARACTERS],
            "reading": ReadOptions.of(self.data).identity(),
            "excluded": [
                source.identity() for source in text_units.open_excluded_sources(self.data)
            ],
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
        """Returns the shards of the text of a task, as rows of one kind and length.

        The name of the folder of the shards is a hash of everything that the rows depend on. The
        rows do not depend on sampling rates, the number of workers, or other tasks.

        Args:
          task: the task.
          kind: kind of rows.
          length: number of tokens of a row.
          units: number of units of the text.
          depends_on: further JSON values that determine the rows: the digest of the vocabulary, and
            a hash of the companions (`text.held_out`) of each language of the task.
          dtype: dtype of the token ids, `<u2` or `<u4`.
        """
        content = {
            "format": FORMAT,
            "shard_units": SHARD_UNITS,
            "text": self.listing([task]),
            "kind": [kind, _identity(kind)],
            "length": length,
            "depends_on": depends_on,
        }
        folder = self.cache / task.of_kind(row_kinds.load(kind)).name / hash_json(content)
        return Shards(folder, kind, units, length, dtype)

    def vectors(self, task: TextTask) -> dict[str, TextVectors]:
        """Returns the teachers' vectors of the text of a task, by the kinds of rows that need them.

        The name of the folder of the vectors is a hash of the text and the teacher, so rows of
        several vocabularies and lengths share the vectors.

        Raises:
          ConfigError: if the text is not in the language of a teacher.
        """
        of_kinds = {}
        for kind in self.row_kinds(task):
            if (teacher := row_kinds.load(kind).teacher) is not None:
                content = {
                    "format": vectors.FORMAT, "text": self.listing([task]), "teacher": [*teacher],
                }  # fmt: skip
                folder = self.cache / "vectors" / hash_json(content)
                column = vectors.column_of(teacher, task)
                of_kinds[kind] = TextVectors(folder, teacher.width, column)
        return of_kinds

    def row_kinds(self, task: TextTask) -> list[str]:
        """Returns the kinds of rows that are packed from the text of a task."""
        return [kind for kind in self.lengths if row_kinds.load(kind).source == task.source]

    def row_name(self, task: TextTask, kind: str, length: int) -> str:
        """Returns the name of the rows of one kind and length of a task.

        Rows of the first length of a kind are named `text.en`; rows of other lengths have the
        length in their name: `text@8192.en`.
        """
        name = task.of_kind(row_kinds.load(kind)).name
        is_later = length in self.lengths[kind][1:]
        return name.replace(".", f"@{length}.", 1) if is_later else name

    @property
    def row_lengths(self) -> dict[str, int]:
        """The length of the rows of each language or pair, by name; 0 if it is not yet known."""
        return {
            self.row_name(task, kind, length): length
            for task in self.tasks
            for kind in self.row_kinds(task)
            for length in self.lengths[kind]
        }

    @property
    def _training_settings(self) -> dict[str, object]:
        return vocabulary_training.settings(self.data)


def request_of(config: Config, vocabulary: Vocabulary | None = None) -> RowsRequest:
    """Returns the request of a config.

    The function finds the files of the text, but does not read them, and does not import
    TensorFlow or seqio.

    Args:
      config: the config.
      vocabulary: the vocabulary of `data.vocabulary`, if it is already loaded.

    Raises:
      ConfigError: if files of the text are missing, a template is invalid, the vocabulary cannot be
        read, or `data.cache` cannot be created.
    """
    data = config.data
    cache = storage.to_path(data.cache)
    try:
        tasks = tuple(text_tasks(data, map(row_kinds.load, config.row_kinds())))
    except ConfigError as error:
        stores = _stores_with_the_text_of(data, cache)
        if not stores:
            raise
        choices = ", ".join(f"data.rows={store.name}" for store in stores[:3])
        raise ConfigError(
            f"{error}\nto train without the text, choose a finished row store of these languages "
            f"and pairs in {cache} (latest first): {choices}"
        ) from None
    if data.vocabulary and vocabulary is None:
        vocabulary = Vocabulary.load(data.vocabulary)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data.cache={data.cache} cannot be created: {error}") from error
    return RowsRequest(data, config.row_lengths(), tasks, vocabulary)


def _stores_with_the_text_of(data: Data, cache: AnyPath) -> list[AnyPath]:
    """Returns the finished row stores in a cache that have rows of all languages and pairs of a
    config; the latest first."""
    names = {*(data.languages if data.mono else ()), *(data.pairs if data.parallel else ())}
    stores = []
    for file in storage.find_files_below(cache, f"*/{MANIFEST}"):
        with contextlib.suppress(RowStoreError):
            tasks = RowStore(file.parent).manifest.tasks
            if names <= {task.name.partition(".")[2] for task in tasks}:
                stores.append(file)
    return [file.parent for file in sorted(stores, key=storage.last_modified, reverse=True)]


def _identity(kind: str) -> list[Any]:
    """Returns JSON values that identify the code of a kind of rows."""
    module = kind.partition(":")[0] if ":" in kind else ""
    return [row_kinds.load(kind).version, module_digest(module, "rows") if module else ""]


def hash_json(content: Any) -> str:
    """Computes a hash of JSON values, as 16 hex digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
