"""A self-contained HTML page to read aligned documents side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from xlj.document_alignment.pair_formats import Aligned
from xlj.io.json_file import Record
from xlj.io.json_page import JsonPage, controls
from xlj.io.markup import Element, node

_SCRIPT = Path(__file__).with_suffix(".js")
_ORDERS = [
    ("doubt", "least confident first"),
    ("gaps", "sentences without a counterpart first"),
    ("file", "order of the documents"),
]


def write(file: BinaryIO, title: str, documents: Sequence[Aligned], summary: Record) -> None:
    """Writes the page. A page of several pairs of documents has a menu to choose one of them.

    Args:
      documents: the documents and all steps of their alignments.
      summary: the report (`report.summarise`).
    """
    kinds = ", ".join(f"{kind}: {share:.1%}" for kind, share in summary["kinds"].items())
    gaps = summary["gaps"]
    skipped = gaps["source_sentences"] + gaps["target_sentences"]
    facts = (
        f"{summary['pairs']:,} pairs ({kinds}); sentences without a counterpart: {skipped:,} "
        f"(gaps: {gaps['count']:,}); confidence {summary['confidence']:.3f}. The numbers before "
        "the sentences count lines from 0."
    )
    body = [
        node("p", facts),
        node("noscript", node("p", "This page needs JavaScript to draw the pairs.")),
        *([_menu(documents, summary)] if len(documents) > 1 else []),
        controls(_ORDERS, "pair"),
        node("div", id="items"),
    ]
    with JsonPage(file, title, _SCRIPT, body) as page:
        for number, aligned in enumerate(documents):
            for pair in aligned.pairs:
                ids = aligned.ids(pair) or [[], []]
                sides = zip(aligned.numbers(pair), aligned.sides(pair), ids, strict=True)
                page.write([round(pair.confidence, 4), *(_lines(*side) for side in sides), number])


def _menu(documents: Sequence[Aligned], summary: Record) -> Element:
    """Returns a menu of the pairs of documents, the least confident first."""
    numbers = {tuple(aligned.names): number for number, aligned in enumerate(documents)}
    options = [node("option", f"all {len(documents):,} pairs of documents", value="")]
    for each in summary["documents"]:
        names = each["source"], each["target"]
        text = f"{each['confidence']:.3f} {' – '.join(names)}, {each['pairs']:,} pairs"
        options.append(node("option", text, value=numbers[names]))
    return node("p", node("select", *options, id="document", title="documents, worst first"))


def _lines(numbers: list[int], texts: list[str], ids: list[str]) -> list[list]:
    """Returns [number, text] or [number, text, id] of the sentences of a side."""
    names: list[list[str]] = [[name] for name in ids] or [[]] * len(texts)
    return [[k, text, *name] for k, text, name in zip(numbers, texts, names, strict=True)]
