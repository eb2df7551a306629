"""One self-contained page to look through alignments: both lines, links drawn between their words.

Pairs lie in the page as JSON, written as they come; its script draws some of them at a time, and
puts text on the page as text only. A content security policy lets no other script run.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO

from xlj.reporting.markup import document, node
from xlj.reporting.style import asset, style
from xlj.word_alignment.aligner import Aligned
from xlj.word_alignment.sentence_pairs import Pair

_DATA = '<script type="application/json" id="data">'
"""What the pairs stand behind. No text of the page can hold it."""


class Page(AbstractContextManager):
    """Writes the page: pairs are added within its context, and it is whole at its end.

    Args:
      file: where it goes.
      title: what stands above.
      facts: how the pairs were aligned, shown in a line.
      with_gold: whether pairs have gold links. Those with most errors come first then.
    """

    def __init__(
        self, file: BinaryIO, title: str, facts: Mapping[str, str | float], with_gold: bool
    ):
        self._file, self._separator = file, b"\n"
        head, place, self._tail = _around(title, facts, with_gold).partition(_DATA)
        self._head = head + place

    def __enter__(self) -> "Page":
        self._file.write(f"{self._head}[".encode())
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._file.write(f"\n]{self._tail}".encode())

    def add(self, pair: Pair, aligned: Aligned) -> None:
        """Adds a pair and its links."""
        confidences = [round(value, 4) for value in aligned.confidences.tolist()]
        links = [[*link, c] for link, c in zip(aligned.links.tolist(), confidences, strict=True)]
        gold = pair.gold
        sides = [sorted(gold.sure), sorted(gold.possible - gold.sure)] if gold else []
        content = [pair.source, pair.target, links, *sides]
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        # Without `<` no text can end the element that it stands in, or begin another.
        self._file.write(self._separator + text.replace("<", "\\u003c").encode())
        self._separator = b",\n"


def _around(title: str, facts: Mapping[str, str | float], with_gold: bool) -> str:
    """The page without pairs."""
    script = asset("alignment.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    kinds = {"right": "right", "wrong": "wrong", "missed": "missed"} if with_gold else {}
    keys = [
        part
        for kind, said in (kinds or {"found": "found"}).items()
        for part in (node("span", class_=f"key {kind}"), said)
    ]
    orders = [("errors", "most errors first")] if with_gold else []
    orders += [("file", "as in the file"), ("doubt", "least confident first")]
    options = [node("option", said, value=name) for name, said in orders]
    controls = node(
        "div",
        node("button", "◀", id="back", title="the pairs before", type="button"),
        node("button", "▶", id="on", title="the next pairs", type="button"),
        node("span", id="status"),
        node("select", *options, id="order", title="order"),
        node("input", id="number", type="number", min=1, placeholder="pair", title="go to a pair"),
        class_="controls",
    )
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    body = [
        node("h1", title),
        node("p", f"{said}. Thick: confident.", *keys),
        node("noscript", node("p", "The pairs are drawn by a script, which is turned off.")),
        controls,
        node("div", id="pairs"),
        node("script", type="application/json", id="data"),
        node("script", script),
    ]
    head = [node("meta", http_equiv="Content-Security-Policy", content=policy)]
    return document(title, style(0) + asset("alignment.css"), body, head)
