"""Learning rates of XQuAD: XLM-E, Table 7, and XLM-Align, Table 12.

python -m xlj.sweep --config=configs/sweeps/finetune_xquad.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    values = {"optimizer.learning_rate": [2e-5, 3e-5, 4e-5]}
    return Sweep("configs/finetune/xquad.py", grid(values), command="xlj.finetune")
