"""Rows on disk: `<cache>/<request hash>/`, read with NumPy and the standard library only.

manifest.json            written last: while it is missing, the rows are not finished
vocabulary.model         SentencePiece, or a tokenizer.json

The manifest names a folder for each task, `../text.en/<hash>` or one inside its own:

00000.rows, 00001.rows   shards: records of a row (little-endian uint16 or uint32, [length]) and its
                         CRC32 (uint32), those to train on, then those held out
"""

import dataclasses
import functools
import hashlib
import json
import os
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from xlj.io.quoting import quoted, shortened

if TYPE_CHECKING:  # reading needs NumPy only
    from xlj.io.json_file import Record
    from xlj.io.storage import AnyPath

FORMAT = 2
"""Of what is written; tests/formats keeps rows of each."""
MANIFEST = "manifest.json"
VOCABULARY = "vocabulary.model"
SPLITS = ("train", "held_out")
WHERE_THERE_ARE = ("malformed", "too_long")
"""Counts that a manifest, or the counts of a shard, leave out where they are empty."""


class RowStoreError(RuntimeError):
    """A row store that is missing, unfinished or damaged; the message names the file and row."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Training or held-out rows of a task: how many, the ids in them that are not padding, the
    sequences that start at `<s>`, the input lines or pairs, a sha256 of the records, and the rows
    of each shard."""

    rows: int
    tokens: int
    examples: int
    sentences: int
    sha256: str
    shards: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TaskRows:
    """The rows of one language or pair.

    Attributes:
      name: `text.en`, `pairs.en-de`.
      folder: of its shards, seen from the store's.
      kind: of the rows, one of `config.ROW_KINDS`.
      languages: of each side: one for text, two for pairs.
      length: tokens in a row.
      sentences: lines with text, or pairs, that were read.
      cut: documents cut into several examples.
      dropped: sentences or pairs left out, by reason.
      input_bytes: of its sources, as they are on disk (of sources that are no files about).
      input_sha256: of all of its text as it came.
      malformed: of the records that were malformed, by reason, how many there were and where the
        first stood. They are among the dropped, but for byte order marks, which lines lost.
      too_long: how many of the pairs that were too long a longer row would hold, by its tokens
        (`packing.histogram`).
    """

    name: str
    folder: str
    kind: str
    languages: tuple[str, ...]
    length: int
    sentences: int
    cut: int
    dropped: Mapping[str, int]
    input_bytes: int
    input_sha256: str
    train: Split
    held_out: Split
    malformed: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    too_long: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def as_json(self) -> "Record":
        """As JSON values; `task_rows_from_json` reads it."""
        content = dataclasses.asdict(self)
        for name in WHERE_THERE_ARE:
            if not content[name]:
                del content[name]
        return content

    def split(self, name: str) -> Split:
        """The `train` or the `held_out` split."""
        if name not in SPLITS:
            raise ValueError(f"split {name!r}; there are {', '.join(SPLITS)}")
        return self.train if name == "train" else self.held_out


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of a row store.

    Attributes:
      vocabulary_size: ids, specials and `<mask>` included.
      vocabulary_digest: sha256 of the vocabulary's file.
      dtype: of rows on disk, `<u2` or `<u4`.
      recipe: all that the rows depend on, as it was hashed.
      tasks: in the order of the config.
    """

    vocabulary_size: int
    vocabulary_digest: str
    dtype: str
    recipe: "Record"
    tasks: tuple[TaskRows, ...]
    format: int = FORMAT

    @property
    def languages(self) -> list[str]:
        """Languages of the tasks, each once, in order."""
        return list(dict.fromkeys(name for task in self.tasks for name in task.languages))

    @property
    def content_hash(self) -> str:
        """sha256 over digests and counts: equal exactly when all rows are equal."""
        content = dataclasses.asdict(self)
        del content["recipe"]
        for task in content["tasks"]:
            del task["folder"], task["input_bytes"], task["input_sha256"]
            del task["malformed"], task["too_long"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> bytes:
        """The manifest's file, its content hash included."""
        content = {**dataclasses.asdict(self), "content_hash": self.content_hash}
        content["tasks"] = [task.as_json() for task in self.tasks]
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


