"""Replaced token detection against plain implementations, and the sharing of embeddings."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import with_constants
from random_rows import CORPUS, SIZE, rows_of
from references.encoder import float64
from references.rtd import losses as reference

from xlj.models import encoder
from xlj.models.segments import whole_examples
from xlj.objectives.corruption import split
from xlj.objectives.masking.options import Masking
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.objectives.rtd import loss as rtd
from xlj.objectives.rtd.loss import detect
from xlj.objectives.rtd.options import Generator, TranslationRTD
from xlj.objectives.vocabulary.logits import choose

OPTIONS = TranslationRTD(masking=Masking(rate=0.25), generator=Generator(layers=1))


def prepared(model, params_of, keys_of, kind="pairs", options=OPTIONS, **sizes):
    model = dataclasses.replace(model, **sizes)
    objective = rtd.objective("trtd", options, model, CORPUS)
    params, rows = params_of(model, objective), rows_of(kind)
    assert {len(leaf) for leaf in jax.tree.leaves(params["generator"]["layers"])} == {1}
    assert {len(leaf) for leaf in jax.tree.leaves(params["layers"])} == {model.layers}
    return model, objective, params, rows, keys_of(rows)


@pytest.mark.parametrize("kind, dropout", [("text", 0.0), ("pairs", 0.3)])
def test_losses_and_labels_equal_a_plain_implementation(kind, dropout, model, params_of, keys_of):
    model, objective, params, rows, keys = prepared(
        model, params_of, keys_of, kind, dropout=dropout
    )
    inputs = jax.jit(objective.corrupt)(rows, keys)
    rngs = keys_of(rows, seed=1) if dropout else None
    losses = jax.jit(lambda p, x: objective.loss(p, {}, x, rngs))(params, inputs)
    generator_rngs, discriminator_rngs = split(rngs) if dropout else (None, None)
    # The generator: softmax over the whole vocabulary at the selected positions.
    generator = {"embeddings": params["embeddings"]} | params["generator"]
    masked = inputs.masked
    encoder_inputs = whole_examples(model, masked.tokens, masked.languages)
    apply = jax.jit(encoder.apply, static_argnums=1)
    hidden = apply(generator, model, encoder_inputs, generator_rngs)

    @jax.jit
    def sampled(hidden, head):
        replaced = rtd.replace(generator, head, model, OPTIONS, hidden, inputs)
        vectors, table, bias = predict(head, params["embeddings"]["word"], model, hidden)
        return replaced, vectors @ table.T + bias

    replaced, logits = sampled(hidden, params["generator"]["head"])
    logits = np.asarray(logits, np.float64)
    encoder_inputs = encoder_inputs._replace(tokens=replaced)
    hidden = apply(params, model, encoder_inputs, discriminator_rngs)
    scores = np.asarray(
        jax.jit(detect, static_argnums=1)(params["detection_head"], model, hidden), np.float64
    )
    tokens, new = np.asarray(rows["tokens"]), np.asarray(replaced)
    selected = np.asarray(masked.selected())
    assert (new[~selected] == tokens[~selected]).all() and (new != tokens).any()
    for row in range(len(tokens)):
        loss = count = 0.0
        for at in np.flatnonzero(selected[row]):
            shifted = logits[row, at] - logits[row, at].max()
            loss += np.log(np.exp(shifted).sum()) - shifted[tokens[row, at]]
        np.testing.assert_allclose(losses["trtd_generator"].sum[row], loss, rtol=1e-4)
        assert losses["trtd_generator"].count[row] == selected[row].sum()
        loss = correct = 0.0
        for at in np.flatnonzero(tokens[row] != 1):
            label = float(new[row, at] != tokens[row, at])
            p = 1 / (1 + np.exp(-scores[row, at]))
            loss -= label * np.log(p) + (1 - label) * np.log(1 - p)
            correct += (p > 0.5) == bool(label)
            count += 1
        np.testing.assert_allclose(losses["trtd_discriminator"].sum[row], loss, rtol=1e-4)
        assert losses["trtd_discriminator"].count[row] == count
        assert losses["trtd_discriminator"].correct[row] == correct
    counts = jax.jit(objective.count)(inputs)
    for name, sums in losses.items():
        np.testing.assert_array_equal(counts[name], sums.count)


def test_samples_follow_the_softmax_at_any_temperature():
    rng = np.random.default_rng(0)
    vector, table = rng.normal(size=8).astype(np.float32), rng.normal(size=(11, 8))
    bias, count = rng.normal(size=11).astype(np.float32), 60_000
    for temperature in (1.0, 0.5):
        chosen = choose(
            jnp.tile(vector, (count, 1)),
            jnp.asarray(table, jnp.float32),
            jnp.asarray(bias),
            jnp.dtype("float32"),
            jax.random.split(jax.random.key(0), count),
            temperature,
            block=4,  # the last block overlaps the one before
        )
        scores = (table @ vector + bias) / temperature
        expected = np.exp(scores - scores.max())
        shares = np.bincount(np.asarray(chosen), minlength=11) / count
        np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.01)
    best = choose(
        jnp.asarray(vector[None]), jnp.asarray(table, jnp.float32), jnp.asarray(bias),
        jnp.dtype("float32"), block=4,
    )  # fmt: skip
    assert int(best[0]) == int((table @ vector + bias).argmax())


def test_the_whole_step_equals_numpy(
    full_model, params_of, keys_of, step_of, assert_sums, assert_masked, gumbel
):
    masking = Masking(rate=0.3, mask_share=0.5, random_share=0.35)
    options = TranslationRTD(masking=masking, weight=7.0, generator=Generator(2, "separate"))
    options = with_constants(options, generator_weight=3.0, temperature=0.5)
    objective = rtd.objective("trtd", options, full_model, CORPUS)
    params, rows = params_of(full_model, objective), rows_of("pairs")
    inputs, _, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    assert_masked(rows["tokens"], inputs.masked, options)
    noise = gumbel(inputs.sample_rngs, inputs.masked.positions, rows["tokens"].shape[1])
    original = np.asarray(rows["tokens"])
    expected = reference(float64(params), full_model, original, inputs.masked, noise, 0.5)
    names = "trtd_generator", "trtd_discriminator"
    for name, sums, weight in zip(names, expected, (3, 7), strict=True):
        assert_sums(losses[name], counts[name], sums)
        assert objective.losses[name].weight == weight


def gradients(model, params_of, keys_of, which, **options_of_generator):
    options = dataclasses.replace(OPTIONS, **options_of_generator)
    _, objective, params, rows, keys = prepared(model, params_of, keys_of, options=options)
    inputs = jax.jit(objective.corrupt)(rows, keys)
    result = jax.jit(jax.grad(lambda p: objective.loss(p, {}, inputs, None)[which].sum.sum()))(
        params
    )
    return jax.device_get(result)


def size_of(tree):
    return float(sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(tree)))


def test_layers_and_head_of_the_generator_have_separate_keys(model):
    result = jax.jit(lambda rng: rtd.init_generator(rng, OPTIONS, model, CORPUS))(jax.random.key(7))
    small = dataclasses.replace(model, layers=1)

    @jax.jit
    def parts(rng):
        of_layers, of_head = jax.random.split(rng)
        layers = encoder.init(of_layers, small, SIZE, len(CORPUS.languages))["layers"]
        return {"layers": layers, "head": init_prediction(of_head, model, SIZE)}

    expected = parts(jax.random.key(7))
    chex.assert_trees_all_close(result, expected, rtol=1e-6)


def test_no_gradient_passes_through_the_samples(model, params_of, keys_of):
    gradient = gradients(model, params_of, keys_of, "trtd_discriminator")
    assert size_of(gradient["generator"]) == 0 and size_of(gradient["layers"]) > 0
    gradient = gradients(model, params_of, keys_of, "trtd_generator")
    assert size_of(gradient["layers"]) == size_of(gradient["detection_head"]) == 0
    assert size_of(gradient["generator"]["layers"]) > 0


@pytest.mark.parametrize(
    "sharing, by_generator, by_discriminator",
    [
        ("shared", True, True),
        ("generator_only", True, False),
        pytest.param("separate", False, True, marks=pytest.mark.slow),
    ],
)
def test_which_losses_train_the_embeddings(
    sharing, by_generator, by_discriminator, model, params_of, keys_of
):
    for which, trains in (("generator", by_generator), ("discriminator", by_discriminator)):
        gradient = gradients(
            model, params_of, keys_of, f"trtd_{which}", generator=Generator(1, sharing)
        )
        assert (size_of(gradient["embeddings"]) > 0) == trains
        assert ("embeddings" in gradient["generator"]) == (sharing == "separate")


def test_a_sample_that_equals_the_original_counts_as_original():
    original = jnp.array([[0, 5, 6, 2, 1]])
    logits = jnp.array([[-9.0, -9.0, 9.0, -9.0, 9.0]])
    sums = rtd.detection_loss(logits, jnp.array([[0, 5, 7, 2, 1]]), original)
    assert float(sums.sum[0]) < 1e-3 and float(sums.count[0]) == 4 == float(sums.correct[0])
    same = rtd.detection_loss(logits, original, original)
    assert float(same.correct[0]) == 3
