"""Epochs and learning rates of TyDiQA: XLM-E, Table 7.

python -m xlj.sweep --config=configs/sweeps/finetune_tydiqa.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    values = {
        "train.steps": ["10ep", "20ep", "40ep"],
        "optimizer.learning_rate": [2e-5, 3e-5, 4e-5],
    }
    return Sweep("configs/finetune/tydiqa.py", grid(values), command="xlj.finetune")
