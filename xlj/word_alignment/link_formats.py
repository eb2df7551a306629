"""The formats in which word links are written."""

from collections.abc import Callable
from functools import partial

from xlj.word_alignment.aligner import Aligned
from xlj.word_alignment.sentence_pairs import Pair

SEPARATOR = "<sep>"
"""Between the two words of a link, as awesome-align writes them."""


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
"""By name, one of `config.choices.LINK_FORMATS`: (number of the pair from 1, pair, its links) ->
text. `pharaoh`: a line a pair, `i-j`, words from 0; `pharaoh_1`: from 1. `naacl`: a line a link,
`PAIR i j S`, all from 1, none for a pair without links. `words`: a line a pair, the words of each
link with `SEPARATOR` between. `pieces`: as `pharaoh`, of pieces of the vocabulary."""
