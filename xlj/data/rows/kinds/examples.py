"""Rows of examples of sentence encoders: queries, their positives, and given negatives."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.row_kind import Field, Packed, RowKind
from xlj.data.text.examples import SCORES
from xlj.data.tokenizer.layout import PAD, Ragged


class Examples(RowKind):
    """Examples: a query, a positive passage, up to `negatives` negative passages, and scores.

    Each text is `<s> A </s>`. A text that is too long for its field is truncated, and its example
    is counted in `Packed.cut`. A row holds several examples if they are short: at most one for each
    32 tokens of its longer field. Examples are packed best-fit decreasing, by the field in which
    they need the largest share. The examples of a row have the same order in all fields.

    Args:
      negatives: the largest number of negatives of an example.
      query_length: number of tokens of the field of queries. The field of positives has as many
        tokens as the row. The field of negatives has such a field for the first negatives of the
        examples, one for the second negatives, and so on.
      scored: whether examples have scores.
      query_prompt, passage_prompt: texts that begin each query, and each other text.
    """

    name = "examples"
    source = "data.examples"
    length = "data.passage_length"

    def __init__(
        self,
        negatives: int = 0,
        query_length: int = 64,
        scored: bool = False,
        query_prompt: str = "",
        passage_prompt: str = "",
    ):
        self.negatives, self.query_length, self.scored = negatives, query_length, scored
        given = tuple(f"negative_{n + 1}" for n in range(negatives))
        self.columns = ("query", "positive", *given, *(SCORES,) * scored)
        self.optional = len(self.columns) - 2
        self.deciding = 1  # passages are often the positives of several queries
        self.numbers = (SCORES,) if scored else ()
        self.prompts = (query_prompt, *(passage_prompt,) * (1 + negatives))

    def fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields of texts, the owners of negatives, and the scores.

        `owners` has the number in the row of each negative's example: first for the slots of the
        first negatives, then for those of the second negatives, and so on. A score is NaN if it is
        not given.
        """
        slots, negatives = self._slots(length), self.negatives
        fields = [
            Field("query", ids, (self.query_length,), is_text=True),
            Field("positive", ids, (length,), is_text=True),
        ]
        if negatives:
            fields.append(Field("negatives", ids, (negatives, length), is_text=True))
            fields.append(Field("owners", "<u2", (negatives * slots,)))
        if self.scored:
            fields.append(Field("score", "<f4", (slots,)))
        if self.scored and negatives:
            fields.append(Field("negative_scores", "<f4", (negatives * slots,)))
        return tuple(fields)

    def batch_fields(self, length: int, ids: str) -> tuple[Field, ...]:
        """Returns the fields of a row in a batch: all texts of a row have one language."""
        return (*self.fields(length, ids), Field("languages", "<i4", (2,)))

    def pack(
        self,
        columns: Sequence[Ragged],
        length: int,
        ids: np.dtype,
        *,
        documents: np.ndarray | None = None,
        mask: int = 0,
    ) -> Packed:
        """Packs each example into the fields of a row."""
        texts = columns[: 2 + self.negatives]
        limits = [self.query_length, *[length] * (1 + self.negatives)]
        sizes = [
            np.where(text.lengths > 0, np.minimum(text.lengths + 2, limit), 0)
            for text, limit in zip(texts, limits, strict=True)
        ]
        is_cut = np.any(
            [text.lengths + 2 > limit for text, limit in zip(texts, limits, strict=True)], axis=0
        )
        keep = (sizes[0] > 0) & (sizes[1] > 0)
        # The length of the field of passages that has room for the example's share of each field.
        shares = [-(-sizes[0] * length // self.query_length), *sizes[1:]]
        slots = self._slots(length)
        room = np.max(shares, axis=0)[keep].astype(np.int64)
        bins, offsets, count = packing.best_fit(room, length, slots)
        chosen, bins = packing.in_order(bins, offsets)
        chosen = np.flatnonzero(keep)[chosen]
        rows = {
            name: packing.place_in_order(text, chosen, size, bins, (count, width), ids)
            for name, text, size, width in zip(
                ("query", "positive"), texts, sizes, limits, strict=False
            )
        }
        slot = packing.number_in_row(bins)
        scores = self._scores_of(columns, chosen)
        if self.scored:
            rows["score"] = np.zeros((count, slots), "<f4")
            rows["score"][bins, slot] = scores[:, 0]
        given = 0
        if self.negatives:
            rows["negatives"] = np.full((count, self.negatives, length), PAD, ids)
            rows["owners"] = np.zeros((count, self.negatives * slots), "<u2")
            if self.scored:
                rows["negative_scores"] = np.zeros((count, self.negatives * slots), "<f4")
        for number, (text, size) in enumerate(zip(texts[2:], sizes[2:], strict=True)):
            has_text = size[chosen] > 0
            row, owner = bins[has_text], slot[has_text]
            rows["negatives"][:, number] = packing.place_in_order(
                text, chosen[has_text], size, row, (count, length), ids
            )
            place = row, number * slots + packing.number_in_row(row)
            rows["owners"][place] = owner
            if self.scored:
                rows["negative_scores"][place] = scores[has_text, 1 + number]
            given += len(row)
        dropped = {"empty side": int((~keep).sum())}
        total = len(chosen)
        return Packed(rows, 2 * total + given, total, int((is_cut & keep).sum()), dropped)

    def layout(self, rows: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Returns the queries, the positives and, if there are any, the negatives as rows.

        The tokens of negatives are [rows, negatives, length], a row for each number of a negative.
        """
        names = ("query", "positive", "negatives")[: 3 if self.negatives else 2]
        return tuple({"tokens": rows[name], "languages": rows["languages"]} for name in names)

    def slots(self, rows: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the number of slots for the queries, the positives and the negatives of a row."""
        slots = self._slots(rows["positive"].shape[1])
        return (slots, slots, *(self.negatives * slots,) * bool(self.negatives))

    def scores(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the owners of the negatives, and the scores."""
        names = ("owners", "score", "negative_scores")
        return {name: rows[name] for name in names if name in rows}

    def _slots(self, length: int) -> int:
        """Returns the maximum number of examples in a row."""
        return max(1, max(length, self.query_length) // 32)

    def _scores_of(self, columns: Sequence[Ragged], chosen: np.ndarray) -> np.ndarray:
        """Returns the scores of the positive and of each negative, float32 [examples, 1 +
        negatives]; NaN if a score is not given."""
        scores = np.full((len(chosen), 1 + self.negatives), np.nan, np.float32)
        if self.scored:
            lengths, starts = columns[-1].lengths[chosen], columns[-1].starts[chosen]
            for number in range(scores.shape[1]):
                has_score = lengths > number
                scores[has_score, number] = columns[-1].ids[starts[has_score] + number]
        return scores
