"""Batch sizes and learning rates for parts of speech: XLM-E, Table 7, and XLM-Align, Table 12.

python -m xlj.sweep --config=configs/sweeps/finetune_udpos.py --config.init_from=DIR
"""

from xlj.sweeping import Sweep, grid


def get_sweep(folder):
    values = {"train.batch_size": [8, 16, 32], "optimizer.learning_rate": [1e-5, 2e-5, 3e-5]}
    return Sweep("configs/finetune/udpos.py", grid(values), command="xlj.finetune")
