"""Hooks of MkDocs for links to files outside the site, for the ranking of search results, for bars
in tables, and for line breaks.

A link from a page to a file outside the site becomes a link to the repository (`repo_url` in
mkdocs.yml). Without `repo_url`, only the text of the link remains. A link to a file that does not
exist causes a warning, and `mkdocs build --strict` fails on warnings.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

RESULTS = ("experiments/", "results.md", "benchmarks.md", "roadmap.md", "architecture.md")
"""Pages that the search ranks below other pages, because they contain almost all words: results,
and the structure of the code."""
log = logging.getLogger("mkdocs.hooks.site_hooks")
INLINE_CODE = re.compile(r"<code>[^<\n]*</code>")
CODE_WORD = re.compile(r"(?<=[>\s:/=,.])[^<>\s:/=,.]{2,28}(?=[<\s:/=,.])")
"""A part of inline code that stays on one line: between two of the characters in brackets."""
LINK = re.compile(r"(?<!!)\[([^][]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Hook of MkDocs: returns the text of a page with absolute links to files outside the site.

    It also lowers the rank of the pages in `RESULTS`.
    """
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
    r"""Hook of MkDocs: replaces `\|`, the Markdown for a bar in a table cell, by `|`.

    It also marks the words of inline code, so that site.css keeps each on one line, and keeps the
    sign of a percentage on the line of its number.
    """
    html = re.sub(r"<td>.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)
    html = re.sub(r"(?<=\d) %(?![^<]*</code>)", "\u00a0%", html)
    return INLINE_CODE.sub(lambda code: CODE_WORD.sub(r"<span>\g<0></span>", code[0]), html)
