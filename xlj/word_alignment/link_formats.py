"""Writes word links in several formats."""

from collections.abc import Callable
from functools import partial

from xlj.word_alignment.aligner import PairLinks
from xlj.word_alignment.sentence_pairs import Pair

SEPARATOR = "<sep>"
"""The separator between the two words of a link, as in awesome-align."""


def _write_pharaoh(number: int, pair: Pair, pair_links: PairLinks, first: int = 0) -> str:
    links = (f"{i + first}-{j + first}" for i, j in pair_links.links.tolist())
    return " ".join(links) + "\n"


def _write_naacl(number: int, pair: Pair, pair_links: PairLinks) -> str:
    return "".join(f"{number} {i + 1} {j + 1} S\n" for i, j in pair_links.links.tolist())


def _write_words(number: int, pair: Pair, pair_links: PairLinks) -> str:
    links = (f"{pair.source[i]}{SEPARATOR}{pair.target[j]}" for i, j in pair_links.links.tolist())
    return " ".join(links) + "\n"


def write(
    name: str, number: int, pair: Pair, pair_links: PairLinks, with_scores: bool = False
) -> str:
    """Formats the links of a pair.

    Args:
      name: the format.
      number: the number of the pair, from 1.
      with_scores: whether to add the confidences of the links as a column. If the method computes
        probabilities of "no counterpart", two more columns have those of the source words and of
        the target words, except in the format `naacl`.
    """
    text = WRITERS[name](number, pair, pair_links)
    if not with_scores:
        return text
    confidences = [f"{confidence:.4f}" for confidence in pair_links.confidences.tolist()]
    if name == "naacl":
        lines = zip(text.splitlines(), confidences, strict=True)
        return "".join(f"{line} {confidence}\n" for line, confidence in lines)
    columns = [text[:-1], " ".join(confidences)]
    columns += [" ".join(f"{null:.4f}" for null in side) for side in pair_links.nulls or ()]
    return "\t".join(columns) + "\n"


WRITERS: dict[str, Callable[[int, Pair, PairLinks], str]] = {
    "pharaoh": _write_pharaoh,
    "pharaoh_1": partial(_write_pharaoh, first=1),
    "naacl": _write_naacl,
    "words": _write_words,
    "pieces": _write_pharaoh,
}
"""Functions that format the links of a pair, by format (`config.choices.LINK_FORMATS`).

They take (number of the pair, pair, links) and return text. Pairs are numbered from 1.

- `pharaoh`: one line per pair with links `i-j`; words count from 0.
- `pharaoh_1`: one line per pair with links `i-j`; words count from 1.
- `naacl`: one line per link, `PAIR i j S`; pairs and words count from 1. A pair without links has
  no line.
- `words`: one line per pair, with the two words of each link separated by `SEPARATOR`.
- `pieces`: one line per pair with links `i-j` between pieces of the vocabulary, which count from 0.
"""
