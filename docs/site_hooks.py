"""Hooks of MkDocs: links out of the site, and which pages the search ranks lower.

Links from pages to files outside the site lead to the repository's URL, `repo_url` of mkdocs.yml.
Without it only the text of such a link stays. A link to a file that does not exist is a warning,
and `mkdocs build --strict` fails on warnings.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

RESULTS = ("experiments/", "results.md", "benchmarks.md", "roadmap.md", "architecture.md")
"""Pages that contain most words: results, and the listing of the code. The search ranks them below
other pages."""
log = logging.getLogger("mkdocs.hooks.site_hooks")
LINK = re.compile(r"(?<!!)\[([^][]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page, config, files) -> str:
    """MkDocs' event: the page's text with its links out of the site made absolute."""
    if page.file.src_uri.startswith(RESULTS):
        page.meta["search"] = {"boost": 0.3}
    docs = Path(config["docs_dir"])
    root = docs.parent
    folder = (docs / page.file.src_uri).parent

    def absolute(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[2]))
        if target.is_relative_to(docs) and target.suffix != ".py":
            return link[0]  # a page or a picture: MkDocs checks it
        if not target.exists() or not target.is_relative_to(root):
            log.warning(f"{page.file.src_uri} links to {link[2]}, which is not in the repository")
        repository = (config["repo_url"] or "").rstrip("/")
        if not repository:
            return link[1]
        path = target.relative_to(root) if target.is_relative_to(root) else target
        return f"[{link[1]}]({repository}/blob/main/{path}{link[3] or ''})"

    return LINK.sub(absolute, markdown)


def on_page_content(html: str, page, config, files) -> str:
    r"""MkDocs' event: a bar in the code of a table's cell is `\|` in Markdown, and `|` to read."""
    return re.sub(r"<td>.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)
