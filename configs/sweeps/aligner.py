"""Word aligners: one for all pairs, two for single pairs, and three seeds for the Hansards.

    python docs/compare_aligners.py text DATA runs/aligners/text
    python -m xlj.sweep --config=configs/sweeps/aligner.py --folder=runs/aligners

The first command collects the text. docs/experiments/aligner.md has the scores.
"""

from pathlib import Path

from xlj.tools.sweeping import Sweep

ALONE = ("en-de", "en-cs")
SEEDS = (0, 1, 2)


def get_sweep(folder):
    text = Path(folder) / "text"
    pairs = sorted(file.stem for file in text.glob("*.tsv")) or ALONE
    runs = [{"name": "all", "data.pairs": ",".join(pairs)}]
    runs += [{"name": pair, "data.pairs": pair} for pair in ALONE]
    runs = [run | {"data.parallel": f"{text}/{{pair}}.tsv"} for run in runs]
    hansards = {"data.pairs": "en-fr", "data.parallel": f"{text}/hansards/{{pair}}.tsv"}
    runs += [{"name": f"hansards-{seed}", "train.seed": seed} | hansards for seed in SEEDS]
    return Sweep("configs/aligner.py", runs)
