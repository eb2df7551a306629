"""Rows of sentence pairs that are encoded together."""

from collections.abc import Sequence

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.row_kind import Packed, RowKind, Rows
from xlj.data.tokenizer.layout import EOS, Ragged


class Pairs(RowKind):
    """Sentence pairs as examples `<s> A </s> B </s>`, packed best-fit decreasing.

    Pairs whose example has more than `length` tokens, and pairs with an empty side, are dropped and
    counted.
    """

    name = "pairs"
    source = "data.parallel"
    columns = ("source", "target")
    length = "data.pair_length"

    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray | None = None,
        mask: int = 0,
    ) -> Packed:
        """Packs each pair as an example."""
        sizes = self.row_tokens(columns)
        keep, dropped, too_long = packing.find_fitting(columns, sizes, length)
        first, second = (column.select(keep) for column in columns)

        rows, flat, base = packing.place_examples(sizes[keep], length, ids)
        middle = base + 1 + first.lengths
        flat[middle] = EOS
        flat[middle + 1 + second.lengths] = EOS
        packing.copy_runs(first.ids, first.starts, flat, base + 1, first.lengths)
        packing.copy_runs(second.ids, second.starts, flat, middle + 1, second.lengths)
        return Packed({"tokens": rows}, len(base), len(base), 0, dropped, too_long)

    def repack(self, rows: Rows) -> Rows:
        """Packs the examples of rows again, best-fit decreasing."""
        return {"tokens": packing.repack(rows["tokens"])}

    def unpack(self, rows: Rows) -> tuple[Ragged, ...]:
        """Returns the first and the second sentences of all pairs in order."""
        sentences = packing.split_sentences(rows["tokens"])
        is_second = np.arange(len(sentences.lengths)) % 2 == 1
        return sentences.select(~is_second), sentences.select(is_second)
