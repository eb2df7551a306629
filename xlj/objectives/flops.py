"""Floating-point operations of a forward pass, by xlj's convention.

Only matrix products count, including the products of padding tokens. A multiply-add counts as 2
operations. A backward pass counts as two forward passes. Embedding look-ups, recomputation and the
optimizer do not count. The convention is ours; ELECTRA's counter differs (docs/papers.md).
"""

import dataclasses

from xlj.config import Model
from xlj.models import pattern

TRAINED = 3
"""Cost of a forward and a backward pass together, in forward passes."""


@dataclasses.dataclass(frozen=True)
class Operations:
    """Numbers of floating-point operations, by part of the model."""

    linear: float = 0.0
    """Of the layers' linear maps, and of the gates of a position bias."""
    attention: float = 0.0
    """Of the products of queries and keys, and of attention weights and values."""
    vocabulary: float = 0.0
    """Of the heads that predict tokens."""
    other: float = 0.0
    """Of all other products of an objective."""

    @property
    def total(self) -> float:
        """The number of operations of all parts together."""
        return sum(dataclasses.astuple(self))

    def __add__(self, more: "Operations") -> "Operations":
        both = zip(dataclasses.astuple(self), dataclasses.astuple(more), strict=True)
        return Operations(*(a + b for a, b in both))

    def __rmul__(self, times: float) -> "Operations":
        return Operations(*(times * part for part in dataclasses.astuple(self)))


def layer_weights(model: Model) -> int:
    """Counts the weights in the kernels of one layer."""
    projections = 2 * model.heads + 2 * model.groups
    attention = projections * model.hidden**2 // model.heads
    return (
        attention + (2 if model.feed_forward == "gelu" else 3) * model.hidden * model.intermediate
    )


def of_layers(model: Model, layers: int, rows: int, length: int) -> Operations:
    """Counts the operations of a forward pass of the first layers: linear maps, attention, gates.

    In local layers, a token attends to the tokens of its window only.

    Args:
      layers: number of layers.
      rows, length: shape of the batch, in rows and tokens per row.
    """
    h, tokens = model.hidden, rows * length
    linear = 2.0 * tokens * layer_weights(model)
    gates = 2.0 * tokens * 2 * h if model.position_bias == "gated" else 0.0
    attended = sum(
        min(length, model.local_attention + 1) if kind.is_local else length
        for kind in pattern.kinds(model, layers)
    )
    return Operations(linear=layers * (linear + gates), attention=2.0 * tokens * 2 * h * attended)


def of_predictions(model: Model, vocabulary_size: int, positions: int) -> Operations:
    """Counts the operations of a forward pass of a prediction head at `positions` positions."""
    dense_layer = model.hidden**2 if model.prediction == "dense" else 0
    weights = dense_layer + model.hidden * vocabulary_size
    return Operations(vocabulary=2.0 * positions * weights)
