"""Functions that split tokenised text into words."""

import re
from collections.abc import Callable

SPLITS: dict[str, Callable[[str], list[str]]] = {
    "spaces": lambda text: re.findall(r"[^ \t\r\n]+", text),
    "whitespace": str.split,
}
"""Functions that split a sentence into words, by name.

`spaces` splits at ASCII spaces, tabs and line ends, as fast_align and eflomal do, so a word may
contain a NO-BREAK SPACE. `whitespace` splits at all Unicode whitespace, as Python's `str.split`,
SimAlign and awesome-align do."""
