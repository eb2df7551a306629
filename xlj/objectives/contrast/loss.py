"""Contrast of sentence vectors, with gradients that are cached over microbatches and devices."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.data.rows.store import Corpus
from xlj.models.dropout import Rngs
from xlj.models.segments import is_example, segments
from xlj.objectives.contrast import head, scoring
from xlj.objectives.contrast.options import LISTED, RANKING, SentenceContrast
from xlj.objectives.contrast.ranking import Anchors, Candidates, Ranks, Rule, rank, truncate
from xlj.objectives.corruption import split
from xlj.objectives.objective import (
    ByMicrobatch,
    Loss,
    Losses,
    LossSums,
    Objective,
    Rows,
    with_gradient,
)
from xlj.sharding import devices
from xlj.sharding.devices import ROWS
from xlj.sharding.trees import Params


class ContrastInputs(NamedTuple):
    """The texts of the examples, and results over the whole batch.

    The results are zeros until `targets` computes them. An example has a slot in its row.
    """

    texts: tuple[Rows, ...]
    """Rows of the queries, of the positives and, with given negatives, of these negatives."""
    scores: Mapping[str, jax.Array]
    """The further fields of the rows (`kinds.examples`); empty for bitext."""
    gradients: tuple[jax.Array, ...]
    """The gradient of the batch's loss at the vectors of each of `texts`, float32 [rows, slots of
    the texts, dimensions]."""
    losses: jax.Array
    """The loss of each example, float32 [rows, slots]."""
    correct: jax.Array
    """1 if the positive of the example is ranked above all negatives, in each direction, else 0,
    float32 [rows, slots]."""
    is_counted: jax.Array
    """1 for examples with a loss, else 0, float32 [rows, slots]."""
    dropped: Mapping[str, jax.Array]
    """The number of texts that are no negatives of each example, by reason (`options.REASONS`), and
    the number of all texts that are ranked for it, `candidates`, float32 [rows, slots]. Empty until
    `targets` computes them."""


def objective(
    name: str, options: SentenceContrast, model: Model, corpus: Corpus
) -> Objective[ContrastInputs, object]:
    """Builds a contrastive objective on cosines of sentence vectors (the temperature is ours).

    `options.loss` chooses the loss: `ranking.rank`, `scoring.compare_lists` or
    `scoring.order_pairs`. With bitext and `hardest`, it is ERNIE-M's fine-tuning for retrieval
    (section 4.2).

    Negatives may be in other microbatches. So `targets` encodes all rows of the step, without
    dropout (ours). It computes the gradient of the batch's loss at each vector, as in GradCache
    (Gao et al., 2021). `loss` propagates these gradients to the parameters. The result is the same
    for any number of microbatches and devices. The vectors of the first pass also decide which
    negatives the guard drops.

    Of the texts that could be negatives, the shares that share a sentence with the example, and
    that the guard dropped, are reported as `NAME_shared` and `NAME_guarded`, losses of weight 0.
    """
    vectors = partial(_vectors, options, model)

    def count(inputs: ContrastInputs) -> dict[str, jax.Array]:
        counts = {name: inputs.is_counted.sum(1)}
        if options.loss in RANKING:
            candidates = inputs.dropped["candidates"].sum(1)
            counts |= {f"{name}_{reason}": candidates for reason in reasons}
        return counts

    def loss(params: Params, state: object, inputs: ContrastInputs, rngs: Rngs) -> Losses:
        texts = inputs.texts
        of_texts = [None] * len(texts) if rngs is None else split(rngs, len(texts))
        # The value is `inputs.losses`, and the gradient at the vectors is the batch's gradient.
        sums = inputs.losses.sum(1)
        for text, gradient, own_rngs in zip(texts, inputs.gradients, of_texts, strict=True):
            encoded = vectors(params, text, gradient.shape[1], own_rngs)
            sums = with_gradient(sums, gradient, encoded)
        losses = {name: LossSums(sums, inputs.is_counted.sum(1), inputs.correct.sum(1))}
        counts = count(inputs)
        for reason in reasons:
            shares = inputs.dropped[reason].sum(1), counts[f"{name}_{reason}"]
            losses[f"{name}_{reason}"] = LossSums(*shares, jnp.zeros_like(sums))
        return losses

    reasons = options.reported

    return Objective(
        losses={
            name: Loss(options.weight),
            **{f"{name}_{reason}": Loss(0.0) for reason in reasons},
        },
        corrupt=partial(_corrupt, options, model),
        count=count,
        loss=loss,
        parts=head.parts(model, options.dense),
        rules=head.RULES,
        targets=partial(_targets, options, vectors),
    )


def _vectors(
    options: SentenceContrast,
    model: Model,
    params: Params,
    rows: Rows,
    slots: int,
    rngs: Rngs,
) -> jax.Array:
    """Computes unit vectors of the texts of rows, float32 [rows, slots, dimensions].

    Several rows of tokens for each row, [rows, n, length], have slots / n slots each.
    """
    tokens, languages = rows["tokens"], rows["languages"]
    count = len(languages)
    if tokens.ndim == 3:
        slots //= tokens.shape[1]
        languages = jnp.repeat(languages, tokens.shape[1], axis=0)
        if rngs is not None:
            rngs = jax.vmap(lambda rng: jax.random.split(rng, tokens.shape[1]))(rngs)
            rngs = rngs.reshape(-1)
        tokens = tokens.reshape(-1, tokens.shape[2])
    encoded = head.encode(
        params,
        model,
        {"tokens": tokens, "languages": languages},
        slots,
        rngs,
        layer=options.layer,
        pooling=options.pooling,
        dense=options.dense,
    )
    unit = head.normalise(encoded)
    return unit if len(unit) == count else unit.reshape(count, -1, unit.shape[-1])


def _corrupt(
    options: SentenceContrast, model: Model, rows: Rows, rngs: jax.Array
) -> ContrastInputs:
    """Returns the texts of the rows, unchanged, and zeros for the results."""
    kind = options.row_kind
    texts = tuple(
        {**text, "tokens": text["tokens"].astype(jnp.int32)} for text in kind.layout(rows)
    )
    count, slots = len(rows["languages"]), kind.slots(rows)
    dimensions = options.dense or model.hidden
    gradients = tuple(jnp.zeros((count, each, dimensions)) for each in slots)
    zeros = jnp.zeros((count, slots[0]))
    return ContrastInputs(texts, kind.scores(rows), gradients, zeros, zeros, zeros, {})


def _targets(
    options: SentenceContrast,
    vectors: Callable[[Params, Rows, int, Rngs], jax.Array],
    params: Params,
    state: object,
    inputs: ContrastInputs,
    by_microbatch: ByMicrobatch,
) -> ContrastInputs:
    """Encodes all rows, and computes the gradient of the batch's loss at each vector."""
    slots = [gradient.shape[1] for gradient in inputs.gradients]

    def encode(text: Rows, slots: int) -> jax.Array:
        return by_microbatch(lambda rows: vectors(params, rows, slots, None), text)

    encoded = [encode(*each) for each in zip(inputs.texts, slots, strict=True)]
    others = {
        **inputs.scores,
        "sentences": _by_text(_digests, inputs.texts, slots),
        "is_real": _by_text(is_example, inputs.texts, slots),
    }
    gradients, results = batch_gradients(options, tuple(encoded), others)
    return ContrastInputs(inputs.texts, inputs.scores, gradients, *results)


