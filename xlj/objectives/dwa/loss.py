"""Denoising word alignment (DWA) with translation language modelling, of XLM-Align.

The head is XLM-Align's pointer network, which points from a token to its translation.
"""

from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import sinkhorn
from xlj.config import Model
from xlj.contracts.arrays import Specified, check
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.dense import Dense
from xlj.models.dropout import Rngs
from xlj.models.lowering import precision_of
from xlj.models.modules import init_head, run
from xlj.models.segments import sides, whole_examples
from xlj.objectives.corruption import Masked, mask_tokens, max_predictions, split
from xlj.objectives.dwa.options import WordAlignment
from xlj.objectives.mlm import loss as mlm
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Rows
from xlj.sharding.trees import Params


class DWAInputs(NamedTuple):
    """Masked pairs, and the queries and labels of the pointer network."""

    masked: Masked
    query_rngs: jax.Array
    """A random key for each row [rows], for the random choice of queries."""
    positions: jax.Array
    """Index in the row of each query, int32 [rows, queries]. With `queries=aligned`, a token may be
    a query several times."""
    labels: jax.Array
    """Index in the row of the token to which each query should point, int32 [rows, queries]. It is
    -1 in slots without a query, and in all slots until `targets` computes labels."""

    def check(self, function: str, **more: Specified) -> None:
        """Checks the arrays, and more arguments, with `xlj.contracts.arrays.check`."""
        self.masked.check(
            function,
            query_rngs=("key [rows]", self.query_rngs),
            query_positions=("int32 [rows, queries]", self.positions),
            query_labels=("int32 [rows, queries]", self.labels),
            **more,
        )


def objective(
    name: str, options: WordAlignment, model: Model, corpus: Corpus
) -> Objective[DWAInputs, object]:
    """Builds the objective of XLM-Align (sections 3.1 and 3.2).

    In each step, the current parameters align the tokens of the unmasked pairs, without gradient. A
    pointer network learns to predict these alignments from the masked pairs. The pointer network
    and the TLM loss read vectors of the same forward pass.
    """
    tlm_loss, alignment_loss = f"{name}_tlm", f"{name}_align"
    label_layer = encoder.layer_or_middle(options.label_layer, model.layers)
    query_layer = model.layers if options.query_layer < 0 else options.query_layer

    def corrupt(rows: Rows, rngs: jax.Array) -> DWAInputs:
        mask_rngs, query_rngs = split(rngs)
        masked = mask_tokens(rows, mask_rngs, options, corpus.vocabulary_size)
        count = max_queries(options, masked.tokens.shape[1])
        zeros = jnp.zeros((len(masked.tokens), count), jnp.int32)
        return DWAInputs(masked, query_rngs, zeros, zeros - 1)

    def targets(
        params: Params, state: object, inputs: DWAInputs, by_microbatch: ByMicrobatch
    ) -> DWAInputs:
        if options.queries == "none":
            return inputs
        return by_microbatch(partial(self_label, params, model, options, label_layer), inputs)

    def loss(params: Params, state: object, inputs: DWAInputs, rngs: Rngs) -> Losses:
        masked = inputs.masked
        whole = whole_examples(model, masked.tokens, masked.languages)
        if query_layer == model.layers:
            last = of_queries = encoder.apply(params, model, whole, rngs)
        else:
            all_layers = encoder.apply(params, model, whole, rngs, all_layers=True)
            last, of_queries = all_layers[-1], all_layers[query_layer]
        head = params["prediction_head"]
        return {
            tlm_loss: mlm.prediction_loss(params, head, model, last, masked),
            alignment_loss: pointer_loss(params["pointer_head"], model, of_queries, inputs),
        }

    def count(inputs: DWAInputs) -> dict[str, jax.Array]:
        queries = (inputs.labels >= 0).sum(1).astype(jnp.float32)
        return {tlm_loss: inputs.masked.weights.sum(1), alignment_loss: queries}

    return Objective(
        losses={
            tlm_loss: Loss(options.weight, over_vocabulary=True),
            alignment_loss: Loss(options.alignment_weight),
        },
        corrupt=corrupt,
        count=count,
        loss=loss,
        parts=mlm.prediction_part(model, corpus)
        | {"pointer_head": partial(init_pointer, model=model)},
        targets=targets,
    )


