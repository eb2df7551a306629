"""Shares of pseudo-tokens, 5, 10, 15 and 20 %, and held-out perplexity: ERNIE-M, Figure 6.

python -m xlj.sweep --config=configs/sweeps/pseudo_tokens.py --config.init_from=DIR

A sentence of n pieces has ceil(share * n) pseudo-tokens: up to 10 pieces 5 % are as many as 10 %,
and up to 5 pieces all shares are one. Size and batches are not stated; they are those of
configs/ernie_m_base.py, where BTMLM begins with the second half (docs/fidelity.md).
"""

from xlj.sweeping import Sweep, grid


def get_sweep(folder):
    runs = grid({"objectives.btmlm.pseudo_ratio": [0.05, 0.1, 0.15, 0.2]})
    return Sweep("configs/ernie_m_base.py", runs, {"evaluation.perplexity": True})
