"""Token ids into rows of one length, as densely as they fit.

Pure functions on arrays. Sentences come as `Ragged`. Rows are `[rows, length]` of uint16 or uint32,
padded with `<pad>`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import max_pairs
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import BOS, EOS, PAD

PACKING = 2
"""Version of these functions; part of the recipe, so after a change rows are built again."""


_STEP = 8  # of lengths that are counted


@dataclasses.dataclass(frozen=True)
class Packed:
    """Rows, and what became of the input.

    Attributes:
      rows: [rows, length] of the dtype asked for.
      examples: how many examples are in the rows; each starts at `<s>`.
      sentences: how many lines (text, sentences) or pairs are in the rows.
      cut: documents that were cut into several examples, or sentences that lost their end.
      dropped: pairs or sentences left out, by reason.
      too_long: `row_tokens` of the pairs that were dropped as too long, int64.
    """

    rows: np.ndarray
    examples: int
    sentences: int
    cut: int
    dropped: Mapping[str, int]
    too_long: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))


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

    rows, flat, base = _place(sizes + 2, length, dtype)
    flat[base + 1 + sizes] = EOS
    copy_runs(lines.ids, starts, flat, base + 1, sizes)
    sentences, cut = int((lines.lengths > 0).sum()), int((pieces > 1).sum())
    return Packed(rows, len(sizes), sentences, cut, {})


def pairs(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Sentence pairs as `<s> A </s> B </s>` examples, packed best-fit decreasing.

    Pairs of more than `length` tokens and pairs with an empty side are dropped and counted.
    """
    sizes = row_tokens("pairs", first, second)
    keep, dropped, too_long = _kept(first, second, sizes, length)
    first, second = first.select(keep), second.select(keep)

    rows, flat, base = _place(sizes[keep], length, dtype)
    middle = base + 1 + first.lengths
    flat[middle] = EOS
    flat[middle + 1 + second.lengths] = EOS
    copy_runs(first.ids, first.starts, flat, base + 1, first.lengths)
    copy_runs(second.ids, second.starts, flat, middle + 1, second.lengths)
    return Packed(rows, len(base), len(base), 0, dropped, too_long)


