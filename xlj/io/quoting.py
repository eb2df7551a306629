"""Values that errors quote from files, which may hold a line of any length."""

from __future__ import annotations

_LONGEST = 100


def quoted(value: object) -> str:
    """A value as Python writes it; of a long one the start, and how long it is."""
    text = repr(value[: _LONGEST + 1] if isinstance(value, str) else value)
    if len(text) <= _LONGEST + 2:
        return text
    length = len(value) if isinstance(value, str) else len(text)
    return f"{text[:_LONGEST]}... ({length:,} characters)"
