"""Cross-lingual contrast (XLCO) with a momentum encoder and a queue, of InfoXLM."""

from functools import partial
from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from xlj.config import Model, max_pairs
from xlj.config.objectives.xlco import Contrast
from xlj.contracts.arrays import check
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder, heads
from xlj.models.dropout import Rngs
from xlj.objectives.bitext import count, halves, is_there, starts
from xlj.objectives.corruption import mask_tokens, split
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import whole_examples


class Queue(TypedDict):
    """What the objective keeps from step to step."""

    momentum: Params
    """A moving average of the parameters that the vectors need."""
    queue: jax.Array
    """Vectors of the latest keys, float32 [queue, hidden]."""
    next: jax.Array
    """Where the queue is written next, int32."""
    filled: jax.Array
    """How much of it was written, int32."""


class Contrasted(NamedTuple):
    """One side of each pair for the encoder, the other for the momentum encoder."""

    queries: Rows
    keys: Rows
    vectors: jax.Array
    """Of the examples of `keys` by the momentum encoder, float32 [rows, pairs, hidden]; zeros until
    `targets`."""


def objective(
    name: str, options: Contrast, model: Model, corpus: Corpus
) -> Objective[Contrasted, Queue]:
    """XLCO (InfoXLM section 3.3, after MoCo): -log softmax of the translation among the queue.

    The vector of a sequence is the projection of its first token's at the configured layer. State:
    a `Queue`.
    """
    layer = encoder.layer_or_middle(options.layer, model.layers)

    def vectors(params: Params, rows: Rows, most: int, rngs: Rngs) -> jax.Array:
        inputs = whole_examples(model, rows.tokens, rows.languages)
        hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
        first = jnp.take_along_axis(hidden, starts(rows.tokens, most)[..., None], axis=1)
        return heads.project(params["contrast_head"], model, first)

    def targets(
        params: Params, state: Queue, inputs: Contrasted, by_microbatch: ByMicrobatch
    ) -> Contrasted:
        momentum, most = state["momentum"], inputs.vectors.shape[1]
        of_keys = by_microbatch(lambda keys: vectors(momentum, keys, most, None), inputs.keys)
        return inputs._replace(vectors=of_keys)

    def loss(params: Params, state: Queue, inputs: Contrasted, rngs: Rngs) -> Losses:
        most = inputs.vectors.shape[1]
        queries = vectors(params, inputs.queries, most, rngs)
        real = is_there(inputs.queries.tokens, most)
        return {name: contrast(queries, inputs.vectors, state, options.temperature, real)}

    def init_state(params: Params) -> Queue:
        return {
            "momentum": _contrasting(params, model, layer),
            "queue": jnp.zeros((options.queue, model.hidden)),
            "next": jnp.zeros((), jnp.int32),
            "filled": jnp.zeros((), jnp.int32),
        }

    def flops(rows: int, length: int) -> Operations:
        side = of_layers(model, layer, rows, length if options.mixup else length // 2)
        queries = rows * max_pairs(length)
        queue = Operations(other=2.0 * queries * options.queue * model.hidden)
        return (TRAINED + 1) * side + TRAINED * queue

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=partial(corrupt, options=options, model=model, corpus=corpus),
        count=lambda inputs: {name: count(inputs.queries.tokens).astype(jnp.float32)},
        loss=loss,
        flops=flops,
        parts={"contrast_head": partial(heads.init_projection, model=model)},
        rules=(
            (r"queue", PartitionSpec(("replica", "fsdp"))),
            (r"next|filled", PartitionSpec()),
        ),
        targets=targets,
        init_state=init_state,
        update=partial(_update, options, model, layer),
    )


def _update(
    options: Contrast, model: Model, layer: int, state: Queue, params: Params, inputs: Contrasted
) -> Queue:
    """The queue with the keys of a step, and the average moved towards the parameters."""

    def average(old: jax.Array, new: jax.Array) -> jax.Array:
        return options.momentum * old + (1 - options.momentum) * new

    size, most = len(state["queue"]), inputs.vectors.shape[1]
    real = is_there(inputs.keys.tokens, most).reshape(-1)
    before = jnp.cumsum(real) - real
    places = jnp.where(real, (state["next"] + before) % size, size)  # the last is nowhere
    keys = inputs.vectors.reshape(-1, model.hidden)
    return {
        "momentum": jax.tree.map(average, state["momentum"], _contrasting(params, model, layer)),
        "queue": state["queue"].at[places].set(keys, mode="drop"),
        "next": (state["next"] + real.sum()) % size,
        "filled": jnp.minimum(state["filled"] + real.sum(), size),
    }


def _contrasting(params: Params, model: Model, layer: int) -> Params:
    """The parameters that vectors of this layer depend on."""
    needed = (*encoder.PARTS, "contrast_head")
    kept = {name: part for name, part in params.items() if name in needed}
    return encoder.first_layers(kept, model, layer)


def corrupt(
    rows: Rows, rngs: jax.Array, *, options: Contrast, model: Model, corpus: Corpus
) -> Contrasted:
    """Joins pairs, masks both sides, and draws which side is the query, anew in every step."""
    rows.check("xlco.corrupt", rngs=("key [rows]", rngs))
    most = max_pairs(rows.tokens.shape[1])
    first_rngs, second_rngs, order_rngs, swap_rngs = split(rngs, 4)
    first, second = halves(rows)
    if options.mixup:
        first, second = mix(first, second, most, order_rngs)
    masked = [
        mask_tokens(side, side_rngs, options, corpus.vocabulary_size)
        for side, side_rngs in ((first, first_rngs), (second, second_rngs))
    ]
    one, other = (Rows(side.tokens, side.languages) for side in masked)
    queries, keys = _swapped(swap_rngs, one, other)
    return Contrasted(queries, keys, jnp.zeros((len(one.tokens), most, model.hidden)))


