"""HTML and SVG as trees: what is text stays text, whatever stands in it."""

import re
import xml.etree.ElementTree as etree
from collections.abc import Sequence
from xml.etree.ElementTree import Element

Content = Element | str

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def node(tag: str, *children: Content, **attributes: str | float) -> Element:
    """An element; `class_` and `stroke_width` become `class` and `stroke-width`."""
    named = {key.strip("_").replace("_", "-"): _clean(str(v)) for key, v in attributes.items()}
    made = Element(tag, named)
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + _clean(child)
        else:
            made.text = (made.text or "") + _clean(child)
    return made


def table(head: Sequence[Content], rows: Sequence[Sequence[Content]]) -> Element:
    """A table that scrolls by itself where it is too wide; the first column has the names.

    A cell that is a `td` stays as it is.
    """
    body = [node("tr", node("th", row[0]), *map(_cell, row[1:])) for row in rows]
    top = node("thead", node("tr", *(node("th", cell) for cell in head)))
    return node("div", node("table", top, node("tbody", *body)), class_="wide")


def _cell(content: Content) -> Element:
    if isinstance(content, Element) and content.tag == "td":
        return content
    return node("td", content)


def document(
    title: str, style: str, body: Sequence[Element], more_head: Sequence[Element] = ()
) -> str:
    """The text of a page. `style`, and what stands in a `script`, are not escaped."""
    head = [
        node("meta", charset="utf-8"),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("meta", name="color-scheme", content="light dark"),
        node("title", title),
        *more_head,
        node("style", style),
    ]
    root = node("html", node("head", *head), node("body", *body), lang="en")
    return "<!doctype html>\n" + etree.tostring(root, encoding="unicode", method="html") + "\n"


def _clean(text: str) -> str:
    """Text without the characters that HTML cannot hold."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