def bitext(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Sentence pairs to be read apart: a row has the first sentences of its pairs, `<s> A </s>`
    each, in its first half, and the second ones in the same order in its second.

    At most `max_pairs(length)` are in a row, packed best-fit decreasing by the longer side. Pairs
    with a side that a half does not hold are dropped and counted.
    """
    half = length // 2
    sizes = row_tokens("bitext", first, second)
    keep, dropped, too_long = _kept(first, second, sizes, length)
    bins, offsets, count = best_fit(sizes[keep] // 2, half, max_pairs(length))
    # Rows stand in the order of their first pairs, which is the text's where each has one.
    _, begins = np.unique(bins, return_index=True)
    bins = np.argsort(np.argsort(begins))[bins]
    order = np.lexsort((offsets, bins))
    row_starts = np.searchsorted(bins[order], np.arange(count))
    rows = np.full((count, length), PAD, dtype)
    flat = rows.reshape(-1)
    for side, begin in ((first.select(keep), 0), (second.select(keep), half)):
        taken = side.lengths[order] + 2
        before = np.cumsum(taken) - taken
        places = np.empty_like(before)
        places[order] = before - np.repeat(before[row_starts], np.bincount(bins, minlength=count))
        places += bins * length + begin
        flat[places] = BOS
        flat[places + 1 + side.lengths] = EOS
        copy_runs(side.ids, side.starts, flat, places + 1, side.lengths)
    return Packed(rows, 2 * len(bins), len(bins), 0, dropped, too_long)


def row_tokens(kind: str, first: Ragged, second: Ragged) -> np.ndarray:
    """Tokens of the shortest row of kind `pairs` or `bitext` that holds a pair, int64 [pairs]."""
    if kind == "bitext":
        return 2 * (np.maximum(first.lengths, second.lengths) + 2)
    return first.lengths + second.lengths + 3


def histogram(sizes: np.ndarray) -> dict[str, int]:
    """How many of these sizes, int64 [items], are at most 8, 16, 24 ..., and above the one before;
    strings, as JSON has them."""
    steps, counts = np.unique(-(-sizes // _STEP) * _STEP, return_counts=True)
    return {str(step): count for step, count in zip(steps.tolist(), counts.tolist(), strict=True)}


def fitting(counts: Mapping[str, int], share: float, shorter: int = 0) -> int:
    """The smallest length that this share of all items fits; 0 if there are none.

    Args:
      counts: of items by size, as `histogram` returned it.
      shorter: items that are shorter than all of those.
    """
    missing = share * (sum(counts.values()) + shorter) - shorter
    for step in sorted(map(int, counts)):
        missing -= counts[str(step)]
        if missing <= 0:
            return step
    return 0


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

    rows, flat, base = _place(sizes + 2 + extra, length, dtype)
    flat[base + 1 + sizes] = EOS
    copy_runs(lines.ids, lines.starts, flat, base + 1, sizes)
    copy_runs(np.full(extra.sum(), mask), np.cumsum(extra) - extra, flat, base + 2 + sizes, extra)
    return Packed(rows, len(sizes), len(sizes), int((lines.lengths > limit).sum()), dropped)


def sides_of(kind: str, rows: np.ndarray) -> tuple[Ragged, Ragged]:
    """The first and the second sentences, without specials, of rows [rows, length] of kind `pairs`
    or `bitext`, in order."""
    if kind == "bitext":
        half = rows.shape[1] // 2
        return _sentences(rows[:, :half]), _sentences(rows[:, half:])
    every = _sentences(rows)
    odd = np.arange(len(every.lengths)) % 2 == 1
    return every.select(~odd), every.select(odd)


def _sentences(rows: np.ndarray) -> Ragged:
    """What stands before each `</s>`."""
    ids = rows[(rows != PAD) & (rows != BOS)].astype(np.int32)
    lengths = np.diff(np.flatnonzero(ids == EOS), prepend=-1) - 1
    return Ragged(ids[ids != EOS], lengths)


def repack(kind: str, rows: np.ndarray) -> np.ndarray:
    """The examples of rows [rows, length] of a kind, packed anew into as few rows as best fit
    finds."""
    if kind == "bitext":
        return bitext(*sides_of(kind, rows), rows.shape[1], rows.dtype).rows
    ids = rows[rows != PAD]
    starts = np.flatnonzero(ids == BOS)
    sizes = np.diff(starts, append=len(ids))
    packed, flat, base = _place(sizes, rows.shape[1], rows.dtype)
    copy_runs(ids, starts, flat, base, sizes)
    return packed


def best_fit(
    sizes: np.ndarray, capacity: int, most: int | None = None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Best-fit decreasing: longest first, each into the fullest bin that still has room.

    Args:
      sizes: int64 [items], each from 1 to `capacity`.
      most: items in a bin, if they are limited.

    Returns:
      The bin of each item and its offset there, int64 [items], and the number of bins.
    """
    bins, offsets = np.empty_like(sizes), np.empty_like(sizes)
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0  # bit r is set when some bin has room for exactly r more
    count = 0
    held: list[int] = []  # items in each bin
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
            held.append(0)
        bins[item], offsets[item] = chosen, capacity - room
        held[chosen] += 1
        left = room - size
        if left and held[chosen] != most:
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


def _kept(
    first: Ragged, second: Ragged, sizes: np.ndarray, length: int
) -> tuple[np.ndarray, dict[str, int], np.ndarray]:
    """Which pairs are kept, bool [pairs]; how many are not, by reason; and the sizes of those that
    are too long."""
    whole, fits = (first.lengths > 0) & (second.lengths > 0), sizes <= length
    too_long = sizes[whole & ~fits]
    dropped = {"empty side": int((~whole).sum()), "too long": len(too_long)}
    return whole & fits, dropped, too_long


def _place(
    sizes: np.ndarray, length: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of padding with room for examples of these sizes, each with its `<s>`; the same rows,
    flat; and where each example starts there, int64 [examples]."""
    bins, offsets, count = best_fit(sizes.astype(np.int64), length)
    rows, base = np.full((count, length), PAD, dtype), bins * length + offsets
    flat = rows.reshape(-1)
    flat[base] = BOS
    return rows, flat, base
