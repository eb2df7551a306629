"""Hooks of MkDocs: links from pages to files outside the site lead to the repository's URL.

The URL is `repo_url` of mkdocs.yml; where it is not set, they lead to the files of this clone. A
link to a file that is not there is a warning, which `mkdocs build --strict` does not let pass.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

log = logging.getLogger("mkdocs.hooks.site_hooks")
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_page_markdown(markdown: str, page, config, files) -> str:
    """MkDocs' event: the page's text with its links out of the site made absolute."""
    docs = Path(config["docs_dir"])
    root = docs.parent
    folder = (docs / page.file.src_uri).parent

    def absolute(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[2]))
        if target.is_relative_to(docs) and target.suffix != ".py":
            return link[0]  # a page or a picture: MkDocs checks it
        if not target.exists() or not target.is_relative_to(root):
            log.warning(f"{page.file.src_uri} links to {link[2]}, which is not in the repository")
        path = os.path.relpath(target, root)
        repository = (config["repo_url"] or "").rstrip("/")
        url = f"{repository}/blob/main/{path}" if repository else target.as_uri()
        return f"{link[1]}{url}{link[3]}"

    return LINK.sub(absolute, markdown)


def on_page_content(html: str, page, config, files) -> str:
    r"""MkDocs' event: a bar in the code of a table's cell is `\|` in Markdown, and `|` to read."""
    return re.sub(r"<td>.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)
