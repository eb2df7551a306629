"""HTML and SVG as element trees, in which all text is escaped, and the style of HTML pages.

A page refers to no font or file that a browser would have to fetch."""

import re
import xml.etree.ElementTree as etree
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

Content = Element | str

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def node(tag: str, *children: Content, **attributes: str | float) -> Element:
    """Returns an element.

    Attribute names are adapted to Python: `class_` becomes `class`, and `stroke_width` becomes
    `stroke-width`.
    """
    named = {
        key.strip("_").replace("_", "-"): without_control_characters(str(v))
        for key, v in attributes.items()
    }
    element = Element(tag, named)
    for child in children:
        if isinstance(child, Element):
            element.append(child)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + without_control_characters(child)
        else:
            element.text = (element.text or "") + without_control_characters(child)
    return element


def table(head: Sequence[Content], rows: Sequence[Sequence[Content]]) -> Element:
    """Returns a table that scrolls horizontally if it is too wide.

    The first cell of each row becomes a `th` element. Each other cell becomes a `td` element,
    unless it already is one.
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
    """Returns the HTML of a page.

    All text is escaped, except `style` and the content of `script` elements.

    Args:
      style: more CSS, which follows the CSS of all pages (`markup.css`).
      more_head: further elements for the `head` element.
    """
    head = [
        node("meta", charset="utf-8"),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("meta", name="color-scheme", content="light dark"),
        node("title", title),
        *more_head,
        node("style", Path(__file__).with_suffix(".css").read_text("utf-8") + style),
    ]
    root = node("html", node("head", *head), node("body", *body), lang="en")
    return "<!doctype html>\n" + etree.tostring(root, encoding="unicode", method="html") + "\n"


def without_control_characters(text: str) -> str:
    """Replaces the characters that HTML and XML do not allow."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
