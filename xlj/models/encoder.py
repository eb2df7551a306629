"""The encoder of XLM-R, ModernBERT, EuroBERT and gte.

It has embeddings, a stack of blocks, and a final norm if norms come before the sub-layers. Heads
are in `heads`. Details follow RoBERTa's and XLM-R's released weights and code
(`docs/fidelity.md`).

The parameters are one nested dict. The parameters of all layers are stacked on a leading axis, also
if layers are compiled one by one, so that checkpoints do not depend on this (`pattern.part`).
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check, check_ids
from xlj.models import pattern, rotary
from xlj.models.attention import Attention, shared_bias
from xlj.models.block import RESIDUALS, Block, Context, NoNorm, Stream, stream_of
from xlj.models.dense import PRODUCT
from xlj.models.dropout import Rngs
from xlj.models.embeddings import Embeddings, insert_separators, restart_positions
from xlj.models.feed_forward import FeedForward
from xlj.models.modules import Params, run
from xlj.models.norms import Norm
from xlj.models.pattern import Kind
from xlj.models.position_bias import PositionBias
from xlj.sharding import devices

Layer = Callable[[Kind, Stream, Params, jax.Array], Stream]
"""(kind of layer, stream before it, its parameters, its number from 0) -> the stream after it."""

PARTS = ("embeddings", "layers", "position_bias", "final_norm")
"""The parts of a model's parameters that belong to the encoder; others belong to objectives."""


class Inputs(NamedTuple):
    """The encoder's inputs, each int32 [rows, length]."""

    tokens: jax.Array
    positions: jax.Array
    query_segment_ids: jax.Array
    key_segment_ids: jax.Array
    languages: jax.Array | None = None
    """Rows of the language embedding to add, -1 for none. Ignored by models without one."""
    sides: jax.Array | None = None
    """1 in the second sentence of a pair, else 0; None means 0 everywhere. Used with
    `pair_token_types`, `pair_positions=restart` and `pair_separator=parallel`."""


def block_of(model: Model, kind: Kind) -> Block:
    """Returns the block for a kind of layer of a model."""
    residual = RESIDUALS[model.norm]
    first = residual if kind.is_normed else NoNorm
    return Block(
        Attention(model, kind.is_local),
        first(model, site=2, rate=model.dropout_of("attention")),
        FeedForward(model),
        residual(model, site=3, rate=model.dropout_of("feed_forward")),
    )


def init(rng: jax.Array, model: Model, vocabulary_size: int, languages: int) -> Params:
    """Returns new parameters of an encoder, drawn from N(0, init_std) as in RoBERTa."""
    check("encoder.init", rng=("key []", rng))
    embedding_rng, layer_rng, bias_rng = jax.random.split(rng, 3)
    ids = jnp.zeros((1, 1), jnp.int32)
    x = jnp.zeros((1, 1, model.hidden))
    embeddings = Embeddings(model, vocabulary_size, languages)
    layer_rngs = jax.random.split(layer_rng, model.layers)
    dense = dataclasses.replace(model, attention="dense")  # fused attention has the same parameters
    context = Context(ids, ids, None, 1, rotations=rotary.of_layers(model, ids))
    block = block_of(dense, Kind(is_local=False, is_normed=True))
    params = {
        "embeddings": embeddings.init(embedding_rng, ids, ids, None, None, None),
        "layers": jax.vmap(lambda rng: block.init(rng, Stream(x, None), context))(layer_rngs),
    }
    if model.position_bias != "none":
        params["position_bias"] = PositionBias(model).init(bias_rng, 1)
    if model.norm != "post":
        params["final_norm"] = Norm(model).init(bias_rng, x)
    parts = {name: part["params"] for name, part in params.items()}
    if model.norm == "embeddings":  # the first layer has no norm before attention
        norm = parts["layers"].pop("attention_norm")
        if model.layers > 1:
            parts["layers"]["attention_norm"] = {name: leaf[1:] for name, leaf in norm.items()}
    return parts