class Results(NamedTuple):
    """The fields of `ContrastInputs` that `targets` computes, after the gradients."""

    losses: jax.Array
    correct: jax.Array
    is_counted: jax.Array
    dropped: dict[str, jax.Array]


def batch_gradients(
    options: SentenceContrast, vectors: tuple[jax.Array, ...], others: Mapping[str, Any]
) -> tuple[tuple[jax.Array, ...], Results]:
    """Computes the losses of a batch, and the gradient of their sum at each vector.

    Each device computes the losses of its own rows.

    Args:
      vectors: unit vectors of queries, positives and given negatives, float32 [rows, slots of the
        texts, dimensions].
      others: `sentences`, the hashes of the same texts, uint32 [rows, slots]; `is_real`, False for
        slots without a text, bool [rows, slots]; and the scores of the rows (`RowKind.scores`).
    """
    for number, (own, hashes, is_real) in enumerate(
        zip(vectors, others["sentences"], others["is_real"], strict=True)
    ):
        check(
            f"batch_gradients, text {number}",
            vectors=("float32 [rows, slots, dimensions]", own),
            sentences=("uint32 [rows, slots]", hashes),
            is_real=("bool [rows, slots]", is_real),
        )
    leaves, structure = jax.tree.flatten(others)

    def on_device(*arrays: jax.Array) -> tuple[tuple[jax.Array, ...], Results]:
        own = arrays[: len(vectors)]
        rest = jax.tree.unflatten(structure, arrays[len(vectors) :])

        def batch_loss(*own: jax.Array) -> tuple[jax.Array, Results]:
            results = _compute(options, own, rest)
            return results.losses.sum(), results

        return jax.grad(batch_loss, tuple(range(len(vectors))), has_aux=True)(*own)

    arrays = (*vectors, *leaves)
    return devices.per_device(on_device, (ROWS,) * len(arrays), ROWS)(*arrays)


