"""The style of a report. It names no font and no file that a browser would have to fetch."""

from pathlib import Path

_COLOURS = "#3b82c4 #e8742c #2f9e61 #c9423f #8b63c9 #b0850f #12969e #d6539c #7a8b2a #7f7f8c".split()
"""Readable on white and on black."""
_DASHES = ("none", "6 3", "2 2", "8 3 2 3")


def asset(name: str) -> str:
    """The text of a file of `assets/`, which a page carries inside."""
    return (Path(__file__).parent / "assets" / name).read_text("utf-8")


def style(runs: int) -> str:
    """The page's style, with a colour for each run, and how to hide it.

    From the eleventh run on colours come again, dashed.
    """
    rules = [asset("report.css")]
    for run in range(runs):
        again, place = divmod(run, len(_COLOURS))
        colour, dash = _COLOURS[place], _DASHES[again % len(_DASHES)]
        rules.append(f".run{run}, .of{run} {{ --colour: {colour}; --dash: {dash}; }}")
        rules.append(f"body:has(#show{run}:not(:checked)) .run{run} {{ display: none; }}")
    return "\n".join(rules)
