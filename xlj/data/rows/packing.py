"""Packs token ids into rows of one length, with little padding.

The functions are pure functions of arrays, except `copy_runs`, which writes to an array. Sentences
are `Ragged`. Rows are arrays [rows, length] of uint16 or uint32, padded with `<pad>`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import max_pairs
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import BOS, EOS, PAD

PACKING = 2
"""Version of the functions of this module. It is part of the recipe of rows, so a new version
rebuilds them."""

_BIN_TOKENS = 8  # width of a bin of `histogram`, in tokens


@dataclasses.dataclass(frozen=True)
class Packed:
    """Packed rows, and counts of what happened to the input.

    Attributes:
      rows: token ids, [rows, length] of the requested dtype.
      examples: number of examples in the rows; each example starts with `<s>`.
      sentences: number of pairs in the rows (kinds `pairs`, `bitext`), or of lines (other kinds).
      cut: number of documents that were cut into several examples (kind `text`), or of sentences
        that were truncated (kind `sentences`); else 0.
      dropped: number of pairs or sentences that are not in the rows, by reason.
      too_long: `row_tokens` of each pair that was dropped because it is too long, int64 [pairs].
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
    """Packs rows of one kind.

    Args:
      kind: a kind of `config.ROW_KINDS`.
      sides: the lines of text, or the first and the second sentences of pairs.
      documents: the document of each line, int64 [lines], non-decreasing; only for the kind `text`.
      length: number of tokens of a row.
      dtype: uint16 or uint32.
      mask: the id of `<mask>`; only for the kind `sentences`.
    """
    if kind == "text":
        return pack_text(sides[0], documents, length, dtype)
    if kind == "sentences":
        return pack_sentences(sides[0], length, dtype, mask=mask)
    pack_two_sides = pack_bitext if kind == "bitext" else pack_pairs
    return pack_two_sides(sides[0], sides[1], length, dtype)