def _by_text(
    function: Callable[[jax.Array, int], jax.Array], texts: tuple[Rows, ...], slots: Sequence[int]
) -> tuple[jax.Array, ...]:
    """Applies a function (tokens, slots) -> [rows, slots] to the rows of each of `texts`."""
    results = []
    for text, count in zip(texts, slots, strict=True):
        tokens = text["tokens"].reshape(-1, text["tokens"].shape[-1])
        result = function(tokens, count * len(text["languages"]) // len(tokens))
        results.append(result.reshape(len(text["languages"]), count))
    return tuple(results)


def _compute(
    options: SentenceContrast, vectors: tuple[jax.Array, ...], rest: Mapping[str, Any]
) -> Results:
    """Computes the losses of the examples of one device.

    Args:
      vectors: of queries, positives and given negatives, float32 [rows, slots, dimensions].
      rest: hashes (`sentences`) and `is_real` of the same texts, and the scores of the rows.
    """
    sizes = options.sizes(vectors[0].shape[-1])
    if options.loss in RANKING:
        return _rank_batch(options, sizes, vectors, rest)
    is_real = rest["is_real"][0]
    total = jnp.zeros(is_real.shape)
    results = []
    for size, weight in sizes.items():
        parts = [truncate(x, size) for x in vectors]
        right = (parts[0] * parts[1]).sum(2) / options.temperature  # [rows, slots]
        if options.loss in LISTED:
            others = jnp.einsum("rsd,rnd->rsn", parts[0], parts[2], precision="highest")
            owners = jnp.where(rest["is_real"][2], rest["owners"].astype(jnp.int32), -1)
            scored = scoring.compare_lists(
                (right, others / options.temperature),
                (rest["score"], rest["negative_scores"]),
                owners[:, None] == jnp.arange(right.shape[1])[:, None],
                is_real,
                options.loss,
                getattr(options, "teacher_temperature", 1.0),
            )
        else:
            flat = (x.reshape(-1) for x in (right, rest["score"], is_real))
            scored = jax.tree.map(lambda x: x.reshape(is_real.shape), scoring.order_pairs(*flat))
        total += weight * scored.losses
        results.append(scored)
    return Results(total, results[0].correct, results[0].is_counted, {})


def _rank_batch(
    options: SentenceContrast,
    sizes: Mapping[int, float],
    vectors: tuple[jax.Array, ...],
    rest: Mapping[str, Any],
) -> Results:
    """Ranks texts in all directions (`ranking.rank`), for the examples of one device."""
    shape = rest["is_real"][0].shape
    flat = [x.reshape(-1, x.shape[-1]) for x in vectors]
    hashes = [x.reshape(-1) for x in rest["sentences"]]
    real = [x.reshape(-1) for x in rest["is_real"]]
    # A pair that shares one of its texts with another pair is none of its negatives, on both sides:
    # a German sentence may be the second sentence of an English-German pair and the first sentence
    # of a German-French pair. A given negative is only compared itself.
    of_example = jnp.stack(hashes[:2], 1)
    of_texts = [of_example, of_example, *(jnp.stack([x, x], 1) for x in hashes[2:])]
    guard = options.guard_margin if options.guard else math.inf
    rule = Rule(options.loss == "hardest", 1 / options.temperature, options.margin, guard, sizes)
    of_positives = rule.of_positives(*flat[:2])
    ranks = []
    for sides, texts in _groups(options.active_directions, len(flat)):
        anchors, candidates = (
            [_join([each[text] for text in of]) for each in (flat, of_texts, real)]
            for of in (sides, texts)
        )
        if sides == texts:  # the same arrays, so that their gradients are summed once
            candidates = anchors
        of_candidates = Candidates(*map(devices.gather_rows, candidates))
        logits, limits = (_join([x] * len(sides)) for x in of_positives)
        group = rank(Anchors(anchors[0], logits, limits, *anchors[1:]), of_candidates, rule)
        own = sum(text < 2 for text in texts)  # the texts of the example itself
        total = of_candidates.is_real.sum()
        dropped = {
            "shared": group.shared - own * anchors[2],
            "guarded": group.guarded,
            "candidates": anchors[2] * (total - own).astype(jnp.float32),
        }
        ranks.append((group, dropped, len(sides)))
    return _by_example(ranks, shape)


def _by_example(
    ranks: list[tuple[Ranks, dict[str, jax.Array], int]], shape: tuple[int, ...]
) -> Results:
    """Sums the results of the anchors of each example.

    Args:
      ranks: for each group of anchors: the ranks, the numbers of dropped texts, and the number of
        anchors of an example, float32 [anchors of an example * examples].
    """

    def of_anchors(x: jax.Array, sides: int) -> jax.Array:
        return x.reshape(sides, *shape)

    anchors = [
        {
            "losses": of_anchors(group.losses, sides),
            "correct": of_anchors(group.correct, sides),
            "has_negative": of_anchors(group.has_negative, sides),
        }
        for group, _, sides in ranks
    ]
    joined = {key: jnp.concatenate([each[key] for each in anchors]) for key in anchors[0]}
    is_counted = joined["has_negative"].any(0).astype(jnp.float32)
    # An anchor without a negative cannot be wrong.
    is_correct = (joined["correct"] >= joined["has_negative"]).all(0)
    dropped = {
        key: sum((of_anchors(x[key], n).sum(0) for _, x, n in ranks), jnp.zeros(shape))
        for key in ("shared", "guarded", "candidates")
    }
    return Results(joined["losses"].sum(0), is_correct * is_counted, is_counted, dropped)


def _groups(
    directions: tuple[str, ...], texts: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the anchors and candidates of each group that is ranked together.

    Args:
      directions: names of `options.DIRECTIONS`.
      texts: 2, or 3 with given negatives.

    Returns:
      Pairs (sides of the anchors, candidates), each a tuple of indices: 0 for queries, 1 for
      positives, 2 for given negatives. Sides with the same candidates form one group.
    """
    of_queries = (0,) * ("query_to_query" in directions)
    if "query_to_passage" in directions:
        of_queries += tuple(range(1, texts))
    of_passages = (0,) * ("passage_to_query" in directions)
    of_passages += (1,) * ("passage_to_passage" in directions)
    if of_queries == of_passages:
        return [((0, 1), of_queries)]
    return [((side,), of) for side, of in enumerate((of_queries, of_passages)) if of]


def _join(parts: Sequence[jax.Array]) -> jax.Array:
    return jnp.concatenate(parts) if len(parts) > 1 else parts[0]


def _digests(tokens: jax.Array, max_pairs_per_row: int) -> jax.Array:
    """Returns a hash of each example.

    The hash is a sum over the tokens of the example. Each token is first mixed with its position,
    so that the order of tokens matters. The mixing is the finaliser of MurmurHash3 (Appleby).

    Args:
      tokens: int32 [rows, length].
      max_pairs_per_row: number of slots for examples in a row.

    Returns:
      uint32 [rows, max_pairs_per_row]; 0 in slots without an example.
    """
    layout = segments(tokens)
    positions = layout.position.astype(jnp.uint32)
    mixed = tokens.astype(jnp.uint32) * jnp.uint32(0x9E3779B1) + positions * jnp.uint32(0x85EBCA77)
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    mixed ^= mixed >> 16
    numbers = jnp.arange(1, max_pairs_per_row + 1)
    select_example = jax.vmap(
        lambda number: jnp.where(layout.segment == number, mixed, 0), out_axes=1
    )
    return select_example(numbers).sum(2, dtype=jnp.uint32)
