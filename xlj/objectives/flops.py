"""Floating-point operations of a forward pass, by a convention that says what it counts.

Matrix products only, a multiply-add as 2, padding included. Embedding look-ups, recomputation and
the optimizer count nothing (ours; ELECTRA's counter differs, see docs/benchmarks.md). A pass that
is trained counts three times, once forward and twice backward.
"""

from xlj.config import Model

TRAINED = 3
"""Forward passes that a forward and a backward pass cost together."""


def of_layers(model: Model, layers: int, rows: int, length: int) -> float:
    """Of the layers' linear maps, attention and the gates of a position bias, over rows of `length`
    tokens."""
    h, tokens = model.hidden, rows * length
    linear = 2 * tokens * (4 * h * h + 2 * h * model.intermediate)
    attention = 2 * tokens * 2 * length * h
    gates = 2 * tokens * 2 * h if model.position_bias == "gated" else 0
    return float(layers * (linear + attention + gates))


def of_predictions(model: Model, vocabulary_size: int, positions: int) -> float:
    """Of a prediction head on so many positions."""
    return 2.0 * positions * (model.hidden**2 + model.hidden * vocabulary_size)
