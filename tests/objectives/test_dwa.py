"""XLM-Align: labels of packed rows equal those of separate pairs; the loss equals NumPy's."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rows import CORPUS, rows_of
from references import dwa as reference
from references.encoder import float64

from xlj.alignment_math import extraction
from xlj.alignment_math.sinkhorn import sinkhorn
from xlj.config.objectives.dwa import WordAlignment
from xlj.models import encoder
from xlj.objectives import dwa
from xlj.objectives.segments import segments, whole_examples

OPTIONS = WordAlignment(mask_rate=0.3)


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
UNION = {"filtering": False, "sinkhorn_first": "rows", "sinkhorn_mu": 2.0}


@pytest.mark.parametrize(
    "queries, labelling, label_layer", [("masked", FILTERED, 1), ("unmasked", UNION, 0)]
)
def test_all_of_it_equals_numpy(
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
        mask_rate=0.4, mask_share=0.5, random_share=0.35, weight=3.0, alignment_weight=7.0,
        label_layer=label_layer, query_layer=2, sinkhorn_iterations=3, queries=queries, **labelling,
    )  # fmt: skip
    objective = dwa.objective("dwa", options, full_model, CORPUS)
    params, rows = params_of(full_model, objective), rows_of("pairs", seed=4)
    before, after, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    assert_masked(rows.tokens, after.masked, options)
    assert after.positions.shape == after.labels.shape == before.labels.shape
    plain, tokens = float64(params), np.asarray(rows.tokens)
    labels = reference.labels(plain, full_model, tokens, rows.languages, options)
    may_ask = np.asarray(after.masked.selected())
    if queries == "unmasked":
        order = jax.vmap(lambda rng: jax.random.uniform(rng, tokens.shape[1:]))(after.query_rngs)
        may_ask = reference.some_of(~may_ask & reference.is_word(tokens), 0.4, np.asarray(order))
    expected = {at: int(label) for at, label in labels.items() if may_ask[at]}
    assert asked(after) == expected
    of_tlm, of_pointer = reference.losses(plain, full_model, tokens, after.masked, expected, 2)
    assert_sums(losses["dwa_tlm"], counts["dwa_tlm"], of_tlm)
    assert_sums(losses["dwa_align"], counts["dwa_align"], of_pointer)
    weights = {name: loss.weight for name, loss in objective.losses.items()}
    assert weights == {"dwa_tlm": 3, "dwa_align": 7}


@partial(jax.jit, static_argnames="filtering")
def links_of(similarity, *ids, filtering):
    extract = extraction.itermax if filtering else extraction.union
    return extract(sinkhorn(similarity, *ids).plan, *ids)


def every_link(model, params, rows, filtering=True):
    """Returns (row, position in first sentence, position in second) of all links, pair by pair."""
    read = whole_examples(model, rows.tokens, rows.languages)
    layer = encoder.middle_layer(model.layers)
    hidden = np.asarray(jax.jit(lambda p: encoder.apply(p, model, read, layers=layer))(params))
    layout, tokens = jax.tree.map(np.asarray, segments(rows.tokens)), np.asarray(rows.tokens)
    for row in range(len(tokens)):
        word = ~np.isin(tokens[row], (0, 1, 2))
        for example in range(1, layout.segment[row].max() + 1):
            mine = (layout.segment[row] == example) & word
            first, second = (np.flatnonzero(mine & (layout.side[row] == i)) for i in (0, 1))
            similarity = hidden[row, first] @ hidden[row, second].T
            ids = np.ones(len(first), np.int32), np.ones(len(second), np.int32)
            links = np.asarray(links_of(similarity, *ids, filtering=filtering))
            for i, j in zip(*np.nonzero(links), strict=True):
                yield row, int(first[i]), int(second[j])


def links_one_by_one(model, params, rows, filtering=True):
    """Returns {(row, position): position of its label} of labelled tokens; the last label wins."""
    found = {}
    for row, i, j in every_link(model, params, rows, filtering):
        found[row, i] = max(j, found.get((row, i), 0))
        found[row, j] = max(i, found.get((row, j), 0))
    return found


def queries(inputs):
    """Returns ((row, position), label) of each query."""
    return [
        ((row, int(at)), int(label))
        for row in range(len(inputs.labels))
        for at, label in zip(inputs.positions[row], inputs.labels[row], strict=True)
        if label >= 0
    ]


def asked(inputs):
    """Returns {(row, position): label} of queries with distinct positions."""
    found = dict(queries(inputs))
    assert len(found) == len(queries(inputs))
    return found


@pytest.mark.parametrize("filtering", [True, False])
def test_masked_queries_have_the_labels_of_their_pair_alone(filtering, model, params_of, keys_of):
    _, params, rows, _, after = prepared(model, params_of, keys_of, filtering=filtering)
    links = links_one_by_one(model, params, rows, filtering)
    selected = np.asarray(after.masked.selected())
    assert asked(after) == {at: label for at, label in links.items() if selected[at]}
    if not filtering:  # every token has a link
        assert len(links) == (~np.isin(np.asarray(rows.tokens), (0, 1, 2))).sum()


def test_other_queries(model, params_of, keys_of):
    _, params, rows, _, after = prepared(model, params_of, keys_of, queries="unmasked")
    links = links_one_by_one(model, params, rows)
    selected, found = np.asarray(after.masked.selected()), asked(after)
    assert found and all(links[at] == label and not selected[at] for at, label in found.items())
    _, _, _, before, after = prepared(model, params_of, keys_of, queries="none")
    assert not asked(after)


@pytest.mark.parametrize("filtering", [True, False])
def test_every_link_is_one_query(filtering, model, params_of, keys_of):
    """Table 7's all-aligned: a token that is drawn for two links has two queries."""
    options = dict(queries="aligned", filtering=filtering)
    _, params, rows, _, after = prepared(model, params_of, keys_of, **options)
    links, found = list(every_link(model, params, rows, filtering)), queries(after)
    assert sorted((row, *sorted((at, label))) for (row, at), label in found) == sorted(links)
    assert len(dict(found)) < len(found)  # some token is asked twice
    forwards = sum(at < label for (_, at), label in found)  # a fair coin, within four deviations
    assert abs(forwards - len(found) / 2) < 2 * len(found) ** 0.5
    selected = np.asarray(after.masked.selected())
    assert {bool(selected[at]) for at, _ in found} == {False, True}