class RowStore:
    """A finished row store, opened for reading; files are memory-mapped when they are first read,
    but of a bucket (`storage.Url`) only what is wanted is read, each time.

    Args:
      kinds: the kinds of rows to open, as if there were no others; None for all.

    Raises:
      RowStoreError: if it is not finished, of another format, or files have the wrong size.
    """

    def __init__(self, path: "str | AnyPath", kinds: Collection[str] | None = None):
        self.path = Path(path) if isinstance(path, str) else path
        self.manifest = _load_manifest(self.path / MANIFEST)
        if kinds is not None:
            opened = tuple(task for task in self.manifest.tasks if task.kind in kinds)
            self.manifest = dataclasses.replace(self.manifest, tasks=opened)
        self._tasks = {task.name: task for task in self.manifest.tasks}
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
            raise RowStoreError(f"{model} is missing or damaged; {self._anew(model)}")
        for task in self.manifest.tasks:
            there = _sizes(self.path / task.folder, len(task.train.shards))
            rows = zip(task.train.shards, task.held_out.shards, strict=True)
            for shard, (train, held_out) in enumerate(rows):
                size = (train + held_out) * self._record(task).itemsize
                self._check_size(self.file(task.name, shard), size, there)

    @property
    def vocabulary_file(self) -> "AnyPath":
        """The vocabulary that the rows were built with (`VOCABULARY`)."""
        return self.path / VOCABULARY

    @property
    def at_once(self) -> int:
        """How many questions it may be asked at the same time: a bucket takes its time for each,
        however little it is for."""
        return 1 if isinstance(self.path, Path) else 32

    def tasks(self, kind: str) -> tuple[TaskRows, ...]:
        """The rows of a kind, in the order of the config."""
        return tuple(task for task in self.manifest.tasks if task.kind == kind)

    def task(self, name: str) -> TaskRows:
        """The rows of this name, such as `text.en`."""
        return self._tasks[name]

    def read(self, task: str, split: str, rows: np.ndarray) -> np.ndarray:
        """Rows by number, int64 [n], of a task's `train` or `held_out`, each checked against its
        CRC32: uint16 or uint32 [n, length].

        Raises:
          RowStoreError: if a row is damaged.
          IndexError: if a number is out of range.
        """
        count = self._tasks[task].split(split).rows
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < count:
            raise IndexError(f"{task}/{split} has rows 0 to {count - 1}, not {rows}")
        taken = np.empty(len(rows), self._record(self._tasks[task]))
        shards = np.searchsorted(self._starts[task, split], rows, "right") - 1
        for shard in np.unique(shards):
            chosen = shards == shard
            within = rows[chosen] - self._starts[task, split][shard]
            taken[chosen] = self._taken(task, split, int(shard), within)
        damaged = np.flatnonzero(row_crcs(taken["ids"]) != taken["crc"])
        if damaged.size:
            raise RowStoreError(self.damage(task, split, int(rows[damaged[0]])))
        return taken["ids"]

    def fetch(self, task: str, row: int, count: int) -> np.ndarray:
        """Rows to train on that follow each other, from `row` on, as they are on disk: records
        (`record`), [count], which are not checked."""
        starts, kind = self._starts[task, "train"], self._record(self._tasks[task])
        parts, shard = [], int(np.searchsorted(starts, row, "right")) - 1
        while count:
            here = min(count, int(starts[shard + 1]) - row)
            if here > 0:
                parts.append(np.frombuffer(self._run(task, shard, row - starts[shard], here), kind))
            row, count, shard = row + here, count - here, shard + 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def file(self, task: str, shard: int) -> "AnyPath":
        """Where a shard of a task is."""
        return shard_file(self.path / self._tasks[task].folder, shard)

    def damage(self, task: str, split: str, row: int) -> str:
        """What to say of a damaged row: its file, its place there, and how to make them anew."""
        shard = int(np.searchsorted(self._starts[task, split], row, "right")) - 1
        within = row - int(self._starts[task, split][shard])
        if split == "held_out":
            within += self._tasks[task].train.shards[shard]
        file = self.file(task, shard)
        return f"{file}: row {within} is damaged (its CRC32 is another); {self._anew(file)}"

    def _anew(self, file: "AnyPath") -> str:
        return f"delete {file} and start python -m xlj.prepare again with the text, to make it anew"

    def _record(self, task: TaskRows) -> np.dtype:
        return record(task.length, self.manifest.dtype)

    def _check_size(self, file: "AnyPath", size: int, there: Mapping[str, int]) -> None:
        actual = there.get(file.name, -1)
        if actual != size:
            found = "is missing" if actual < 0 else f"has {actual} bytes, not {size}"
            raise RowStoreError(f"{file} {found}; {self._anew(file)}")

    def _taken(self, task: str, split: str, shard: int, within: np.ndarray) -> np.ndarray:
        """Records of a split in a shard, by number."""
        if isinstance(self.path, Path):
            return self._map(task, split, shard)[within]
        rows = self._tasks[task]
        before = rows.train.shards[shard] if split == "held_out" else 0
        first, last = int(within.min()), int(within.max())
        body = self._run(task, shard, before + first, last - first + 1)
        return np.frombuffer(body, self._record(rows))[within - first]

    def _run(self, task: str, shard: int, row: int, count: int) -> bytes:
        """Records of a shard that follow each other."""
        size, file = self._record(self._tasks[task]).itemsize, self.file(task, shard)
        try:
            if isinstance(file, Path):
                body = os.pread(self._file(task, shard).fileno(), count * size, int(row) * size)
            else:
                body = file.read_range(int(row) * size, (int(row) + count) * size)
        except OSError as error:
            raise RowStoreError(f"{file}: it cannot be read ({error})") from error
        if len(body) != count * size:  # its size was right when the store was opened
            raise RowStoreError(f"{file} has become shorter; {self._anew(file)}")
        return body

    def _open(self, task: str, split: str, shard: int) -> np.ndarray:
        """The records of a split in a shard, mapped."""
        file, rows = self.file(task, shard), self._tasks[task]
        train, held_out = rows.train.shards[shard], rows.held_out.shards[shard]
        assert isinstance(file, Path)
        found = np.memmap(file, self._record(rows), "r", shape=(train + held_out,))
        return np.asarray(found[:train] if split == "train" else found[train:])

    def _open_file(self, task: str, shard: int) -> BinaryIO:
        """A shard, opened for runs of rows from anywhere: the kernel is not to read on."""
        file = self.file(task, shard).open("rb", buffering=0)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return file


