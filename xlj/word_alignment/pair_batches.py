"""Batches of sentence pairs in a few fixed shapes, for encoding and aligning; NumPy only.

A pair is encoded together, as `<s> A </s> B </s>` with continuous positions (a row of XLM's TLM),
or separately, with each sentence as `<s> A </s>` in its own row. A pair that is too long for the
model's positions is encoded in overlapping windows (ours). Both sides are split into the same
number of parts, each part is encoded with as much context as fits, and the vectors of all parts are
aligned as one sentence. Nothing is truncated.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import numpy as np

from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.inference.row_batches import rounded

BATCH_TOKENS = 4096
"""The approximate number of tokens of a batch, including padding."""


class Pieces(NamedTuple):
    """The pieces of a sentence.

    Attributes:
      ids: int32 [pieces].
      words: int32 [pieces], the index of the word that each piece belongs to.
    """

    ids: np.ndarray
    words: np.ndarray


Of = TypeVar("Of", np.ndarray, jax.Array)


class Rows(NamedTuple, Generic[Of]):
    """Rows to encode, and the places of each pair's pieces in them; int32 arrays.

    Attributes:
      tokens, positions: [rows, length].
      segments: [rows, length], 1 for tokens, 0 for padding.
      sides: [rows, length], 1 for the second sentence of a pair that is encoded together, else 0.
      source_places: [pairs, side], the index of each piece in the flattened tokens; -1 for none.
      target_places: the same for the target.
    """

    tokens: Of
    positions: Of
    segments: Of
    sides: Of
    source_places: Of
    target_places: Of


class Batch(NamedTuple):
    """Some of the pairs as rows. If the batch has room for more pairs, these have no pieces.

    Attributes:
      members: the indices of the pairs.
      windowed: whether these are long pairs, encoded in windows.
    """

    members: list[int]
    windowed: bool
    rows: Rows[np.ndarray]


class _Window(NamedTuple):
    """A window that encodes pieces [start, end) and uses the vectors of [first, last)."""

    start: int
    end: int
    first: int
    last: int


_Member = tuple[int, list[tuple[_Window, _Window]]]  # the index of a pair, and its windows


def pieces_of(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, are_words: bool = False
) -> list[Pieces]:
    """Splits sentences into pieces; each word is tokenized separately, as in XLM-Align's aligner.

    With `are_words`, each piece counts as a word.
    """
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, vocabulary.encode_words(distinct), strict=True))
    empty = np.zeros(0, np.int32)
    result = []
    for sentence in sentences:
        parts = [pieces[word] for word in sentence]
        sizes = [len(part) for part in parts]
        words = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
        if are_words:
            words = np.arange(sum(sizes), dtype=np.int32)
        result.append(Pieces(np.concatenate([empty, *parts]), words))
    return result


def batches(
    pairs: Sequence[tuple[Pieces, Pieces]], limit: int, together: bool, devices: int = 1
) -> Iterator[Batch]:
    """Yields batches of pairs of similar length; pairs with an empty side are skipped.

    Pairs are padded to the next longer length if that costs at most one batch of padding. This
    keeps the number of shapes small, because compiling or loading a program takes longer.

    Args:
      limit: the maximum number of tokens of a row, from the model's positions.
      together: encode the two sentences of a pair in one row.
      devices: the number of devices, which divides the rows and pairs of a batch.
    """
    buckets: dict[_Shape, list[_Member]] = defaultdict(list)
    for index, (source, target) in enumerate(pairs):
        m, n = len(source.ids), len(target.ids)
        if m and n:
            cut = windows(m, n, limit, together)
            shape = _shape(rounded(max(m, n), 8), len(cut), limit, together, devices)
            buckets[shape].append((index, cut))
    shapes = sorted(buckets, key=lambda shape: (shape.each, shape.side))
    members: list[_Member] = []
    for shape, longer in itertools.zip_longest(shapes, shapes[1:]):
        members += buckets[shape]
        if longer and longer.each == shape.each:
            padding = shape.each * (longer.length - shape.length)
            if len(members) * padding <= BATCH_TOKENS:
                continue
        for start in range(0, len(members), shape.pairs):
            of_batch = members[start : start + shape.pairs]
            yield _fill(of_batch, pairs, shape.for_fewer(len(of_batch), devices), together)
        members = []


def windows(m: int, n: int, limit: int, together: bool) -> list[tuple[_Window, _Window]]:
    """Returns the windows for a pair of m and n pieces: one if it fits, otherwise several."""
    room = limit - 3 if together else limit - 2
    if together and m + n > room:
        # The shorter side gets the room that it needs, up to half.
        target_room = max(room - m, min(n, room // 2))
        rooms = room - target_room, target_room
    elif together:
        rooms = m, n
    else:
        rooms = room, room
    # A part is at most half of its window, so that it has a quarter of context on each side.
    sides = tuple(zip((m, n), rooms, strict=True))
    count = max(1 if size <= space else rounded(-(-2 * size // space), 2) for size, space in sides)
    return list(zip(*(_cut(size, space, count) for size, space in sides), strict=True))


def _cut(size: int, room: int, count: int) -> list[_Window]:
    result = []
    for k in range(count):
        first, last = size * k // count, size * (k + 1) // count
        start = min(max(first - (room - (last - first)) // 2, 0), max(size - room, 0))
        result.append(_Window(start, min(start + room, size), first, last))
    return result


class _Shape(NamedTuple):
    rows: int
    length: int
    pairs: int
    side: int

    @property
    def each(self) -> int:
        """The number of rows per pair."""
        return self.rows // self.pairs

    def for_fewer(self, pairs: int, devices: int) -> "_Shape":
        """Returns the shape for at most `pairs` pairs, with little unused room."""
        pairs = rounded(pairs, 8)
        pairs = min(pairs + -pairs % devices, self.pairs)
        return self._replace(rows=self.each * pairs, pairs=pairs)


def _shape(side: int, count: int, limit: int, together: bool, devices: int) -> _Shape:
    """Returns the shape for pairs with `count` windows and at most `side` pieces per sentence."""
    length = min(2 * side + 3 if together else side + 2, limit)
    rows = count if together else 2 * count
    pairs = max(1, BATCH_TOKENS // (rows * length))
    pairs += -pairs % devices
    return _Shape(rows * pairs, length, pairs, side)


def _fill(
    members: list[_Member], pairs: Sequence[tuple[Pieces, Pieces]], shape: _Shape, together: bool
) -> Batch:
    tokens = np.full((shape.rows, shape.length), PAD, np.int32)
    positions, segments, sides = np.zeros((3, *tokens.shape), np.int32)
    places = np.full((2, shape.pairs, shape.side), -1, np.int32)
    row = end = 0
    for k, (member, cut) in enumerate(members):
        for pair_window in cut:
            for side, window in enumerate(pair_window):
                if side == 0 or not together:
                    tokens[row, 0], end = BOS, 1
                begin = end
                ids = pairs[member][side].ids[window.start : window.end]
                tokens[row, end : end + len(ids)] = ids
                first = row * shape.length + end + window.first - window.start
                size = window.last - window.first
                places[side, k, window.first : window.last] = np.arange(first, first + size)
                end += len(ids)
                tokens[row, end] = EOS
                if side == 1 and together:
                    sides[row, begin : end + 1] = 1
                end += 1
                if side == 1 or not together:
                    positions[row, :end], segments[row, :end] = np.arange(end), 1
                    row += 1
    windowed = len(members[0][1]) > 1
    rows = Rows(tokens, positions, segments, sides, *places)
    return Batch([member for member, _ in members], windowed, rows)
