"""Held-out perplexity with pseudo-tokens for 5, 10, 15 and 20 % of a sentence: ERNIE-M, Figure 6.

python -m xlj.sweep --config=configs/sweeps/pseudo_tokens.py --config.init_from=DIR

A sentence of n pieces has ceil(share * n) pseudo-tokens. So 5 % and 10 % give the same number for
sentences of up to 10 pieces, and all shares give one pseudo-token for up to 5 pieces. The paper
does not state model size and batches. Here they are those of configs/ernie_m_base.py, where BTMLM
starts in the second half (docs/fidelity.md).
"""

from xlj.tools.sweeping import Sweep, grid


def get_sweep(folder):
    runs = grid({"objectives.btmlm.pseudo_ratio": [0.05, 0.1, 0.15, 0.2]})
    return Sweep("configs/ernie_m_base.py", runs, {"evaluation.perplexity": True})
