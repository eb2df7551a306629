"""Comparison of the objectives of configs/comparison.py: docs/experiments/objectives.md.

    python -m xlj.sweep --config=configs/sweeps/comparison.py

The variants `start` and `aligned` run first, since all other variants continue from one of them,
with the same seed.
Takes about an hour on 2 CPU cores.
"""

from xlj.tools.sweeping import Sweep

SEEDS = (0, 1, 2)
CONTINUATIONS = {  # for each starting variant, the variants that continue it; "": MMLM only
    "start": ("", "tlm", "dwa", "ernie_m"),
    "aligned": ("mrtd", "mrtd_trtd"),
}


def get_sweep(folder):
    runs = [
        {"name": f"{start}-{seed}", "variant": start, "train.seed": seed}
        for start in CONTINUATIONS
        for seed in SEEDS
    ]
    for start, variants in CONTINUATIONS.items():
        for seed in SEEDS:
            begin = {"init_from": f"{folder}/{start}-{seed}", "train.seed": seed}
            for variant in variants:
                runs.append({"name": f"{variant or 'mmlm'}-{seed}", "variant": variant, **begin})
    return Sweep("configs/comparison.py", runs)
