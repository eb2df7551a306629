"""Cross-lingual contrastive learning (XLCO) of InfoXLM, with a momentum encoder and a queue."""

from functools import partial
from typing import NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from xlj.config import Model, max_pairs
from xlj.contracts.arrays import check
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import PAD
from xlj.models import encoder
from xlj.models.dropout import Rngs
from xlj.models.segments import count_examples, find_starts, is_example, split_sides, whole_examples
from xlj.objectives.contrast.head import init_projection, pool, project
from xlj.objectives.contrast.ranking import NEVER, negative_log_softmax
from xlj.objectives.corruption import mask_tokens, split
from xlj.objectives.objective import (
    ByMicrobatch,
    Loss,
    Losses,
    LossSums,
    Objective,
    Rows,
    check_rows,
)
from xlj.objectives.xlco.options import CrossLingualContrast
from xlj.sharding.trees import Params


class Queue(TypedDict):
    """The state of the objective."""

    momentum: Params
    """Moving average of the parameters that the vectors depend on: the momentum encoder."""
    queue: jax.Array
    """The latest keys, float32 [queue, hidden]. A key is the vector of an example from an earlier
    step, computed by the momentum encoder."""
    next: jax.Array
    """Index in the queue at which the next key is stored, int32 []."""
    filled: jax.Array
    """Number of keys in the queue, int32 []."""


class XLCOInputs(NamedTuple):
    """One side of each pair for the encoder, the other side for the momentum encoder."""

    queries: Rows
    keys: Rows
    vectors: jax.Array
    """Vectors of the examples of `keys`, from the momentum encoder, float32 [rows, pairs, hidden].
    They are zeros until `targets` computes them."""


def objective(
    name: str, options: CrossLingualContrast, model: Model, corpus: Corpus
) -> Objective[XLCOInputs, Queue]:
    """Builds XLCO (InfoXLM section 3.3, after MoCo).

    The loss is -log softmax of the translation's similarity among the similarities of the
    translation and of all keys in the queue. The vector of an example is the projection of its
    first token's vector at `options.layer`; -1 means `encoder.middle_layer`. The state is a
    `Queue`.
    """
    layer = encoder.layer_or_middle(options.layer, model.layers)

    def vectors(params: Params, rows: Rows, max_examples: int, rngs: Rngs) -> jax.Array:
        inputs = whole_examples(model, rows["tokens"], rows["languages"])
        hidden = encoder.apply(params, model, inputs, rngs, layers=layer)
        first = pool(hidden, rows["tokens"], max_examples, "first")
        return project(params["contrast_head"], model, first)

    def targets(
        params: Params, state: Queue, inputs: XLCOInputs, by_microbatch: ByMicrobatch
    ) -> XLCOInputs:
        momentum, max_examples = state["momentum"], inputs.vectors.shape[1]
        of_keys = by_microbatch(
            lambda keys: vectors(momentum, keys, max_examples, None), inputs.keys
        )
        return inputs._replace(vectors=of_keys)

    def loss(params: Params, state: Queue, inputs: XLCOInputs, rngs: Rngs) -> Losses:
        max_examples = inputs.vectors.shape[1]
        queries = vectors(params, inputs.queries, max_examples, rngs)
        real = is_example(inputs.queries["tokens"], max_examples)
        return {name: contrast(queries, inputs.vectors, state, options.temperature, real)}

    def init_state(params: Params) -> Queue:
        return {
            "momentum": _vector_params(params, model, layer),
            "queue": jnp.zeros((options.queue, model.hidden)),
            "next": jnp.zeros((), jnp.int32),
            "filled": jnp.zeros((), jnp.int32),
        }

    return Objective(
        losses={name: Loss(options.weight)},
        corrupt=partial(corrupt, options=options, model=model, corpus=corpus),
        count=lambda inputs: {name: count_examples(inputs.queries["tokens"]).astype(jnp.float32)},
        loss=loss,
        parts={"contrast_head": partial(init_projection, model=model)},
        rules=(
            (r"queue", PartitionSpec(("replica", "fsdp"))),
            (r"next|filled", PartitionSpec()),
        ),
        targets=targets,
        init_state=init_state,
        update=partial(_update, options, model, layer),
    )


