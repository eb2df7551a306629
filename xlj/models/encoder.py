"""The XLM-R encoder: embeddings and post-LN transformer layers, without a last LayerNorm; or, as in
XLM-R XL, pre-LN layers with one. Heads: `heads`.

Facts: RoBERTa's and XLM-R's released weights and code (`docs/fidelity.md`). The parameters are one
nested dict; those of all layers are stacked on a leading axis, whether the layers are compiled as a
loop or one by one, so that a checkpoint does not depend on it.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import Specified, check
from xlj.models.attention import Attention, shared_bias
from xlj.models.dense import PRODUCT, Dense, LayerNorm, gelu
from xlj.models.dropout import Rngs, dropout
from xlj.models.lookup import look_up, look_up_small
from xlj.models.modules import Params, run
from xlj.models.position_bias import PositionBias
from xlj.models.residual import AddNorm, Stream, stream_of
from xlj.sharding import devices

Body = Callable[[Stream, tuple[Params, jax.Array]], tuple[Stream, jax.Array | None]]

PARTS = ("embeddings", "layers", "position_bias", "final_norm")
"""The parts of a model's parameters that are its encoder's; others belong to objectives."""

FIRST_POSITION = 2
"""Row of the position table that position 0 reads, as in XLM-R (rows 0 and 1 belong to padding)."""


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

    def check(self, function: str, **more: Specified) -> None:
        """Checks these, and more that a function is given, as `xlj.contracts.arrays.check`."""
        each = {name: ("int32 [rows, length]", array) for name, array in self._asdict().items()}
        check(function, **each, **more)


class Embeddings(nn.Module):
    """Word plus learned position embedding (if the model has one), and a token type's and a
    language's where configured; LayerNorm (post-LN), dropout. `languages` is how many there are."""

    model: Model
    vocabulary_size: int
    languages: int

    @nn.compact
    def __call__(self, inputs: Inputs, rngs: Rngs) -> jax.Array:
        """Inputs [rows, length] -> float32 [rows, length, hidden]."""
        model, normal = self.model, nn.initializers.normal(self.model.init_std)
        word = self.param("word", normal, (self.vocabulary_size, model.hidden))
        x = look_up(word, inputs.tokens)
        if model.absolute_positions:
            position = self.param("position", normal, (model.positions, model.hidden))
            positions = inputs.positions
            if model.pair_positions == "restart" and inputs.sides is not None:
                positions = restarted(positions, inputs.sides)
            x += look_up_small(position, positions + FIRST_POSITION)
        if model.token_types:
            token_type = self.param("token_type", normal, (model.token_types, model.hidden))
            types = inputs.sides if model.pair_token_types else None
            x += token_type[0] if types is None else look_up_small(token_type, types)
        if model.language_embeddings != "none":
            language = self.param("language", normal, (self.languages, model.hidden))
            if inputs.languages is not None:
                marked = (inputs.languages >= 0)[..., None]
                x += jnp.where(marked, look_up_small(language, inputs.languages), 0)
        if model.norm == "post":
            x = LayerNorm(model.layer_norm_epsilon, name="norm")(x)
        return dropout(x, rngs, 0, 0, model.dropout)


def restarted(positions: jax.Array, sides: jax.Array) -> jax.Array:
    """Positions that count from 0 again in the second sentence of a pair, as XLM's do (section
    3.3): int32 [rows, length] each, where they run on in each example."""
    check(
        "restarted",
        positions=("int32 [rows, length]", positions),
        sides=("int32 [rows, length]", sides),
    )
    place = jnp.broadcast_to(jnp.arange(sides.shape[1]), sides.shape)
    before = jnp.pad(sides, ((0, 0), (1, 0)))[:, :-1]
    begin = jax.lax.cummax(jnp.where((sides > 0) & (before == 0), place, 0), axis=1)
    return jnp.where(sides > 0, place - begin, positions)


