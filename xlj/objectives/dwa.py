"""XLM-Align: translation language modelling with denoising word alignment (DWA)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import sinkhorn
from xlj.config import Model
from xlj.config.objectives.dwa import WordAlignment
from xlj.contracts.arrays import Specified, check
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder, heads
from xlj.models.dropout import Rngs
from xlj.objectives import mlm
from xlj.objectives.corruption import Masked, mask_tokens, max_predictions, split
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import ByMicrobatch, Loss, Losses, LossSums, Objective, Params, Rows
from xlj.objectives.segments import segments, whole_examples


class Corrupted(NamedTuple):
    """Masked pairs, and which tokens point to which."""

    masked: Masked
    query_rngs: jax.Array
    """A random key of each row [rows], for the random choice of queries."""
    positions: jax.Array
    """Of queries, int32 [rows, queries]; with `queries=aligned` one may stand there twice."""
    labels: jax.Array
    """The position that each query should point to, int32 [rows, queries]; -1 where there is no
    query, and everywhere until `targets`."""

    def check(self, function: str, **more: Specified) -> None:
        """Checks these, and more that a function is given, as `xlj.contracts.arrays.check`."""
        self.masked.check(
            function,
            query_rngs=("key [rows]", self.query_rngs),
            queries=("int32 [rows, queries]", self.positions),
            targets=("int32 [rows, queries]", self.labels),
            **more,
        )


def objective(
    name: str, options: WordAlignment, model: Model, corpus: Corpus
) -> Objective[Corrupted, object]:
    """XLM-Align (sections 3.1 and 3.2): in each step the current parameters label the words of the
    unmasked pairs, with no gradient, and a pointer network has to find the labels from the masked
    pairs, in the forward pass of TLM.
    """
    tlm_loss, alignment_loss = f"{name}_tlm", f"{name}_align"
    label_layer = encoder.layer_or_middle(options.label_layer, model.layers)
    query_layer = model.layers if options.query_layer < 0 else options.query_layer

    def corrupt(rows: Rows, rngs: jax.Array) -> Corrupted:
        mask_rngs, query_rngs = split(rngs)
        masked = mask_tokens(rows, mask_rngs, options, corpus.vocabulary_size)
        count = max_queries(options, masked.tokens.shape[1])
        nothing = jnp.zeros((len(masked.tokens), count), jnp.int32)
        return Corrupted(masked, query_rngs, nothing, nothing - 1)

    def targets(
        params: Params, state: object, inputs: Corrupted, by_microbatch: ByMicrobatch
    ) -> Corrupted:
        if options.queries == "none":
            return inputs
        return by_microbatch(partial(self_label, params, model, options, label_layer), inputs)

    def loss(params: Params, state: object, inputs: Corrupted, rngs: Rngs) -> Losses:
        masked = inputs.masked
        read = whole_examples(model, masked.tokens, masked.languages)
        if query_layer == model.layers:
            last = of_queries = encoder.apply(params, model, read, rngs)
        else:
            every = encoder.apply(params, model, read, rngs, all_layers=True)
            last, of_queries = every[-1], every[query_layer]
        head = params["prediction_head"]
        return {
            tlm_loss: mlm.predicted(params, head, model, last, masked),
            alignment_loss: pointed(params["pointer_head"], model, of_queries, inputs),
        }

    def count(inputs: Corrupted) -> dict[str, jax.Array]:
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
        flops=partial(_flops, options, model, corpus, label_layer),
        parts=mlm.prediction_part(model, corpus)
        | {"pointer_head": partial(heads.init_pointer, model=model)},
        targets=targets,
    )


def _flops(
    options: WordAlignment, model: Model, corpus: Corpus, label_layer: int, rows: int, length: int
) -> Operations:
    """Operations of a step: the labels, the pointer network, and TLM."""
    labelling = of_layers(model, label_layer, rows, length)
    labelling += Operations(other=2.0 * rows * length * length * model.hidden)
    queries = max_queries(options, length)
    each = (length + queries) * model.hidden + length * queries
    pointing = Operations(other=2.0 * rows * model.hidden * each)
    rest = mlm.flops(rows, length, options=options, model=model, corpus=corpus)
    return labelling + TRAINED * pointing + rest


def max_queries(options: WordAlignment, length: int) -> int:
    """The most queries in a row of `length` tokens."""
    return length if options.queries == "aligned" else max_predictions(length, options.mask_rate)


def sides(tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The example of each token of the first and of the second sentence, int32 [rows, length] each;
    0 for specials and the other side."""
    check("sides", tokens=("int [rows, length]", tokens))
    layout = segments(tokens)
    word = (tokens != BOS) & (tokens != EOS) & (tokens != PAD)
    first, second = (jnp.where(word & (layout.side == i), layout.segment, 0) for i in (0, 1))
    return first, second


