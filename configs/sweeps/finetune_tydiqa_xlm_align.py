"""Epochs and learning rates of TyDiQA: XLM-Align, Table 12.

python -m xlj.sweep --config=configs/sweeps/finetune_tydiqa_xlm_align.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    values = {
        "train.steps": ["5ep", "10ep", "15ep", "20ep"],
        "optimizer.learning_rate": [2e-5, 3e-5],
    }
    return Sweep("configs/finetune/tydiqa.py", grid(values), command="xlj.finetune")
