"""Packs a unit of text into rows of every kind, in one process."""

import dataclasses
from collections import Counter
from contextlib import ExitStack
from functools import lru_cache

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.packing import Packed
from xlj.data.rows.shards import SHARD_UNITS, Counts, Shards
from xlj.data.text import held_out
from xlj.data.text.held_out import Rule
from xlj.data.text.reading import Chunk, ReadOptions, UnitReader
from xlj.data.text.text_tasks import Unit
from xlj.data.tokenizer.layout import PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.storage import AnyPath

_vocabulary = lru_cache(maxsize=1)(Vocabulary.load)


class UnitJob:
    """A job that reads one unit."""

    unit: Unit

    @property
    def size(self) -> int:
        """Bytes of input."""
        return sum(part.size for part in self.unit)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the rows of a language or pair are built.

    Attributes:
      reading: how the text is read.
      rules: the held-out rule of each column's language.
      vocabulary: the file of the vocabulary.
    """

    languages: tuple[str, ...]
    reading: ReadOptions
    rules: tuple[Rule, ...]
    vocabulary: AnyPath


@dataclasses.dataclass(frozen=True)
class BuildUnit(UnitJob):
    """Builds the rows of unit `index` of each kind in `targets`; small enough to send to workers.

    The result depends only on the text, not on the worker or the time.
    """

    plan: Plan
    index: int
    unit: Unit
    targets: tuple[Shards, ...]

    def __call__(self) -> int:
        """Writes the rows, and the shard if it is the last unit of it; returns the lines read."""
        reader = UnitReader(self.unit, self.index, self.plan.reading)
        todo = [target for target in self.targets if not target.has_unit(self.index)]
        if todo:
            _build(self, reader, todo)
        for target in self.targets:
            target.finish(self.index // SHARD_UNITS)
        return reader.lines


def _build(job: BuildUnit, reader: UnitReader, targets: list[Shards]) -> None:
    encode = _vocabulary(job.plan.vocabulary).encode
    kinds = [_Kind(target, job.plan) for target in targets]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(kind.shards.writing_unit(job.index, kind.counts)) for kind in kinds
        ]
        for chunk in reader.chunks():
            encoded = [encode(column) for column in chunk.columns]
            for kind, write in zip(kinds, writers, strict=True):
                write(*kind.rows(chunk, encoded))
        for kind in kinds:
            kind.counts.dropped.update(reader.dropped)
            kind.counts.malformed = {
                why: (count, job.index, *first) for why, (count, *first) in reader.malformed.items()
            }
            kind.counts.sentences += reader.dropped.total()
            kind.counts.input_bytes = job.size
            kind.counts.input_sha256 = reader.digest.hexdigest()


class _Kind:
    """Packs rows of one kind, and counts them."""

    def __init__(self, shards: Shards, plan: Plan):
        self.shards, self.counts = shards, Counts()
        self._plan = plan

    def rows(self, chunk: Chunk, encoded: list[packing.Ragged]) -> tuple[np.ndarray, np.ndarray]:
        """Packs a chunk; returns its training rows and its held-out rows."""
        plan, counts = self._plan, self.counts
        out, sharing = held_out.split(plan.languages, chunk.hashes, plan.rules)
        blank = np.array([not line for line in chunk.columns[0]], bool)
        is_sentence = ~blank if len(encoded) == 1 else np.ones(len(blank), bool)
        # Held-out lines are not consecutive in their document, so each is a separate example.
        train = self._pack(encoded, ~out & ~sharing & is_sentence, np.cumsum(blank))
        held = self._pack(encoded, out & is_sentence, np.arange(len(blank)))
        dropped = Counter(train.dropped) + Counter(held.dropped)
        dropped[held_out.REASON] += int(sharing.sum())
        sentences = int(is_sentence.sum())
        # Lines of which the tokenizer's normalization removes every character.
        lost = sentences - train.sentences - held.sentences - dropped.total()
        counts.dropped.update(dropped, **{"no tokens": lost})
        for packed in (train, held):
            counts.too_long.update(packing.histogram(packed.too_long))
        counts.sentences += sentences
        counts.cut += train.cut
        for split, packed in ((counts.train, train), (counts.held_out, held)):
            split.update(
                rows=len(packed.rows),
                tokens=int(np.count_nonzero(packed.rows != PAD)),
                examples=packed.examples,
                sentences=packed.sentences,
            )
        return train.rows, held.rows

    def _pack(
        self, encoded: list[packing.Ragged], keep: np.ndarray, documents: np.ndarray
    ) -> Packed:
        return packing.pack(
            self.shards.kind,
            [side.select(keep) for side in encoded],
            documents[keep],
            self.shards.length,
            np.dtype(self.shards.dtype),
            mask=_vocabulary(self._plan.vocabulary).mask,
        )