def self_label(
    params: Params, model: Model, options: WordAlignment, layer: int, inputs: Corrupted
) -> Corrupted:
    """Labels by optimal transport between the two sentences' vectors at `layer` (section 3.1).

    The similarity is the raw product of vectors, as released.
    """
    inputs.check("self_label")
    original = inputs.masked.original()
    read = whole_examples(model, original, inputs.masked.languages)
    hidden = encoder.apply(params, model, read, layers=layer)
    similarity = jnp.einsum("rih,rjh->rij", hidden, hidden, precision="highest")
    first, second = sides(original)
    plan = sinkhorn(
        similarity,
        first,
        second,
        options.sinkhorn_iterations,
        options.sinkhorn_first == "columns",
        options.sinkhorn_mu,
    ).plan
    if options.filtering:
        how = options.filtering_alpha, options.filtering_iterations
        links = extraction.itermax(plan, first, second, *how)
    else:
        links = extraction.union(plan, first, second)
    if options.queries == "aligned":
        return _one_a_link(inputs, links)
    labels = jnp.where(first > 0, extraction.labels(links), extraction.labels(links.swapaxes(1, 2)))
    selected = inputs.masked.selected()
    asked = labels >= 0
    if options.queries == "masked":
        asked &= selected
    elif options.queries == "unmasked":
        asked &= _some_of(~selected & ((first > 0) | (second > 0)), options, inputs.query_rngs)
    size = inputs.positions.shape[1]
    positions = jnp.argsort(~asked, axis=1, stable=True)[:, :size].astype(jnp.int32)
    at = partial(jnp.take_along_axis, indices=positions, axis=1)
    return inputs._replace(positions=positions, labels=jnp.where(at(asked), at(labels), -1))


def _one_a_link(inputs: Corrupted, links: jax.Array) -> Corrupted:
    """A query for each of the links [rows, length, length]: of one of its two tokens, by a coin,
    with the other for its label (Table 7).

    A token that is drawn for several links is asked for each. All of them have a slot: there are no
    more links than words, with filtering (`extraction.itermax`) and without, where each word
    chooses one.
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
    """A random share `mask_rate` of the candidates of each row, bool [rows, length]."""
    length = candidates.shape[1]
    order = jax.vmap(lambda rng: jax.random.uniform(rng, (length,)))(rngs)
    rank = jnp.argsort(jnp.argsort(jnp.where(candidates, order, 2.0), axis=1), axis=1)
    wanted = options.mask_rate * candidates.sum(1, keepdims=True)
    return candidates & (rank < jnp.floor(wanted + 1e-4))


def pointed(head: Params, model: Model, hidden: jax.Array, inputs: Corrupted) -> LossSums:
    """Cross-entropy of the labels among the words of the other sentence (Equations 11 to 15).

    Args:
      head: parameters of the pointer network.
      hidden: vectors of the masked pairs, float32 [rows, length, hidden].
    """
    inputs.check("pointed", hidden=("float [rows, length, hidden]", hidden))
    first, second = sides(inputs.masked.original())
    queries = mlm.gather(hidden, inputs.positions)
    scores = heads.point(head, model, queries, hidden)
    own, other = (
        jnp.take_along_axis(ids, inputs.positions, axis=1)[:, :, None] for ids in (first, second)
    )
    # A word of the first sentence points into the second, and the other way round.
    keys = jnp.where(own > 0, second[:, None], first[:, None])
    allowed = keys == jnp.where(own > 0, own, jnp.where(other > 0, other, -1))
    scores = jnp.where(allowed, scores, -1e30)
    labels = jnp.maximum(inputs.labels, 0)[:, :, None]
    right = jnp.take_along_axis(scores, labels, axis=2)[:, :, 0]
    asked = inputs.labels >= 0
    losses = jnp.where(asked, jax.nn.logsumexp(scores, axis=2) - right, 0)
    correct = asked & (scores.argmax(2) == inputs.labels)
    return LossSums(
        sum=losses.sum(1),
        count=asked.sum(1).astype(jnp.float32),
        correct=correct.sum(1).astype(jnp.float32),
    )
