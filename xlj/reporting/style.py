"""The CSS of HTML pages. It refers to no font or file that a browser would have to fetch."""

from pathlib import Path

_COLOURS = "#3b82c4 #e8742c #2f9e61 #c9423f #8b63c9 #b0850f #12969e #d6539c #7a8b2a #7f7f8c".split()
"""Colours of the runs, readable on white and on black backgrounds."""
_DASHES = ("none", "6 3", "2 2", "8 3 2 3")


def asset(name: str) -> str:
    """Returns the text of a file in `assets/`, to be embedded in a page."""
    return (Path(__file__).parent / "assets" / name).read_text("utf-8")


def style(runs: int) -> str:
    """Returns the CSS of a page, with rules that colour and hide each run.

    From the eleventh run on, the colours repeat, and lines are dashed.

    Args:
      runs: the number of runs.
    """
    rules = [asset("report.css")]
    for run in range(runs):
        cycle, place = divmod(run, len(_COLOURS))
        colour, dash = _COLOURS[place], _DASHES[cycle % len(_DASHES)]
        rules.append(f".run{run}, .of{run} {{ --colour: {colour}; --dash: {dash}; }}")
        rules.append(f"body:has(#show{run}:not(:checked)) .run{run} {{ display: none; }}")
    return "\n".join(rules)
