"""Learning rates of PAWS-X: XLM-Align, Table 12.

python -m xlj.sweep --config=configs/sweeps/finetune_pawsx_xlm_align.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    values = {"optimizer.learning_rate": [1e-5, 2e-5]}
    return Sweep("configs/finetune/pawsx.py", grid(values), command="xlj.finetune")
