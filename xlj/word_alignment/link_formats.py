"""Output formats of word links."""

from collections.abc import Callable
from functools import partial

from xlj.word_alignment.aligner import Aligned
from xlj.word_alignment.sentence_pairs import Pair

SEPARATOR = "<sep>"
"""The separator between the two words of a link, as in awesome-align."""


def _pharaoh(number: int, pair: Pair, aligned: Aligned, first: int = 0) -> str:
    links = (f"{i + first}-{j + first}" for i, j in aligned.links.tolist())
    return " ".join(links) + "\n"


def _naacl(number: int, pair: Pair, aligned: Aligned) -> str:
    return "".join(f"{number} {i + 1} {j + 1} S\n" for i, j in aligned.links.tolist())


def _words(number: int, pair: Pair, aligned: Aligned) -> str:
    links = (f"{pair.source[i]}{SEPARATOR}{pair.target[j]}" for i, j in aligned.links.tolist())
    return " ".join(links) + "\n"


WRITERS: dict[str, Callable[[int, Pair, Aligned], str]] = {
    "pharaoh": _pharaoh,
    "pharaoh_1": partial(_pharaoh, first=1),
    "naacl": _naacl,
    "words": _words,
    "pieces": _pharaoh,
}
"""Functions by format (`config.choices.LINK_FORMATS`). They take the number of the pair from 1, the
pair and its links, and return text.

- `pharaoh`: one line per pair, `i-j`, words from 0.
- `pharaoh_1`: the same, words from 1.
- `naacl`: one line per link, `PAIR i j S`, all from 1; no line for a pair without links.
- `words`: one line per pair, with the two words of each link separated by `SEPARATOR`.
- `pieces`: as `pharaoh`, for pieces of the vocabulary instead of words.
"""
