"""Token ids into rows of one length, as densely as they fit.

Pure functions on arrays. Sentences come as `Ragged`: the ids of all of them end to end, and where
each one starts. Rows are `[rows, length]` of uint16 or uint32, padded with `<pad>`.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.data.tokenizer.layout import BOS, EOS, PAD

PACKING = 1
"""Version of these functions; part of the recipe, so after a change rows are built again."""


@dataclasses.dataclass(frozen=True)
class Ragged:
    """Sequences of token ids, end to end: int32 [sum of lengths], and int64 [sequences]."""

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        """The same sequences, out of lists."""
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        ids = itertools.chain.from_iterable(sequences)
        return cls(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)

    @property
    def starts(self) -> np.ndarray:
        """Where each sequence starts in `ids`, int64 [sequences]."""
        return np.cumsum(self.lengths) - self.lengths

    def select(self, keep: np.ndarray) -> "Ragged":
        """The sequences at which `keep`, bool [sequences], is true."""
        return Ragged(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


@dataclasses.dataclass(frozen=True)
class Packed:
    """Rows, and what became of the input.

    Attributes:
      rows: [rows, length] of the dtype asked for.
      examples: how many examples are in the rows; each starts at `<s>`.
      sentences: how many lines (text, sentences) or pairs are in the rows.
      cut: documents that were cut into several examples, or sentences that lost their end.
      dropped: pairs or sentences left out, by reason.
    """

    rows: np.ndarray
    examples: int
    sentences: int
    cut: int
    dropped: Mapping[str, int]


def pack(
    kind: str,
    sides: Sequence[Ragged],
    documents: np.ndarray,
    length: int,
    dtype: np.dtype,
    *,
    mask: int,
) -> Packed:
    """Rows of a kind, one of `config.ROW_KINDS`; see its function for what it takes."""
    if kind == "text":
        return text(sides[0], documents, length, dtype)
    if kind == "sentences":
        return sentences(sides[0], length, dtype, mask=mask)
    return (bitext if kind == "bitext" else pairs)(sides[0], sides[1], length, dtype)


def text(lines: Ragged, documents: np.ndarray, length: int, dtype: np.dtype) -> Packed:
    """Documents as `<s> ... </s>` examples: lines joined, cut into pieces of `length - 2` tokens.

    A full piece is a row of its own; shorter ones are packed best-fit with each other, several
    examples a row (ours; the papers leave the rest unused or run on into the next document).

    Args:
      documents: the document of each line, int64 [lines], not decreasing.
      length: tokens in a row.
    """
    tokens = np.bincount(documents, weights=lines.lengths).astype(np.int64)
    tokens = tokens[tokens > 0]
    body = length - 2
    pieces = -(-tokens // body)
    # Piece k of a document starts k * body after the document does.
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(np.cumsum(tokens) - tokens, pieces) + number * body
    sizes = np.minimum(np.repeat(tokens, pieces) - number * body, body)

    rows, base = _place(sizes + 2, length, dtype)
    flat = rows.reshape(-1)
    flat[base] = BOS
    flat[base + 1 + sizes] = EOS
    copy_runs(lines.ids, starts, flat, base + 1, sizes)
    sentences, cut = int((lines.lengths > 0).sum()), int((pieces > 1).sum())
    return Packed(rows, len(sizes), sentences, cut, {})


def pairs(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Sentence pairs as `<s> A </s> B </s>` examples, packed best-fit decreasing.

    Pairs of more than `length` tokens and pairs with an empty side are dropped and counted.
    """
    sizes = first.lengths + second.lengths + 3
    keep, dropped = _kept(first, second, sizes <= length)
    first, second = first.select(keep), second.select(keep)

    rows, base = _place(sizes[keep], length, dtype)
    flat = rows.reshape(-1)
    middle = base + 1 + first.lengths
    flat[base] = BOS
    flat[middle] = EOS
    flat[middle + 1 + second.lengths] = EOS
    copy_runs(first.ids, first.starts, flat, base + 1, first.lengths)
    copy_runs(second.ids, second.starts, flat, middle + 1, second.lengths)
    return Packed(rows, len(base), len(base), 0, dropped)