def apply(
    params: Params,
    model: Model,
    inputs: Inputs,
    rngs: Rngs = None,
    *,
    layers: int | None = None,
    all_layers: bool = False,
) -> jax.Array:
    """Computes hidden vectors of every token.

    Args:
      params: as returned by `init`, with any number of layers; further entries are ignored.
      inputs: int32 [rows, length] each.
      rngs: a random key of each row [rows], for dropout; None in evaluation.
      layers: run only the first `layers` layers.
      all_layers: return the outputs of the embeddings and of all layers, not only of the last. The
        final norm of a pre-norm model is part of its last layer, or of each with `middle_norm`.

    Returns:
      float32 [rows, length, hidden], or [layers + 1, rows, length, hidden] with `all_layers`.
    """
    check_ids("encoder.apply", inputs, rngs=("key [rows]", rngs))
    params = first_layers(params, model, layers)
    weights = params["layers"]
    word, languages = params["embeddings"]["word"], params["embeddings"].get("language", ())
    embeddings = Embeddings(model, len(word), len(languages))
    positions = inputs.positions
    if model.pair_positions == "restart" and inputs.sides is not None:
        positions = restart_positions(positions, inputs.sides)
    tokens = inputs.tokens
    if model.pair_separator == "parallel" and inputs.sides is not None:
        tokens = insert_separators(tokens, inputs.sides)
    ids = tokens, positions, inputs.languages, inputs.sides
    x = run(embeddings, params["embeddings"], *ids, rngs)
    x = devices.constrain(x, "hidden")

    bias = None
    if model.position_bias != "none":
        bias = shared_bias(params["position_bias"], model, inputs.tokens.shape[1])
    segments, rotations = inputs[2:4], rotary.of_layers(model, positions)

    def layer(kind: Kind, x: Stream, weights: Params, index: jax.Array) -> Stream:
        context = Context(*segments, rngs, index + 1, bias, rotations)
        y = run(block_of(model, kind), weights, x, context)
        narrow = None if y.narrow is None else devices.constrain(y.narrow, "hidden")
        return Stream(devices.constrain(y.wide, "hidden"), narrow)

    stream, outputs = _run_layers(layer, model, weights, stream_of(x, model), all_layers)
    norm = partial(run, Norm(model), params["final_norm"]) if "final_norm" in params else None
    if not all_layers:
        return norm(stream.wide) if norm else stream.wide
    every = jnp.concatenate([x[None], *outputs])  # [layers + 1, rows, length, hidden]
    if not norm:
        return every
    first = 1 if model.middle_norm else len(every) - 1  # the first layer with the final norm
    return jnp.concatenate([every[:first], norm(every[first:])])


def _run_layers(
    layer: Layer, model: Model, weights: Params, stream: Stream, all_layers: bool
) -> tuple[Stream, list[jax.Array]]:
    """Runs all layers.

    Returns:
      The stream after the last layer. With `all_layers`, the outputs of all layers, in arrays
      float32 [some layers, rows, length, hidden].
    """
    kinds = pattern.kinds(model, pattern.layer_count(weights))
    loop, outputs = pattern.loop_of(kinds), []
    unroll = devices.unroll_count(loop.times) if model.scan_layers else max(loop.times, 1)
    alone = _checkpointed(layer, model, looped=False)
    body = _checkpointed(layer, model, looped=unroll < loop.times)

    def run_period(
        stream: Stream, of_period: tuple[Params, jax.Array]
    ) -> tuple[Stream, list[jax.Array]]:
        by_layer = [of_period]
        if loop.period > 1:
            places = range(loop.period)
            by_layer = [jax.tree.map(lambda leaf, at=at: leaf[at], of_period) for at in places]
        wide = []
        for kind, (own, index) in zip(kinds[loop.start :], by_layer, strict=False):
            stream = body(kind, stream, own, index)
            wide.append(stream.wide)
        return stream, wide if all_layers else []

    def one_by_one(stream: Stream, indices: range) -> Stream:
        for index in indices:
            own = jax.tree.map(lambda leaf: leaf[0], pattern.part(weights, index, index + 1))
            stream = alone(kinds[index], stream, own, jnp.int32(index))
            outputs.append(stream.wide[None])
        return stream

    stream = one_by_one(stream, range(loop.start))
    if loop.times:
        periods = pattern.part(weights, loop.start, loop.end), jnp.arange(loop.start, loop.end)
        if loop.period > 1:  # a loop over an axis of size 1 would change the roundings of XLM-R
            shape = loop.times, loop.period
            periods = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), periods)
        stream, wide = jax.lax.scan(run_period, stream, periods, unroll=unroll)
        if all_layers:
            # `wide` has, for each layer of a period, [periods, rows, length, hidden].
            in_order = jnp.stack(wide, 1).reshape(-1, *stream.wide.shape)
            outputs.append(in_order if loop.period > 1 else wide[0])
    return one_by_one(stream, range(loop.end, len(kinds))), outputs


def _checkpointed(layer: Layer, model: Model, looped: bool) -> Layer:
    """Returns the layer, with recomputation in its backward pass according to `model.remat`."""
    if model.remat == "none":
        return layer
    policy = jax.checkpoint_policies.save_only_these_names(PRODUCT)
    return jax.checkpoint(
        layer,
        prevent_cse=not looped,
        static_argnums=0,
        policy=policy if model.remat == "products" else None,
    )


def first_layers(params: Params, model: Model, layers: int | None) -> Params:
    """Returns the parameters of the encoder's first `layers` layers; None means all.

    If layers are left out, the final norm is left out too, unless the model has `middle_norm`.
    Without any layer it is always left out, since the embeddings have their own norm.
    """
    if layers is None or layers >= pattern.layer_count(params["layers"]):
        return params
    rest = dict(params)
    if not (model.middle_norm and layers):
        rest.pop("final_norm", None)
    return rest | {"layers": pattern.part(params["layers"], 0, layers)}


def middle_layer(layers: int) -> int:
    """Returns the layer at two thirds of the depth, where vectors of translations are most similar.

    Layer 8 of 12 is the released default of XLM-Align and InfoXLM; other depths are ours.
    """
    return max(1, round(2 * layers / 3))


def layer_or_middle(layer: int, layers: int) -> int:
    """Returns the layer (0 for the embeddings), or the middle layer for -1."""
    return middle_layer(layers) if layer < 0 else layer
