"""Paired bootstrap: the difference of two systems on the same items, with a confidence interval.

Sources: Koehn (2004), "Statistical significance tests for machine translation evaluation";
Berg-Kirkpatrick, Burkett and Klein (2012), "An empirical investigation of statistical significance
in NLP".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xlj.io.hashing import combine, hash64


class Difference(NamedTuple):
    """The statistic of the second system minus the statistic of the first system.

    Attributes:
      difference: the difference on all items.
      low, high: the 95 % interval: the percentiles 2.5 and 97.5 of the differences on the samples.
        If the interval does not contain 0, the difference is significant at the level of 5 %.
    """

    difference: float
    low: float
    high: float


def paired_bootstrap(
    first: Any,
    second: Any,
    statistic: Callable[[np.ndarray], float] = np.mean,
    samples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Compares two systems by the paired bootstrap.

    A sample has as many items as the test set, drawn from the test set with replacement. Both
    systems are scored on the same samples, so what makes an item hard for both systems cancels out.
    The samples depend only on the number of items, `samples` and `seed`.

    Args:
      first, second: for each item (usually a sentence), what `statistic` needs of the item: numbers
        or booleans [items], such as whether a translation was found, or [items, columns], such as
        those of `gold_alignments.link_counts`. Item i of both systems is the same item.
      statistic: the score of some items of a system, [items] or [items, columns]. The default is
        the mean of the items. A score of a corpus, such as the alignment error rate, is computed
        from the sums of the columns.

    Raises:
      ValueError: if the shapes differ, there are no items or samples, or a value is not finite.
    """
    first, second = (np.asarray(system, np.float64) for system in (first, second))
    if first.shape != second.shape or not first.ndim:
        raise ValueError(
            f"the systems have the shapes {first.shape} and {second.shape}; expected [items] or "
            "[items, columns], with the same items for both"
        )
    if not len(first) or samples < 1:
        raise ValueError(f"{len(first)} items and samples={samples}; expected at least one of each")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("the value of an item is not finite; expected finite values")
    places = np.arange(len(first), dtype=np.uint64)
    differences = []
    for key in hash64(np.arange(samples, dtype=np.uint64), combine(seed)):
        drawn = hash64(places, key) % np.uint64(len(first))
        differences.append(statistic(second[drawn]) - statistic(first[drawn]))
    low, high = np.quantile(differences, (0.025, 0.975))
    return Difference(float(statistic(second) - statistic(first)), float(low), float(high))
