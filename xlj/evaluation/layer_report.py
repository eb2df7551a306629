"""Reports scores by layer: a table of alignment error rates, and plots (XLM-Align, Figure 2; XLM-E,
Figures 3 and 4)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.alignment_math.error_rate import AlignmentScores


def table(scores: Mapping[str, Sequence[AlignmentScores]]) -> str:
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


def plot(curves: Mapping[str, Sequence[float]], path: Path, title: str, label: str) -> None:
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
