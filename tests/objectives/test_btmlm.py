"""BTMLM: placeholders, their languages, the generation of pseudo-tokens, and predictions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from random_rows import CORPUS, SIZE, rows_of
from references import btmlm as reference
from references.encoder import float64

from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.models.segments import segments
from xlj.objectives.btmlm import loss as btmlm
from xlj.objectives.btmlm.options import BackTranslation
from xlj.objectives.masking.options import Masking

OPTIONS = BackTranslation(masking=Masking(rate=0.2), pseudo_ratio=0.2)
MASK = SIZE - 1


def whole(function, inputs):
    return function(inputs)


def prepared(model, options, params_of, keys_of, seed=0):
    model = dataclasses.replace(model, language_embeddings="predicted")
    objective = compiled(btmlm.objective("btmlm", options, model, CORPUS))
    rows, params = rows_of("sentences", seed=seed, count=60), params_of(model, objective)
    before = objective.corrupt(rows, keys_of(rows))
    return rows, before, objective.targets(params, {}, before, whole), objective, params, model


def test_placeholders_whose_sentence_is_outside_the_window_are_counted(model, params_of, keys_of):
    model = dataclasses.replace(model, local_attention=3, full_attention_every=2)
    options = BackTranslation(masking=Masking(rate=0.2), pseudo_ratio=0.2)
    rows, _, result, objective, params, model = prepared(model, options, params_of, keys_of)
    tokens, used = np.asarray(result.source), np.asarray(result.used)
    blind = 0
    for row, positions in zip(tokens, np.where(used, result.positions, -1), strict=True):
        for place in positions[positions >= 0]:
            near = row[max(place - 1, 0) : place]  # the window has one token on each side
            blind += not np.isin(near, EOS).all()
    losses = objective.loss(params, {}, result, None)["btmlm_blind"]
    assert losses.sum.sum() == blind > 5 and losses.count.sum() == used.sum()
    assert objective.count(result)["btmlm_blind"].sum() == used.sum()


@pytest.mark.parametrize("generation, embeddings", [("argmax", "predicted"), ("sample", "all")])
def test_the_whole_step_equals_numpy(
    generation,
    embeddings,
    full_model,
    params_of,
    keys_of,
    step_of,
    assert_sums,
    assert_masked,
    gumbel,
):
    model = dataclasses.replace(full_model, language_embeddings=embeddings)
    options = BackTranslation(
        masking=Masking(rate=0.3, mask_share=0.5, random_share=0.35), weight=3.0, pseudo_ratio=0.17,
        target_alpha=0.5, generation=generation,
    )  # fmt: skip
    objective = btmlm.objective("btmlm", options, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("sentences", count=60, shortest=3)
    before, after, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    plain = float64(params)
    source, placed = reference.placeholders(rows["tokens"], 0.17, MASK)
    expected = btmlm.target_probabilities(CORPUS, 0.5)
    np.testing.assert_array_equal(objective.corrupt.keywords["probabilities"], expected)
    np.testing.assert_array_equal(before.source, source)
    assert_masked(source, before.masked, options)
    targets = np.asarray(before.targets)
    assert (targets != np.asarray(rows["languages"][:, :1]))[placed].all()
    examples_of_rows = np.asarray(segments(rows["tokens"]).segment)
    for row, languages, placed_in_row in zip(examples_of_rows, targets, placed, strict=True):
        for example in set(row[placed_in_row]):  # all placeholders of a sentence have one language
            assert len({*languages[placed_in_row & (row == example)]}) == 1
    noise = None
    if generation == "sample":
        noise = gumbel(before.sample_rngs, before.positions, source.shape[1])
    filled = reference.pseudo_tokens(
        plain, model, source, placed, targets, rows["languages"], noise
    )
    np.testing.assert_array_equal(after.source, filled)
    second_stage = np.where(placed, filled, before.masked.tokens)
    np.testing.assert_array_equal(after.masked.tokens, second_stage)
    masked = before.masked._replace(tokens=second_stage)
    expected = reference.loss(plain, model, masked, placed, targets)
    assert_sums(losses["btmlm"], counts["btmlm"], expected)
    assert objective.losses["btmlm"].weight == 3 and objective.losses["btmlm"].over_vocabulary


@pytest.mark.parametrize("ratio", [0.05, 0.1, 0.15, 0.2])
def test_the_pseudo_ratio_sets_the_number_of_filled_placeholders(ratio, model, params_of, keys_of):
    options = dataclasses.replace(OPTIONS, pseudo_ratio=ratio)
    rows, before, after, *_ = prepared(model, options, params_of, keys_of)
    tokens, source = np.asarray(rows["tokens"]), np.asarray(after.source)
    for old, new in zip(tokens, source, strict=True):
        for start in np.flatnonzero(old == BOS):
            end = start + int(np.argmax(old[start:] == EOS))
            length = end - start - 1
            slots = int((old[end + 1 :] != MASK).argmax()) if (old[end + 1 :] != MASK).any() else (
                len(old) - end - 1)  # fmt: skip
            filled = int(np.ceil(ratio * length - 1e-6))
            assert slots == int(np.ceil(0.2 * length - 1e-6))
            pseudo = new[end + 1 : end + 1 + filled]
            assert ((pseudo >= 4) & (pseudo < MASK)).all()
            assert (new[end + 1 + filled : end + 1 + slots] == PAD).all()
            assert (new[start : end + 1] == old[start : end + 1]).all()
    assert int(np.asarray(before.used).sum()) == int((np.asarray(before.source) == MASK).sum())


def test_only_source_tokens_are_masked_and_pseudo_tokens_are_seen(model, params_of, keys_of):
    rows, before, after, objective, params, model = prepared(model, OPTIONS, params_of, keys_of)
    side = np.asarray(segments(rows["tokens"]).side)
    assert (side[np.asarray(after.masked.selected())] == 0).all()
    np.testing.assert_array_equal(
        np.where(side == 1, after.source, 0), np.where(side == 1, after.masked.tokens, 0)
    )
    # The loss of stage 2 depends on the pseudo-tokens.
    other = after.masked.tokens
    other = jnp.where(jnp.asarray(side == 1) & (other != PAD), 5, other)
    changed = after._replace(masked=after.masked._replace(tokens=other))
    loss = [float(objective.loss(params, {}, x, None)["btmlm"].sum.sum()) for x in (after, changed)]
    assert loss[0] != loss[1]


def test_placeholders_see_their_sentence_and_not_each_other(model, params_of, keys_of):
    """Compares the segment ids that `fill` passes to the encoder."""
    _, before, _, objective, params, model = prepared(model, OPTIONS, params_of, keys_of)
    row = int(np.argmax(np.asarray(before.used).sum(1)))
    one = jax.tree.map(lambda x: x[row : row + 1], before)
    layout = segments(one.source)
    placed = np.zeros(one.source.shape[1], bool)
    placed[np.asarray(one.positions[0])[np.asarray(one.used[0])]] = True
    captured = {}

    def fake_apply(params, model, inputs, keys=None, **options):
        captured["inputs"] = inputs
        return encoder_apply(params, model, inputs, keys, **options)

    encoder_apply, encoder.apply = encoder.apply, fake_apply
    try:
        btmlm.fill(params, model, OPTIONS, one)
    finally:
        encoder.apply = encoder_apply
    inputs = captured["inputs"]
    sees = (
        np.asarray(inputs.query_segment_ids[0])[:, None]
        == np.asarray(inputs.key_segment_ids[0])[None]
    )
    segment = np.asarray(layout.segment[0])
    for at in np.flatnonzero(placed):
        np.testing.assert_array_equal(sees[at], (segment == segment[at]) & ~placed)
    assert not sees[:, placed].any() and placed.sum() >= 2
    languages = np.asarray(inputs.languages[0])
    np.testing.assert_array_equal(languages >= 0, placed)


def test_placeholders_belong_to_the_second_side_in_both_stages(
    model, params_of, keys_of, monkeypatch
):
    model = dataclasses.replace(model, token_types=2, pair_marks=("types",))
    rows, before, after, _, params, model = prepared(model, OPTIONS, params_of, keys_of)
    # Not compiled, so that the replaced function records arrays.
    objective = btmlm.objective("btmlm", OPTIONS, model, CORPUS)
    recorded, encoder_apply = [], encoder.apply
    monkeypatch.setattr(
        encoder,
        "apply",
        lambda *args, **more: (recorded.append(args[2]), encoder_apply(*args, **more))[1],
    )
    objective.targets(params, {}, before, whole)
    objective.loss(params, {}, after, None)
    for inputs in recorded:
        types = jnp.take_along_axis(inputs.sides, before.positions, axis=1)
        assert (np.asarray(types)[np.asarray(before.used)] == 1).all()
        assert not np.asarray(inputs.sides)[np.asarray(rows["tokens"]) == BOS].any()
    assert len(recorded) == 2
    params["embeddings"]["token_type"] = params["embeddings"]["token_type"].at[1].multiply(-9)
    other = objective.targets(params, {}, before, whole)
    assert (np.asarray(other.source) != np.asarray(after.source)).any()


def test_target_languages_follow_the_configured_distribution(keys_of):
    rows = rows_of("sentences", count=4000)
    for alpha in (0.0, 1.0):
        options = dataclasses.replace(OPTIONS, target_alpha=alpha)
        table = btmlm.target_probabilities(CORPUS, alpha)
        result = btmlm.corrupt(
            rows, keys_of(rows), options=options, vocabulary_size=SIZE, probabilities=table
        )
        source = np.broadcast_to(np.asarray(rows["languages"][:, :1]), result.targets.shape)
        first = np.asarray(rows["tokens"]) == BOS  # one draw per example
        for language in range(3):
            targets = np.asarray(result.targets)[first & (source == language)]
            shares = np.bincount(targets, minlength=3) / len(targets)
            np.testing.assert_allclose(shares, table[language], atol=0.05)
            assert shares[language] == 0
    np.testing.assert_allclose(btmlm.target_probabilities(CORPUS, 1.0)[0], [0, 5 / 7, 2 / 7])
    np.testing.assert_allclose(btmlm.target_probabilities(CORPUS, 0.0)[2], [0.5, 0.5, 0])
    paired = dataclasses.replace(CORPUS, paired=("en", "sw"))
    expected = [[0, 0, 1], [0.5, 0, 0.5], [1, 0, 0]]
    np.testing.assert_allclose(btmlm.target_probabilities(paired, 0.0), expected)
    alone = dataclasses.replace(CORPUS, paired=("en",))  # English needs another target language
    expected = [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    np.testing.assert_allclose(btmlm.target_probabilities(alone, 0.0), expected)


def test_the_target_language_changes_pseudo_tokens(model, params_of, keys_of):
    _, before, after, objective, params, _ = prepared(model, OPTIONS, params_of, keys_of)
    other = before._replace(targets=(before.targets + 1) % 3)
    changed = objective.targets(params, {}, other, whole)
    assert (np.asarray(changed.source) != np.asarray(after.source)).any()


def test_samples_depend_on_the_key_and_the_argmax_does_not(model, params_of, keys_of):
    for generation, same in (("argmax", True), ("sample", False)):
        options = dataclasses.replace(OPTIONS, generation=generation)
        _, before, after, objective, params, _ = prepared(model, options, params_of, keys_of)
        again = before._replace(sample_rngs=jax.random.split(jax.random.key(9), len(before.used)))
        other = objective.targets(params, {}, again, whole)
        assert np.array_equal(after.source, other.source) == same
