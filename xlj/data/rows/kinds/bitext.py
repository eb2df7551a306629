"""Rows of sentence pairs whose two sentences are encoded separately."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlj.config import max_pairs
from xlj.data.rows import packing
from xlj.data.rows.row_kind import Field, Packed, RowKind, Rows
from xlj.data.tokenizer.layout import Ragged


class Bitext(RowKind):
    """Sentence pairs: the first sentences in one field, the second sentences in another.

    Each sentence is an example `<s> A </s>`, and the pairs have the same order in both fields. A
    field has half of the tokens of a row, and at most `max_pairs(length)` sentences. Pairs are
    packed best-fit decreasing by the longer sentence. Pairs with an empty side, and pairs with a
    side that does not fit in a field, are dropped and counted.
    """

    name = "bitext"
    source = "data.parallel"
    columns = ("source", "target")
    length = "data.pair_length"
    has_halves = True

    def fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields `first` and `second`."""
        half = (length // 2,)
        return tuple(Field(name, ids, half, is_text=True) for name in ("first", "second"))

    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray | None = None,
        mask: int = 0,
    ) -> Packed:
        """Packs each pair into both fields of a row."""
        half = length // 2
        texts, further = columns[:2], columns[2:]
        sizes = self.row_tokens(texts)
        keep, dropped, too_long = packing.find_fitting(texts, sizes, length)
        bins, offsets, count = packing.best_fit(sizes[keep] // 2, half, max_pairs(length))
        chosen, bins = packing.in_order(bins, offsets)
        chosen = np.flatnonzero(keep)[chosen]
        rows = {
            name: packing.place_in_order(
                column, chosen, column.lengths + 2, bins, (count, half), ids
            )
            for name, column in zip(("first", "second"), texts, strict=True)
        }
        rows |= self.place_further(further, chosen, bins, (count, max_pairs(length)))
        return Packed(rows, 2 * len(bins), len(bins), 0, dropped, too_long)

    def place_further(
        self,
        columns: Sequence[Ragged],
        chosen: np.ndarray,
        rows: np.ndarray,
        shape: tuple[int, int],
    ) -> dict[str, np.ndarray]:
        """Returns further fields, which a subclass packs from further columns.

        Args:
          chosen: the indices of the pairs in the rows, int64 [n].
          rows: the row of each of these pairs, which does not decrease, int64 [n].
          shape: the number of rows, and the number of slots for pairs in a row.
        """
        return {}

    def repack(self, rows: Rows) -> Rows:
        """Packs the pairs of rows again, best-fit decreasing."""
        length = 2 * rows["first"].shape[1]
        return self.pack(self.unpack(rows), length, rows["first"].dtype).rows

    def unpack(self, rows: Rows) -> tuple[Ragged, ...]:
        """Returns the first and the second sentences of all pairs in order."""
        return packing.split_sentences(rows["first"]), packing.split_sentences(rows["second"])

    def row_tokens(self, columns: Sequence[Ragged]) -> np.ndarray:
        """Returns the length of the shortest row that has room for a pair, int64 [pairs]."""
        longer: np.ndarray = np.maximum(*(column.lengths for column in columns))
        return 2 * (longer + 2)

    def layout(self, rows: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Returns the first and the second sentences as rows."""
        return tuple(
            {"tokens": rows[name], "languages": rows["languages"][:, [side, side]]}
            for side, name in enumerate(("first", "second"))
        )

    def slots(self, rows: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the number of slots for pairs in a row, for both sides."""
        return (max_pairs(2 * rows["first"].shape[1]),) * 2
