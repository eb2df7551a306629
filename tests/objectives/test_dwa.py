"""DWA (XLM-Align): labels of packed rows equal those of separate pairs; losses equal NumPy's."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import with_constants
from random_rows import CORPUS, rows_of
from references import dwa as reference
from references.encoder import float64

from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import sinkhorn
from xlj.models import encoder
from xlj.models.segments import segments, whole_examples
from xlj.objectives.dwa import loss as dwa
from xlj.objectives.dwa.options import WordAlignment
from xlj.objectives.masking.options import Masking

OPTIONS = WordAlignment(masking=Masking(rate=0.3))


def whole(function, inputs):
    return function(inputs)


def prepared(model, params_of, keys_of, **options):
    options = dataclasses.replace(OPTIONS, **options)
    objective = dwa.objective("dwa", options, model, CORPUS)
    rows, params = rows_of("pairs", seed=4), params_of(model, objective)
    before = jax.jit(objective.corrupt)(rows, keys_of(rows))
    label = jax.jit(lambda p, x: objective.targets(p, {}, x, whole))
    return objective, params, rows, before, label(params, before)


FILTERED = {"filtering_alpha": 0.6, "filtering_iterations": 4, "sinkhorn_mu": 0.7}
UNION = {"sinkhorn_first": "rows", "sinkhorn_mu": 2.0}


@pytest.mark.parametrize(
    "queries, labelling, label_layer", [("masked", FILTERED, 1), ("unmasked", UNION, 0)]
)
def test_the_whole_step_equals_numpy(
    queries,
    labelling,
    label_layer,
    full_model,
    params_of,
    keys_of,
    step_of,
    assert_sums,
    assert_masked,
):
    options = WordAlignment(
        masking=Masking(rate=0.4, mask_share=0.5, random_share=0.35), weight=3.0,
        label_layer=label_layer, query_layer=2, sinkhorn_iterations=3, queries=queries,
        filtering=labelling is FILTERED,
    )  # fmt: skip
    options = with_constants(options, alignment_weight=7.0, **labelling)
    objective = dwa.objective("dwa", options, full_model, CORPUS)
    params, rows = params_of(full_model, objective), rows_of("pairs", seed=4)
    before, after, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    assert_masked(rows["tokens"], after.masked, options)
    assert after.positions.shape == after.labels.shape == before.labels.shape
    plain, tokens = float64(params), np.asarray(rows["tokens"])
    labels = reference.labels(plain, full_model, tokens, rows["languages"], options)
    candidates = np.asarray(after.masked.selected())
    if queries == "unmasked":
        order = jax.vmap(lambda rng: jax.random.uniform(rng, tokens.shape[1:]))(after.query_rngs)
        candidates = reference.some_of(
            ~candidates & reference.is_word(tokens), 0.4, np.asarray(order)
        )
    expected = {at: int(label) for at, label in labels.items() if candidates[at]}
    assert labels_of_queries(after) == expected
    tlm, pointer = reference.losses(plain, full_model, tokens, after.masked, expected, 2)
    assert_sums(losses["dwa_tlm"], counts["dwa_tlm"], tlm)
    assert_sums(losses["dwa_align"], counts["dwa_align"], pointer)
    weights = {name: loss.weight for name, loss in objective.losses.items()}
    assert weights == {"dwa_tlm": 3, "dwa_align": 7}


@partial(jax.jit, static_argnames="filtering")
def links_of(similarity, *ids, filtering):
    extract = extraction.itermax if filtering else extraction.union
    return extract(sinkhorn(similarity, *ids).plan, *ids)


def every_link(model, params, rows, filtering=True):
    """Yields (row, position in the first sentence, position in the second) of all links, pair by
    pair."""
    inputs = whole_examples(model, rows["tokens"], rows["languages"])
    layer = encoder.middle_layer(model.layers)
    hidden = np.asarray(jax.jit(lambda p: encoder.apply(p, model, inputs, layers=layer))(params))
    layout, tokens = jax.tree.map(np.asarray, segments(rows["tokens"])), np.asarray(rows["tokens"])
    for row in range(len(tokens)):
        word = ~np.isin(tokens[row], (0, 1, 2))
        for example in range(1, layout.segment[row].max() + 1):
            in_example = (layout.segment[row] == example) & word
            first, second = (np.flatnonzero(in_example & (layout.side[row] == i)) for i in (0, 1))
            similarity = hidden[row, first] @ hidden[row, second].T
            ids = np.ones(len(first), np.int32), np.ones(len(second), np.int32)
            links = np.asarray(links_of(similarity, *ids, filtering=filtering))
            for i, j in zip(*np.nonzero(links), strict=True):
                yield row, int(first[i]), int(second[j])


def labels_pair_by_pair(model, params, rows, filtering=True):
    """Returns {(row, position): position of the label} of labelled tokens; the last label wins."""
    labels = {}
    for row, i, j in every_link(model, params, rows, filtering):
        labels[row, i] = max(j, labels.get((row, i), 0))
        labels[row, j] = max(i, labels.get((row, j), 0))
    return labels


def queries(inputs):
    """Returns ((row, position), label) of each query."""
    return [
        ((row, int(at)), int(label))
        for row in range(len(inputs.labels))
        for at, label in zip(inputs.positions[row], inputs.labels[row], strict=True)
        if label >= 0
    ]


def labels_of_queries(inputs):
    """Returns {(row, position): label} of queries, whose positions must be distinct."""
    labels = dict(queries(inputs))
    assert len(labels) == len(queries(inputs))
    return labels


@pytest.mark.parametrize("filtering", [True, False])
def test_masked_queries_have_the_labels_of_their_separate_pair(
    filtering, model, params_of, keys_of
):
    _, params, rows, _, after = prepared(model, params_of, keys_of, filtering=filtering)
    links = labels_pair_by_pair(model, params, rows, filtering)
    selected = np.asarray(after.masked.selected())
    assert labels_of_queries(after) == {at: label for at, label in links.items() if selected[at]}
    if not filtering:  # every token has a link
        assert len(links) == (~np.isin(np.asarray(rows["tokens"]), (0, 1, 2))).sum()


def test_unmasked_queries_and_no_queries(model, params_of, keys_of):
    _, params, rows, _, after = prepared(model, params_of, keys_of, queries="unmasked")
    links = labels_pair_by_pair(model, params, rows)
    selected, labels = np.asarray(after.masked.selected()), labels_of_queries(after)
    assert labels and all(links[at] == label and not selected[at] for at, label in labels.items())
    _, _, _, before, after = prepared(model, params_of, keys_of, queries="none")
    assert not labels_of_queries(after)


@pytest.mark.parametrize("filtering", [True, False])
def test_every_link_is_one_query(filtering, model, params_of, keys_of):
    """As "all-aligned" of Table 7: a token that is drawn for two links has two queries."""
    options = dict(queries="aligned", filtering=filtering)
    _, params, rows, _, after = prepared(model, params_of, keys_of, **options)
    links, all_queries = list(every_link(model, params, rows, filtering)), queries(after)
    assert sorted((row, *sorted((at, label))) for (row, at), label in all_queries) == sorted(links)
    assert len(dict(all_queries)) < len(all_queries)  # some token has two queries
    # The direction is a fair coin, within four standard deviations.
    forwards = sum(at < label for (_, at), label in all_queries)
    assert abs(forwards - len(all_queries) / 2) < 2 * len(all_queries) ** 0.5
    selected = np.asarray(after.masked.selected())
    assert {bool(selected[at]) for at, _ in all_queries} == {False, True}


@pytest.mark.parametrize(
    "query_layer, which", [(-1, "masked"), (1, "masked"), (0, "masked"), (-1, "aligned")]
)
def test_the_loss_of_the_pointer_equals_numpy(query_layer, which, model, params_of, keys_of):
    objective, params, rows, _, after = prepared(
        model, params_of, keys_of, query_layer=query_layer, queries=which
    )
    losses = jax.jit(lambda p, x: objective.loss(p, {}, x, None))(params, after)
    masked = after.masked
    inputs = whole_examples(model, masked.tokens, masked.languages)
    every = np.asarray(encoder.apply(params, model, inputs, all_layers=True), np.float64)
    hidden = every[query_layer]  # -1 is the last
    head = jax.tree.map(lambda x: np.asarray(x, np.float64), params["pointer_head"])
    layout, tokens = jax.tree.map(np.asarray, segments(rows["tokens"])), np.asarray(rows["tokens"])
    sums, correct = np.zeros(len(tokens)), np.zeros(len(tokens))
    for (row, at), label in queries(after):
        other = (layout.segment[row] == layout.segment[row, at]) & (
            layout.side[row] != layout.side[row, at]
        )
        places = np.flatnonzero(other & ~np.isin(tokens[row], (0, 1, 2)))
        query = hidden[row, at] @ head["query"]["kernel"] + head["query"]["bias"]
        keys = hidden[row, places] @ head["key"]["kernel"] + head["key"]["bias"]
        scores = keys @ query / np.sqrt(model.hidden)
        index = places.tolist().index(label)
        sums[row] += np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[index]
        correct[row] += scores.argmax() == index
    np.testing.assert_allclose(losses["dwa_align"].sum, sums, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(losses["dwa_align"].correct, correct)
    for name, count in objective.count(after).items():
        np.testing.assert_array_equal(losses[name].count, count)
    assert len(queries(after)) > 20
    # TLM shares the forward pass, and counts all masked tokens.
    tlm = losses["dwa_tlm"]
    assert float(tlm.count.sum()) == float(masked.weights.sum())


def test_labels_have_no_gradient_and_do_not_depend_on_masks(model, params_of, keys_of):
    objective, params, rows, before, after = prepared(model, params_of, keys_of)
    other = before._replace(masked=before.masked._replace(tokens=before.masked.original()))
    again = objective.targets(params, {}, other, whole)
    np.testing.assert_array_equal(again.labels, after.labels)
    assert after.labels.dtype == jnp.int32  # integers have no gradient


def test_a_share_that_float32_rounds_to_just_below_an_integer_counts_as_that_integer():
    options = dataclasses.replace(OPTIONS, masking=Masking(rate=0.53))
    candidates = jnp.ones((3, 100), bool)
    assert np.floor(np.float32(0.53) * np.float32(100)) == 52
    chosen = dwa._some_of(candidates, options, jax.random.split(jax.random.key(0), 3))
    assert chosen.sum(1).tolist() == [53] * 3
