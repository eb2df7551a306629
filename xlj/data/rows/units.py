"""A unit of work: one process reads it, encodes it, and packs it into rows of every kind."""

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
from xlj.data.text.reading import Chunk, Reading, UnitReader
from xlj.data.text.text_tasks import Unit
from xlj.data.tokenizer.layout import PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.storage import AnyPath

_vocabulary = lru_cache(maxsize=1)(Vocabulary.load)


class OfUnit:
    """Jobs that read one unit."""

    unit: Unit

    @property
    def size(self) -> int:
        """Bytes of input."""
        return sum(part.size for part in self.unit)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the rows of a language or pair are built: how its text is read, what is held out of each
    column's language, the lines that stand there before, and the file of the vocabulary."""

    languages: tuple[str, ...]
    reading: Reading
    rules: tuple[Rule, ...]
    vocabulary: AnyPath


@dataclasses.dataclass(frozen=True)
class BuildUnit(OfUnit):
    """Builds the rows of unit `index`, of each kind that is wanted; what it yields depends on its
    text only, not on who builds it or when. Small, so that workers can be sent it."""

    plan: Plan
    index: int
    unit: Unit
    targets: tuple[Shards, ...]

    def __call__(self) -> int:
        """Writes the rows; the last of a shard's units makes the shard. Returns the lines read."""
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
    """Rows of one kind, and their counts."""

    def __init__(self, shards: Shards, plan: Plan):
        self.shards, self.counts = shards, Counts()
        self._plan = plan

    def rows(self, chunk: Chunk, encoded: list[packing.Ragged]) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a chunk to train on, and those held out."""
        plan, counts = self._plan, self.counts
        out, sharing = held_out.split(plan.languages, chunk.hashes, plan.rules)
        blank = np.array([not line for line in chunk.columns[0]], bool)
        is_sentence = ~blank if len(encoded) == 1 else np.ones(len(blank), bool)
        # Held-out lines are not neighbours in their document, so each is an example of its own.
        train = self._packed(encoded, ~out & ~sharing & is_sentence, np.cumsum(blank))
        aside = self._packed(encoded, out & is_sentence, np.arange(len(blank)))
        dropped = Counter(train.dropped) + Counter(aside.dropped)
        dropped[held_out.REASON] += int(sharing.sum())
        sentences = int(is_sentence.sum())
        # Text whose every character the normalisation removes.
        lost = sentences - train.sentences - aside.sentences - dropped.total()
        counts.dropped.update(dropped, **{"no tokens": lost})
        for made in (train, aside):
            counts.too_long.update(packing.histogram(made.too_long))
        counts.sentences += sentences
        counts.cut += train.cut
        for split, made in ((counts.train, train), (counts.held_out, aside)):
            split.update(
                rows=len(made.rows),
                tokens=int(np.count_nonzero(made.rows != PAD)),
                examples=made.examples,
                sentences=made.sentences,
            )
        return train.rows, aside.rows

    def _packed(
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
