"""Language sampling rates, and their exact quantisation into blocks of draws."""

from collections.abc import Mapping

BLOCK = 65_536
"""Draws in a block: inside each, every task is drawn an exact number of times."""


def rates(tokens: Mapping[str, int], alpha: float) -> dict[str, float]:
    """Sampling probability of each task, p_j = m_j^alpha / sum_k m_k^alpha.

    Source: XLM section 3.1, ERNIE-M section 4.1.

    Args:
      tokens: m_j, the number of tokens of each task; tasks with none are left out.
      alpha: 1 samples in proportion to size, 0 samples all tasks alike.
    """
    powers = {task: float(count) ** alpha for task, count in tokens.items() if count > 0}
    total = sum(powers.values())
    return {task: power / total for task, power in powers.items()}


def draws_per_block(probabilities: Mapping[str, float]) -> dict[str, int]:
    """How often each task is drawn in a block: largest remainder of `BLOCK * p`, at least 1.

    Every count is within one of `BLOCK * p`, except where that is impossible because many tasks are
    rarer than 1 / BLOCK: then the largest tasks give one draw more each.
    """
    quotas = {task: BLOCK * p for task, p in probabilities.items()}
    counts = {task: max(1, int(quota)) for task, quota in quotas.items()}
    # Ties are broken by name, so that the order of the mapping does not matter.
    by_remainder = sorted(quotas, key=lambda task: (counts[task] - quotas[task], task))
    missing = BLOCK - sum(counts.values())
    for task in by_remainder[: max(0, missing)]:
        counts[task] += 1
    largest = sorted(quotas, key=lambda task: (-quotas[task], task))
    while missing < 0:
        for task in largest[:-missing]:
            if counts[task] > 1:
                counts[task] -= 1
                missing += 1
    return counts
