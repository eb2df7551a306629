"""Rows of single sentences with room for pseudo-tokens."""

from collections.abc import Sequence

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.row_kind import Packed, RowKind, Rows
from xlj.data.tokenizer.layout import EOS, Ragged


class Sentences(RowKind):
    """Single sentences `<s> A </s>`.

    ceil(0.2 * len(A)) slots of `<mask>` follow each example, because ERNIE-M appends up to 20 %
    pseudo-tokens (section 3.3 and Figure 6). Examples are packed best-fit decreasing. A sentence is
    truncated, and counted in `Packed.cut`, if `<s> A </s>` has more than floor(length / 1.2)
    tokens.
    """

    name = "sentences"
    source = "data.mono"
    columns = ("text",)
    length = "data.length"

    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray | None = None,
        mask: int,
    ) -> Packed:
        """Packs each line as an example."""
        (lines,) = columns
        has_tokens = lines.lengths > 0
        dropped = {"empty": int((~has_tokens).sum())}
        lines = lines.select(has_tokens)
        limit = length * 5 // 6 - 2
        sizes = np.minimum(lines.lengths, limit)
        extra = -(-sizes // 5)

        rows, flat, base = packing.place_examples(sizes + 2 + extra, length, ids)
        flat[base + 1 + sizes] = EOS
        packing.copy_runs(lines.ids, lines.starts, flat, base + 1, sizes)
        masks = np.full(extra.sum(), mask)
        packing.copy_runs(masks, np.cumsum(extra) - extra, flat, base + 2 + sizes, extra)
        cut = int((lines.lengths > limit).sum())
        return Packed({"tokens": rows}, len(sizes), len(sizes), cut, dropped)

    def repack(self, rows: Rows) -> Rows:
        """Packs the examples of rows again, best-fit decreasing."""
        return {"tokens": packing.repack(rows["tokens"])}
