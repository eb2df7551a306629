"""Draws SVG pictures that are readable in light and dark colours, and on the width of a phone."""

from __future__ import annotations

import xml.etree.ElementTree as etree
from xml.etree.ElementTree import Element

from xlj.io.markup import node

WIDTH = 420
"""The width of a picture in units. At this width, text of 13 units is readable on a screen of 400
pixels."""
ON_PAGE = 1.25
"""Pixels per unit if the page is wide enough."""
MARGIN, LINE = 12, 18

STYLE = """
svg { --paper: #ffffff; --ink: #1d2330; --soft: #596273; --rule: #c8cdd8; --see: #3b7fc4;
  --first: #dbe8f8; --second: #d8f0de; --ask: #c2500f; --asked: #fde3cf; --right: #2f8f58; }
@media (prefers-color-scheme: dark) { svg { --paper: #1b1e27; --ink: #e8eaf0; --soft: #a6aebd;
  --rule: #4a5162; --see: #6aa9ea; --first: #24405e; --second: #1f4a31; --ask: #ffa566;
  --asked: #583015; --right: #5fcb8d; } }
text { font: 13px ui-sans-serif, system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
  fill: var(--ink); }
text.middle { text-anchor: middle; } text.end { text-anchor: end; }
text.soft { fill: var(--soft); } text.strong { font-weight: 600; } text.small { font-size: 11.5px; }
text.ask { fill: var(--ask); font-weight: 600; } text.ask.small { font-size: 11px; }
rect, circle, path { fill: none; stroke: var(--rule); }
rect.paper { fill: var(--paper); stroke: none; }
rect.first { fill: var(--first); } rect.second { fill: var(--second); }
rect.asked { fill: var(--asked); stroke: var(--ask); }
rect.blank { fill: var(--paper); } rect.see { fill: var(--see); stroke: var(--paper); }
rect.right { fill: var(--second); stroke: var(--right); stroke-width: 1.5; }
rect.faded { stroke-dasharray: 3 3; }
path.arrow { stroke: var(--soft); marker-end: url(#head); }
path.line { stroke: var(--soft); } path.dashed { stroke-dasharray: 3 3; }
path.ask { stroke: var(--ask); stroke-width: 2; marker-end: url(#asking); }
rect.bar { stroke: none; } rect.bar.grey { fill: var(--soft); opacity: .55; }
rect.bar.see { fill: var(--see); } rect.bar.second { fill: var(--right); }
path.grid { stroke: var(--rule); stroke-width: .7; } path.error { stroke: var(--ink); }
path.link { stroke: var(--right); stroke-width: 2; }
marker path { fill: var(--soft); stroke: none; } marker path.asking { fill: var(--ask); }
"""


class Drawing:
    """A picture: shapes, in the order in which they are painted.

    Positions and sizes are in units, from the top left corner. The lowest shape determines the
    height of the picture. Colours are classes of `STYLE`.

    Args:
      title: a description of the picture for readers who cannot see it.
    """

    def __init__(self, title: str):
        self._title, self._bottom = title, 0.0
        self._shapes: list[Element] = []

    def text(self, x: float, y: float, text: str, classes: str = "") -> None:
        """Adds a line of text.

        The point (x, y) is the start of the baseline; with the class `middle` or `end`, it is the
        middle or the end of the baseline.
        """
        attributes = {"class_": classes} if classes else {}
        self._add(y + 4, node("text", text, x=_short(x), y=_short(y), **attributes))

    def lines(self, x: float, y: float, *texts: str, classes: str = "soft") -> float:
        """Adds lines of text below each other; returns the height of the next line."""
        for text in texts:
            self.text(x, y, text, classes)
            y += LINE
        return y

    def upright(self, x: float, y: float, text: str, classes: str = "") -> None:
        """Adds a line of text that runs upwards from a point."""
        turn = f"translate({_short(x)} {_short(y)}) rotate(-90)"
        self._add(y, node("text", text, transform=turn, class_=classes))

    def box(
        self, x: float, y: float, width: float, height: float, classes: str = "", radius: float = 4
    ) -> None:
        """Adds a rectangle with round corners."""
        attributes = {"class_": classes} if classes else {}
        size = {"width": _short(width), "height": _short(height), "rx": _short(radius)}
        self._add(y + height, node("rect", x=_short(x), y=_short(y), **attributes, **size))

    def label(
        self, x: float, y: float, width: float, height: float, text: str, classes: str = ""
    ) -> None:
        """Adds a rectangle with a line of text in the middle."""
        self.box(x, y, width, height, classes)
        kinds = ["middle", *["ask"] * ("asked" in classes.split())]
        kinds += ["small"] * (len(text) * 7.4 > width)
        self.text(x + width / 2, y + height / 2 + 4.5, text, " ".join(kinds))

    def path(self, commands: str, classes: str, thickness: float = 0) -> None:
        """Adds a path, given as SVG path commands. It does not change the height of the picture."""
        attributes = {"style": f"stroke-width: {thickness:.1f}"} if thickness else {}
        self._add(0, node("path", d=commands, class_=classes, **attributes))

    def tokens(
        self, x: float, y: float, width: float, tokens: list[str], classes: list[str]
    ) -> None:
        """Adds tokens side by side, each in a box of this width."""
        for place, (token, token_classes) in enumerate(zip(tokens, classes, strict=True)):
            self.label(x + place * width, y, width - 3, 24, token, token_classes)

    def render(self) -> str:
        """Returns the text of the SVG file."""
        width, height = WIDTH, self._bottom + MARGIN
        heads = [
            node(
                "marker",
                node("path", d="M0,0 L8,4 L0,8 z", class_=name),
                id=name,
                viewBox="0 0 8 8",
                refX=7,
                refY=4,
                markerWidth=8,
                markerHeight=8,
                markerUnits="userSpaceOnUse",
                orient="auto",
            )
            for name in ("head", "asking")
        ]
        root = node(
            "svg",
            node("title", self._title),
            node("style", STYLE),
            node("defs", *heads),
            node("rect", width=_short(width), height=_short(height), rx=8, class_="paper"),
            *self._shapes,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_short(width)} {_short(height)}",
            width=_short(width * ON_PAGE),
            height=_short(height * ON_PAGE),
            role="img",
        )
        etree.indent(root, " ")
        return etree.tostring(root, encoding="unicode") + "\n"

    def _add(self, bottom: float, shape: Element) -> None:
        self._bottom = max(self._bottom, bottom)
        self._shapes.append(shape)


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
