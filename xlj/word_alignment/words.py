"""Words of text that is tokenised already: what divides them."""

import re
from collections.abc import Callable

SPLITS: dict[str, Callable[[str], list[str]]] = {
    "spaces": lambda text: re.findall(r"[^ \t\r\n]+", text),
    "whitespace": str.split,
}
"""`spaces`: at ASCII spaces and tabs, as fast_align and eflomal split, so that a word may hold a
NO-BREAK SPACE. `whitespace`: at any white space of Unicode, as Python's split, SimAlign and
awesome-align do."""
