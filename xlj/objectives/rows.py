"""Rows of a batch: token ids and languages."""

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Rows of one objective."""

    tokens: Any
    """Token ids [rows, length], int32 or as on disk."""
    languages: Any
    """int32 [rows, 2], of each side, as indices into the corpus's languages; text has one twice."""
