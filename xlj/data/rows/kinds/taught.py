"""Rows with a teacher's vectors: sentence pairs, and single sentences."""

from collections.abc import Sequence

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.kinds.bitext import Bitext, max_pairs
from xlj.data.rows.row_kind import Field, Packed, RowKind, Rows, Teacher
from xlj.data.tokenizer.layout import BOS, Ragged

VECTORS = "vectors"
"""The field of the vectors, float32 [slots, width]: the vector of each example of the row, in
order; zeros for slots without an example."""


class TaughtPairs(Bitext):
    """Sentence pairs as in `Bitext`, with a teacher's vector of one sentence of each pair.

    Args:
      width: number of dimensions of the vectors.
      teacher: digest of the teacher.
      languages: the languages that the teacher reads, separated by commas.
      prompt: text that begins each sentence of the student.
    """

    name = "taught_pairs"

    def __init__(self, width: int = 0, teacher: str = "", languages: str = "", prompt: str = ""):
        self.teacher = Teacher(teacher, width, tuple(languages.split(",")))
        self.prompts = (prompt, prompt)
        self._width = width

    def fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields `first`, `second` and `vectors`."""
        shape = (max_pairs(length), self._width)
        return (*super().fields(length, ids), Field(VECTORS, "<f4", shape))

    def place_further(
        self,
        columns: Sequence[Ragged],
        chosen: np.ndarray,
        rows: np.ndarray,
        shape: tuple[int, int],
    ) -> dict[str, np.ndarray]:
        """Returns the field of the vectors."""
        return {VECTORS: _place(columns[0], chosen, rows, (*shape, self._width))}

    def repack(self, rows: Rows) -> Rows:
        """Packs the pairs of rows again, best-fit decreasing."""
        length = 2 * rows["first"].shape[1]
        columns = (*self.unpack(rows), _unplace(rows, "first"))
        return self.pack(columns, length, rows["first"].dtype).rows


class TaughtText(RowKind):
    """Single sentences `<s> A </s>` with a teacher's vector of each.

    A sentence that is too long for a row is truncated, and counted in `Packed.cut`. A row has at
    most one sentence for each 16 of its tokens. Sentences are packed best-fit decreasing.

    Args:
      width, teacher, prompt: as for `TaughtPairs`.
    """

    name = "taught_text"
    source = "data.mono"
    columns = ("text",)
    length = "data.length"

    def __init__(self, width: int = 0, teacher: str = "", prompt: str = ""):
        self.teacher = Teacher(teacher, width)
        self.prompts = (prompt,)
        self._width = width

    def fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields `tokens` and `vectors`."""
        return (*super().fields(length, ids), Field(VECTORS, "<f4", (_slots(length), self._width)))

    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray | None = None,
        mask: int = 0,
    ) -> Packed:
        """Packs each line as an example."""
        lines, vectors = columns
        sizes = np.minimum(lines.lengths + 2, length)
        keep = lines.lengths > 0
        bins, offsets, count = packing.best_fit(sizes[keep], length, _slots(length))
        chosen, bins = packing.in_order(bins, offsets)
        chosen = np.flatnonzero(keep)[chosen]
        tokens = packing.place_in_order(lines, chosen, sizes, bins, (count, length), ids)
        shape = (count, _slots(length), self._width)
        rows = {"tokens": tokens, VECTORS: _place(vectors, chosen, bins, shape)}
        cut = int((lines.lengths + 2 > length).sum())
        return Packed(rows, len(chosen), len(chosen), cut, {"empty": int((~keep).sum())})

    def repack(self, rows: Rows) -> Rows:
        """Packs the sentences of rows again, best-fit decreasing."""
        columns = packing.split_sentences(rows["tokens"]), _unplace(rows, "tokens")
        return self.pack(columns, rows["tokens"].shape[1], rows["tokens"].dtype).rows

    def slots(self, rows: Rows) -> tuple[int, ...]:
        """Returns the number of slots for sentences in a row."""
        return (_slots(rows["tokens"].shape[1]),)


def _slots(length: int) -> int:
    return max(1, length // 16)


def _place(
    vectors: Ragged, chosen: np.ndarray, rows: np.ndarray, shape: tuple[int, int, int]
) -> np.ndarray:
    """Returns the field of the vectors, float32 of the given shape.

    Args:
      vectors: of each record, `shape[2]` numbers each.
      chosen: the indices of the records in the rows, int64 [n].
      rows: the row of each of these records, which does not decrease, int64 [n].
    """
    placed = np.zeros(shape, np.float32)
    placed[rows, packing.number_in_row(rows)] = vectors.ids.reshape(-1, shape[2])[chosen]
    return placed


def _unplace(rows: Rows, text: str) -> Ragged:
    """Returns the vectors of the examples of rows in order.

    Args:
      text: the field of a text of the examples.
    """
    vectors = rows[VECTORS]
    counts = (rows[text] == BOS).sum(1)
    of_examples = vectors[np.arange(vectors.shape[1]) < counts[:, None]]  # [examples, width]
    return Ragged(of_examples.ravel(), np.full(len(of_examples), vectors.shape[2]))
