"""A self-contained HTML page that shows word alignments: two sentences and their links.

The page contains the sentence pairs as JSON, and its script draws a few pairs at a time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from xlj.io.json_page import JsonPage, controls
from xlj.io.markup import Element, node
from xlj.word_alignment.sentence_pairs import Pair

if TYPE_CHECKING:  # types only: results of the ONNX backend need no JAX
    from xlj.word_alignment.aligner import PairLinks


_SCRIPT = Path(__file__).with_suffix(".js")


class Page(JsonPage):
    """Context manager that writes the page. Call `add` for each pair within the context.

    Args:
      file: the file to write.
      title: the heading of the page.
      facts: the options of the alignment, by name. The page shows them below the heading.
      with_gold: whether pairs have gold links. If so, the page shows the pairs with the most errors
        first.
    """

    def __init__(
        self, file: BinaryIO, title: str, facts: Mapping[str, str | float], with_gold: bool
    ):
        super().__init__(file, title, _SCRIPT, _body(facts, with_gold))

    def add(self, pair: Pair, aligned: "PairLinks") -> None:
        """Adds a pair and its links."""
        confidences = [round(value, 4) for value in aligned.confidences.tolist()]
        links = [[*link, c] for link, c in zip(aligned.links.tolist(), confidences, strict=True)]
        gold = pair.gold
        sides = [sorted(gold.sure), sorted(gold.possible - gold.sure)] if gold else []
        self.write([pair.source, pair.target, links, *sides])


def _body(facts: Mapping[str, str | float], with_gold: bool) -> list[Element]:
    """Returns the elements of the page above the script."""
    kinds = ("correct", "wrong", "missed") if with_gold else ("predicted",)
    keys = [part for kind in kinds for part in (node("span", class_=f"key {kind}"), kind)]
    orders = [("errors", "most errors first")] if with_gold else []
    orders += [("file", "order of the file"), ("doubt", "least confident first")]
    settings = ", ".join(f"{name} {value}" for name, value in facts.items())
    return [
        node("p", f"{settings}. Thicker lines: higher confidence. Links:", *keys),
        node("noscript", node("p", "This page needs JavaScript to draw the pairs.")),
        controls(orders, "pair"),
        node("div", id="items"),
    ]
