"""Rows on disk: `<cache>/<recipe hash>/`, read with NumPy and the standard library only.

manifest.json            written last: while it is missing, the rows are not finished
vocabulary.model         SentencePiece, or a tokenizer.json
text.en/train.rows       token rows, little-endian uint16 or uint32, [rows, length]
text.en/train.crc        CRC32 of each row, little-endian uint32, [rows]
text.en/held_out.rows, held_out.crc
"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
MANIFEST = "manifest.json"
VOCABULARY = "vocabulary.model"
SPLITS = ("train", "held_out")
CRC = np.dtype("<u4")


class RowStoreError(RuntimeError):
    """A row store that is missing, unfinished or damaged; the message names the file and row."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Training or held-out rows of a task: how many, the ids in them that are not padding, the
    sequences that start at `<s>`, the input lines or pairs, and sha256 of the file of rows."""

    rows: int
    tokens: int
    examples: int
    sentences: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class TaskRows:
    """The rows of one language or pair.

    Attributes:
      name: `text.en`, `pairs.en-de`; also the folder.
      kind: of the rows, one of `config.ROW_KINDS`.
      languages: of each side: one for text, two for pairs.
      length: tokens in a row.
      sentences: lines with text, or pairs, that were read.
      cut: documents cut into several examples.
      dropped: sentences or pairs left out, by reason.
    """

    name: str
    kind: str
    languages: tuple[str, ...]
    length: int
    sentences: int
    cut: int
    dropped: Mapping[str, int]
    train: Split
    held_out: Split

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
    recipe: Mapping[str, Any]
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
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> bytes:
        """The manifest's file, its content hash included."""
        content = {**dataclasses.asdict(self), "content_hash": self.content_hash}
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


class RowStore:
    """A finished row store, opened for reading; files are memory-mapped when they are first read.

    Args:
      kinds: the kinds of rows to open, as if there were no others; None for all.

    Raises:
      RowStoreError: if it is not finished, of another format, or files have the wrong size.
    """

    def __init__(self, path: str | Path, kinds: Collection[str] | None = None):
        self.path = Path(path)
        self.manifest = _load_manifest(self.path / MANIFEST)
        if kinds is not None:
            opened = tuple(task for task in self.manifest.tasks if task.kind in kinds)
            self.manifest = dataclasses.replace(self.manifest, tasks=opened)
        self._tasks = {task.name: task for task in self.manifest.tasks}
        self._dtype = np.dtype(self.manifest.dtype)
        self._opened: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        model = self.vocabulary_file
        digest = hashlib.sha256(model.read_bytes()).hexdigest() if model.is_file() else ""
        if digest != self.manifest.vocabulary_digest:
            raise RowStoreError(
                f"{model} is missing or damaged; delete {self.path} to build it anew"
            )
        for task in self.manifest.tasks:
            for name in SPLITS:
                rows = task.split(name).rows
                self._check_size(task, f"{name}.rows", rows * task.length * self._dtype.itemsize)
                self._check_size(task, f"{name}.crc", rows * CRC.itemsize)

    @property
    def vocabulary_file(self) -> Path:
        """The vocabulary that the rows were built with (`VOCABULARY`)."""
        return self.path / VOCABULARY

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
        found, crcs = self._maps(task, split)
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < len(found):
            raise IndexError(f"{task}/{split} has rows 0 to {len(found) - 1}, not {rows}")
        taken = found[rows]
        damaged = np.flatnonzero(row_crcs(taken) != crcs[rows])
        if damaged.size:
            raise RowStoreError(
                f"{self.path / task / f'{split}.rows'}: row {rows[damaged[0]]} is damaged (its "
                f"CRC32 is not that of {split}.crc); delete {self.path} to build it anew"
            )
        return taken

    def _check_size(self, task: TaskRows, name: str, size: int) -> None:
        file = self.path / task.name / name
        actual = file.stat().st_size if file.is_file() else -1
        if actual != size:
            found = "is missing" if actual < 0 else f"has {actual} bytes, not {size}"
            raise RowStoreError(f"{file} {found}; delete {self.path} to build it anew")

    def _maps(self, task: str, split: str) -> tuple[np.ndarray, np.ndarray]:
        if (task, split) not in self._opened:
            length, rows = self._tasks[task].length, self._tasks[task].split(split).rows
            file = self.path / task / split
            self._opened[task, split] = (
                _map(file.with_suffix(".rows"), self._dtype, (rows, length)),
                _map(file.with_suffix(".crc"), CRC, (rows,)),
            )
        return self._opened[task, split]


def task_rows_from_json(content: Mapping[str, Any]) -> TaskRows:
    """The `TaskRows` of its `dataclasses.asdict`, after JSON made lists of tuples."""
    splits = {name: Split(**content[name]) for name in SPLITS}
    return TaskRows(**{**content, **splits, "languages": tuple(content["languages"])})


def row_crcs(rows: np.ndarray) -> np.ndarray:
    """CRC32 of each row's bytes, uint32 [rows]."""
    return np.array([zlib.crc32(row) for row in np.ascontiguousarray(rows)], CRC)


def _map(file: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if not shape[0]:  # an empty file cannot be mapped
        return np.empty(shape, dtype)
    return np.asarray(np.memmap(file, dtype, "r", shape=shape))


def _load_manifest(file: Path) -> Manifest:
    if not file.is_file():
        raise RowStoreError(f"{file.parent} holds no finished rows: there is no {file.name}")
    try:
        content = json.loads(file.read_bytes())  # not json_file: reading needs NumPy only
        if content["format"] != FORMAT:
            raise RowStoreError(
                f"{file}: rows of format {content['format']}, this xlj reads {FORMAT}; "
                f"delete {file.parent} to build it anew"
            )
        stated = content.pop("content_hash")
        tasks = tuple(task_rows_from_json(task) for task in content.pop("tasks"))
        manifest = Manifest(**content, tasks=tasks)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RowStoreError(f"{file} is damaged ({error}); delete {file.parent}") from error
    if manifest.content_hash != stated:
        raise RowStoreError(f"{file} is damaged: its counts do not give its content hash")
    return manifest
