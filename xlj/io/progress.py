"""The type of callbacks for progress bars."""

from collections.abc import Callable

Advance = Callable[[int], object]
"""Takes the number of items (rows, sentences) since the last call."""
