"""Batches of sentence pairs in a few fixed shapes, for encoding and aligning; NumPy only.

A pair is encoded together, as `<s> A </s> B </s>` with positions that run on (a row of XLM's TLM),
or apart, each sentence as `<s> A </s>` in a row of its own. A pair too long for the model's
positions is encoded in overlapping windows (ours): both sides are cut into equally many parts, each
part is encoded with as much of its surroundings as fits, and the vectors of the parts are aligned
as one sentence. Nothing is cut off.
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
"""Tokens of a batch, padding included, about."""


class Pieces(NamedTuple):
    """The pieces of a sentence, each int32 [pieces]."""

    ids: np.ndarray
    words: np.ndarray  # which word of the sentence each piece belongs to, from 0


Of = TypeVar("Of", np.ndarray, jax.Array)


class Rows(NamedTuple, Generic[Of]):
    """Rows to encode, and where in them the pieces of each pair are; int32 arrays."""

    tokens: Of  # [rows, length], as the next three
    positions: Of
    segments: Of  # 1 for tokens, 0 for padding
    sides: Of  # 1 for the second sentence of a pair that is encoded together, else 0
    source_places: Of  # [pairs, side], where in all tokens each piece is; -1 for none
    target_places: Of  # likewise


class Batch(NamedTuple):
    """Some of the pairs, as rows. There may be places for more pairs, which then have no pieces."""

    members: list[int]  # indices of the pairs
    windowed: bool  # whether these are long pairs, in windows
    rows: Rows[np.ndarray]


class _Window(NamedTuple):
    """Pieces [start, end) are encoded; the vectors of [first, last) are kept."""

    start: int
    end: int
    first: int
    last: int


_Member = tuple[int, list[tuple[_Window, _Window]]]  # the index of a pair, and its windows


def pieces_of(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, are_words: bool = False
) -> list[Pieces]:
    """Each sentence in pieces; every word is encoded by itself, as XLM-Align's aligner does. With
    `are_words` each piece counts as a word of its own."""
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, vocabulary.encode_words(distinct), strict=True))
    nothing = np.zeros(0, np.int32)
    found = []
    for sentence in sentences:
        parts = [pieces[word] for word in sentence]
        sizes = [len(part) for part in parts]
        words = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
        if are_words:
            words = np.arange(sum(sizes), dtype=np.int32)
        found.append(Pieces(np.concatenate([nothing, *parts]), words))
    return found


def batches(
    pairs: Sequence[tuple[Pieces, Pieces]], limit: int, together: bool, devices: int = 1
) -> Iterator[Batch]:
    """All pairs with two sides, in batches of pairs of similar length. Those of a length for which
    padding to the next one costs no more than a batch go with these, so that few pairs need few
    shapes: to compile one, or to fetch it, takes longer.

    Args:
      limit: the most tokens of a row, from the model's positions.
      together: encode the two sentences of a pair in one row.
      devices: what rows and pairs of a batch divide over.
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
            some = members[start : start + shape.pairs]
            yield _filled(some, pairs, shape.for_fewer(len(some), devices), together)
        members = []


def windows(m: int, n: int, limit: int, together: bool) -> list[tuple[_Window, _Window]]:
    """How a pair of m and n pieces is encoded: one window where it fits, else several."""
    room = limit - 3 if together else limit - 2
    if together and m + n > room:
        # The shorter side keeps what it needs, up to half.
        target_room = max(room - m, min(n, room // 2))
        rooms = room - target_room, target_room
    elif together:
        rooms = m, n
    else:
        rooms = room, room
    # A kept part is at most half of its window, so that it sees a quarter on each side.
    sides = tuple(zip((m, n), rooms, strict=True))
    count = max(1 if size <= space else rounded(-(-2 * size // space), 2) for size, space in sides)
    return list(zip(*(_cut(size, space, count) for size, space in sides), strict=True))


def _cut(size: int, room: int, count: int) -> list[_Window]:
    found = []
    for k in range(count):
        first, last = size * k // count, size * (k + 1) // count
        start = min(max(first - (room - (last - first)) // 2, 0), max(size - room, 0))
        found.append(_Window(start, min(start + room, size), first, last))
    return found


class _Shape(NamedTuple):
    rows: int
    length: int
    pairs: int
    side: int

    @property
    def each(self) -> int:
        """Rows of a pair."""
        return self.rows // self.pairs

    def for_fewer(self, pairs: int, devices: int) -> "_Shape":
        """The shape for so many pairs at most, with few places to spare."""
        pairs = rounded(pairs, 8)
        pairs = min(pairs + -pairs % devices, self.pairs)
        return self._replace(rows=self.each * pairs, pairs=pairs)


def _shape(side: int, count: int, limit: int, together: bool, devices: int) -> _Shape:
    """The shape for pairs of `count` windows with at most `side` pieces a sentence."""
    length = min(2 * side + 3 if together else side + 2, limit)
    rows = count if together else 2 * count
    pairs = max(1, BATCH_TOKENS // (rows * length))
    pairs += -pairs % devices
    return _Shape(rows * pairs, length, pairs, side)


def _filled(
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
                kept = window.last - window.first
                places[side, k, window.first : window.last] = np.arange(first, first + kept)
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
