"""Cross-lingual contrast (XLCO) with a momentum encoder and a queue, of InfoXLM."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from xlj.config import Model
from xlj.config.objectives.xlco import Contrast
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder, heads
from xlj.models.dropout import Rngs
from xlj.objectives.bitext import halves
from xlj.objectives.corruption import mask_tokens, split
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import whole_examples


class Contrasted(NamedTuple):
    """One side of each pair for the encoder, the other for the momentum encoder."""

    queries: Rows
    keys: Rows
    vectors: jax.Array
    """Of `keys` by the momentum encoder, float32 [rows, hidden]; zeros until `targets`."""


def objective(name: str, options: Contrast, model: Model, corpus: Corpus) -> Objective:
    """XLCO (InfoXLM section 3.3, after MoCo): -log softmax of the translation among the queue.

    The vector of a sequence is the projection of its first token's at the configured layer. State:
    `momentum`, a moving average of the parameters that the vectors need; `queue` [queue, hidden];
    `next`, where the queue is written next; `filled`, how much of it was written.
    """
    layer = options.layer or encoder.middle_layer(model.layers)

    def vectors(params: Params, rows: Rows, rngs: Rngs) -> jax.Array:
        inputs = whole_examples(model, rows.tokens, rows.languages)
        hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
        return heads.project(params["contrast_head"], model, hidden[:, 0])

    def targets(
        params: Params, state: Any, inputs: Contrasted, by_microbatch: ByMicrobatch
    ) -> Contrasted:
        of_keys = by_microbatch(lambda keys: vectors(state["momentum"], keys, None), inputs.keys)
        return inputs._replace(vectors=of_keys)

    def loss(params: Params, state: Any, inputs: Contrasted, rngs: Rngs) -> Losses:
        queries = vectors(params, inputs.queries, rngs)
        return {name: contrast(queries, inputs.vectors, state, options.temperature, inputs.queries)}

    def init_state(params: Params) -> dict[str, Any]:
        return {
            "momentum": _contrasting(params, layer),
            "queue": jnp.zeros((options.queue, model.hidden)),
            "next": jnp.zeros((), jnp.int32),
            "filled": jnp.zeros((), jnp.int32),
        }

    def update(state: Any, params: Params, inputs: Contrasted) -> dict[str, Any]:
        def average(old: jax.Array, new: jax.Array) -> jax.Array:
            return options.momentum * old + (1 - options.momentum) * new

        count, size = len(inputs.vectors), len(state["queue"])
        places = (state["next"] + jnp.arange(count)) % size
        return {
            "momentum": jax.tree.map(average, state["momentum"], _contrasting(params, layer)),
            "queue": state["queue"].at[places].set(inputs.vectors),
            "next": (state["next"] + count) % size,
            "filled": jnp.minimum(state["filled"] + count, size),
        }

    def flops(rows: int, length: int) -> Operations:
        side = of_layers(model, layer, rows, length if options.mixup else length // 2)
        queue = Operations(other=2.0 * rows * options.queue * model.hidden)
        return (TRAINED + 1) * side + TRAINED * queue

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=partial(corrupt, options=options, model=model, corpus=corpus),
        count=lambda inputs: {name: _real(inputs.queries)},
        loss=loss,
        flops=flops,
        parts={"contrast_head": partial(heads.init_projection, model=model)},
        rules=(
            (r"queue", PartitionSpec(("replica", "fsdp"))),
            (r"next|filled", PartitionSpec()),
        ),
        targets=targets,
        init_state=init_state,
        update=update,
    )


def _contrasting(params: Params, layer: int) -> Params:
    """The parameters that vectors of this layer depend on."""
    needed = (*encoder.PARTS, "contrast_head")
    return encoder.first_layers({n: part for n, part in params.items() if n in needed}, layer)


def _real(rows: Rows) -> jax.Array:
    """1 for rows that hold text, 0 for rows of padding, float32 [rows]."""
    return (rows.tokens[:, 0] != PAD).astype(jnp.float32)


def corrupt(
    rows: Rows, rngs: jax.Array, *, options: Contrast, model: Model, corpus: Corpus
) -> Contrasted:
    """Joins pairs, masks both sides, and draws which side is the query, anew in every step."""
    first_rngs, second_rngs, order_rngs, swap_rngs = split(rngs, 4)
    first, second = halves(rows)
    if options.mixup:
        first, second = mix(first, second, order_rngs)
    masked = [
        mask_tokens(side, side_rngs, options, corpus.vocabulary_size)
        for side, side_rngs in ((first, first_rngs), (second, second_rngs))
    ]
    one, other = (Rows(side.tokens, side.languages) for side in masked)
    queries, keys = _swapped(swap_rngs, one, other)
    return Contrasted(queries, keys, jnp.zeros((len(one.tokens), model.hidden)))


def _swapped(rngs: jax.Array, first: Rows, second: Rows) -> tuple[Rows, Rows]:
    """The two, each row in an order drawn by its random key."""
    swap = jax.vmap(jax.random.bernoulli)(rngs)[:, None]

    def where(one: Rows, other: Rows) -> Rows:
        return jax.tree.map(lambda a, b: jnp.where(swap, a, b), one, other)

    return where(second, first), where(first, second)


def mix(first: Rows, second: Rows, rngs: jax.Array) -> tuple[Rows, Rows]:
    """Mixup contrast (InfoXLM section 3.3): both sides of a pair joined with those of another, in
    an order of its own on each side.

    Partners form one random cycle through the batch, drawn from the rows' rngs: no pair is its own
    partner, and none has the same partner in every step. Rows of padding are their own.
    """
    partner_rngs, *side_rngs = split(rngs, 3)
    drawn = jax.vmap(lambda rng: jax.random.bits(rng, (), jnp.uint32))(partner_rngs) >> 1
    is_pair = _real(first) > 0
    order = jnp.argsort(jnp.where(is_pair, drawn, jnp.uint32(0xFFFFFFFF)))  # pairs come first
    rank, count = jnp.arange(len(order)), is_pair.sum()
    following = order[jnp.where(rank + 1 < count, rank + 1, 0)]
    partner = jnp.zeros_like(order).at[order].set(jnp.where(rank < count, following, order))

    def mixed(side: Rows, own_rngs: jax.Array) -> Rows:
        one, two = _swapped(own_rngs, side, jax.tree.map(lambda leaf: leaf[partner], side))
        languages = jnp.stack([one.languages[:, 0], two.languages[:, 0]], axis=1)
        return Rows(join(one.tokens, two.tokens), languages)

    return mixed(first, side_rngs[0]), mixed(second, side_rngs[1])


def join(first: jax.Array, second: jax.Array) -> jax.Array:
    """`<s> A </s>` and `<s> B </s>`, padded [rows, n] each, as `<s> A </s> B </s>` [rows, 2 n]."""
    size = first.shape[1]
    length = (first != PAD).sum(1, keepdims=True)
    indices = jnp.arange(2 * size)[None]
    from_second = jnp.clip(indices - length + 1, 0, size - 1)  # past the second `<s>`
    taken = jnp.take_along_axis(second, jnp.broadcast_to(from_second, (len(first), 2 * size)), 1)
    taken = jnp.where(indices - length + 1 < size, taken, PAD)
    own = jnp.pad(first, ((0, 0), (0, size)), constant_values=PAD)
    return jnp.where(indices < length, own, taken)


def contrast(
    queries: jax.Array, keys: jax.Array, state: Any, temperature: float, rows: Rows
) -> LossSums:
    """-log softmax of each query's own key among it and the queue, by row.

    Args:
      queries, keys: float32 [rows, hidden].
      state: its queue is read as far as it is filled.
    """
    queue = state["queue"]
    own = (queries * keys).sum(1) / temperature
    others = jnp.einsum("rh,qh->rq", queries, queue, precision="highest") / temperature
    others = jnp.where(jnp.arange(len(queue)) < state["filled"], others, -jnp.inf)
    largest = jnp.maximum(own, others.max(1))
    total = jnp.exp(own - largest) + jnp.exp(others - largest[:, None]).sum(1)
    real = _real(rows)
    return LossSums(
        sum=real * (largest + jnp.log(total) - own),
        count=real,
        correct=real * (own >= others.max(1)),
    )
