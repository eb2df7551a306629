"""Batches of sentence pairs in a few fixed shapes, for encoding and aligning; NumPy only.

The sentences of a pair are encoded together, as `<s> A </s> B </s>` with continuous positions (as
in XLM's TLM), or separately, as `<s> A </s>` and `<s> B </s>` in two rows.

A pair that is too long for the model's positions is encoded in overlapping windows (ours). Both
sentences are split into the same number of parts, and each window contains one part with as much
context as fits. Then the vectors of all parts are aligned as one sentence. Nothing is truncated.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import numpy as np

from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.inference.row_batches import round_up

BATCH_TOKENS = 4096
"""The approximate number of tokens of a batch, including padding."""


class Pieces(NamedTuple):
    """The pieces of a sentence.

    Attributes:
      ids: int32 [pieces], the ids of the pieces.
      words: int32 [pieces], for each piece the index of its word.
    """

    ids: np.ndarray
    words: np.ndarray


ArrayT = TypeVar("ArrayT", np.ndarray, jax.Array)


class Rows(NamedTuple, Generic[ArrayT]):
    """Rows to encode, and where the pieces of each pair are in the rows. All arrays are int32.

    Attributes:
      tokens, positions: [rows, length].
      segments: [rows, length], 1 for tokens, 0 for padding.
      sides: [rows, length], 1 for the second sentence of a pair that is encoded together, else 0.
      source_indices: [pairs, side], for each piece of the source its index in the flattened tokens;
        -1 in unused slots. `side` is the number of slots, enough for the longest sentence.
      target_indices: [pairs, side], the same for the pieces of the target.
      source_words, target_words: [pairs, side], for each piece the index of its word; -1 in unused
        slots.
    """

    tokens: ArrayT
    positions: ArrayT
    segments: ArrayT
    sides: ArrayT
    source_indices: ArrayT
    target_indices: ArrayT
    source_words: ArrayT
    target_words: ArrayT


class Batch(NamedTuple):
    """A batch of pairs as rows.

    Attributes:
      members: the indices of the pairs. The arrays of `rows` may have room for more pairs.
      windowed: whether the pairs are long pairs that are encoded in windows.
    """

    members: list[int]
    windowed: bool
    rows: Rows[np.ndarray]


class _Window(NamedTuple):
    """A window on a sentence: the pieces [start, end) are encoded, and the vectors of the pieces
    [first, last) are used."""

    start: int
    end: int
    first: int
    last: int


_Member = tuple[int, list[tuple[_Window, _Window]]]  # the index of a pair, and its windows


def pieces_of(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, are_words: bool = False
) -> list[Pieces]:
    """Splits sentences into pieces.

    Each word is tokenized separately, as in XLM-Align's aligner.

    Args:
      are_words: whether each piece counts as a word.
    """
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, vocabulary.encode_words(distinct), strict=True))
    empty = np.zeros(0, np.int32)
    result = []
    for sentence in sentences:
        pieces_of_words = [pieces[word] for word in sentence]
        sizes = [len(part) for part in pieces_of_words]
        words = np.repeat(np.arange(len(pieces_of_words), dtype=np.int32), sizes)
        if are_words:
            words = np.arange(sum(sizes), dtype=np.int32)
        result.append(Pieces(np.concatenate([empty, *pieces_of_words]), words))
    return result


def batches(
    pairs: Sequence[tuple[Pieces, Pieces]], limit: int, together: bool, devices: int = 1
) -> Iterator[Batch]:
    """Yields batches of pairs with similar lengths. Pairs with an empty sentence are skipped.

    Pairs are padded to the next longer length if this adds at most `BATCH_TOKENS` tokens of
    padding. This reduces the number of shapes: compiling or loading a program takes longer than
    computing some padding.

    Args:
      limit: the maximum number of tokens of a row, from the model's positions.
      together: whether the two sentences of a pair are encoded in one row.
      devices: the number of devices. It divides the numbers of rows and pairs of each batch.
    """
    buckets: dict[_Shape, list[_Member]] = defaultdict(list)
    for index, (source, target) in enumerate(pairs):
        m, n = len(source.ids), len(target.ids)
        if m and n:
            pair_windows = windows(m, n, limit, together)
            shape = _shape(round_up(max(m, n), 8), len(pair_windows), limit, together, devices)
            buckets[shape].append((index, pair_windows))
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
    """Returns the windows for a pair of m and n pieces: one window if the pair fits, else several.

    Each element has a window on the source and a window on the target.
    """
    room = limit - 3 if together else limit - 2
    if together and m + n > room:
        # The shorter sentence gets the room that it needs, up to half of the room.
        target_room = max(room - m, min(n, room // 2))
        rooms = room - target_room, target_room
    elif together:
        rooms = m, n
    else:
        rooms = room, room
    # A part takes at most half of a window, so a quarter of the window is context on each side.
    sides = tuple(zip((m, n), rooms, strict=True))
    count = max(1 if size <= space else round_up(-(-2 * size // space), 2) for size, space in sides)
    return list(zip(*(_cut_sentence(size, space, count) for size, space in sides), strict=True))


def _cut_sentence(size: int, room: int, count: int) -> list[_Window]:
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
        """The number of rows for each pair."""
        return self.rows // self.pairs

    def for_fewer(self, pairs: int, devices: int) -> "_Shape":
        """Returns a smaller shape for at most `pairs` pairs, with few unused pairs."""
        pairs = round_up(pairs, 8)
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
    indices, words = np.full((2, 2, shape.pairs, shape.side), -1, np.int32)
    row = end = 0
    for k, (member, pair_windows) in enumerate(members):
        for side, pieces in enumerate(pairs[member]):
            words[side, k, : len(pieces.words)] = pieces.words
        for pair_window in pair_windows:
            for side, window in enumerate(pair_window):
                if side == 0 or not together:
                    tokens[row, 0], end = BOS, 1
                begin = end
                ids = pairs[member][side].ids[window.start : window.end]
                tokens[row, end : end + len(ids)] = ids
                first = row * shape.length + end + window.first - window.start
                size = window.last - window.first
                indices[side, k, window.first : window.last] = np.arange(first, first + size)
                end += len(ids)
                tokens[row, end] = EOS
                if side == 1 and together:
                    sides[row, begin : end + 1] = 1
                end += 1
                if side == 1 or not together:
                    positions[row, :end], segments[row, :end] = np.arange(end), 1
                    row += 1
    windowed = len(members[0][1]) > 1
    rows = Rows(tokens, positions, segments, sides, *indices, *words)
    return Batch([member for member, _ in members], windowed, rows)
