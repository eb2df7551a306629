"""A self-contained HTML page whose script draws items of JSON, which are written one by one.

The script inserts all text as text nodes. A content security policy forbids all other scripts.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Self

from xlj.io.markup import Element, document, node

_DATA = '<script type="application/json" id="data">'
"""The tag before the JSON of the items. Other text of the page is escaped, so it cannot contain
this tag."""


class JsonPage(AbstractContextManager):
    """Context manager that writes a page. Call `write` for each item within the context.

    Args:
      file: the file to write.
      title: the heading of the page.
      script: a file of JavaScript, which uses json_page.js. The file of the same name with the
        ending .css has the style.
      body: the elements between the heading and the script.
    """

    def __init__(self, file: BinaryIO, title: str, script: Path, body: Sequence[Element]):
        self._file, self._separator = file, b"\n"
        code = _with_shared(script)
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        elements = [
            node("h1", title),
            *body,
            node("script", type="application/json", id="data"),
            node("script", code),
        ]
        head = [node("meta", http_equiv="Content-Security-Policy", content=policy)]
        style = _with_shared(script.with_suffix(".css"))
        frame, tag, self._tail = document(title, style, elements, head).partition(_DATA)
        self._head = frame + tag

    def __enter__(self) -> Self:
        self._file.write(f"{self._head}[".encode())
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._file.write(f"\n]{self._tail}".encode())

    def write(self, item: Any) -> None:
        """Adds an item."""
        text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        # Without `<`, text can neither close its element nor open another one.
        self._file.write(self._separator + text.replace("<", "\\u003c").encode())
        self._separator = b",\n"


def _with_shared(file: Path) -> str:
    """Returns the content of the file of all pages with the same ending, and of the page's file."""
    shared = Path(__file__).with_suffix(file.suffix)
    return shared.read_text("utf-8") + file.read_text("utf-8")


def controls(orders: Sequence[tuple[str, str]], item: str) -> Element:
    """Returns the elements to page through items.

    Args:
      orders: (value, label) of the orders of the items.
      item: what an item is, such as `pair`.
    """
    options = [node("option", label, value=name) for name, label in orders]
    return node(
        "div",
        node("button", "◀", id="back", title=f"previous {item}s", type="button"),
        node("button", "▶", id="next", title=f"next {item}s", type="button"),
        node("span", id="status"),
        node("select", *options, id="order", title=f"order of the {item}s"),
        node("input", id="number", type="number", min=1, placeholder=item, title=f"go to a {item}"),
        class_="controls",
    )
