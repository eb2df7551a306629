"""Learning rates of XNLI: XLM-E, Table 7, and XLM-Align, Table 12.

python -m xlj.sweep --config=configs/sweeps/finetune_xnli.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    values = {"optimizer.learning_rate": [5e-6, 6e-6, 7e-6, 8e-6]}
    return Sweep("configs/finetune/xnli.py", grid(values), command="xlj.finetune")
