"""Reads rows from a row store, with NumPy and the standard library only.

A row store is a folder, such as `CACHE/REQUEST_HASH/`, with two files:

manifest.json            is written last; without it, the row store is not finished
vocabulary.model         a SentencePiece model, or a tokenizer.json

A task is the rows of one language or pair. For each task, the manifest names a folder, which is
`../text.en/<hash>` or a subfolder. This folder contains the shards of the task:

00000.rows, 00001.rows   a record for each row: its fields, which the manifest names with their
                         types and shapes (such as token ids, little-endian uint16), and their CRC32
                         (uint32); training rows first, then held-out rows

`Corpus` has the properties that objectives need: the size of the vocabulary, and the languages.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from xlj.data.rows import row_kind
from xlj.data.rows.row_kind import Field
from xlj.io.quoting import quoted, shortened

if TYPE_CHECKING:  # importing this module must need only NumPy and the standard library
    from xlj.io.json_file import Record
    from xlj.io.storage import AnyPath


FORMAT = 3
"""Version of the format of the files; tests/formats contains rows of this version."""
MANIFEST = "manifest.json"
VOCABULARY = "vocabulary.model"
SPLITS = ("train", "held_out")
OMITTED_IF_EMPTY = ("malformed", "too_long", "other_languages")
"""Attributes of `TextCounts` and `shards.Counts` that files do not contain if they are empty."""


class RowStoreError(RuntimeError):
    """A row store is missing, unfinished or damaged, or has another format.

    The message names the file and, for a damaged row, the number of the row.
    """


@dataclasses.dataclass(frozen=True)
class Split:
    """The training rows or the held-out rows of a task.

    Attributes:
      rows: number of rows.
      tokens: number of ids in the rows, without padding.
      examples: number of examples in the rows; each starts with `<s>`.
      sentences: number of records of the source in the rows, such as lines or pairs.
      sha256: digest of the rows.
      shards: number of rows in each shard.
    """

    rows: int
    tokens: int
    examples: int
    sentences: int
    sha256: str
    shards: tuple[int, ...]

    @classmethod
    def without_rows(cls, shards: int) -> "Split":
        """Returns a split of a task that has no such rows in its shards."""
        return cls(0, 0, 0, 0, hashlib.sha256(b"").hexdigest(), (0,) * shards)


@dataclasses.dataclass(frozen=True)
class TextCounts:
    """Counts of the text from which the rows of a task were packed.

    Attributes:
      sentences: number of records of the sources that were read: lines with text, or pairs.
      cut: number of documents that were cut into several examples, or of sentences that were
        truncated; held-out lines are not counted.
      dropped: number of records that are in no row, by reason.
      input_bytes: size of the sources in bytes; approximate if the sources are not files.
      input_sha256: digest of the whole text as it was read.
      malformed: by reason, the number of malformed records and the place of the first. `dropped`
        counts them too, except lines of which only a byte order mark was removed.
      too_long: number of records that were dropped because they are too long, by the length of the
        shortest row with room for them, rounded up to a multiple of 8 (`packing.histogram`).
      other_languages: number of records that `data.filter` believes to be in another language, by
        this language; `dropped` counts them too, if they were dropped.
    """

    sentences: int
    cut: int
    dropped: Mapping[str, int]
    input_bytes: int
    input_sha256: str
    malformed: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    too_long: Mapping[str, int] = dataclasses.field(default_factory=dict)
    other_languages: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TaskRows:
    """The rows of one language or pair.

    Attributes:
      name: name of the task, such as `text.en` or `pairs.en-de`.
      folder: the folder of the shards, relative to the folder of the store.
      kind: name of the kind of rows (`RowKind.name`), or of the kind of a fine-tuning task.
      languages: the language of each column of the text.
      length: number of tokens of a row.
      fields: the fields of a record.
      train, held_out: the training rows and the held-out rows.
      text: counts of the text; None for rows of labelled examples.
    """

    name: str
    folder: str
    kind: str
    languages: tuple[str, ...]
    length: int
    fields: tuple[Field, ...]
    train: Split
    held_out: Split
    text: TextCounts | None = None

    def as_json(self) -> "Record":
        """Converts the object to JSON values, which `task_rows_from_json` converts back."""
        content = dataclasses.asdict(self)
        if self.text is None:
            del content["text"]
        else:
            for name in OMITTED_IF_EMPTY:
                if not content["text"][name]:
                    del content["text"][name]
        return content

    def split(self, name: str) -> Split:
        """Returns the `train` or the `held_out` split."""
        if name not in SPLITS:
            raise ValueError(f"split {name!r} does not exist; splits are {', '.join(SPLITS)}")
        return self.train if name == "train" else self.held_out


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of a row store.

    Attributes:
      vocabulary_size: number of ids, including special tokens and `<mask>`.
      vocabulary_digest: sha256 of the vocabulary's file.
      recipe: the JSON values that determine the text of the rows (`request.Request.listing`); for
        rows of fine-tuning, only their format and kind.
      tasks: the rows of each task, in the order of the config.
      format: the version of the format.
    """

    vocabulary_size: int
    vocabulary_digest: str
    recipe: "Record"
    tasks: tuple[TaskRows, ...]
    format: int = FORMAT

    @property
    def languages(self) -> list[str]:
        """The distinct languages of the tasks, in order."""
        return list(dict.fromkeys(name for task in self.tasks for name in task.languages))

    @property
    def content_hash(self) -> str:
        """The sha256 of digests and counts of the rows; equal hashes mean equal rows."""
        content = dataclasses.asdict(self)
        del content["recipe"]
        for task in content["tasks"]:
            del task["folder"]
            for name in ("input_bytes", "input_sha256", *OMITTED_IF_EMPTY):
                (task["text"] or {}).pop(name, None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> bytes:
        """Returns the content of the manifest file, including the content hash."""
        content = {**dataclasses.asdict(self), "content_hash": self.content_hash}
        content["tasks"] = [task.as_json() for task in self.tasks]
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def file_bytes(recipe: "Record") -> dict[str, int]:
    """Returns the total size in bytes of the files of each language or pair whose text is in files.

    Args:
      recipe: the value of `Manifest.recipe`.
    """
    sizes = {}
    for name, (_, sources) in recipe.get("tasks", {}).items():
        if all(isinstance(source, list) for source in sources):
            entries = filter(_is_file, (entry for source in sources for entry in source))
            sizes[name] = sum(entry[1] for entry in entries)
    return sizes


def _is_file(entry: object) -> bool:
    """Whether an entry of a source is the identity of a file (`storage.identity`), not fields."""
    return isinstance(entry, list) and len(entry) > 1 and isinstance(entry[1], int)


class RowStore:
    """A finished row store, opened for reading.

    `read` memory-maps local files. From a bucket (`storage.Url`), it requests one range of each
    shard: from the first to the last row that it needs.

    Args:
      path: the folder of the store.
      kinds: the kinds of rows to open; other kinds are ignored. None opens all kinds.

    Attributes:
      path: the folder of the store.
      manifest: the manifest, with the tasks of the opened kinds.

    Raises:
      RowStoreError: if the store is not finished or has another format, if its manifest or its
        vocabulary is damaged, or if a shard has the wrong size.
    """

    def __init__(self, path: "str | AnyPath", kinds: Collection[str] | None = None):
        self.path = Path(path) if isinstance(path, str) else path
        self.manifest = _load_manifest(self.path / MANIFEST)
        if kinds is not None:
            opened = tuple(task for task in self.manifest.tasks if task.kind in kinds)
            self.manifest = dataclasses.replace(self.manifest, tasks=opened)
        self._tasks = {task.name: task for task in self.manifest.tasks}
        self._dtypes = {name: row_kind.record_dtype(x.fields) for name, x in self._tasks.items()}
        self._starts = {
            (task.name, split): np.cumsum([0, *task.split(split).shards])
            for task in self.manifest.tasks
            for split in SPLITS
        }
        self._map = functools.lru_cache(maxsize=256)(self._open)
        self._file = functools.lru_cache(maxsize=256)(self._open_file)
        model = self.vocabulary_file
        digest = hashlib.sha256(model.read_bytes()).hexdigest() if model.is_file() else ""
        if digest != self.manifest.vocabulary_digest:
            raise RowStoreError(f"{model} is missing or damaged; {self._rebuild_hint(model)}")
        for task in self.manifest.tasks:
            sizes = _sizes(self.path / task.folder, len(task.train.shards))
            rows = zip(task.train.shards, task.held_out.shards, strict=True)
            for shard, (train, held_out) in enumerate(rows):
                size = (train + held_out) * self._dtypes[task.name].itemsize
                self._check_size(self.file(task.name, shard), size, sizes)

    @property
    def vocabulary_file(self) -> "AnyPath":
        """The file of the vocabulary with which the rows were built (`VOCABULARY`)."""
        return self.path / VOCABULARY

    @property
    def concurrent_reads(self) -> int:
        """How many reads a caller should run at the same time.

        It is more than 1 only for a bucket, where each read has a long delay.
        """
        return 1 if isinstance(self.path, Path) else 32

    def tasks(self, kind: str) -> tuple[TaskRows, ...]:
        """Returns the tasks with rows of a kind, in the order of the config."""
        return tuple(task for task in self.manifest.tasks if task.kind == kind)

    def task(self, name: str) -> TaskRows:
        """Returns the task with a name, such as `text.en`."""
        return self._tasks[name]

    def read(self, task: str, split: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Reads rows of a task, and checks the CRC32 of each row.

        Args:
          task: name of the task.
          split: `train` or `held_out`.
          rows: row numbers, int64 [n].

        Returns:
          The array [n, ...] of each field, by name.

        Raises:
          RowStoreError: if a row is damaged.
          IndexError: if a row number is out of range.
        """
        count = self._tasks[task].split(split).rows
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < count:
            raise IndexError(f"{task}/{split} has rows 0 to {count - 1}, not {rows}")
        found = np.empty(len(rows), self._dtypes[task])
        shards = np.searchsorted(self._starts[task, split], rows, "right") - 1
        for shard in np.unique(shards):
            is_in_shard = shards == shard
            numbers = rows[is_in_shard] - self._starts[task, split][shard]
            found[is_in_shard] = self._read_records(task, split, int(shard), numbers)
        damaged = row_kind.find_damaged(found)
        if damaged.size:
            raise RowStoreError(self.damage(task, split, int(rows[damaged[0]])))
        return row_kind.to_rows(found)

    def fetch(self, task: str, row: int, count: int) -> np.ndarray:
        """Reads `count` consecutive training rows of a task, starting with row number `row`.

        Does not check their CRC32s.

        Returns:
          Records (`row_kind.record_dtype`), [count].

        Raises:
          RowStoreError: if a file cannot be read or has become shorter.
        """
        starts, kind = self._starts[task, "train"], self._dtypes[task]
        arrays, shard = [], int(np.searchsorted(starts, row, "right")) - 1
        while count:
            in_shard = min(count, int(starts[shard + 1]) - row)
            if in_shard > 0:
                arrays.append(
                    np.frombuffer(
                        self._read_consecutive(task, shard, row - starts[shard], in_shard), kind
                    )
                )
            row, count, shard = row + in_shard, count - in_shard, shard + 1
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def file(self, task: str, shard: int) -> "AnyPath":
        """Returns the file of a shard of a task."""
        return shard_file(self.path / self._tasks[task].folder, shard)

    def damage(self, task: str, split: str, row: int) -> str:
        """Describes a damaged row: its file, its number in this file, and a remedy."""
        shard = int(np.searchsorted(self._starts[task, split], row, "right")) - 1
        number = row - int(self._starts[task, split][shard])
        if split == "held_out":
            number += self._tasks[task].train.shards[shard]
        file = self.file(task, shard)
        return f"{file}: row {number} is damaged (wrong CRC32); {self._rebuild_hint(file)}"

    def _rebuild_hint(self, file: "AnyPath") -> str:
        if "kind" in self.manifest.recipe:  # labelled rows (finetuning/task_data.py)
            return f"delete {self.path} and run the command again, which rebuilds the rows"
        return f"delete {file} and run python -m xlj.prepare again, on the same text, to rebuild it"

    def _check_size(self, file: "AnyPath", size: int, sizes: Mapping[str, int]) -> None:
        actual = sizes.get(file.name, -1)
        if actual != size:
            problem = "is missing" if actual < 0 else f"has {actual} bytes instead of {size}"
            raise RowStoreError(f"{file} {problem}; {self._rebuild_hint(file)}")

    def _read_records(self, task: str, split: str, shard: int, numbers: np.ndarray) -> np.ndarray:
        """Reads records of a split from a shard by their numbers in this split and shard."""
        if isinstance(self.path, Path):
            return self._map(task, split, shard)[numbers]
        rows = self._tasks[task]
        before = rows.train.shards[shard] if split == "held_out" else 0
        first, last = int(numbers.min()), int(numbers.max())
        body = self._read_consecutive(task, shard, before + first, last - first + 1)
        return np.frombuffer(body, self._dtypes[task])[numbers - first]

    def _read_consecutive(self, task: str, shard: int, row: int, count: int) -> bytes:
        """Reads `count` consecutive records of a shard as bytes, starting with record `row`."""
        size = self._dtypes[task].itemsize
        begin, end = int(row) * size, (int(row) + count) * size
        try:
            if isinstance(self.path, Path):  # the path of a file takes longer than the reading
                body = os.pread(self._file(task, shard).fileno(), end - begin, begin)
            else:
                folder = self.path / self._tasks[task].folder
                body = (folder / shard_file_name(shard)).read_range(begin, end)
        except OSError as error:
            raise RowStoreError(f"{self.file(task, shard)} cannot be read ({error})") from error
        if len(body) != end - begin:  # the file has shrunk since the store was opened
            file = self.file(task, shard)
            raise RowStoreError(f"{file} has become shorter; {self._rebuild_hint(file)}")
        return body

    def _open(self, task: str, split: str, shard: int) -> np.ndarray:
        """Memory-maps the records of a split of a shard."""
        file, rows = self.file(task, shard), self._tasks[task]
        train, held_out = rows.train.shards[shard], rows.held_out.shards[shard]
        assert isinstance(file, Path)
        both = np.memmap(file, self._dtypes[task], "r", shape=(train + held_out,))
        return np.asarray(both[:train] if split == "train" else both[train:])

    def _open_file(self, task: str, shard: int) -> BinaryIO:
        """Opens a shard for random access, without the kernel's read-ahead."""
        file = self.file(task, shard).open("rb", buffering=0)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return file


def shard_file(folder: "AnyPath", shard: int) -> "AnyPath":
    """Returns the file of a shard in the folder of its task."""
    return folder / shard_file_name(shard)


def shard_file_name(shard: int) -> str:
    """Returns the name of the file of a shard."""
    return f"{shard:05d}.rows"


def task_rows_from_json(content: "Record") -> TaskRows:
    """Converts the JSON values of `TaskRows.as_json` back; JSON lists become tuples."""
    splits = {
        name: Split(**{**content[name], "shards": tuple(content[name]["shards"])})
        for name in SPLITS
    }
    fields = tuple(
        Field(name, dtype, tuple(shape), is_text)
        for name, dtype, shape, is_text in content["fields"]
    )
    text = content.get("text")
    if text is not None:
        malformed = {
            why: (count, first) for why, (count, first) in text.get("malformed", {}).items()
        }
        text = TextCounts(**{**text, "malformed": malformed})
    languages = tuple(content["languages"])
    return TaskRows(**{**content, **splits, "languages": languages, "fields": fields, "text": text})


def _sizes(folder: "AnyPath", shards: int) -> dict[str, int]:
    """Returns the sizes in bytes of the existing shards in a folder, by file name."""
    if not isinstance(folder, Path):
        return folder.sizes()
    files = (shard_file(folder, shard) for shard in range(shards))
    return {file.name: file.stat().st_size for file in files if file.is_file()}


def _load_manifest(file: "AnyPath") -> Manifest:
    if not file.is_file():
        raise RowStoreError(f"{file.parent} has no finished rows: {file.name} is missing")
    try:
        content = json.loads(file.read_bytes())  # `json_file` needs more than NumPy
        if content["format"] != FORMAT:
            raise RowStoreError(
                f"{file}: rows have format {quoted(content['format'])}, but this version of xlj "
                f"reads format {FORMAT}; delete {file.parent} and run python -m xlj.prepare again"
            )
        stated_hash = content.pop("content_hash")
        tasks = tuple(task_rows_from_json(task) for task in content.pop("tasks"))
        manifest = Manifest(**content, tasks=tasks)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RowStoreError(
            f"{file} is damaged ({shortened(str(error))}); delete {file.parent} and prepare the "
            "rows again"
        ) from error
    if manifest.content_hash != stated_hash:
        raise RowStoreError(
            f"{file} is damaged: its counts do not match its content hash; delete {file.parent} "
            "and prepare the rows again"
        )
    return manifest


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Size of the vocabulary, and languages, of a row store.

    Attributes:
      vocabulary_size: number of ids, including special tokens and `<mask>`.
      languages: the languages, in the order of the tasks. Language ids of rows are indices into
        this tuple.
      tokens: number of tokens in the monolingual training rows of each language. If a language has
        several kinds or lengths of such rows, it is the largest of their numbers.
      paired: the languages that are part of a pair.
    """

    vocabulary_size: int
    languages: tuple[str, ...]
    tokens: tuple[int, ...]
    paired: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: RowStore) -> "Corpus":
        """Returns the corpus of a row store."""
        tokens = dict.fromkeys(store.manifest.languages, 0)
        for task in store.manifest.tasks:
            if len(set(task.languages)) == 1:
                language = task.languages[0]
                tokens[language] = max(tokens[language], task.train.tokens)
        pairs = [task.languages for task in store.manifest.tasks if len(set(task.languages)) > 1]
        paired = tuple(dict.fromkeys(name for languages in pairs for name in languages))
        return cls(store.manifest.vocabulary_size, tuple(tokens), tuple(tokens.values()), paired)

    def sides(self, languages: tuple[str, ...]) -> tuple[int, ...]:
        """Returns the language ids of the sides of a task, one for each column of its text.

        Text with one column has two equal ids, for examples with two sentences.

        Args:
          languages: the languages of the task.
        """
        ids = tuple(map(self.languages.index, languages))
        return ids * 2 if len(ids) == 1 else ids
