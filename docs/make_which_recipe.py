"""Writes the table of docs/which_recipe.md: python docs/make_which_recipe.py"""

import math
from pathlib import Path

from xlj.tools.choosing.cases import CASES, Case

FILE = Path(__file__).with_name("which_recipe.md")
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
_HEAD = ("recipe (aim)", "languages; you have at least", "steps; time", "expect", "measured")
_STARTS = {"none": "", "english": "English model", "multilingual": "model"}


def render(page: str) -> str:
    """Returns the page with the present table."""
    before, _, rest = page.partition(BEGIN)
    lines = [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD), *map(_row, CASES)]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.partition(END)[2]


def _row(case: Case) -> str:
    has = [_STARTS[case.start]] * (case.start != "none")
    has += [f"{_short(case.words)} words"] * bool(case.words)
    has += [f"{_short(case.pairs)} pairs"] * bool(case.pairs)
    has += [{0: "CPU", math.inf: "pod"}.get(case.hardware, f"{case.hardware:g} GB")]
    cells = [
        f"`{case.recipe}` ({', '.join(case.aims)})",
        f"{_range(*case.languages)}; {', '.join(has)}",
        f"{case.steps}; {case.time}",
        case.expect,
        f"[{'case' if case.is_measured else 'planned, not measured'}]"
        f"({case.page.removeprefix(FILE.name)})",
    ]
    return f"| {' | '.join(cells)} |"


def _range(low: int, high: float) -> str:
    return f"{low}+" if high == math.inf else f"{low}-{high}"


def _short(number: int) -> str:
    """Returns a number as --for reads it, such as 20k."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:g}{unit}"
    return str(number)


if __name__ == "__main__":
    FILE.write_text(render(FILE.read_text("utf-8")), "utf-8")
