"""Sentence vectors: pooling, and a linear layer."""

from collections.abc import Callable, Mapping
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.models import encoder
from xlj.models.dense import matmul
from xlj.models.dropout import Rngs
from xlj.models.modules import init_head, run
from xlj.models.segments import Rows, average_examples, find_starts, whole_examples
from xlj.objectives.objective import check_rows
from xlj.sharding.devices import KERNEL
from xlj.sharding.trees import Params

HEAD = "sentence"
"""The name of the parameters of the linear layer (`dense`), as in models that are imported from
sentence-transformers (`sentence_modules.SENTENCE`): `sentence/0/kernel`."""

RULES = ((rf"{HEAD}/0/kernel", KERNEL),)
"""The sharding of these parameters (`Objective.rules`)."""


ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "GELU": partial(jax.nn.gelu, approximate=False),
    "SiLU": jax.nn.silu,
    "Sigmoid": jax.nn.sigmoid,
}
"""The functions of `choices.ACTIVATIONS`."""


def parts(model: Model, dense: int, bias: bool = False) -> dict[str, Callable[[jax.Array], Params]]:
    """Returns the parameters of the linear layer (`Objective.parts`); empty if `dense` is 0."""

    def init(rng: jax.Array) -> Params:
        return {"0": init_projection(rng, model, dense, bias)}

    return {HEAD: init} if dense else {}


def encode(
    params: Params,
    model: Model,
    rows: Rows,
    slots: int,
    rngs: Rngs,
    *,
    layer: int,
    pooling: str,
    dense: int,
    activation: str = "Identity",
) -> jax.Array:
    """Computes the sentence vectors of the texts of rows, float [rows, slots, dimensions].

    Args:
      rows: `tokens`, int [rows, length], and `languages`, int [rows, 2].
      slots: number of slots per row, at least the number of examples.
      layer: the layer to pool; -2 is the last, -1 the layer at two thirds of the depth.
      pooling: a value of `choices.POOLINGS`.
      dense: outputs of the linear layer after the pooling; 0 for no such layer.
      activation: of the linear layer, one of `choices.ACTIVATIONS`.
    """
    check_rows("encode", rows, rngs=("key [rows]", rngs))
    depth = model.layers if layer == -2 else encoder.layer_or_middle(layer, model.layers)
    inputs = whole_examples(model, rows["tokens"], rows["languages"])
    hidden = encoder.apply(params, model, inputs, rngs, layers=depth)
    pooled = pool(hidden, rows["tokens"], slots, pooling)
    if not dense:
        return pooled
    return ACTIVATIONS[activation](project(params[HEAD]["0"], model, pooled, dense))


def pool(hidden: jax.Array, tokens: jax.Array, max_examples: int, pooling: str) -> jax.Array:
    """Computes the vector of each example of rows.

    Args:
      hidden: float [rows, length, hidden].
      tokens: int [rows, length].
      max_examples: number of slots per row, at least the number of examples.
      pooling: a value of `choices.POOLINGS`.

    Returns:
      [rows, max_examples, hidden]. Slots without an example have zeros or, with `first`, the vector
      of the row's first token.
    """
    check(
        "pool",
        hidden=("float [rows, length, hidden]", hidden),
        tokens=("int [rows, length]", tokens),
    )
    if pooling == "first":
        starts = find_starts(tokens, max_examples)
        return jnp.take_along_axis(hidden, starts[..., None], axis=1)
    return average_examples(hidden, tokens, max_examples, specials=pooling == "mean")


def normalise(vectors: jax.Array) -> jax.Array:
    """Divides vectors, float [..., hidden], by their lengths. Zeros stay zeros."""
    check("normalise", vectors=("float [..., hidden]", vectors))
    square = (vectors * vectors).sum(-1, keepdims=True)
    return vectors / jnp.sqrt(jnp.maximum(square, 1e-12))  # keeps the gradient of zeros finite


class Projection(nn.Module):
    """A linear map of sentence vectors, without bias as in InfoXLM, or with one.

    Attributes:
      model: the options of the encoder.
      outputs: size of the result; 0 for `model.hidden`.
      bias: whether a vector is added.
    """

    model: Model
    outputs: int = 0
    bias: bool = False

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """Maps hidden, float [..., hidden] -> float32 [..., outputs]."""
        normal = nn.initializers.normal(self.model.init_std)
        shape = (self.model.hidden, self.outputs or self.model.hidden)
        kernel = self.param("kernel", normal, shape)
        product = matmul(hidden, kernel, jnp.dtype(self.model.dtype))
        if not self.bias:
            return product
        return product + self.param("bias", nn.initializers.zeros, shape[1:])


def init_projection(rng: jax.Array, model: Model, outputs: int = 0, bias: bool = False) -> Params:
    """Returns new parameters of a `Projection` head."""
    zeros = jnp.zeros((1, model.hidden))
    return init_head("init_projection", Projection(model, outputs, bias), rng, zeros)


def project(params: Params, model: Model, hidden: jax.Array, outputs: int = 0) -> jax.Array:
    """Projects hidden, float [..., hidden] -> float32 [..., outputs].

    Args:
      params: of a `Projection` head, with or without `bias`.
      outputs: size of the result; 0 for `model.hidden`.
    """
    check("project", hidden=(f"float [..., {model.hidden}]", hidden))
    return run(Projection(model, outputs, "bias" in params), params, hidden)