@pytest.mark.parametrize(
    "query_layer, which", [(-1, "masked"), (1, "masked"), (0, "masked"), (-1, "aligned")]
)
def test_the_pointers_loss_equals_numpy(query_layer, which, model, params_of, keys_of):
    objective, params, rows, _, after = prepared(
        model, params_of, keys_of, query_layer=query_layer, queries=which
    )
    losses = jax.jit(lambda p, x: objective.loss(p, {}, x, None))(params, after)
    masked = after.masked
    read = whole_examples(model, masked.tokens, masked.languages)
    every = np.asarray(encoder.apply(params, model, read, all_layers=True), np.float64)
    hidden = every[query_layer]  # -1 is the last
    head = jax.tree.map(lambda x: np.asarray(x, np.float64), params["pointer_head"])
    layout, tokens = jax.tree.map(np.asarray, segments(rows.tokens)), np.asarray(rows.tokens)
    sums, rights = np.zeros(len(tokens)), np.zeros(len(tokens))
    for (row, at), label in queries(after):
        other = (layout.segment[row] == layout.segment[row, at]) & (
            layout.side[row] != layout.side[row, at]
        )
        places = np.flatnonzero(other & ~np.isin(tokens[row], (0, 1, 2)))
        query = hidden[row, at] @ head["query"]["kernel"] + head["query"]["bias"]
        keys = hidden[row, places] @ head["key"]["kernel"] + head["key"]["bias"]
        scores = keys @ query / np.sqrt(model.hidden)
        mine = places.tolist().index(label)
        sums[row] += np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[mine]
        rights[row] += scores.argmax() == mine
    np.testing.assert_allclose(losses["dwa_align"].sum, sums, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(losses["dwa_align"].correct, rights)
    for name, count in objective.count(after).items():
        np.testing.assert_array_equal(losses[name].count, count)
    assert len(queries(after)) > 20
    # TLM shares the forward pass, and equals TLM without alignment.
    tlm = losses["dwa_tlm"]
    assert float(tlm.count.sum()) == float(masked.weights.sum())


def test_labels_pass_no_gradient_and_need_no_masks(model, params_of, keys_of):
    objective, params, rows, before, after = prepared(model, params_of, keys_of)
    other = before._replace(masked=before.masked._replace(tokens=before.masked.original()))
    again = objective.targets(params, {}, other, whole)
    np.testing.assert_array_equal(again.labels, after.labels)
    assert after.labels.dtype == jnp.int32  # whole numbers carry no gradient


def test_a_share_that_float32_leaves_just_below_a_whole_number_is_that_number():
    options, candidates = dataclasses.replace(OPTIONS, mask_rate=0.53), jnp.ones((3, 100), bool)
    assert np.floor(np.float32(0.53) * np.float32(100)) == 52
    chosen = dwa._some_of(candidates, options, jax.random.split(jax.random.key(0), 3))
    assert chosen.sum(1).tolist() == [53] * 3
