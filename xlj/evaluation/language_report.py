"""Scores by language: average, transfer gap, Markdown table and plot."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

ByLanguage = Mapping[str, float]

SOURCE = "en"
"""The language of the tasks' training data."""


def average(scores: ByLanguage) -> float:
    """Returns the mean over languages including the source language, as papers report it."""
    return sum(scores.values()) / len(scores)


def transfer_gap(scores: ByLanguage) -> float | None:
    """Returns the source language's score minus the mean of the other languages' scores (Hu et al.,
    2020; XLM-E, Table 5).

    None if the source language or all other languages are missing.
    """
    others = {language: value for language, value in scores.items() if language != SOURCE}
    return scores[SOURCE] - average(others) if SOURCE in scores and others else None


def table(rows: Mapping[str, ByLanguage]) -> str:
    """Returns a Markdown table with a column per language, the average and the transfer gap.

    Args:
      rows: scores in percent, by the row's name (such as a metric or a model).
    """
    languages = in_order({language for scores in rows.values() for language in scores})
    gaps = {name: transfer_gap(scores) for name, scores in rows.items()}
    with_gap = any(gap is not None for gap in gaps.values())
    cells = [["", *languages, "average", *["gap"] * with_gap]]
    for name, scores in rows.items():
        values = [*(scores.get(language) for language in languages), average(scores)]
        cells.append([name, *map(cell, [*values, *[gaps[name]] * with_gap])])
    return markdown(cells)


def markdown(cells: list[list[str]]) -> str:
    """Returns a Markdown table; the first row is its header, the first column has the names."""
    head, *body = cells
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def cell(value: float | None) -> str:
    """Formats a score in percent for tables."""
    return "" if value is None else f"{value:.1f}"


def in_order(languages: Iterable[str]) -> list[str]:
    """Sorts languages by name, after the source language."""
    return sorted(languages, key=lambda language: (language != SOURCE, language))


def plot(panels: Mapping[str, ByLanguage], path: Path) -> None:
    """Draws a panel per task with bars by language and their average as a dashed line.

    Args:
      panels: scores in percent, by the panel's title.
      path: the output file; its ending (.png, .svg, .pdf) sets the format.

    Raises:
      ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(7 * columns, 2.2 * rows), layout="constrained")
    for place, (title, scores) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, place)
        languages = in_order(scores)
        colours = ["tab:orange" if language == SOURCE else "tab:blue" for language in languages]
        axes.bar(languages, [scores[language] for language in languages], color=colours)
        axes.axhline(average(scores), color="black", linestyle="--", linewidth=0.8)
        axes.set(title=title, ylabel="%", ylim=(0, 100))
        axes.tick_params("x", labelsize=7)
        axes.margins(x=0.01)
    figure.savefig(path, dpi=150)
