"""Packs a unit of text (the part that one process reads) into rows of each kind."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache

import numpy as np

from xlj.data.rows import packing, row_kind
from xlj.data.rows.row_kind import Packed, Rows
from xlj.data.rows.shards import SHARD_UNITS, Counts, Shards
from xlj.data.rows.vectors import TextVectors
from xlj.data.text import held_out
from xlj.data.text.held_out import Rule
from xlj.data.text.text_tasks import Unit
from xlj.data.text.text_units import Chunk, ReadOptions, UnitReader
from xlj.data.tokenizer.layout import Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.storage import AnyPath

_load_vocabulary = lru_cache(maxsize=1)(Vocabulary.load)


class UnitJob:
    """Base class of jobs that read one unit of text."""

    unit: Unit

    @property
    def size(self) -> int:
        """Size of the input in bytes."""
        return sum(part.size for part in self.unit)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What all units of a language or pair need to build rows.

    Attributes:
      languages: the language of each column that decides what is held out: one language, or the
        two languages of a pair.
      reading: the options for reading the text.
      rules: the held-out rule of each of `languages`.
      vocabulary: the file of the vocabulary.
      vectors: the teacher's vectors of the text, by the kind of the rows that contain them.
    """

    languages: tuple[str, ...]
    reading: ReadOptions
    rules: tuple[Rule, ...]
    vocabulary: AnyPath
    vectors: Mapping[str, TextVectors]


@dataclasses.dataclass(frozen=True)
class BuildUnit(UnitJob):
    """A job that builds the rows of one unit of text; small enough to send to worker processes.

    The rows depend only on the text, not on the process or the order of jobs.

    Attributes:
      plan: what all units of the language or pair need.
      index: the index of the unit in its task.
      unit: the unit.
      targets: where to write the rows of each kind and length.
    """

    plan: Plan
    index: int
    unit: Unit
    targets: tuple[Shards, ...]

    def __call__(self) -> int:
        """Writes the rows of the unit; if this completes the units of a shard, writes the shard.

        Returns:
          The number of lines that were read.
        """
        reader = UnitReader(self.unit, self.index, self.plan.reading)
        missing = [target for target in self.targets if not target.has_unit(self.index)]
        if missing:
            _build(self, reader, missing)
        for target in self.targets:
            target.finish(self.index // SHARD_UNITS)
        return reader.lines


def _build(job: BuildUnit, reader: UnitReader, targets: list[Shards]) -> None:
    """Reads a unit once and writes its rows to all targets."""
    encode = _load_vocabulary(job.plan.vocabulary).encode
    packers = [_Packer(target, job.plan) for target in targets]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(packer.shards.writing_unit(job.index, packer.counts))
            for packer in packers
        ]
        for number, chunk in enumerate(reader.chunks()):
            encoded: dict[tuple[str, ...], list[Ragged]] = {}
            for packer, write in zip(packers, writers, strict=True):
                kind = packer.shards.row_kind
                if kind.prompts not in encoded:
                    encoded[kind.prompts] = encode_columns(kind, chunk.columns, encode)
                columns = encoded[kind.prompts]
                if vectors := job.plan.vectors.get(packer.shards.kind):
                    columns = [*columns, vectors.read(job.index, number, chunk)]
                write(*packer.pack_chunk(chunk, columns))
        for packer in packers:
            packer.counts.dropped.update(reader.dropped)
            packer.counts.other_languages.update(reader.other_languages)
            packer.counts.malformed = {
                why: (count, job.index, *first) for why, (count, *first) in reader.malformed.items()
            }
            packer.counts.sentences += reader.dropped.total()
            packer.counts.input_bytes = job.size
            packer.counts.input_sha256 = reader.digest.hexdigest()


def encode_columns(
    kind: row_kind.RowKind,
    columns: Sequence[list[str]],
    encode: Callable[[Sequence[str]], Ragged],
) -> list[Ragged]:
    """Encodes the columns of a chunk, with the prompts of a kind of rows."""
    encoded = []
    for name, prompt, column in itertools.zip_longest(kind.columns, kind.prompts, columns):
        if name in kind.numbers:
            values = [line.split() for line in column]
            numbers = np.array([float(x) for line in values for x in line], np.float32)
            encoded.append(Ragged(numbers, np.array([len(line) for line in values], np.int64)))
        else:
            texts = [prompt + line if line else line for line in column] if prompt else column
            encoded.append(encode(texts))
    return encoded


class _Packer:
    """Packs text into rows of one kind and length, and counts lines and rows."""

    def __init__(self, shards: Shards, plan: Plan):
        self.shards, self.counts = shards, Counts()
        self._plan = plan

    def pack_chunk(self, chunk: Chunk, encoded: list[Ragged]) -> tuple[Rows, Rows]:
        """Packs a chunk of text.

        Args:
          chunk: the chunk.
          encoded: the token ids of each column of the chunk, and the teacher's vectors if the rows
            contain them.

        Returns:
          The training rows and the held-out rows.
        """
        plan, counts = self._plan, self.counts
        is_held_out, is_dropped = held_out.split(plan.languages, chunk.hashes, plan.rules)
        is_blank = np.array([not line for line in chunk.columns[0]], bool)
        is_sentence = ~is_blank if len(chunk.columns) == 1 else np.ones(len(is_blank), bool)
        # Held-out lines are not consecutive in their document, so each is a separate example.
        train = self._pack(encoded, ~is_held_out & ~is_dropped & is_sentence, np.cumsum(is_blank))
        held = self._pack(encoded, is_held_out & is_sentence, np.arange(len(is_blank)))
        dropped = Counter(train.dropped) + Counter(held.dropped)
        dropped[held_out.REASON] += int(is_dropped.sum())
        sentences = int(is_sentence.sum())
        # The tokenizer's normalisation may remove all characters of a line.
        without_tokens = sentences - train.sentences - held.sentences - dropped.total()
        counts.dropped.update(dropped, **{"no tokens": without_tokens})
        for packed in (train, held):
            counts.too_long.update(packing.histogram(packed.too_long))
        counts.sentences += sentences
        counts.cut += train.cut
        for split, packed in ((counts.train, train), (counts.held_out, held)):
            split.update(
                rows=row_kind.count_rows(packed.rows),
                tokens=row_kind.count_tokens(packed.rows, self.shards.fields),
                examples=packed.examples,
                sentences=packed.sentences,
            )
        return train.rows, held.rows

    def _pack(self, encoded: list[Ragged], keep: np.ndarray, documents: np.ndarray) -> Packed:
        return self.shards.row_kind.pack(
            [column.select(keep) for column in encoded],
            self.shards.length,
            np.dtype(self.shards.dtype),
            documents=documents[keep],
            mask=_load_vocabulary(self._plan.vocabulary).mask,
        )
