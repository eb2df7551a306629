"""SimAlign's Match: the one-to-one alignment of the greatest total similarity. On the host."""

import numpy as np
from scipy.optimize import linear_sum_assignment


def match(similarity: np.ndarray, source_ids: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
    """Links of a maximum-weight matching of each example (SimAlign section 3.2).

    Args:
      similarity: float32 [..., m, n], not negative; a similarity of zero gives no link.
      source_ids, target_ids: int32 [..., m] and [..., n], as in `same_example`; their leading axes
        may be broadcast.

    Returns:
      bool [..., m, n].
    """
    batch = similarity.shape[:-2]
    source_ids = np.broadcast_to(source_ids, batch + source_ids.shape[-1:])
    target_ids = np.broadcast_to(target_ids, batch + target_ids.shape[-1:])
    links = np.zeros(similarity.shape, bool)
    for place in np.ndindex(batch):
        for example in set(source_ids[place].tolist()) - {0}:
            rows = np.flatnonzero(source_ids[place] == example)
            columns = np.flatnonzero(target_ids[place] == example)
            weights = similarity[place][np.ix_(rows, columns)]
            row, column = linear_sum_assignment(weights, maximize=True)
            links[place][rows[row], columns[column]] = weights[row, column] > 0
    return links
