"""Floating-point operations of the model, by a convention that says what it counts."""

from __future__ import annotations

from xlj.config import Model


def training_flops(
    model: Model, vocabulary_size: int, rows: int, length: int, predicted: int
) -> float:
    """Operations of forward and backward passes over some rows: 3 times the forward products.

    Counts matrix products only, a multiply-add as 2, padding included: the layers' linear maps,
    attention and the gates of a position bias, and the prediction head on `predicted` positions of
    each row. Embedding look-ups, recomputation and the optimizer count nothing (ours; ELECTRA's
    counter differs, see docs/benchmarks.md).
    """
    h, tokens = model.hidden, rows * length
    linear = 2 * tokens * (4 * h * h + 2 * h * model.intermediate)
    attention = 2 * tokens * 2 * length * h
    gates = 2 * tokens * 2 * h if model.position_bias == "gated" else 0
    head = 2 * rows * predicted * (h * h + h * vocabulary_size)
    return 3.0 * (model.layers * (linear + attention + gates) + head)
