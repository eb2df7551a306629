"""Writes the listing in docs/architecture.md from docstrings: python docs/make_listing.py"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("architecture.md")
HEAD = "\n## All packages and files\n"
TEXT = """
`python docs/make_listing.py` writes this list from the first sentence of each file's docstring.
Outside `xlj/`, `configs/` has one file per recipe (also in `configs/finetune/` and
`configs/sweeps/`), `launch/` has launchers for clusters, and `tests/` mirrors `xlj/`.
"""


def render() -> str:
    """Returns the whole page."""
    return FILE.read_text("utf-8").partition(HEAD)[0] + HEAD + TEXT + listing()


def listing() -> str:
    """Returns a table for each subpackage, with one row per file."""
    lines: list[str] = []
    folders = sorted({file.parent for file in (ROOT / "xlj").rglob("*.py")})
    for folder in folders:
        files = sorted(folder.glob("*.py"))
        about = first_sentence(folder / "__init__.py")
        lines += [
            "",
            f"**{folder.relative_to(ROOT)}/** {about}",
            "",
            "| file | content |",
            "|---|---|",
        ]
        lines += [
            f"| {file.name} | {first_sentence(file)} |"
            for file in files
            if file.name != "__init__.py"
        ]
    return "\n".join(lines) + "\n"


def first_sentence(file: Path) -> str:
    """Returns the first sentence of a file's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    sentence = paragraph if end < 0 else paragraph[: end + 1]
    return sentence.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