def _update(
    options: CrossLingualContrast,
    model: Model,
    layer: int,
    state: Queue,
    params: Params,
    inputs: XLCOInputs,
) -> Queue:
    """Adds the keys of a step to the queue, and moves the moving average towards the parameters."""

    def average(old: jax.Array, new: jax.Array) -> jax.Array:
        return options.momentum * old + (1 - options.momentum) * new

    size, max_examples = len(state["queue"]), inputs.vectors.shape[1]
    real = is_example(inputs.keys["tokens"], max_examples).reshape(-1)
    before = jnp.cumsum(real) - real
    # Slots without an example get the index `size`, outside the queue, which mode="drop" ignores.
    slots = jnp.where(real, (state["next"] + before) % size, size)
    keys = inputs.vectors.reshape(-1, model.hidden)
    return {
        "momentum": jax.tree.map(average, state["momentum"], _vector_params(params, model, layer)),
        "queue": state["queue"].at[slots].set(keys, mode="drop"),
        "next": (state["next"] + real.sum()) % size,
        "filled": jnp.minimum(state["filled"] + real.sum(), size),
    }


def _vector_params(params: Params, model: Model, layer: int) -> Params:
    """Returns the parameters on which the vectors of a layer depend."""
    names = (*encoder.PARTS, "contrast_head")
    needed = {name: part for name, part in params.items() if name in names}
    return encoder.first_layers(needed, model, layer)


def corrupt(
    rows: Rows, rngs: jax.Array, *, options: CrossLingualContrast, model: Model, corpus: Corpus
) -> XLCOInputs:
    """Joins pairs (if `options.mixup`), masks both sides, and draws which side is the query.

    Args:
      rows: of the kind `bitext`.
      rngs: a random key for each row, [rows].
    """
    check("xlco.corrupt", rngs=("key [rows]", rngs))
    max_examples = max_pairs(2 * rows["first"].shape[1])
    first_rngs, second_rngs, order_rngs, swap_rngs = split(rngs, 4)
    first, second = split_sides(rows)
    if options.mixup:
        first, second = mix(first, second, max_examples, order_rngs)
    masked = [
        mask_tokens(side, side_rngs, options, corpus.vocabulary_size)
        for side, side_rngs in ((first, first_rngs), (second, second_rngs))
    ]
    one, other = ({"tokens": side.tokens, "languages": side.languages} for side in masked)
    queries, keys = _swap_randomly(swap_rngs, one, other)
    return XLCOInputs(queries, keys, jnp.zeros((len(one["tokens"]), max_examples, model.hidden)))


def _swap_randomly(
    rngs: jax.Array, first: Rows, second: Rows, allowed: jax.Array | bool = True
) -> tuple[Rows, Rows]:
    """Swaps the two sides of each row with probability 1/2.

    Args:
      rngs: a random key for each row, [rows].
      allowed: which rows may be swapped, bool [rows], or True for all rows.
    """
    swap = (jax.vmap(jax.random.bernoulli)(rngs) & allowed)[:, None]

    def where(one: Rows, other: Rows) -> Rows:
        return jax.tree.map(lambda a, b: jnp.where(swap, a, b), one, other)

    return where(second, first), where(first, second)


def mix(first: Rows, second: Rows, max_examples: int, rngs: jax.Array) -> tuple[Rows, Rows]:
    """Joins each pair with another pair of the batch (mixup, InfoXLM section 3.3).

    Two pairs (A, B) and (C, D) become the pair (A C, B D). The order within each side is random,
    and drawn for each side separately.

    Each row has a partner row: the next row in a random cycle through the batch. The cycle visits
    rows in the order of their numbers of pairs, so partners mostly have equally many pairs. Pair n
    of a row is joined with pair n of its partner. So no pair is joined with itself if at least two
    rows have pairs, and partners change from step to step. A pair without a counterpart in the
    partner row stays alone. A row of padding is its own partner.

    Args:
      first, second: both sides, tokens int [rows, length].
      max_examples: largest number of pairs in a row.
      rngs: a random key for each row, [rows].
    """
    check_rows(
        "mix",
        first,
        rngs=("key [rows]", rngs),
        second_tokens=("int [rows, length]", second["tokens"]),
        second_languages=("int [rows, 2]", second["languages"]),
    )
    partner_rngs, *side_rngs = split(rngs, 3)
    drawn = jax.vmap(lambda rng: jax.random.bits(rng, (), jnp.uint32))(partner_rngs) >> 1
    pairs = count_examples(first["tokens"])  # [rows], the shape of all arrays below
    order = jnp.lexsort((drawn, -pairs))  # by number of pairs, then randomly; padding is last
    rank, real = jnp.arange(len(order)), (pairs > 0).sum()
    following = order[jnp.where(rank + 1 < real, rank + 1, 0)]
    partner = jnp.zeros_like(order).at[order].set(jnp.where(rank < real, following, order))
    # If the partner has fewer pairs, some pairs stay alone. `join` leaves out the second sentence
    # only, so the pairs of the row must then be first.
    fewer = pairs[partner] < pairs

    def mix_side(side: Rows, side_rng_keys: jax.Array) -> Rows:
        other = jax.tree.map(lambda leaf: leaf[partner], side)
        one, two = _swap_randomly(side_rng_keys, side, other, ~fewer)
        languages = jnp.stack([one["languages"][:, 0], two["languages"][:, 0]], axis=1)
        tokens = join(one["tokens"], two["tokens"], pairs, max_examples)
        return {"tokens": tokens, "languages": languages}

    return mix_side(first, side_rngs[0]), mix_side(second, side_rngs[1])