def bitext(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Sentence pairs to be read apart: a row has `<s> A </s>` in its first half and `<s> B </s>` in
    its second, each padded to length / 2. Pairs with a side that is longer are dropped and counted.
    """
    half = length // 2
    keep, dropped = _kept(first, second, np.maximum(first.lengths, second.lengths) + 2 <= half)
    rows = np.full((int(keep.sum()), length), PAD, dtype)
    flat, starts = rows.reshape(-1), np.arange(len(rows)) * length
    for side, offset in ((first.select(keep), 0), (second.select(keep), half)):
        flat[starts + offset] = BOS
        flat[starts + offset + 1 + side.lengths] = EOS
        copy_runs(side.ids, side.starts, flat, starts + offset + 1, side.lengths)
    return Packed(rows, 2 * len(rows), len(rows), 0, dropped)


def sentences(lines: Ragged, length: int, dtype: np.dtype, *, mask: int) -> Packed:
    """Single sentences as `<s> A </s>` examples with room for pseudo-tokens, packed best-fit
    decreasing.

    Each example is followed by ceil(0.2 * len(A)) slots of `<mask>` (ERNIE-M section 3.3 and Figure
    6 append up to 20 %). A sentence is cut where `<s> A </s>` reaches floor(length / 1.2) tokens;
    cut ones are counted.
    """
    whole = lines.lengths > 0
    dropped = {"empty": int((~whole).sum())}
    lines = lines.select(whole)
    limit = length * 5 // 6 - 2
    sizes = np.minimum(lines.lengths, limit)
    extra = -(-sizes // 5)

    rows, base = _place(sizes + 2 + extra, length, dtype)
    flat = rows.reshape(-1)
    flat[base] = BOS
    flat[base + 1 + sizes] = EOS
    copy_runs(lines.ids, lines.starts, flat, base + 1, sizes)
    copy_runs(np.full(extra.sum(), mask), np.cumsum(extra) - extra, flat, base + 2 + sizes, extra)
    return Packed(rows, len(sizes), len(sizes), int((lines.lengths > limit).sum()), dropped)


def repack(rows: np.ndarray) -> np.ndarray:
    """The examples of `rows` [rows, length], packed anew into as few rows as best fit finds."""
    ids = rows[rows != PAD]
    starts = np.flatnonzero(ids == BOS)
    sizes = np.diff(starts, append=len(ids))
    packed, base = _place(sizes, rows.shape[1], rows.dtype)
    copy_runs(ids, starts, packed.reshape(-1), base, sizes)
    return packed


def count_tokens(rows: np.ndarray) -> int:
    """How many ids in `rows` are not padding."""
    return int(np.count_nonzero(rows != PAD))


def best_fit(sizes: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Best-fit decreasing: longest first, each into the fullest bin that still has room.

    Args:
      sizes: int64 [items], each from 1 to `capacity`.

    Returns:
      The bin of each item and its offset there, int64 [items], and the number of bins.
    """
    bins, offsets = np.empty_like(sizes), np.empty_like(sizes)
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0  # bit r is set when some bin has room for exactly r more
    count = 0
    lengths = sizes.tolist()
    for item in np.argsort(-sizes, kind="stable").tolist():
        size = lengths[item]
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            chosen = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, chosen = capacity, count
            count += 1
        bins[item], offsets[item] = chosen, capacity - room
        left = room - size
        if left:
            with_room[left].append(chosen)
            rooms |= 1 << left
    return bins, offsets, count


def copy_runs(
    source: np.ndarray,
    starts: np.ndarray,
    target: np.ndarray,
    places: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """target[places[i] + j] = source[starts[i] + j] for every i and j < lengths[i]."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(places, lengths) + within] = source[np.repeat(starts, lengths) + within]


def _kept(first: Ragged, second: Ragged, fits: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Which pairs are kept, bool [pairs], and how many are not, by reason."""
    whole = (first.lengths > 0) & (second.lengths > 0)
    dropped = {"empty side": int((~whole).sum()), "too long": int((whole & ~fits).sum())}
    return whole & fits, dropped


def _place(sizes: np.ndarray, length: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Rows of padding with room for examples of these sizes, and where each starts in the flat
    rows, int64 [examples]."""
    bins, offsets, count = best_fit(sizes.astype(np.int64), length)
    return np.full((count, length), PAD, dtype), bins * length + offsets
