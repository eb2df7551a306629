"""The encoder of XLM-R, ModernBERT, EuroBERT and gte: embeddings, a stack of blocks, and a last
norm if norms stand before the sub-layers. Heads: `heads`.

Facts: RoBERTa's and XLM-R's released weights and code (`docs/fidelity.md`). The parameters are one
nested dict; those of all layers are stacked on a leading axis, whether the layers are compiled as a
loop or one by one, so that a checkpoint does not depend on it (`pattern.part`).
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
from xlj.models.embeddings import Embeddings, restarted, separated
from xlj.models.feed_forward import FeedForward
from xlj.models.modules import Params, run
from xlj.models.norms import Norm
from xlj.models.pattern import Kind
from xlj.models.position_bias import PositionBias
from xlj.sharding import devices

Layer = Callable[[Kind, Stream, Params, jax.Array], Stream]
"""A layer of a kind: the stream before it, its parameters, its number from 0 -> the stream after
it."""

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
    `pair_token_types`, where `pair_positions` restart, and with a `pair_separator` of its own."""


def block_of(model: Model, kind: Kind) -> Block:
    """The block of a layer of a model."""
    residual = RESIDUALS[model.norm]
    first = residual if kind.is_normed else NoNorm
    return Block(
        Attention(model, kind.is_local),
        first(model, site=2, rate=model.dropout_of("attention")),
        FeedForward(model),
        residual(model, site=3, rate=model.dropout_of("feed_forward")),
    )


def init(rng: jax.Array, model: Model, vocabulary_size: int, languages: int) -> Params:
    """Parameters of an encoder, drawn as RoBERTa does: N(0, init_std)."""
    check("encoder.init", rng=("key []", rng))
    embedding_rng, layer_rng, bias_rng = jax.random.split(rng, 3)
    ids = jnp.zeros((1, 1), jnp.int32)
    x = jnp.zeros((1, 1, model.hidden))
    embeddings = Embeddings(model, vocabulary_size, languages)
    layer_rngs = jax.random.split(layer_rng, model.layers)
    drawn = dataclasses.replace(model, attention="dense")  # a kernel's parameters are the same
    context = Context(ids, ids, None, 1, turns=rotary.of_layers(model, ids))
    block = block_of(drawn, Kind(is_local=False, is_normed=True))
    params = {
        "embeddings": embeddings.init(embedding_rng, ids, ids, None, None, None),
        "layers": jax.vmap(lambda rng: block.init(rng, Stream(x, None), context))(layer_rngs),
    }
    if model.position_bias != "none":
        params["position_bias"] = PositionBias(model).init(bias_rng, 1)
    if model.norm != "post":
        params["final_norm"] = Norm(model).init(bias_rng, x)
    made = {name: part["params"] for name, part in params.items()}
    if model.norm == "embeddings":
        norm = made["layers"].pop("attention_norm")
        if model.layers > 1:
            made["layers"]["attention_norm"] = {name: leaf[1:] for name, leaf in norm.items()}
    return made


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
        norm of a pre-norm model is part of its last layer, with `middle_norm` of each.

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
        positions = restarted(positions, inputs.sides)
    tokens = inputs.tokens
    if model.pair_separator == "parallel" and inputs.sides is not None:
        tokens = separated(tokens, inputs.sides)
    ids = tokens, positions, inputs.languages, inputs.sides
    x = run(embeddings, params["embeddings"], *ids, rngs)
    x = devices.constrained(x, "hidden")

    bias = None
    if model.position_bias != "none":
        bias = shared_bias(params["position_bias"], model, inputs.tokens.shape[1])
    segments, turns = inputs[2:4], rotary.of_layers(model, positions)

    def layer(kind: Kind, x: Stream, weights: Params, index: jax.Array) -> Stream:
        context = Context(*segments, rngs, index + 1, bias, turns)
        y = run(block_of(model, kind), weights, x, context)
        narrow = None if y.narrow is None else devices.constrained(y.narrow, "hidden")
        return Stream(devices.constrained(y.wide, "hidden"), narrow)

    stream, outputs = _run_layers(layer, model, weights, stream_of(x, model), all_layers)
    ended = partial(run, Norm(model), params["final_norm"]) if "final_norm" in params else None
    if not all_layers:
        return ended(stream.wide) if ended else stream.wide
    every = jnp.concatenate([x[None], *outputs])
    if not ended:
        return every
    normed = 1 if model.middle_norm else len(every) - 1  # the first layer with the final norm
    return jnp.concatenate([every[:normed], ended(every[normed:])])


def _run_layers(
    layer: Layer, model: Model, weights: Params, stream: Stream, all_layers: bool
) -> tuple[Stream, list[jax.Array]]:
    """The stream behind the last layer and, with `all_layers`, that behind each of them, float32
    [some layers, rows, length, hidden] each."""
    kinds = pattern.kinds(model, pattern.layer_count(weights))
    loop, outputs = pattern.loop_of(kinds), []
    unroll = devices.unrolled(loop.times) if model.scan_layers else max(loop.times, 1)
    alone = _recomputed(layer, model, looped=False)
    body = _recomputed(layer, model, looped=unroll < loop.times)

    def turn(stream: Stream, given: tuple[Params, jax.Array]) -> tuple[Stream, list[jax.Array]]:
        several = [given]
        if loop.period > 1:
            places = range(loop.period)
            several = [jax.tree.map(lambda leaf, at=at: leaf[at], given) for at in places]
        found = []
        for kind, (here, index) in zip(kinds[loop.start :], several, strict=False):
            stream = body(kind, stream, here, index)
            found.append(stream.wide)
        return stream, found if all_layers else []

    def one_by_one(stream: Stream, indices: range) -> Stream:
        for index in indices:
            here = jax.tree.map(lambda leaf: leaf[0], pattern.part(weights, index, index + 1))
            stream = alone(kinds[index], stream, here, jnp.int32(index))
            outputs.append(stream.wide[None])
        return stream

    stream = one_by_one(stream, range(loop.start))
    if loop.times:
        given = pattern.part(weights, loop.start, loop.end), jnp.arange(loop.start, loop.end)
        if loop.period > 1:  # else XLA would compile the loop of XLM-R to other roundings
            shape = loop.times, loop.period
            given = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), given)
        stream, found = jax.lax.scan(turn, stream, given, unroll=unroll)
        if all_layers:
            several = jnp.stack(found, 1).reshape(-1, *stream.wide.shape)
            outputs.append(several if loop.period > 1 else found[0])
    return one_by_one(stream, range(loop.end, len(kinds))), outputs


def _recomputed(layer: Layer, model: Model, looped: bool) -> Layer:
    """The layer; its backward pass computes again what `model.remat` says."""
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
    """The parameters of an encoder that ends after its first `layers` layers; None means all. The
    final norm is left out if that cuts any off, unless the model has it behind each layer; the
    embeddings have their own."""
    if layers is None or layers >= pattern.layer_count(params["layers"]):
        return params
    rest = dict(params)
    if not (model.middle_norm and layers):
        rest.pop("final_norm", None)
    return rest | {"layers": pattern.part(params["layers"], 0, layers)}


def middle_layer(layers: int) -> int:
    """The layer at two thirds of the depth, 8 of 12: where vectors of translations are most alike
    (XLM-Align's and InfoXLM's released default; ours for other depths)."""
    return max(1, round(2 * layers / 3))


def layer_or_middle(layer: int, layers: int) -> int:
    """A layer that was given, 0 the embeddings; of -1 the middle one."""
    return middle_layer(layers) if layer < 0 else layer
