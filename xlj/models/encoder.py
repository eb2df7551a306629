"""The encoder of XLM-R, ModernBERT, EuroBERT and gte.

The encoder has embeddings, a stack of blocks, and a final norm if norms come before the sub-layers.
Details follow RoBERTa's and XLM-R's released weights and code (`docs/fidelity.md`). `heads` has the
layers on top of the encoder.

The parameters are one nested dict. Parameters of the same name are stacked over layers: their first
axis is the layer. Parameters are stacked even if layers are compiled one by one instead of in a
loop, so checkpoints do not depend on `model.scan_layers`.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check, check_ids
from xlj.models import pattern
from xlj.models.attention.layer import Attention, shared_bias
from xlj.models.block import RESIDUALS, Block, Context, FeedForward, NoNorm, Stream, stream_of
from xlj.models.dense import PRODUCT
from xlj.models.dropout import Rngs
from xlj.models.embeddings import Embeddings, insert_separators, restart_positions
from xlj.models.modules import run
from xlj.models.norms import Norm
from xlj.models.pattern import Kind
from xlj.models.positions import PositionBias, rotations_of_layers
from xlj.sharding import devices
from xlj.sharding.trees import Params

Layer = Callable[[Kind, Stream, Params, jax.Array], Stream]
"""A layer: (its kind, the stream before it, its parameters, its zero-based number) -> the stream
after it."""

PARTS = ("embeddings", "layers", "position_bias", "final_norm")
"""The parts of a model's parameters that belong to the encoder. All other parts belong to
objectives."""


class Inputs(NamedTuple):
    """The encoder's inputs, each int32 [rows, length].

    A query sees a key if the segment id of the query equals the segment id of the key.
    """

    tokens: jax.Array
    """Token ids."""
    positions: jax.Array
    """Zero-based positions in the example."""
    query_segment_ids: jax.Array
    key_segment_ids: jax.Array
    languages: jax.Array | None = None
    """The row of the language embedding to add to each token; -1, or None for all tokens, adds no
    embedding. Models without language embeddings ignore this."""
    sides: jax.Array | None = None
    """1 in the second sentence of a pair, else 0; None means 0 everywhere. Only models with
    `pair_marks` read this."""


def block_of(model: Model, kind: Kind) -> Block:
    """Builds the block for a kind of layer of a model."""
    residual = RESIDUALS[model.norm]
    first = residual if kind.is_normed else NoNorm
    return Block(
        Attention(model, kind.is_local),
        first(model, site=2, rate=model.dropout_of("attention")),
        FeedForward(model),
        residual(model, site=3, rate=model.dropout_of("feed_forward")),
    )


def init(rng: jax.Array, model: Model, vocabulary_size: int, languages: int) -> Params:
    """Returns new parameters of an encoder, float32.

    Kernels and embeddings are drawn from N(0, init_std^2) as in RoBERTa. Biases start at 0 and
    scales at 1.

    Args:
      languages: number of rows of the language embedding.
    """
    check("encoder.init", rng=("key []", rng))
    embedding_rng, layer_rng, bias_rng = jax.random.split(rng, 3)
    ids = jnp.zeros((1, 1), jnp.int32)
    x = jnp.zeros((1, 1, model.hidden))
    embeddings = Embeddings(model, vocabulary_size, languages)
    layer_rngs = jax.random.split(layer_rng, model.layers)
    # All implementations of attention have the same parameters; dense attention needs no kernel.
    with_dense_attention = dataclasses.replace(model, attention="dense")
    context = Context(ids, ids, None, 1, rotations=rotations_of_layers(model, ids))
    block = block_of(with_dense_attention, Kind(is_local=False, is_normed=True))
    params = {
        "embeddings": embeddings.init(embedding_rng, ids, ids, None, None, None),
        "layers": jax.vmap(lambda rng: block.init(rng, Stream(x, None), context))(layer_rngs),
    }
    if model.position_bias != "none":
        params["position_bias"] = PositionBias(model).init(bias_rng, 1)
    if model.norm != "post":
        params["final_norm"] = Norm(model).init(bias_rng, x)
    parameters = {name: part["params"] for name, part in params.items()}
    if model.norm == "embeddings":  # the first layer has no norm before attention
        norm = parameters["layers"].pop("attention_norm")
        if model.layers > 1:
            parameters["layers"]["attention_norm"] = {name: leaf[1:] for name, leaf in norm.items()}
    return parameters


def apply(
    params: Params,
    model: Model,
    inputs: Inputs,
    rngs: Rngs = None,
    *,
    layers: int | None = None,
    all_layers: bool = False,
) -> jax.Array:
    """Computes the hidden vectors of all tokens.

    Args:
      params: parameters of the structure that `init` returns, with any number of layers. Entries of
        other names are ignored.
      inputs: int32 [rows, length] each.
      rngs: a random key for each row [rows], for dropout; None in evaluation.
      layers: run only the first `layers` layers; None runs all layers. `first_layers` describes
        when the final norm is applied.
      all_layers: return the outputs of the embeddings and of all layers, instead of the output of
        the last layer. In a pre-norm model, the final norm is applied to the output of the last
        layer, or to the output of every layer with `model.middle_norm`.

    Returns:
      float32 [rows, length, hidden], or [layers + 1, rows, length, hidden] with `all_layers`.
    """
    check_ids("encoder.apply", inputs, rngs=("key [rows]", rngs))
    params = first_layers(params, model, layers)
    weights = params["layers"]
    word, languages = params["embeddings"]["word"], params["embeddings"].get("language", ())
    embeddings = Embeddings(model, len(word), len(languages))
    positions = inputs.positions
    if "positions" in model.pair_marks and inputs.sides is not None:
        positions = restart_positions(positions, inputs.sides)
    tokens = inputs.tokens
    if "separator" in model.pair_marks and inputs.sides is not None:
        tokens = insert_separators(tokens, inputs.sides)
    ids = tokens, positions, inputs.languages, inputs.sides
    x = run(embeddings, params["embeddings"], *ids, rngs)
    x = devices.constrain(x, "hidden")

    bias = None
    if model.position_bias != "none":
        bias = shared_bias(params["position_bias"], model, inputs.tokens.shape[1])
    segments, rotations = inputs[2:4], rotations_of_layers(model, positions)

    def layer(kind: Kind, x: Stream, weights: Params, index: jax.Array) -> Stream:
        context = Context(*segments, rngs, index + 1, bias, rotations)
        y = run(block_of(model, kind), weights, x, context)
        narrow = None if y.narrow is None else devices.constrain(y.narrow, "hidden")
        return Stream(devices.constrain(y.wide, "hidden"), narrow)

    stream, outputs = _run_layers(layer, model, weights, stream_of(x, model), all_layers)
    norm = partial(run, Norm(model), params["final_norm"]) if "final_norm" in params else None
    if not all_layers:
        return norm(stream.wide) if norm else stream.wide
    all_outputs = jnp.concatenate([x[None], *outputs])  # [layers + 1, rows, length, hidden]
    if not norm:
        return all_outputs
    first = 1 if model.middle_norm else len(all_outputs) - 1  # the first layer with the final norm
    return jnp.concatenate([all_outputs[:first], norm(all_outputs[first:])])


def _run_layers(
    layer: Layer, model: Model, weights: Params, stream: Stream, all_layers: bool
) -> tuple[Stream, list[jax.Array]]:
    """Runs all layers: the layers of `pattern.loop_of` in a loop, all other layers one by one.

    Args:
      weights: parameters of all layers, float32 [layers, ...] each.
      stream: the stream before the first layer.

    Returns:
      The stream after the last layer, and a list. With `all_layers`, the arrays of the list,
      float32 [n, rows, length, hidden], are the outputs of all layers in order, n layers in each
      array. Otherwise the list may lack layers and must not be used.
    """
    kinds = pattern.kinds(model, pattern.layer_count(weights))
    loop, outputs = pattern.loop_of(kinds), []
    unroll = devices.unroll_count(loop.times) if model.scan_layers else max(loop.times, 1)
    run_single = _checkpointed(layer, model, looped=False)
    run_looped = _checkpointed(layer, model, looped=unroll < loop.times)

    def run_period(
        stream: Stream, of_period: tuple[Params, jax.Array]
    ) -> tuple[Stream, list[jax.Array]]:
        by_layer = [of_period]
        if loop.period > 1:
            offsets = range(loop.period)
            by_layer = [jax.tree.map(lambda leaf, at=at: leaf[at], of_period) for at in offsets]
        outputs_of_kind = []
        for kind, (layer_params, index) in zip(kinds[loop.start :], by_layer, strict=False):
            stream = run_looped(kind, stream, layer_params, index)
            outputs_of_kind.append(stream.wide)
        return stream, outputs_of_kind if all_layers else []

    def run_one_by_one(stream: Stream, indices: range) -> Stream:
        for index in indices:
            layer_params = jax.tree.map(
                lambda leaf: leaf[0], pattern.select_layers(weights, index, index + 1)
            )
            stream = run_single(kinds[index], stream, layer_params, jnp.int32(index))
            outputs.append(stream.wide[None])
        return stream

    stream = run_one_by_one(stream, range(loop.start))
    if loop.times:
        periods = (
            pattern.select_layers(weights, loop.start, loop.end),
            jnp.arange(loop.start, loop.end),
        )
        # With a period of 1, the arrays get no axis for the period. An axis of size 1 would change
        # how XLA rounds, and so XLM-R's results.
        if loop.period > 1:
            shape = loop.times, loop.period
            periods = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), periods)
        stream, outputs_of_kind = jax.lax.scan(run_period, stream, periods, unroll=unroll)
        if all_layers:
            # One array [periods, rows, length, hidden] for each layer of a period.
            in_order = jnp.stack(outputs_of_kind, 1).reshape(-1, *stream.wide.shape)
            outputs.append(in_order if loop.period > 1 else outputs_of_kind[0])
    return run_one_by_one(stream, range(loop.end, len(kinds))), outputs


def _checkpointed(layer: Layer, model: Model, looped: bool) -> Layer:
    """Returns the layer, with recomputation in its backward pass according to `model.remat`.

    Args:
      looped: whether the layer runs in a loop. Outside loops, XLA could merge the recomputation
        with the forward pass, which `prevent_cse` forbids.
    """
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
    """Returns the parameters of the encoder's first `layers` layers; None means all layers.

    If the result omits layers, it omits the final norm too, unless the model has `middle_norm`. A
    result with 0 layers never has the final norm, which applies to outputs of layers only.
    """
    if layers is None or layers >= pattern.layer_count(params["layers"]):
        return params
    selected = dict(params)
    if not (model.middle_norm and layers):
        selected.pop("final_norm", None)
    return selected | {"layers": pattern.select_layers(params["layers"], 0, layers)}


def middle_layer(layers: int) -> int:
    """Returns the layer at two thirds of the depth, where vectors of translations are most similar.

    For 12 layers this is layer 8, the released default of XLM-Align and InfoXLM. The rule for other
    numbers of layers is ours. Layers count from 1; layer 0 is the output of the embeddings.
    """
    return max(1, round(2 * layers / 3))


def layer_or_middle(layer: int, layers: int) -> int:
    """Returns `layer`, or `middle_layer(layers)` if `layer` is -1.

    Args:
      layer: 1 to `layers`, 0 for the embeddings, or -1.
      layers: number of layers of the model.
    """
    return middle_layer(layers) if layer < 0 else layer
