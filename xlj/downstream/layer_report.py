"""Alignment error rate by layer, as a table and as a plot (XLM-Align Figure 2, XLM-E Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xlj.alignment.error_rate import Scores


def table(scores: Sequence[Scores]) -> str:
    """A line a layer, from layer 0 (the embeddings), in percent; the lowest AER is marked."""
    best = min(range(len(scores)), key=lambda layer: scores[layer].aer)
    lines = ["layer    AER      P      R     F1"]
    for layer, found in enumerate(scores):
        percents = " ".join(f"{100 * value:6.2f}" for value in found)
        lines.append(f"{layer:5} {percents}" + ("  lowest AER" if layer == best else ""))
    return "\n".join(lines)


def plot(scores: Sequence[Scores], path: Path, title: str) -> None:
    """Draws AER over layers into a file; its ending (.png, .svg, .pdf) says what kind.

    Raises:
      ImportError: if matplotlib is not installed.
      ValueError: if matplotlib cannot draw that kind of file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(range(len(scores)), [100 * found.aer for found in scores], marker="o")
    axes.set(xlabel="layer", ylabel="AER (%)", title=title)
    axes.set_xticks(range(len(scores)))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
