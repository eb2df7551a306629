"""Floating-point operations of a forward pass, by a convention that says what it counts.

Matrix products only, a multiply-add as 2, padding included. Embedding look-ups, recomputation and
the optimizer count nothing (ours; ELECTRA's counter differs, see docs/benchmarks.md). A pass that
is trained counts three times, once forward and twice backward.
"""

import dataclasses

from xlj.config import Model

TRAINED = 3
"""Forward passes that a forward and a backward pass cost together."""


@dataclasses.dataclass(frozen=True)
class Operations:
    """Operations by part of the model."""

    linear: float = 0.0
    """The layers' linear maps, and the gates of a position bias."""
    attention: float = 0.0
    """Queries times keys, and weights times values."""
    vocabulary: float = 0.0
    """Predictions of tokens."""
    other: float = 0.0
    """What an objective does beside these."""

    @property
    def total(self) -> float:
        """Of all parts."""
        return sum(dataclasses.astuple(self))

    def __add__(self, more: "Operations") -> "Operations":
        both = zip(dataclasses.astuple(self), dataclasses.astuple(more), strict=True)
        return Operations(*(a + b for a, b in both))

    def __rmul__(self, times: float) -> "Operations":
        return Operations(*(times * part for part in dataclasses.astuple(self)))


def of_layers(model: Model, layers: int, rows: int, length: int) -> Operations:
    """Of the layers' linear maps, attention and the gates of a position bias, over rows of `length`
    tokens."""
    h, tokens = model.hidden, rows * length
    linear = 2.0 * tokens * (4 * h * h + 2 * h * model.intermediate)
    gates = 2.0 * tokens * 2 * h if model.position_bias == "gated" else 0.0
    each = Operations(linear=linear + gates, attention=2.0 * tokens * 2 * length * h)
    return layers * each


def of_predictions(model: Model, vocabulary_size: int, positions: int) -> Operations:
    """Of a prediction head on so many positions."""
    each = model.hidden**2 + model.hidden * vocabulary_size
    return Operations(vocabulary=2.0 * positions * each)
