"""Packs token ids into rows of one length, as densely as possible.

Pure functions of arrays. Sentences are `Ragged`. Rows are `[rows, length]` of uint16 or uint32,
padded with `<pad>`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import max_pairs
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import BOS, EOS, PAD

PACKING = 2
"""Version of these functions. It is part of the recipe, so a change rebuilds rows."""

_STEP = 8  # tokens; lengths are counted in multiples of it


@dataclasses.dataclass(frozen=True)
class Packed:
    """Rows, and counts of what happened to the input.

    Attributes:
      rows: [rows, length] of the requested dtype.
      examples: number of examples in the rows; each starts with `<s>`.
      sentences: number of lines (text, sentences) or pairs in the rows.
      cut: documents that were cut into several examples, or sentences that were truncated.
      dropped: pairs or sentences that were left out, by reason.
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
    """Packs rows of a kind of `config.ROW_KINDS`; the function of that kind describes the input."""
    if kind == "text":
        return text(sides[0], documents, length, dtype)
    if kind == "sentences":
        return sentences(sides[0], length, dtype, mask=mask)
    return (bitext if kind == "bitext" else pairs)(sides[0], sides[1], length, dtype)


def text(lines: Ragged, documents: np.ndarray, length: int, dtype: np.dtype) -> Packed:
    """Packs documents as `<s> ... </s>` examples: lines joined, cut into `length - 2` tokens.

    A full piece fills a row. Shorter pieces are packed best-fit, several examples per row (ours;
    the papers leave the rest unused or continue with the next document).

    Args:
      documents: the document of each line, int64 [lines], non-decreasing.
      length: tokens of a row.
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
    """Packs sentence pairs as `<s> A </s> B </s>` examples, best-fit decreasing.

    Pairs of more than `length` tokens and pairs with an empty side are dropped and counted.
    """
    sizes = row_tokens("pairs", first, second)
    keep, dropped, too_long = _fitting_pairs(first, second, sizes, length)
    first, second = first.select(keep), second.select(keep)

    rows, flat, base = _place(sizes[keep], length, dtype)
    middle = base + 1 + first.lengths
    flat[middle] = EOS
    flat[middle + 1 + second.lengths] = EOS
    copy_runs(first.ids, first.starts, flat, base + 1, first.lengths)
    copy_runs(second.ids, second.starts, flat, middle + 1, second.lengths)
    return Packed(rows, len(base), len(base), 0, dropped, too_long)


def bitext(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Packs sentence pairs that are encoded separately: first sentences in the first half of a row.

    The first half has the first sentences of the pairs, `<s> A </s>` each, and the second half has
    the second sentences in the same order. A row has at most `max_pairs(length)` pairs, packed
    best-fit decreasing by the longer side. Pairs with an empty side or a side that does not fit in
    half a row are dropped and counted.
    """
    half = length // 2
    sizes = row_tokens("bitext", first, second)
    keep, dropped, too_long = _fitting_pairs(first, second, sizes, length)
    bins, offsets, count = best_fit(sizes[keep] // 2, half, max_pairs(length))
    # Rows are ordered by their first pair; with one pair per row, this is the order of the text.
    _, begins = np.unique(bins, return_index=True)
    bins = np.argsort(np.argsort(begins))[bins]
    order = np.lexsort((offsets, bins))
    row_starts = np.searchsorted(bins[order], np.arange(count))
    rows = np.full((count, length), PAD, dtype)
    flat = rows.reshape(-1)
    for side, begin in ((first.select(keep), 0), (second.select(keep), half)):
        sizes_in_order = side.lengths[order] + 2
        before = np.cumsum(sizes_in_order) - sizes_in_order
        places = np.empty_like(before)
        places[order] = before - np.repeat(before[row_starts], np.bincount(bins, minlength=count))
        places += bins * length + begin
        flat[places] = BOS
        flat[places + 1 + side.lengths] = EOS
        copy_runs(side.ids, side.starts, flat, places + 1, side.lengths)
    return Packed(rows, 2 * len(bins), len(bins), 0, dropped, too_long)


def row_tokens(kind: str, first: Ragged, second: Ragged) -> np.ndarray:
    """Counts the tokens of the shortest row, of kind `pairs` or `bitext`, that holds each pair.

    Returns:
      int64 [pairs].
    """
    if kind == "bitext":
        return 2 * (np.maximum(first.lengths, second.lengths) + 2)
    return first.lengths + second.lengths + 3


def histogram(sizes: np.ndarray) -> dict[str, int]:
    """Counts sizes, int64 [items], in bins with upper limits 8, 16, 24, ...

    Keys are the limits as strings, as in JSON.
    """
    steps, counts = np.unique(-(-sizes // _STEP) * _STEP, return_counts=True)
    return {str(step): count for step, count in zip(steps.tolist(), counts.tolist(), strict=True)}


def shortest_length(counts: Mapping[str, int], share: float, shorter: int = 0) -> int:
    """Returns the smallest length that is enough for a share of all items; 0 without items.

    Args:
      counts: number of items by size, from `histogram`.
      shorter: number of further items, all shorter than those in `counts`.
    """
    missing = share * (sum(counts.values()) + shorter) - shorter
    for step in sorted(map(int, counts)):
        missing -= counts[str(step)]
        if missing <= 0:
            return step
    return 0


def sentences(lines: Ragged, length: int, dtype: np.dtype, *, mask: int) -> Packed:
    """Packs single sentences as `<s> A </s>` examples with room for pseudo-tokens, best-fit
    decreasing.

    Each example is followed by ceil(0.2 * len(A)) slots of `<mask>` (ERNIE-M section 3.3 and Figure
    6 append up to 20 %). Sentences are truncated if `<s> A </s>` is longer than
    floor(length / 1.2) tokens; truncated sentences are counted.
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
    """Returns the first and the second sentences of rows of kind `pairs` or `bitext`.

    Args:
      rows: [rows, length].

    Returns:
      Both sides in order, without special tokens.
    """
    if kind == "bitext":
        half = rows.shape[1] // 2
        return _sentences(rows[:, :half]), _sentences(rows[:, half:])
    every = _sentences(rows)
    odd = np.arange(len(every.lengths)) % 2 == 1
    return every.select(~odd), every.select(odd)


def _sentences(rows: np.ndarray) -> Ragged:
    """Returns the tokens before each `</s>`."""
    ids = rows[(rows != PAD) & (rows != BOS)].astype(np.int32)
    lengths = np.diff(np.flatnonzero(ids == EOS), prepend=-1) - 1
    return Ragged(ids[ids != EOS], lengths)


def repack(kind: str, rows: np.ndarray) -> np.ndarray:
    """Packs the examples of rows [rows, length] of a kind again, best-fit, into fewer rows."""
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
    """Best-fit decreasing: places longest items first, each in the fullest bin with enough room.

    Args:
      sizes: int64 [items], each from 1 to `capacity`.
      most: the most items of a bin; None for no limit.

    Returns:
      The bin of each item and its offset there, int64 [items], and the number of bins.
    """
    bins, offsets = np.empty_like(sizes), np.empty_like(sizes)
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0  # bit r is set if a bin has room for exactly r more
    count = 0
    items_in: list[int] = []  # number of items in each bin
    lengths = sizes.tolist()
    for item in np.argsort(-sizes, kind="stable").tolist():
        size = lengths[item]
        large_enough = rooms >> size
        if large_enough:
            room = size + (large_enough & -large_enough).bit_length() - 1
            bin_chosen = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, bin_chosen = capacity, count
            count += 1
            items_in.append(0)
        bins[item], offsets[item] = bin_chosen, capacity - room
        items_in[bin_chosen] += 1
        left = room - size
        if left and items_in[bin_chosen] != most:
            with_room[left].append(bin_chosen)
            rooms |= 1 << left
    return bins, offsets, count


def copy_runs(
    source: np.ndarray,
    starts: np.ndarray,
    target: np.ndarray,
    places: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copies runs: target[places[i] + j] = source[starts[i] + j] for every i and j < lengths[i]."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(places, lengths) + within] = source[np.repeat(starts, lengths) + within]


def _fitting_pairs(
    first: Ragged, second: Ragged, sizes: np.ndarray, length: int
) -> tuple[np.ndarray, dict[str, int], np.ndarray]:
    """Returns which pairs fit, bool [pairs]; how many do not, by reason; and the sizes of too long
    pairs."""
    whole, fits = (first.lengths > 0) & (second.lengths > 0), sizes <= length
    too_long = sizes[whole & ~fits]
    dropped = {"empty side": int((~whole).sum()), "too long": len(too_long)}
    return whole & fits, dropped, too_long


def _place(
    sizes: np.ndarray, length: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places examples of these sizes in rows of padding, and writes the `<s>` of each.

    Returns:
      The rows; a flat view of them; and the start of each example in the flat view, int64
      [examples].
    """
    bins, offsets, count = best_fit(sizes.astype(np.int64), length)
    rows, base = np.full((count, length), PAD, dtype), bins * length + offsets
    flat = rows.reshape(-1)
    flat[base] = BOS
    return rows, flat, base
