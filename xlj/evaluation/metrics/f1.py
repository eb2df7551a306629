"""F1, precision and recall from counts."""

from typing import NamedTuple


class Scores(NamedTuple):
    """Each between 0 and 1; a quotient of nothing by nothing is 0."""

    f1: float
    precision: float
    recall: float


def scores(right: int, predicted: int, gold: int) -> Scores:
    """Scores of `predicted` things of which `right` are among the `gold` ones."""
    if not right:
        return Scores(0.0, 0.0, 0.0)
    precision, recall = right / predicted, right / gold
    return Scores(2 * precision * recall / (precision + recall), precision, recall)
