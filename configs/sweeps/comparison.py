"""The objectives of configs/comparison.py beside each other, three seeds: docs/results.md.

    python -m xlj.sweep --config=configs/sweeps/comparison.py

Every other variant goes on from the checkpoint of `start` with its seed, so the starts come first.
About 45 minutes on 2 CPU cores.
"""

from xlj.sweeps import Sweep

SEEDS = (0, 1, 2)
VARIANTS = ("", "tlm", "dwa", "ernie_m", "mrtd", "mrtd_trtd")  # the recipe itself is MMLM alone


def get_sweep(folder):
    runs = [{"name": f"start-{s}", "variant": "start", "train.seed": s} for s in SEEDS]
    for seed in SEEDS:
        for variant in VARIANTS:
            start = {"init_from": f"{folder}/start-{seed}", "train.seed": seed}
            runs.append({"name": f"{variant or 'mmlm'}-{seed}", "variant": variant, **start})
    return Sweep("configs/comparison.py", runs)