def _swapped(
    rngs: jax.Array, first: Rows, second: Rows, may: jax.Array | bool = True
) -> tuple[Rows, Rows]:
    """The two, each row in an order drawn by its random key; as it is where it may not, bool
    [rows]."""
    swap = (jax.vmap(jax.random.bernoulli)(rngs) & may)[:, None]

    def where(one: Rows, other: Rows) -> Rows:
        return jax.tree.map(lambda a, b: jnp.where(swap, a, b), one, other)

    return where(second, first), where(first, second)


def mix(first: Rows, second: Rows, most: int, rngs: jax.Array) -> tuple[Rows, Rows]:
    """Mixup contrast (InfoXLM section 3.3): both sides of a pair joined with those of another, in
    an order of its own on each side.

    Rows that have as many pairs, mostly, form one random cycle through the batch, drawn from their
    rngs, and each joins its pairs with those at the same places of the next one: no pair is its own
    partner, and none has the same partner in every step. Pairs that the next row has no place for
    stay alone. Rows of padding are their own.
    """
    of_second = ("int [rows, length]", second.tokens), ("int [rows, 2]", second.languages)
    first.check("mix", rngs=("key [rows]", rngs), second=of_second[0], others=of_second[1])
    partner_rngs, *side_rngs = split(rngs, 3)
    drawn = jax.vmap(lambda rng: jax.random.bits(rng, (), jnp.uint32))(partner_rngs) >> 1
    pairs = count(first.tokens)
    order = jnp.lexsort((drawn, -pairs))  # padding comes last
    rank, real = jnp.arange(len(order)), (pairs > 0).sum()
    following = order[jnp.where(rank + 1 < real, rank + 1, 0)]
    partner = jnp.zeros_like(order).at[order].set(jnp.where(rank < real, following, order))
    fewer = pairs[partner] < pairs  # one that stays alone is its row's own, so that comes first

    def mixed(side: Rows, own_rngs: jax.Array) -> Rows:
        other = jax.tree.map(lambda leaf: leaf[partner], side)
        one, two = _swapped(own_rngs, side, other, ~fewer)
        languages = jnp.stack([one.languages[:, 0], two.languages[:, 0]], axis=1)
        return Rows(join(one.tokens, two.tokens, pairs, most), languages)

    return mixed(first, side_rngs[0]), mixed(second, side_rngs[1])


def join(first: jax.Array, second: jax.Array, pairs: jax.Array, most: int) -> jax.Array:
    """The examples `<s> A </s>` and `<s> B </s>` at the same places of padded rows [rows, n] as
    `<s> A </s> B </s>`, one after another, [rows, 2 n].

    Args:
      pairs: how many examples to make of each row, int32 [rows]. One without a second sentence is
        `<s> A </s>`.
      most: of them in a row.
    """
    check(
        "join",
        first=("int [rows, length]", first),
        second=("int [rows, length]", second),
        pairs=("int32 [rows]", pairs),
    )
    made = jnp.arange(most) < pairs[:, None]
    (begin, own), (begin_second, others) = (_bounds(side, most) for side in (first, second))
    own, others = (jnp.where(made, size, 0) for size in (own, jnp.maximum(others - 1, 0)))
    ends = jnp.cumsum(own + others, axis=1)
    place = jnp.arange(2 * first.shape[1])
    number = (place[:, None] >= ends[:, None]).sum(2)  # of the example of each place

    def at(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, jnp.minimum(number, most - 1), axis=1)

    within = place - at(ends - own - others)
    rest = within - at(own)  # from the first token after the second `<s>`
    last = first.shape[1] - 1
    from_first, from_second = (
        jnp.take_along_axis(tokens, jnp.clip(where, 0, last), axis=1)
        for tokens, where in ((first, at(begin) + within), (second, at(begin_second) + 1 + rest))
    )
    return jnp.where(number < most, jnp.where(rest < 0, from_first, from_second), PAD)


def _bounds(tokens: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """Where examples begin in rows [rows, n], and their tokens, int32 [rows, most] each."""
    size = (tokens != PAD).sum(1, keepdims=True)
    begin = jnp.minimum(starts(tokens, most, tokens.shape[1]), size)
    return begin, jnp.diff(begin, axis=1, append=size)


def contrast(
    queries: jax.Array, keys: jax.Array, state: Queue, temperature: float, real: jax.Array
) -> LossSums:
    """-log softmax of each query's own key among it and the queue, summed by row.

    Args:
      queries, keys: float32 [rows, pairs, hidden].
      state: its queue is read as far as it is filled.
      real: which of the pairs are there, bool [rows, pairs].
    """
    check(
        "contrast",
        queries=("float32 [rows, pairs, hidden]", queries),
        keys=("float32 [rows, pairs, hidden]", keys),
        queue=("float32 [queue, hidden]", state["queue"]),
        filled=("int32 []", state["filled"]),
        real=("bool [rows, pairs]", real),
    )
    queue = state["queue"]
    own = (queries * keys).sum(2) / temperature
    others = jnp.einsum("rph,qh->rpq", queries, queue, precision="highest") / temperature
    others = jnp.where(jnp.arange(len(queue)) < state["filled"], others, -jnp.inf)
    largest = jnp.maximum(own, others.max(2))
    total = jnp.exp(own - largest) + jnp.exp(others - largest[..., None]).sum(2)
    losses, correct = largest + jnp.log(total) - own, own >= others.max(2)
    return LossSums.weighted(losses, correct, real.astype(jnp.float32))
