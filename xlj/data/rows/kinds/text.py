"""Rows of running text: one or several examples `<s> ... </s>`."""

from collections.abc import Sequence

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.row_kind import Packed, RowKind, Rows
from xlj.data.tokenizer.layout import EOS, Ragged


class Text(RowKind):
    """Running text.

    The lines of a document are joined and cut into pieces of `length - 2` tokens. A full piece
    fills a row. Shorter pieces are packed best-fit, with several examples per row (ours; the papers
    leave the rest of a row unused, or continue with the next document).
    """

    name = "text"
    source = "data.mono"
    columns = ("text",)
    length = "data.length"

    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray,
        mask: int = 0,
    ) -> Packed:
        """Packs documents as examples `<s> ... </s>`."""
        (lines,) = columns
        tokens = np.bincount(documents, weights=lines.lengths).astype(np.int64)
        tokens = tokens[tokens > 0]
        body = length - 2
        pieces = -(-tokens // body)
        # Piece k of a document starts k * body tokens after the start of the document.
        number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = np.repeat(np.cumsum(tokens) - tokens, pieces) + number * body
        sizes = np.minimum(np.repeat(tokens, pieces) - number * body, body)

        rows, flat, base = packing.place_examples(sizes + 2, length, ids)
        flat[base + 1 + sizes] = EOS
        packing.copy_runs(lines.ids, starts, flat, base + 1, sizes)
        sentences, cut = int((lines.lengths > 0).sum()), int((pieces > 1).sum())
        return Packed({"tokens": rows}, len(sizes), sentences, cut)

    def repack(self, rows: Rows) -> Rows:
        """Packs the examples of rows again, best-fit decreasing."""
        return {"tokens": packing.repack(rows["tokens"])}
