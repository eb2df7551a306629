"""Reports scores by language (average, transfer gap, Markdown table and plot), and by layer.

Reports by layer are a table of alignment error rates, and plots (XLM-Align, Figure 2; XLM-E,
Figures 3 and 4).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from xlj.config.languages import is_english
from xlj.word_alignment.gold_alignments import AlignmentScores

ByLanguage = Mapping[str, float]
"""Scores in percent by language."""


def average(scores: ByLanguage) -> float:
    """Returns the mean over all languages. It includes the source language, as in papers."""
    return sum(scores.values()) / len(scores)


def transfer_gap(scores: ByLanguage) -> float | None:
    """Returns the score in English, the source language, minus the mean in all other languages.

    None if English or all other languages are missing. Sources: Hu et al., 2020; XLM-E,
    Table 5.
    """
    source = [value for language, value in scores.items() if is_english(language)]
    others = [value for language, value in scores.items() if not is_english(language)]
    return sum(source) / len(source) - sum(others) / len(others) if source and others else None


def table(rows: Mapping[str, ByLanguage]) -> str:
    """Returns a Markdown table with a column for each language, the average and the transfer gap.

    The column of the gap is left out if no row has a gap.

    Args:
      rows: scores in percent by row, then by language. A row is a metric or a model, for example.
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
    """Returns a Markdown table.

    Args:
      cells: the rows. The first row is the header, and the first column has the names.
    """
    head, *body = cells
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def cell(value: float | None) -> str:
    """Formats a score in percent for tables; empty for None."""
    return "" if value is None else f"{value:.1f}"


def in_order(languages: Iterable[str]) -> list[str]:
    """Returns the languages in order: English, then all others by name."""
    return sorted(languages, key=lambda language: (not is_english(language), language))


def plot(panels: Mapping[str, ByLanguage], path: Path) -> None:
    """Draws a panel for each task: a bar for each language, and the average as a dashed line.

    Args:
      panels: for each panel's title, the scores in percent by language.
      path: the output file. Its ending (.png, .svg, .pdf) determines the format.

    Raises:
      ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(7 * columns, 2.2 * rows), layout="constrained")
    for number, (title, scores) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        languages = in_order(scores)
        colours = ["tab:orange" if is_english(name) else "tab:blue" for name in languages]
        axes.bar(languages, [scores[language] for language in languages], color=colours)
        axes.axhline(average(scores), color="black", linestyle="--", linewidth=0.8)
        axes.set(title=title, ylabel="%", ylim=(0, 100))
        axes.tick_params("x", labelsize=7)
        axes.margins(x=0.01)
    figure.savefig(path, dpi=150)


def layer_table(scores: Mapping[str, Sequence[AlignmentScores]]) -> str:
    """Returns a table with a line for each layer, in percent. The lowest AER is marked.

    Args:
      scores: for each alignment method, by name, the scores of its layers in order. Layer 0 is the
        embeddings. The table shows the names only if there are several.
    """
    lowest = min(layer.aer for layers in scores.values() for layer in layers)
    width = max(map(len, scores)) + 1 if len(scores) > 1 else 0
    lines = [" " * width + "layer    AER      P      R     F1"]
    for name, layers in scores.items():
        for layer, layer_scores in enumerate(layers):
            percents = " ".join(f"{100 * value:6.2f}" for value in layer_scores)
            start = f"{name:{width}}"[:width]
            mark = "  lowest AER" if layer_scores.aer == lowest else ""
            lines.append(f"{start}{layer:5} {percents}{mark}")
            lowest = -1.0 if mark else lowest  # only the first of equal rates is marked
    return "\n".join(lines)


def plot_layers(curves: Mapping[str, Sequence[float]], path: Path, title: str, label: str) -> None:
    """Draws curves of scores over layers, in percent.

    Args:
      curves: for each curve, by name, the scores (0 to 1) of the layers in order. Layer 0 is the
        embeddings.
      path: the output file. Its ending (.png, .svg, .pdf) determines the format.
      title: the title of the plot.
      label: the name of the score on the y axis.

    Raises:
      ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for name, scores in curves.items():
        axes.plot(range(len(scores)), [100 * score for score in scores], marker="o", label=name)
    axes.set(xlabel="layer", ylabel=f"{label} (%)", title=title)
    axes.set_xticks(range(max(map(len, curves.values()))))
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend()
    figure.savefig(path, dpi=150)


def plot_matrix(
    rows: Sequence[str], columns: Sequence[str], values: np.ndarray, path: Path, title: str
) -> None:
    """Draws a heat map of values. A dark cell is a high value; a missing value has no colour.

    Args:
      rows, columns: the names of rows and columns.
      values: float [rows, columns]; NaN for missing values.
      path: the output file. Its ending (.png, .svg, .pdf) determines the format.
      title: the title of the plot.

    Raises:
      ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    size = [1.6 + 0.24 * len(names) for names in (columns, rows)]
    figure = Figure(figsize=(max(4.0, size[0] + 1), max(2.5, size[1])), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="viridis_r", vmin=0, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.set(title=title, xlabel="target", ylabel="source")
    if values.size <= 400:
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
            value = values[row, column]
            colour = "white" if value > np.nanmax(values) / 2 else "black"
            text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=5, color=colour)
    figure.colorbar(image, ax=axes)
    figure.savefig(path, dpi=150)
