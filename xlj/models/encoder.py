"""The XLM-R encoder: embeddings, a stack of blocks, and a last LayerNorm if the blocks are pre-LN.
Heads: `heads`.

Facts: RoBERTa's and XLM-R's released weights and code (`docs/fidelity.md`). The parameters are one
nested dict; those of all layers are stacked on a leading axis, whether the layers are compiled as a
loop or one by one, so that a checkpoint does not depend on it.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check, check_ids
from xlj.models.attention import Attention, shared_bias
from xlj.models.block import RESIDUALS, Block, Context, Stream, stream_of
from xlj.models.dense import PRODUCT, LayerNorm
from xlj.models.dropout import Rngs
from xlj.models.embeddings import Embeddings
from xlj.models.feed_forward import FeedForward
from xlj.models.modules import Params, run
from xlj.models.position_bias import PositionBias
from xlj.sharding import devices

Body = Callable[[Stream, tuple[Params, jax.Array]], tuple[Stream, jax.Array | None]]

PARTS = ("embeddings", "layers", "position_bias", "final_norm")
"""The parts of a model's parameters that are its encoder's; others belong to objectives."""


class Inputs(NamedTuple):
    """The encoder's inputs, each int32 [rows, length]."""

    tokens: jax.Array
    positions: jax.Array
    query_segment_ids: jax.Array
    key_segment_ids: jax.Array
    languages: jax.Array | None = None
    """Rows of the language embedding to add, -1 for none. Not read by a model without one."""
    sides: jax.Array | None = None
    """1 in the second sentence of a pair, else 0; None means 0 everywhere. Read with
    `pair_token_types`, and where `pair_positions` restart."""


def block_of(model: Model) -> Block:
    """The block of each layer of a model."""
    residual = partial(RESIDUALS[model.norm], model)
    return Block(Attention(model), residual(site=2), FeedForward(model), residual(site=3))


def init(rng: jax.Array, model: Model, vocabulary_size: int, languages: int) -> Params:
    """Parameters of an encoder, drawn as RoBERTa does: N(0, init_std)."""
    check("encoder.init", rng=("key []", rng))
    embedding_rng, layer_rng, bias_rng = jax.random.split(rng, 3)
    ids = jnp.zeros((1, 1), jnp.int32)
    x = jnp.zeros((1, 1, model.hidden))
    embeddings = Embeddings(model, vocabulary_size, languages)
    layer_rngs = jax.random.split(layer_rng, model.layers)
    drawn = dataclasses.replace(model, attention="dense")  # a kernel's parameters are the same
    block, context = block_of(drawn), Context(ids, ids, None, 1)
    params = {
        "embeddings": embeddings.init(embedding_rng, ids, ids, None, None, None),
        "layers": jax.vmap(lambda rng: block.init(rng, Stream(x, None), context))(layer_rngs),
    }
    if model.position_bias != "none":
        params["position_bias"] = PositionBias(model).init(bias_rng, 1)
    if model.norm == "pre":
        params["final_norm"] = LayerNorm(model.layer_norm_epsilon).init(bias_rng, x)
    return {name: part["params"] for name, part in params.items()}


def apply(
    params: Params,
    model: Model,
    inputs: Inputs,
    rngs: Rngs = None,
    *,
    layers: int | None = None,
    all_layers: bool = False,
) -> jax.Array:
    """Hidden vectors of every token.

    Args:
      params: as made by `init`, with any number of layers; further entries are not read.
      inputs: int32 [rows, length] each.
      rngs: a random key of each row [rows], for dropout; None in evaluation.
      layers: run the first so many layers only.
      all_layers: return the embeddings' output and every layer's, not only the last. The final
        norm of a pre-LN model is part of its last layer.

    Returns:
      float32 [rows, length, hidden], or [layers + 1, rows, length, hidden] with `all_layers`.
    """
    check_ids("encoder.apply", inputs, rngs=("key [rows]", rngs))
    params = first_layers(params, layers)
    weights = params["layers"]
    count = jax.tree.leaves(weights)[0].shape[0]
    word, languages = params["embeddings"]["word"], params["embeddings"].get("language", ())
    embeddings = Embeddings(model, len(word), len(languages))
    ids = inputs.tokens, inputs.positions, inputs.languages, inputs.sides
    x = run(embeddings, params["embeddings"], *ids, rngs)
    x = devices.constrained(x, "hidden")

    bias = None
    if model.position_bias != "none":
        bias = shared_bias(params["position_bias"], model, inputs.tokens.shape[1])

    def layer(
        x: Stream, weights_and_index: tuple[Params, jax.Array]
    ) -> tuple[Stream, jax.Array | None]:
        weights, index = weights_and_index
        segments = inputs.query_segment_ids, inputs.key_segment_ids
        y = run(block_of(model), weights, x, Context(*segments, rngs, index + 1, bias))
        narrow = None if y.narrow is None else devices.constrained(y.narrow, "hidden")
        y = Stream(devices.constrained(y.wide, "hidden"), narrow)
        return y, y.wide if all_layers else None

    unroll = devices.unrolled(count) if model.scan_layers else max(count, 1)
    body = _recomputed(layer, model, looped=unroll < count)
    begun = stream_of(x, model)
    ended, every = jax.lax.scan(body, begun, (weights, jnp.arange(count)), unroll=unroll)
    last = ended.wide
    if "final_norm" in params:
        last = run(LayerNorm(model.layer_norm_epsilon), params["final_norm"], last)
    return last if every is None else jnp.concatenate([x[None], every[:-1], last[None]])


def _recomputed(layer: Body, model: Model, looped: bool) -> Body:
    """The body of the loop over layers, of which the backward pass computes again what
    `model.remat` says."""
    if model.remat == "none":
        return layer
    policy = jax.checkpoint_policies.save_only_these_names(PRODUCT)
    return jax.checkpoint(
        layer,
        prevent_cse=not looped,
        policy=policy if model.remat == "products" else None,
    )


def first_layers(params: Params, layers: int | None) -> Params:
    """The parameters of an encoder that ends after its first `layers` layers, without the final
    norm if that cuts any off; None means all."""
    stacked = jax.tree.leaves(params["layers"])
    message = "params of first_layers: what layers have is to be stacked, float [layers, ...]"
    chex.assert_type(stacked, float, custom_message=message)
    chex.assert_equal_shape_prefix(stacked, 1, custom_message=message)
    if layers is None or layers >= jax.tree.leaves(params["layers"])[0].shape[0]:
        return params
    rest = {name: part for name, part in params.items() if name != "final_norm"}
    return rest | {"layers": jax.tree.map(lambda leaf: leaf[:layers], params["layers"])}


def middle_layer(layers: int) -> int:
    """The layer at two thirds of the depth, 8 of 12: where vectors of translations are most alike
    (XLM-Align's and InfoXLM's released default; ours for other depths)."""
    return max(1, round(2 * layers / 3))


def layer_or_middle(layer: int, layers: int) -> int:
    """A layer that was given, 0 the embeddings; of -1 the middle one."""
    return middle_layer(layers) if layer < 0 else layer
