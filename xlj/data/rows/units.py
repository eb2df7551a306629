"""A unit of work: a fixed number of input lines, made into rows, as a shard on disk.

A shard is `<folder>/<task>/<unit>.shard` (training rows, their CRC32s, held-out rows, end to end)
and `<unit>.json` beside it, written after it, with its counts and sha256. What a unit yields
depends on its lines only, not on who makes it or when, so a killed run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from xlj.config import ConfigError
from xlj.data.rows import packing
from xlj.data.rows.packing import Packed, Ragged
from xlj.data.rows.store import CRC, row_crcs
from xlj.data.text import held_out
from xlj.data.text.cleaning import line_hashes
from xlj.data.text.held_out import Rule
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file


@dataclasses.dataclass(frozen=True)
class Unit:
    """Clean text of a task: `(lines,)`, an empty line ending a document, or both sides of pairs."""

    task: str
    index: int
    columns: tuple[list[str], ...]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the units of a task are made.

    Attributes:
      folder: where shards go.
      dtype: of rows, as NumPy's string.
      rules: what is held out, of each column's language.
      vocabulary: its file.
    """

    folder: Path
    kind: str
    length: int
    dtype: str
    rules: tuple[Rule, ...]
    vocabulary: Path


@dataclasses.dataclass(frozen=True)
class End:
    """What is known once all of a task's text was read: its units, and lines left out by reason."""

    units: int
    skipped: dict[str, int]


@dataclasses.dataclass(frozen=True)
class SplitCounts:
    """Training or held-out rows of a shard, counted as in `store.Split`."""

    rows: int
    examples: int
    sentences: int


@dataclasses.dataclass(frozen=True)
class Shard:
    """What a unit yielded: the sidecar of a shard."""

    sha256: str
    train: SplitCounts
    held_out: SplitCounts
    sentences: int
    cut: int
    dropped: dict[str, int]


def make(unit: Unit, settings: Settings) -> int:
    """Makes a unit's rows and writes its shard.

    Returns:
      The number of input lines.
    """
    lines = len(unit.columns[0])
    file = shard_file(settings.folder, unit.task, unit.index)
    vocabulary = _vocabulary(settings.vocabulary)
    hashes = [line_hashes(column) for column in unit.columns]
    out, sharing = held_out.split(hashes, settings.rules)
    encoded = [vocabulary.encode(column) for column in unit.columns]
    blank = np.array([not line for line in unit.columns[0]], bool)
    is_sentence = ~blank if len(encoded) == 1 else np.ones(lines, bool)
    sentences = int(is_sentence.sum())
    documents = np.cumsum(blank)  # of each line
    # Held-out lines are not neighbours in their document, so each is an example of its own.
    train, aside = (
        _pack([side.select(keep) for side in encoded], of[keep], settings, vocabulary.size)
        for keep, of in (
            (~out & ~sharing & is_sentence, documents),
            (out & is_sentence, np.arange(lines)),
        )
    )
    dropped = Counter(train.dropped) + Counter(aside.dropped)
    dropped += Counter({held_out.REASON: int(sharing.sum())})
    kept = train.sentences + aside.sentences
    # Text whose every character the normalisation removes.
    dropped += Counter({"no tokens": sentences - kept - dropped.total()})
    body = train.rows.tobytes() + row_crcs(train.rows).tobytes() + aside.rows.tobytes()
    shard = Shard(
        sha256=hashlib.sha256(body).hexdigest(),
        train=_counts(train),
        held_out=_counts(aside),
        sentences=sentences,
        cut=train.cut,
        dropped=dict(sorted(dropped.items())),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(file, body)
    atomic.write(file.with_suffix(".json"), json.dumps(dataclasses.asdict(shard)).encode())
    return lines


def _pack(
    encoded: list[Ragged], documents: np.ndarray, settings: Settings, vocabulary_size: int
) -> Packed:
    """Rows of the task's kind; `documents` says which lines follow one another."""
    length, dtype = settings.length, np.dtype(settings.dtype)
    if settings.kind == "text":
        return packing.text(encoded[0], documents, length, dtype)
    if settings.kind == "sentences":
        return packing.sentences(encoded[0], length, dtype, mask=vocabulary_size - 1)
    function = packing.bitext if settings.kind == "bitext" else packing.pairs
    return function(encoded[0], encoded[1], length, dtype)


def shard_file(folder: Path, task: str, index: int) -> Path:
    """Where the shard of a unit is."""
    return folder / task / f"{index:08d}.shard"


def write_end(settings: Settings, task: str, end: End) -> None:
    """Notes that all of a task's text was read."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(dataclasses.asdict(end)).encode()
    atomic.write(settings.folder / f"{task}.end.json", content)


def read_end(settings: Settings, task: str) -> End | None:
    """What `write_end` noted, if it did and the file is whole."""
    try:
        return End(**json_file.read_object(settings.folder / f"{task}.end.json"))
    except (ConfigError, TypeError):
        return None


def read_shard(
    settings: Settings, task: str, index: int
) -> tuple[Shard, np.ndarray, np.ndarray, np.ndarray] | None:
    """(counts, training rows, their CRC32s, held-out rows) of a shard; None if it is damaged."""
    file = shard_file(settings.folder, task, index)
    length, dtype = settings.length, np.dtype(settings.dtype)
    try:
        content: dict[str, Any] = json_file.read_object(file.with_suffix(".json"))
        body = file.read_bytes()
        for name in ("train", "held_out"):
            content[name] = SplitCounts(**content[name])
        shard = Shard(**content)
    except (ConfigError, FileNotFoundError, TypeError, KeyError):
        return None
    if hashlib.sha256(body).hexdigest() != shard.sha256:
        return None
    ends = np.cumsum(
        [
            shard.train.rows * length * dtype.itemsize,
            shard.train.rows * CRC.itemsize,
            shard.held_out.rows * length * dtype.itemsize,
        ]
    )
    if ends[-1] != len(body):
        return None
    train = np.frombuffer(body[: ends[0]], dtype).reshape(-1, length)
    aside = np.frombuffer(body[ends[1] :], dtype).reshape(-1, length)
    return shard, train, np.frombuffer(body[ends[0] : ends[1]], CRC), aside


@lru_cache(maxsize=1)
def _vocabulary(path: Path) -> Vocabulary:
    return Vocabulary.load(path)


def _counts(packed: Packed) -> SplitCounts:
    return SplitCounts(len(packed.rows), packed.examples, packed.sentences)
