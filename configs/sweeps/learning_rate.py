"""Learning rates of the quickstart with three seeds each: nine runs of a few minutes.

python -m xlj.sweep --config=configs/sweeps/learning_rate.py
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    rates = {"optimizer.learning_rate": [1e-3, 2e-3, 4e-3], "train.seed": [0, 1, 2]}
    return Sweep("configs/quickstart.py", grid(rates))
