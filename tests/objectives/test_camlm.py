"""CAMLM against NumPy. Predictions depend only on the other side, their position and language."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rows import CORPUS, SIZE, rows_of
from references.encoder import float64
from references.mlm import camlm as reference

from xlj.config import Model
from xlj.data.tokenizer.layout import SPECIALS
from xlj.models import encoder
from xlj.models.segments import segments
from xlj.objectives.camlm import loss as camlm
from xlj.objectives.camlm.options import CrossAttentionMLM
from xlj.objectives.masking.options import Masking
from xlj.objectives.mlm.head import predict
from xlj.objectives.mlm.loss import gather

OPTIONS = CrossAttentionMLM(masking=Masking(rate=0.3, mask_share=0.4, random_share=0.3))


@pytest.mark.parametrize("embeddings", ["predicted", "all"])
def test_the_whole_step_equals_numpy(
    embeddings, full_model, params_of, keys_of, step_of, assert_sums, assert_masked
):
    model = dataclasses.replace(full_model, language_embeddings=embeddings)
    options = dataclasses.replace(OPTIONS, weight=3.0)
    objective = camlm.objective("camlm", options, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("pairs")
    _, masked, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    assert_masked(rows["tokens"], masked, options)
    assert_sums(losses["camlm"], counts["camlm"], reference(float64(params), model, masked))
    assert objective.losses["camlm"].weight == 3 and objective.losses["camlm"].over_vocabulary


@pytest.mark.parametrize("width", [3, 8, 200])
def test_tokens_whose_other_side_is_outside_the_window_are_counted(
    width, model, params_of, keys_of, step_of
):
    local = {"local_attention": width, "full_attention_every": 2}
    model = dataclasses.replace(model, **local)
    objective = camlm.objective("camlm", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("pairs")
    _, masked, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    inputs = camlm.inputs_of(model, masked)
    queries, keys = np.asarray(inputs.query_segment_ids), np.asarray(inputs.key_segment_ids)
    place = np.arange(queries.shape[1])
    near = np.abs(place[:, None] - place) <= width // 2
    blind = ~(near & (queries[:, :, None] == keys[:, None])).any(2)
    expected = (blind & np.asarray(masked.selected())).sum(1)
    np.testing.assert_array_equal(losses["camlm_blind"].sum, expected)
    np.testing.assert_array_equal(counts["camlm_blind"], masked.selected().sum(1))
    np.testing.assert_array_equal(losses["camlm_blind"].count, counts["camlm_blind"])
    assert objective.losses["camlm_blind"].weight == 0
    assert (expected.sum() > 5) == (width < 200)


def jacobian(model, params, masked):
    """Returns the sums of |d logits of each selected position / d word vector of each token|.

    float [row, max_predictions, length].
    """
    inputs, table = camlm.inputs_of(model, masked), params["embeddings"]["word"]
    # Random weights, so that sums over logits do not cancel.
    weights = jax.random.normal(jax.random.key(0), (masked.positions.shape[1], SIZE))

    def of_row(row, positions):
        def summed(vectors):
            """Returns the weighted logits of each position, as a function of the word vectors."""
            looked_up = dict(params, embeddings=dict(params["embeddings"], word=vectors))
            separate = jax.tree.map(lambda x: x[None], row)
            separate = separate._replace(tokens=jnp.arange(len(vectors))[None])
            hidden = gather(encoder.apply(looked_up, model, separate), positions[None])
            result, _, bias = predict(params["prediction_head"], table, model, hidden)
            return ((result[0] @ table.T + bias) * weights).sum(1)

        return jnp.abs(jax.jacrev(summed)(table[row.tokens])).sum(-1)

    return np.asarray(jax.jit(jax.vmap(of_row))(inputs, masked.positions))


@pytest.mark.parametrize(
    "layers, dtype, embeddings",
    [(1, "float32", "none"), (3, "bfloat16", "predicted"), (12, "float32", "predicted")],
)
def test_predictions_do_not_depend_on_other_tokens_of_their_own_side(
    layers, dtype, embeddings, params_of
):
    model = Model(
        layers=layers, hidden=16, heads=2, intermediate=32, positions=50, init_std=0.3,
        dtype=dtype, language_embeddings=embeddings, scan_layers=True,
    )  # fmt: skip
    objective = camlm.objective("camlm", OPTIONS, model, CORPUS)
    rows = jax.tree.map(lambda x: x[:2, :40], rows_of("pairs", seed=3, length=40))
    masked = jax.jit(objective.corrupt)(rows, jax.random.split(jax.random.key(5), 2))
    gradients = jacobian(model, params_of(model, objective), masked)
    layout = jax.tree.map(np.asarray, segments(masked.tokens))
    selected, tokens = np.asarray(masked.selected()), np.asarray(masked.tokens)
    checked = predictions = 0
    for row in range(2):
        for slot in np.flatnonzero(np.asarray(masked.weights[row])):
            at = int(masked.positions[row, slot])
            same = layout.segment[row] == layout.segment[row, at]
            own_side = same & (layout.side[row] == layout.side[row, at])
            hidden_from = (own_side | selected[row] | ~same) & (np.arange(40) != at)
            assert (gradients[row, slot, hidden_from] == 0).all()
            seen = same & ~own_side & ~selected[row]
            assert (gradients[row, slot, seen] > 0).all() and seen.any()
            checked += hidden_from.sum()
            predictions += 1
    unchanged = selected & (tokens == np.asarray(masked.original()))
    assert checked > 100 and predictions >= 6 and unchanged.any()


def test_specials_are_never_selected_and_every_query_sees_a_key():
    rows = rows_of("pairs", seed=1)
    model = Model(layers=1, hidden=16, heads=2)
    objective = camlm.objective("camlm", OPTIONS, model, CORPUS)
    masked = jax.jit(objective.corrupt)(
        rows, jax.random.split(jax.random.key(0), len(rows["tokens"]))
    )
    inputs = camlm.inputs_of(model, masked)
    assert inputs.languages is None
    assert (np.asarray(rows["tokens"])[np.asarray(masked.selected())] >= len(SPECIALS)).all()
    sees = (
        np.asarray(inputs.query_segment_ids)[:, :, None]
        == np.asarray(inputs.key_segment_ids)[:, None, :]
    )
    assert sees.any(2).all()


def test_only_selected_tokens_are_marked_with_languages():
    rows = rows_of("pairs", seed=1)
    model = dataclasses.replace(
        Model(layers=1, hidden=16, heads=2), language_embeddings="predicted"
    )
    objective = camlm.objective("camlm", OPTIONS, model, CORPUS)
    masked = jax.jit(objective.corrupt)(
        rows, jax.random.split(jax.random.key(0), len(rows["tokens"]))
    )
    languages = np.asarray(camlm.inputs_of(model, masked).languages)
    selected, side = np.asarray(masked.selected()), np.asarray(segments(rows["tokens"]).side)
    assert (languages[~selected] == -1).all()
    own = np.take_along_axis(np.asarray(rows["languages"]), side, axis=1)
    assert (languages[selected] == own[selected]).all()


def test_only_embeddings_of_marked_languages_have_a_gradient(params_of):
    model = Model(
        layers=2, hidden=16, heads=2, intermediate=32, positions=50, language_embeddings="predicted"
    )
    objective = camlm.objective("camlm", OPTIONS, model, CORPUS)
    rows, params = rows_of("pairs", seed=2), params_of(model, objective)
    masked = jax.jit(objective.corrupt)(
        rows, jax.random.split(jax.random.key(0), len(rows["tokens"]))
    )
    loss = jax.jit(lambda p: objective.loss(p, {}, masked, None)["camlm"].sum.sum())
    gradient = jax.grad(loss)(params)
    marked = np.unique(camlm.inputs_of(model, masked).languages)
    assert len(marked) > 2
    has_gradient = np.abs(gradient["embeddings"]["language"]).sum(1) > 0
    np.testing.assert_array_equal(has_gradient, np.isin(np.arange(3), marked))
