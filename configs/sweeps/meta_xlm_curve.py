"""MLQA from checkpoints of 2K to 40K steps, of MetaXLM and of XLM: MetaXLM, Figure 5.

python -m xlj.sweep --config=configs/sweeps/meta_xlm_curve.py

The curves are of the dev sets, which results.json has for each run by language. Every 2,000 steps
are ours: the paper says "ranging from 2K to 40K". docs/papers.md trains both encoders.
"""

from xlj.sweeping import Sweep


def get_sweep(folder):
    runs = [
        {"name": f"{model}-{step}", "init_from": f"runs/{model}/checkpoints/{step}"}
        for model in ("meta_xlm", "meta_xlm-xlm")
        for step in range(2_000, 42_000, 2_000)
    ]
    return Sweep("configs/finetune/mlqa.py", runs, {"task.test": ""}, command="xlj.finetune")