def pack_text(lines: Ragged, documents: np.ndarray, length: int, dtype: np.dtype) -> Packed:
    """Packs documents as examples `<s> ... </s>`.

    The lines of a document are joined and cut into pieces of `length - 2` tokens. A full piece
    fills a row. Shorter pieces are packed best-fit, with several examples per row (ours; the papers
    leave the rest of a row unused, or continue with the next document).

    Args:
      lines: the lines.
      documents: the document of each line, int64 [lines], non-decreasing.
      length: number of tokens of a row.
      dtype: type of the rows.
    """
    tokens = np.bincount(documents, weights=lines.lengths).astype(np.int64)
    tokens = tokens[tokens > 0]
    body = length - 2
    pieces = -(-tokens // body)
    # Piece k of a document starts k * body tokens after the start of the document.
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(np.cumsum(tokens) - tokens, pieces) + number * body
    sizes = np.minimum(np.repeat(tokens, pieces) - number * body, body)

    rows, flat, base = _place_examples(sizes + 2, length, dtype)
    flat[base + 1 + sizes] = EOS
    copy_runs(lines.ids, starts, flat, base + 1, sizes)
    sentences, cut = int((lines.lengths > 0).sum()), int((pieces > 1).sum())
    return Packed(rows, len(sizes), sentences, cut, {})


def pack_pairs(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Packs sentence pairs as examples `<s> A </s> B </s>`, best-fit decreasing.

    Pairs whose example has more than `length` tokens, and pairs with an empty side, are dropped and
    counted.
    """
    sizes = row_tokens("pairs", first, second)
    keep, dropped, too_long = _fitting_pairs(first, second, sizes, length)
    first, second = first.select(keep), second.select(keep)

    rows, flat, base = _place_examples(sizes[keep], length, dtype)
    middle = base + 1 + first.lengths
    flat[middle] = EOS
    flat[middle + 1 + second.lengths] = EOS
    copy_runs(first.ids, first.starts, flat, base + 1, first.lengths)
    copy_runs(second.ids, second.starts, flat, middle + 1, second.lengths)
    return Packed(rows, len(base), len(base), 0, dropped, too_long)


def pack_bitext(first: Ragged, second: Ragged, length: int, dtype: np.dtype) -> Packed:
    """Packs sentence pairs whose two sentences are encoded separately.

    The first half of a row has the first sentences of its pairs, each as `<s> A </s>`. The second
    half has the second sentences, in the same order. A row has at most `max_pairs(length)` pairs.
    Pairs are packed best-fit decreasing by the longer sentence. Pairs with an empty side, and pairs
    with a side that does not fit in half a row, are dropped and counted.
    """
    half = length // 2
    sizes = row_tokens("bitext", first, second)
    keep, dropped, too_long = _fitting_pairs(first, second, sizes, length)
    bins, offsets, count = best_fit(sizes[keep] // 2, half, max_pairs(length))
    # Rows are sorted by their first pair; with one pair per row, rows are in the order of the text.
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
    """Computes the length of the shortest row that has room for a pair, for each pair.

    Args:
      kind: `pairs` or `bitext`.
      first, second: the two sentences of each pair.

    Returns:
      Numbers of tokens, int64 [pairs].
    """
    if kind == "bitext":
        return 2 * (np.maximum(first.lengths, second.lengths) + 2)
    return first.lengths + second.lengths + 3


def histogram(sizes: np.ndarray) -> dict[str, int]:
    """Counts sizes in bins with the inclusive upper limits 8, 16, 24, and so on.

    Args:
      sizes: int64 [items].

    Returns:
      The number of items in each bin that is not empty, by upper limit. The limits are strings,
      because keys of JSON are strings.
    """
    limits, counts = np.unique(-(-sizes // _BIN_TOKENS) * _BIN_TOKENS, return_counts=True)
    return {str(x): count for x, count in zip(limits.tolist(), counts.tolist(), strict=True)}


def shortest_length(counts: Mapping[str, int], share: float, shorter: int = 0) -> int:
    """Returns the smallest upper limit of a bin that a given share of all items does not exceed.

    Args:
      counts: number of items by size, as `histogram` returns it.
      share: the share of items, from 0 to 1.
      shorter: number of further items that are shorter than all items in `counts`.

    Returns:
      The limit; 0 if `counts` is empty.
    """
    missing = share * (sum(counts.values()) + shorter) - shorter
    for limit in sorted(map(int, counts)):
        missing -= counts[str(limit)]
        if missing <= 0:
            return limit
    return 0


def pack_sentences(lines: Ragged, length: int, dtype: np.dtype, *, mask: int) -> Packed:
    """Packs single sentences as examples `<s> A </s>` with room for pseudo-tokens.

    ceil(0.2 * len(A)) slots of `<mask>` follow each example, because ERNIE-M appends up to 20 %
    pseudo-tokens (section 3.3 and Figure 6). Examples are packed best-fit decreasing. A sentence is
    truncated, and counted in `Packed.cut`, if `<s> A </s>` has more than floor(length / 1.2)
    tokens.
    """
    has_tokens = lines.lengths > 0
    dropped = {"empty": int((~has_tokens).sum())}
    lines = lines.select(has_tokens)
    limit = length * 5 // 6 - 2
    sizes = np.minimum(lines.lengths, limit)
    extra = -(-sizes // 5)

    rows, flat, base = _place_examples(sizes + 2 + extra, length, dtype)
    flat[base + 1 + sizes] = EOS
    copy_runs(lines.ids, lines.starts, flat, base + 1, sizes)
    copy_runs(np.full(extra.sum(), mask), np.cumsum(extra) - extra, flat, base + 2 + sizes, extra)
    return Packed(rows, len(sizes), len(sizes), int((lines.lengths > limit).sum()), dropped)


def sides_of(kind: str, rows: np.ndarray) -> tuple[Ragged, Ragged]:
    """Returns the first and the second sentences of rows of kind `pairs` or `bitext`.

    Args:
      kind: `pairs` or `bitext`.
      rows: [rows, length].

    Returns:
      The first and the second sentences of all pairs in order, without special tokens.
    """
    if kind == "bitext":
        half = rows.shape[1] // 2
        return _split_sentences(rows[:, :half]), _split_sentences(rows[:, half:])
    sentences = _split_sentences(rows)
    is_second = np.arange(len(sentences.lengths)) % 2 == 1
    return sentences.select(~is_second), sentences.select(is_second)


def _split_sentences(rows: np.ndarray) -> Ragged:
    """Returns the tokens before each `</s>`, without other special tokens."""
    ids = rows[(rows != PAD) & (rows != BOS)].astype(np.int32)
    lengths = np.diff(np.flatnonzero(ids == EOS), prepend=-1) - 1
    return Ragged(ids[ids != EOS], lengths)


def repack(kind: str, rows: np.ndarray) -> np.ndarray:
    """Packs the examples of rows that are not full into fewer rows, best-fit decreasing.

    Args:
      kind: kind of the rows.
      rows: [rows, length].

    Returns:
      Rows with the same examples, [fewer rows, length].
    """
    if kind == "bitext":
        return pack_bitext(*sides_of(kind, rows), rows.shape[1], rows.dtype).rows
    ids = rows[rows != PAD]
    starts = np.flatnonzero(ids == BOS)
    sizes = np.diff(starts, append=len(ids))
    packed, flat, base = _place_examples(sizes, rows.shape[1], rows.dtype)
    copy_runs(ids, starts, flat, base, sizes)
    return packed


def best_fit(
    sizes: np.ndarray, capacity: int, max_items: int | None = None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Packs items into bins, best-fit decreasing.

    Items are placed in the order of decreasing size, each in the fullest bin with enough room.

    Args:
      sizes: size of each item, from 1 to `capacity`, int64 [items].
      capacity: capacity of a bin.
      max_items: maximum number of items in a bin; None for no limit.

    Returns:
      The bin of each item, int64 [items]; the offset of each item in its bin, int64 [items]; and
      the number of bins.
    """
    bins, offsets = np.empty_like(sizes), np.empty_like(sizes)
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]
    rooms = 0  # bit r is set if a bin has exactly r free places
    count = 0
    item_counts: list[int] = []  # of each bin
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
            item_counts.append(0)
        bins[item], offsets[item] = bin_chosen, capacity - room
        item_counts[bin_chosen] += 1
        new_room = room - size
        if new_room and item_counts[bin_chosen] != max_items:
            with_room[new_room].append(bin_chosen)
            rooms |= 1 << new_room
    return bins, offsets, count


def copy_runs(
    source: np.ndarray,
    starts: np.ndarray,
    target: np.ndarray,
    places: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copies runs of ids: target[places[i] + j] = source[starts[i] + j] for j < lengths[i]."""
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(places, lengths) + offsets] = source[np.repeat(starts, lengths) + offsets]


def _fitting_pairs(
    first: Ragged, second: Ragged, sizes: np.ndarray, length: int
) -> tuple[np.ndarray, dict[str, int], np.ndarray]:
    """Finds the pairs that fit into rows.

    Args:
      first, second: the two sentences of each pair.
      sizes: `row_tokens` of each pair, int64 [pairs].
      length: number of tokens of a row.

    Returns:
      Whether each pair fits, bool [pairs]; the number of other pairs, by reason; and the sizes of
      pairs that are too long.
    """
    has_tokens, fits = (first.lengths > 0) & (second.lengths > 0), sizes <= length
    too_long = sizes[has_tokens & ~fits]
    dropped = {"empty side": int((~has_tokens).sum()), "too long": len(too_long)}
    return has_tokens & fits, dropped, too_long


def _place_examples(
    sizes: np.ndarray, length: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Creates rows of padding, places examples in them, and writes the `<s>` of each example.

    Args:
      sizes: number of tokens of each example, with special tokens, int64 [examples].
      length: number of tokens of a row.
      dtype: type of the rows.

    Returns:
      The rows; a flat view of the rows; and the start of each example in the flat view, int64
      [examples].
    """
    bins, offsets, count = best_fit(sizes.astype(np.int64), length)
    rows, base = np.full((count, length), PAD, dtype), bins * length + offsets
    flat = rows.reshape(-1)
    flat[base] = BOS
    return rows, flat, base
