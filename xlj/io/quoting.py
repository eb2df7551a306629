"""Values quoted in error messages, short however long they are."""

from __future__ import annotations

import reprlib
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def quoted(value: Any) -> str:
    """The `repr` of a text or of a value of JSON; of a long one its start and end."""
    return _REPR.repr(value)
