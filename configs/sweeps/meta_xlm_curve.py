"""MLQA scores of MetaXLM and XLM checkpoints from 2K to 40K steps: MetaXLM, Figure 5.

python -m xlj.sweep --config=configs/sweeps/meta_xlm_curve.py

The curves show scores on the dev sets. results.json of each run has these scores by language. The
interval of 2,000 steps is ours; the paper says "ranging from 2K to 40K". docs/papers.md has the
commands that train both encoders.
"""

from xlj.tools.sweeping import Sweep


def get_sweep(folder):
    runs = [
        {"name": f"{model}-{step}", "init_from": f"runs/{model}/checkpoints/{step}"}
        for model in ("meta_xlm", "meta_xlm-xlm")
        for step in range(2_000, 42_000, 2_000)
    ]
    return Sweep("configs/finetune/mlqa.py", runs, {"task.test": ""}, command="xlj.finetune")
