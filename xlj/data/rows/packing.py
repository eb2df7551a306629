"""Tools to pack token ids into rows of one length, with little padding.

The functions are pure functions of arrays, except `copy_runs`, which writes to an array. Sentences
are `Ragged`. Ids in rows are uint16 or uint32, [rows, length], padded with `<pad>`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from xlj.data.tokenizer.layout import BOS, EOS, PAD, Ragged

_BIN_TOKENS = 8  # width of a bin of `histogram`, in tokens


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


def split_sentences(rows: np.ndarray) -> Ragged:
    """Returns the sentences of rows, each of which ends with `</s>`, without special tokens."""
    ids = rows[(rows != PAD) & (rows != BOS)].astype(np.int32)
    lengths = np.diff(np.flatnonzero(ids == EOS), prepend=-1) - 1
    return Ragged(ids[ids != EOS], lengths)


def repack(rows: np.ndarray) -> np.ndarray:
    """Packs the examples of rows that are not full into fewer rows, best-fit decreasing.

    Args:
      rows: [rows, length].

    Returns:
      Rows with the same examples, [fewer rows, length].
    """
    ids = rows[rows != PAD]
    starts = np.flatnonzero(ids == BOS)
    sizes = np.diff(starts, append=len(ids))
    packed, flat, base = place_examples(sizes, rows.shape[1], rows.dtype)
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


def in_order(bins: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orders items by bin and offset, after `best_fit`.

    Bins are renumbered by their first items, so with one item per bin, bins are in the order of the
    items.

    Args:
      bins, offsets: of each item, int64 [items].

    Returns:
      The items in order, and the bin of each, which does not decrease, int64 [items] each.
    """
    _, begins = np.unique(bins, return_index=True)
    bins = np.argsort(np.argsort(begins))[bins]
    order = np.lexsort((offsets, bins))
    return order, bins[order]


def number_in_row(rows: np.ndarray) -> np.ndarray:
    """Returns the number of each item in its row.

    Args:
      rows: the row of each item, which does not decrease, int64 [items].
    """
    numbers: np.ndarray = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return numbers


def place_in_order(
    column: Ragged,
    chosen: np.ndarray,
    sizes: np.ndarray,
    rows: np.ndarray,
    shape: tuple[int, int],
    dtype: np.dtype,
) -> np.ndarray:
    """Places texts one after another in rows, each as `<s> A </s>`.

    Args:
      column: the texts.
      chosen: the indices of the texts to place, int64 [n].
      sizes: number of tokens of each text of `column`, with special tokens. If it is smaller than
        that of the whole text, the text is truncated.
      rows: the row of each chosen text, which does not decrease, int64 [n].
      shape: number of rows, and their length.
      dtype: type of the rows.
    """
    placed = np.full(shape, PAD, dtype)
    flat = placed.reshape(-1)
    size = sizes[chosen]
    before = np.cumsum(size) - size
    in_row = before - before[np.searchsorted(rows, rows)] if len(rows) else before
    starts = rows * shape[1] + in_row
    flat[starts] = BOS
    flat[starts + size - 1] = EOS
    copy_runs(column.ids, column.starts[chosen], flat, starts + 1, size - 2)
    return placed


def copy_runs(
    source: np.ndarray,
    starts: np.ndarray,
    target: np.ndarray,
    target_starts: np.ndarray,
    lengths: np.ndarray,
) -> None:
    """Copies runs of ids: target[target_starts[i] + j] = source[starts[i] + j], j < lengths[i]."""
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(target_starts, lengths) + offsets] = source[
        np.repeat(starts, lengths) + offsets
    ]


def find_fitting(
    columns: Sequence[Ragged], sizes: np.ndarray, length: int
) -> tuple[np.ndarray, dict[str, int], np.ndarray]:
    """Finds the records that fit into rows.

    Args:
      columns: the texts of each record.
      sizes: `RowKind.row_tokens` of each record, int64 [records].
      length: number of tokens of a row.

    Returns:
      Whether each record fits, bool [records]; the number of other records, by reason; and the
      sizes of records that are too long.
    """
    has_tokens = np.all([column.lengths > 0 for column in columns], axis=0)
    fits = sizes <= length
    too_long = sizes[has_tokens & ~fits]
    dropped = {"empty side": int((~has_tokens).sum()), "too long": len(too_long)}
    return has_tokens & fits, dropped, too_long


def place_examples(
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