def max_queries(options: WordAlignment, length: int) -> int:
    """Returns the largest number of queries in a row of `length` tokens."""
    return length if options.queries == "aligned" else max_predictions(length, options.mask_rate)


def self_label(
    params: Params, model: Model, options: WordAlignment, layer: int, inputs: DWAInputs
) -> DWAInputs:
    """Labels tokens by optimal transport between the vectors of both sentences (section 3.1).

    The similarity is the product of the vectors, without normalisation, as in the released code.

    Args:
      layer: the layer whose vectors are aligned; 0 is the output of the embeddings.
      inputs: the inputs with masked pairs. The function restores the unmasked pairs to align them.

    Returns:
      The inputs with queries and labels.
    """
    inputs.check("self_label")
    original = inputs.masked.original()
    whole = whole_examples(model, original, inputs.masked.languages)
    hidden = encoder.apply(params, model, whole, layers=layer)
    similarity = jnp.einsum("rih,rjh->rij", hidden, hidden, precision="highest")
    first, second = sides(original)  # [rows, length] each
    plan = sinkhorn(
        similarity,
        first,
        second,
        options.sinkhorn_iterations,
        options.sinkhorn_first == "columns",
        options.sinkhorn_mu,
    ).plan  # [rows, length, length], like links
    if options.filtering:
        arguments = options.filtering_alpha, options.filtering_iterations
        links = extraction.itermax(plan, first, second, *arguments)
    else:
        links = extraction.union(plan, first, second)
    if options.queries == "aligned":
        return _query_each_link(inputs, links)
    labels = jnp.where(first > 0, extraction.labels(links), extraction.labels(links.swapaxes(1, 2)))
    selected = inputs.masked.selected()
    is_query = labels >= 0  # [rows, length], like labels and selected
    if options.queries == "masked":
        is_query &= selected
    elif options.queries == "unmasked":
        is_query &= _some_of(~selected & ((first > 0) | (second > 0)), options, inputs.query_rngs)
    size = inputs.positions.shape[1]
    # False sorts before True, so the indices of queries come first, in order.
    positions = jnp.argsort(~is_query, axis=1, stable=True)[:, :size].astype(jnp.int32)
    at = partial(jnp.take_along_axis, indices=positions, axis=1)
    return inputs._replace(positions=positions, labels=jnp.where(at(is_query), at(labels), -1))


def _query_each_link(inputs: DWAInputs, links: jax.Array) -> DWAInputs:
    """Makes a query for each link (Table 7).

    A random choice makes one token of the link the query; the other token is its label. A token
    with several links may become several queries.

    A row has one slot per token. This is enough, since there are at most as many links as tokens.
    With filtering, `extraction.itermax` guarantees this. Without filtering, each token chooses one
    link.

    Args:
      links: bool [rows, length, length]; the first index is a token of the first sentence.
    """
    size = inputs.positions.shape[1]
    find = jax.vmap(partial(jnp.nonzero, size=size, fill_value=-1))
    sources, targets = (place.astype(jnp.int32) for place in find(links))
    coin = jax.vmap(lambda rng: jax.random.bernoulli(rng, shape=(size,)))(inputs.query_rngs)
    return inputs._replace(
        positions=jnp.maximum(jnp.where(coin, sources, targets), 0),
        labels=jnp.where(coin, targets, sources),
    )


def _some_of(candidates: jax.Array, options: WordAlignment, rngs: jax.Array) -> jax.Array:
    """Selects a random share `options.mask_rate` of each row's candidates.

    Args:
      candidates: bool [rows, length].
      rngs: a random key for each row, [rows].

    Returns:
      bool [rows, length].
    """
    length = candidates.shape[1]
    order = jax.vmap(lambda rng: jax.random.uniform(rng, (length,)))(rngs)
    # Other tokens get 2.0, above all random numbers, so candidates have the lowest ranks.
    rank = jnp.argsort(jnp.argsort(jnp.where(candidates, order, 2.0), axis=1), axis=1)
    count = options.mask_rate * candidates.sum(1, keepdims=True)
    return candidates & (rank < jnp.floor(count + 1e-4))  # 1e-4: against rounding errors