class FeedForward(nn.Module):
    """Two linear layers with a GELU (exact) between them."""

    model: Model

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[rows, length, hidden] -> the same, of the model's dtype."""
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        linear = partial(Dense, dtype=dtype, init_std=model.init_std, result=dtype)
        x, bias = linear(model.intermediate, apart=True, name="inner")(x)
        return linear(model.hidden, activation=gelu, name="outer")(x, bias)


class Layer(nn.Module):
    """A transformer layer: attention, then feed-forward, each added; a LayerNorm after each sum
    (post-LN), or before each of the two (pre-LN)."""

    model: Model

    @nn.compact
    def __call__(
        self,
        x: Stream,
        query_segment_ids: jax.Array,
        key_segment_ids: jax.Array,
        rngs: Rngs,
        number: int | jax.Array,
        bias: jax.Array | None = None,
    ) -> Stream:
        """The hidden vectors before the layer -> behind it; `number` is the layer's, from 1, `rngs`
        as in `dropout`, `bias` as in `Attention`."""
        model = self.model
        attention = Attention(model, name="attention")
        feed_forward = FeedForward(model, name="feed_forward")

        def attended(x: jax.Array) -> jax.Array:
            return attention(x, query_segment_ids, key_segment_ids, rngs, number, bias)

        if model.norm == "pre":

            def added(x: jax.Array, update: jax.Array, site: int) -> jax.Array:
                return x + dropout(update, rngs, number, site, model.dropout)

            attention_norm = LayerNorm(model.layer_norm_epsilon, name="attention_norm")
            feed_forward_norm = LayerNorm(model.layer_norm_epsilon, name="feed_forward_norm")
            wide = added(x.wide, attended(attention_norm(x.wide)), 2)
            return Stream(added(wide, feed_forward(feed_forward_norm(wide)), 3), None)
        x = AddNorm(model, name="attention_norm")(x, attended(x.read), rngs, number, 2)
        update = feed_forward(x.read)
        return AddNorm(model, name="feed_forward_norm")(x, update, rngs, number, 3)


def init(rng: jax.Array, model: Model, vocabulary_size: int, languages: int) -> Params:
    """Parameters of an encoder, drawn as RoBERTa does: N(0, init_std)."""
    check("encoder.init", rng=("key []", rng))
    embedding_rng, layer_rng, bias_rng = jax.random.split(rng, 3)
    ids = jnp.zeros((1, 1), jnp.int32)
    x = jnp.zeros((1, 1, model.hidden))
    embeddings = Embeddings(model, vocabulary_size, languages)
    layer_rngs = jax.random.split(layer_rng, model.layers)
    drawn = dataclasses.replace(model, attention="dense")  # a kernel's parameters are the same
    layers = jax.vmap(lambda rng: Layer(drawn).init(rng, Stream(x, None), ids, ids, None, 1))(
        layer_rngs
    )
    params = {
        "embeddings": embeddings.init(embedding_rng, Inputs(ids, ids, ids, ids), None),
        "layers": layers,
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
    inputs.check("encoder.apply", rngs=("key [rows]", rngs))
    params = first_layers(params, layers)
    weights = params["layers"]
    count = jax.tree.leaves(weights)[0].shape[0]
    word, languages = params["embeddings"]["word"], params["embeddings"].get("language", ())
    embeddings = Embeddings(model, len(word), len(languages))
    x = run(embeddings, params["embeddings"], inputs, rngs)
    x = devices.constrained(x, "hidden")

    bias = None
    if model.position_bias != "none":
        bias = shared_bias(params["position_bias"], model, inputs.tokens.shape[1])

    def layer(
        x: Stream, weights_and_index: tuple[Params, jax.Array]
    ) -> tuple[Stream, jax.Array | None]:
        weights, index = weights_and_index
        ids = inputs.query_segment_ids, inputs.key_segment_ids
        y = run(Layer(model), weights, x, *ids, rngs, index + 1, bias)
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
