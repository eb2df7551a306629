"""Plots the losses of several runs, and prints the held-out loss of each language.

    python docs/plot_runs.py --output=docs/meta_xlm_minilm.png MetaXLM=runs/meta XLM=runs/xlm

The left panel shows training loss and held-out loss (masked language modelling) by step. The right
panel shows the held-out loss of each language, at the last step that all runs have evaluated.
Requirement: matplotlib (`pip install -e '.[plots]'`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from xlj.checkpoints import metrics

HELD_OUT, TRAINING = "eval/mmlm/loss", "train/mmlm/loss"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="+", metavar="NAME=WORKDIR", help="name in the plot, and workdir of a run"
    )
    parser.add_argument("--output", type=Path, required=True, help="file for the plot")
    arguments = parser.parse_args()
    runs = {}
    for run in arguments.runs:
        name, _, workdir = run.partition("=")
        runs[name] = metrics.read(Path(workdir))
    figure, (curves, bars) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for color, (name, lines) in enumerate(runs.items()):
        widths = len(runs) - color  # later lines are drawn over earlier lines, so they are thinner
        for key, style in ((TRAINING, "-"), (HELD_OUT, "o")):
            points = [(line["step"], line[key]) for line in lines if key in line]
            label = f"{name}, {'training' if key == TRAINING else 'held out'}"
            curves.plot(*zip(*points, strict=True), style, color=f"C{color}", label=label,
                        linewidth=1.5 * widths, markersize=4 + 2 * widths)  # fmt: skip
    curves.set(xlabel="step", ylabel="loss (nats per predicted token)")
    curves.legend()
    evaluated = [
        {line["step"]: line for line in lines if HELD_OUT in line} for lines in runs.values()
    ]
    last = max(set.intersection(*map(set, evaluated)))
    names = (key.split("/") for key in evaluated[0][last])
    languages = [name[2] for name in names if name[:2] == ["eval", "mmlm"] and name[3:] == ["loss"]]
    print(f"| step {last} | {' | '.join(runs)} |\n|---{'|---' * len(runs)}|")
    for language in languages:
        losses = [run_lines[last][f"eval/mmlm/{language}/loss"] for run_lines in evaluated]
        print(f"| {language} | {' | '.join(f'{loss:.2f}' for loss in losses)} |")
    print(f"| mean | {' | '.join(f'{run_lines[last][HELD_OUT]:.2f}' for run_lines in evaluated)} |")
    width = 0.8 / len(runs)
    for color, run_lines in enumerate(evaluated):
        positions = [index + color * width for index in range(len(languages))]
        heights = [run_lines[last][f"eval/mmlm/{language}/loss"] for language in languages]
        bars.bar(positions, heights, width, color=f"C{color}")
    bars.set(xticks=[index + 0.4 - width / 2 for index in range(len(languages))],
             xticklabels=languages, ylabel=f"held-out loss at step {last}")  # fmt: skip
    figure.savefig(arguments.output, dpi=80)


if __name__ == "__main__":
    main()
