"""Kinds of rows, with the config keys of their text and length."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RowKind:
    """A kind of rows: the key of its text sources and the key of its length."""

    source: str
    length: str


ROW_KINDS = {
    "text": RowKind("data.mono", "data.length"),
    "sentences": RowKind("data.mono", "data.length"),
    "pairs": RowKind("data.parallel", "data.pair_length"),
    "bitext": RowKind("data.parallel", "data.pair_length"),
}
"""Kinds of rows by name (docs/data.md).

- `text`: running text
- `sentences`: single sentences with room for pseudo-tokens
- `pairs`: sentence pairs that are encoded together
- `bitext`: sentence pairs whose sentences are encoded separately
"""


def max_pairs(length: int) -> int:
    """Returns the maximum number of pairs in a row of bitext: one per 32 tokens, at least one."""
    return max(1, length // 32)
