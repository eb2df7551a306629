"""The objectives of configs/comparison.py beside each other: docs/experiments/objectives.md.

    python -m xlj.sweep --config=configs/sweeps/comparison.py

Every other variant goes on from the checkpoint of a start with its seed, so the starts come first.
Takes about an hour on 2 CPU cores.
"""

from xlj.sweeping import Sweep

SEEDS = (0, 1, 2)
GO_ON = {  # the recipe itself, without a variant, is MMLM alone
    "start": ("", "tlm", "dwa", "ernie_m"),
    "aligned": ("mrtd", "mrtd_trtd"),
}


def get_sweep(folder):
    runs = [
        {"name": f"{start}-{seed}", "variant": start, "train.seed": seed}
        for start in GO_ON
        for seed in SEEDS
    ]
    for start, variants in GO_ON.items():
        for seed in SEEDS:
            begin = {"init_from": f"{folder}/{start}-{seed}", "train.seed": seed}
            for variant in variants:
                runs.append({"name": f"{variant or 'mmlm'}-{seed}", "variant": variant, **begin})
    return Sweep("configs/comparison.py", runs)
