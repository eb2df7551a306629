"""Kinds of rows, and the keys of their text and their length."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RowKind:
    """A kind of rows: the key that names its text, and the key of its length."""

    source: str
    length: str


ROW_KINDS = {
    "text": RowKind("data.mono", "data.length"),
    "sentences": RowKind("data.mono", "data.length"),
    "pairs": RowKind("data.parallel", "data.pair_length"),
    "bitext": RowKind("data.parallel", "data.pair_length"),
}
"""Kinds of rows (docs/data.md): running text; single sentences with room for pseudo-tokens;
sentence pairs read together; sentence pairs read apart."""


def max_pairs(length: int) -> int:
    """How many pairs a row of bitext may have: one for 32 of its tokens, but at least one."""
    return max(1, length // 32)