def record(length: int, dtype: str) -> np.dtype:
    """The type of a row on disk: its ids, [length], and their CRC32."""
    return np.dtype([("ids", dtype, (length,)), ("crc", "<u4")])


def records(rows: np.ndarray) -> np.ndarray:
    """Rows, [rows, length], with their CRC32s: structured [rows]."""
    found = np.empty(len(rows), record(rows.shape[1], rows.dtype.str))
    found["ids"], found["crc"] = rows, row_crcs(rows)
    return found


def shard_file(folder: "AnyPath", shard: int) -> "AnyPath":
    """Where a shard is in the folder of its task."""
    return folder / f"{shard:05d}.rows"


def task_rows_from_json(content: "Record") -> TaskRows:
    """The `TaskRows` of its `as_json`, after JSON made lists of tuples."""
    splits = {
        name: Split(**{**content[name], "shards": tuple(content[name]["shards"])})
        for name in SPLITS
    }
    malformed = {
        why: (count, first) for why, (count, first) in content.get("malformed", {}).items()
    }
    languages = tuple(content["languages"])
    return TaskRows(**{**content, **splits, "languages": languages, "malformed": malformed})


def row_crcs(rows: np.ndarray) -> np.ndarray:
    """CRC32 of each row's bytes, uint32 [rows]."""
    return np.array([zlib.crc32(row) for row in np.ascontiguousarray(rows)], "<u4")


def _sizes(folder: "AnyPath", shards: int) -> dict[str, int]:
    """Bytes of the shards that are there, by name."""
    if not isinstance(folder, Path):
        return folder.sizes()
    files = (shard_file(folder, shard) for shard in range(shards))
    return {file.name: file.stat().st_size for file in files if file.is_file()}


def _load_manifest(file: "AnyPath") -> Manifest:
    if not file.is_file():
        raise RowStoreError(f"{file.parent} holds no finished rows: there is no {file.name}")
    try:
        content = json.loads(file.read_bytes())  # not json_file: reading needs NumPy only
        if content["format"] != FORMAT:
            raise RowStoreError(
                f"{file}: rows of format {quoted(content['format'])}, this xlj reads {FORMAT}; "
                f"delete {file.parent} to build it anew"
            )
        stated = content.pop("content_hash")
        tasks = tuple(task_rows_from_json(task) for task in content.pop("tasks"))
        manifest = Manifest(**content, tasks=tasks)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RowStoreError(
            f"{file} is damaged ({shortened(str(error))}); delete {file.parent}"
        ) from error
    if manifest.content_hash != stated:
        raise RowStoreError(f"{file} is damaged: its counts do not give its content hash")
    return manifest