def pointer_loss(head: Params, model: Model, hidden: jax.Array, inputs: DWAInputs) -> LossSums:
    """Computes the cross-entropy of the labels among the tokens of the other sentence (Eq. 11 to
    15).

    Args:
      head: parameters of the pointer network.
      hidden: vectors of the masked pairs, float [rows, length, hidden].
      inputs: the result of `self_label`.
    """
    inputs.check("pointer_loss", hidden=("float [rows, length, hidden]", hidden))
    first, second = sides(inputs.masked.original())
    queries = mlm.gather(hidden, inputs.positions)  # [rows, queries, hidden]
    scores = point(head, model, queries, hidden)  # [rows, queries, length]
    first_example, second_example = (
        jnp.take_along_axis(ids, inputs.positions, axis=1)[:, :, None] for ids in (first, second)
    )  # [rows, queries, 1] each
    # A query in the first sentence points to the second sentence of its example, and vice versa.
    # `allowed` compares the example of each key with the example of the query. In an unused slot,
    # the token may be a special, which `sides` assigns to no example; -1 then allows no key.
    keys = jnp.where(first_example > 0, second[:, None], first[:, None])  # [rows, queries, length]
    allowed = keys == jnp.where(
        first_example > 0, first_example, jnp.where(second_example > 0, second_example, -1)
    )
    scores = jnp.where(allowed, scores, -1e30)
    labels = jnp.maximum(inputs.labels, 0)[:, :, None]
    label_scores = jnp.take_along_axis(scores, labels, axis=2)[:, :, 0]  # [rows, queries]
    is_query = inputs.labels >= 0
    losses = jnp.where(is_query, jax.nn.logsumexp(scores, axis=2) - label_scores, 0)
    correct = is_query & (scores.argmax(2) == inputs.labels)
    return LossSums(
        sum=losses.sum(1),
        count=is_query.sum(1).astype(jnp.float32),
        correct=correct.sum(1).astype(jnp.float32),
    )


class Pointer(nn.Module):
    """XLM-Align's pointer network (Equations 11 to 13).

    It is one attention head. The linear maps of queries and of keys have a bias.
    """

    model: Model

    @nn.compact
    def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """Computes scores, float32 [rows, q, k], before the softmax.

        Args:
          queries: vectors of the tokens that point, float [rows, q, hidden].
          keys: vectors of the tokens to point to, float [rows, k, hidden].
        """
        model, dtype = self.model, jnp.dtype(self.model.dtype)
        q = Dense(model.hidden, dtype, model.init_std, name="query")(queries).astype(dtype)
        k = Dense(model.hidden, dtype, model.init_std, name="key")(keys).astype(dtype)
        scores = jnp.einsum(
            "rqh,rkh->rqk", q, k, precision=precision_of(dtype), preferred_element_type=jnp.float32
        )
        return scores * model.hidden**-0.5


def init_pointer(rng: jax.Array, model: Model) -> Params:
    """Returns new parameters of a `Pointer` head."""
    vectors = jnp.zeros((1, 1, model.hidden))
    return init_head("init_pointer", Pointer(model), rng, vectors, vectors)


def point(params: Params, model: Model, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Computes the scores of a `Pointer` head, float32 [rows, q, k].

    Args:
      queries: vectors of the tokens that point, float [rows, q, hidden].
      keys: vectors of the tokens to point to, float [rows, k, hidden].
    """
    check(
        "point",
        queries=(f"float [rows, q, {model.hidden}]", queries),
        keys=(f"float [rows, k, {model.hidden}]", keys),
    )
    return run(Pointer(model), params, queries, keys)
