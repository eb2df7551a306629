"""Text that errors quote from files, where a line may be megabytes long."""

from __future__ import annotations

_LONGEST = 200


def shortened(text: str) -> str:
    """A text; of a long one its start, and how long it is."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... ({len(text):,} characters)"
