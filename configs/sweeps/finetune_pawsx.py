"""Learning rates of PAWS-X: XLM-E, Table 7.

python -m xlj.sweep --config=configs/sweeps/finetune_pawsx.py --config.init_from=DIR
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    values = {"optimizer.learning_rate": [8e-6, 9e-6, 1e-5, 2e-5]}
    return Sweep("configs/finetune/pawsx.py", grid(values), command="xlj.finetune")
