"""A self-contained HTML page that shows word alignments: two sentences and their links.

The page contains the sentence pairs as JSON, which `Page` writes pair by pair. The script of the
page draws a few pairs at a time, and inserts all text as text nodes. A content security policy
forbids all other scripts.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from xlj.io.markup import document, node
from xlj.word_alignment.sentence_pairs import Pair

if TYPE_CHECKING:  # types only: results of the ONNX backend need no JAX
    from xlj.word_alignment.aligner import PairLinks

_SCRIPT, _STYLE = (Path(__file__).with_suffix(suffix) for suffix in (".js", ".css"))
_DATA = '<script type="application/json" id="data">'
"""The tag before the JSON of the pairs. Other text of the page is escaped, so it cannot contain
this tag."""


class Page(AbstractContextManager):
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
        self._file, self._separator = file, b"\n"
        head, tag, self._tail = _render_frame(title, facts, with_gold).partition(_DATA)
        self._head = head + tag

    def __enter__(self) -> "Page":
        self._file.write(f"{self._head}[".encode())
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._file.write(f"\n]{self._tail}".encode())

    def add(self, pair: Pair, aligned: "PairLinks") -> None:
        """Adds a pair and its links."""
        confidences = [round(value, 4) for value in aligned.confidences.tolist()]
        links = [[*link, c] for link, c in zip(aligned.links.tolist(), confidences, strict=True)]
        gold = pair.gold
        sides = [sorted(gold.sure), sorted(gold.possible - gold.sure)] if gold else []
        content = [pair.source, pair.target, links, *sides]
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        # Without `<`, text can neither close its element nor open another one.
        self._file.write(self._separator + text.replace("<", "\\u003c").encode())
        self._separator = b",\n"


def _render_frame(title: str, facts: Mapping[str, str | float], with_gold: bool) -> str:
    """Returns the page without pairs."""
    script = _SCRIPT.read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    kinds = ("correct", "wrong", "missed") if with_gold else ("predicted",)
    keys = [part for kind in kinds for part in (node("span", class_=f"key {kind}"), kind)]
    orders = [("errors", "most errors first")] if with_gold else []
    orders += [("file", "order of the file"), ("doubt", "least confident first")]
    options = [node("option", label, value=name) for name, label in orders]
    controls = node(
        "div",
        node("button", "◀", id="back", title="previous pairs", type="button"),
        node("button", "▶", id="next", title="next pairs", type="button"),
        node("span", id="status"),
        node("select", *options, id="order", title="order of the pairs"),
        node("input", id="number", type="number", min=1, placeholder="pair", title="go to a pair"),
        class_="controls",
    )
    settings = ", ".join(f"{name} {value}" for name, value in facts.items())
    body = [
        node("h1", title),
        node("p", f"{settings}. Thicker lines: higher confidence. Links:", *keys),
        node("noscript", node("p", "This page needs JavaScript to draw the pairs.")),
        controls,
        node("div", id="pairs"),
        node("script", type="application/json", id="data"),
        node("script", script),
    ]
    head = [node("meta", http_equiv="Content-Security-Policy", content=policy)]
    return document(title, _STYLE.read_text("utf-8"), body, head)
