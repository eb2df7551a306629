"""The CSS of the runs on a page: the colour of each, and the rules that hide it."""

_COLOURS = "#3b82c4 #e8742c #2f9e61 #c9423f #8b63c9 #b0850f #12969e #d6539c #7a8b2a #7f7f8c".split()
"""Colours of the runs, readable on white and on black backgrounds."""
_DASHES = ("none", "6 3", "2 2", "8 3 2 3")


def style(runs: int) -> str:
    """Returns the CSS rules that colour and hide each run.

    From the eleventh run on, the colours repeat, and lines are dashed.

    Args:
      runs: the number of runs.
    """
    rules = []
    for run in range(runs):
        cycle, place = divmod(run, len(_COLOURS))
        colour, dash = _COLOURS[place], _DASHES[cycle % len(_DASHES)]
        rules.append(f".run{run}, .of{run} {{ --colour: {colour}; --dash: {dash}; }}")
        rules.append(f"body:has(#show{run}:not(:checked)) .run{run} {{ display: none; }}")
    return "\n".join(rules)