def join(first: jax.Array, second: jax.Array, pairs: jax.Array, max_examples: int) -> jax.Array:
    """Joins examples `<s> A </s>` and `<s> B </s>` of two rows into `<s> A </s> B </s>`.

    Example k of a row of `first` is joined with example k of the same row of `second`. If the row
    of `second` has no example k, the result is `<s> A </s>`.

    Args:
      first, second: rows with padding at their ends, int [rows, n].
      pairs: number of examples in each joined row, int32 [rows].
      max_examples: largest number of examples in a row.

    Returns:
      Joined examples without gaps, followed by padding, [rows, 2 n].
    """
    check(
        "join",
        first=("int [rows, length]", first),
        second=("int [rows, length]", second),
        pairs=("int32 [rows]", pairs),
    )
    # `is_joined`, and all begins, sizes and ends, are [rows, max_examples].
    is_joined = jnp.arange(max_examples) < pairs[:, None]
    (first_begins, first_sizes), (second_begins, second_sizes) = (
        _bounds(side, max_examples) for side in (first, second)
    )
    # The second sentence loses its `<s>`, so it has one token less.
    first_sizes, second_sizes = (
        jnp.where(is_joined, size, 0) for size in (first_sizes, jnp.maximum(second_sizes - 1, 0))
    )
    ends = jnp.cumsum(first_sizes + second_sizes, axis=1)
    place = jnp.arange(2 * first.shape[1])  # [2 n]
    number = (place[:, None] >= ends[:, None]).sum(2)  # the example of each index, [rows, 2 n]

    def at(values: jax.Array) -> jax.Array:
        return jnp.take_along_axis(values, jnp.minimum(number, max_examples - 1), axis=1)

    # Index in the joined example, and in its second sentence without `<s>`, [rows, 2 n].
    within = place - at(ends - first_sizes - second_sizes)
    rest = within - at(first_sizes)
    last = first.shape[1] - 1
    from_first, from_second = (
        jnp.take_along_axis(tokens, jnp.clip(where, 0, last), axis=1)
        for tokens, where in (
            (first, at(first_begins) + within),
            (second, at(second_begins) + 1 + rest),
        )
    )
    return jnp.where(number < max_examples, jnp.where(rest < 0, from_first, from_second), PAD)


def _bounds(tokens: jax.Array, max_examples: int) -> tuple[jax.Array, jax.Array]:
    """Returns the starts and lengths of the examples, int32 [rows, max_examples] each.

    Args:
      tokens: rows with padding at their ends, int [rows, n].
      max_examples: largest number of examples in a row. Slots without an example have length 0.
    """
    size = (tokens != PAD).sum(1, keepdims=True)
    begin = jnp.minimum(find_starts(tokens, max_examples, tokens.shape[1]), size)
    return begin, jnp.diff(begin, axis=1, append=size)


def contrast(
    queries: jax.Array, keys: jax.Array, state: Queue, temperature: float, real: jax.Array
) -> LossSums:
    """Computes -log softmax of each query's key among this key and the queue, summed by row.

    Args:
      queries, keys: vectors, float32 [rows, pairs, hidden].
      state: the first `filled` keys of its queue are used.
      temperature: divisor of the similarities.
      real: which slots have a pair, bool [rows, pairs].
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
    key_scores = (queries * keys).sum(2) / temperature  # [rows, pairs]
    queue_scores = jnp.einsum("rph,qh->rpq", queries, queue, precision="highest") / temperature
    queue_scores = jnp.where(jnp.arange(len(queue)) < state["filled"], queue_scores, NEVER)
    losses = negative_log_softmax(key_scores, queue_scores)
    correct = key_scores >= queue_scores.max(2)
    return LossSums.weighted(losses, correct, real.astype(jnp.float32))
