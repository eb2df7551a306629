"""Widened models equal NumPy's `pad` on each axis of each parameter."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from xlj import convert, phrasebook
from xlj.checkpoints import stored_models, writing
from xlj.config import ConfigError, Model, build
from xlj.config.families import options_of
from xlj.conversion import widening
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.sharding import trees

XLM_R = Model(layers=2, hidden=8, heads=2, intermediate=12, positions=12, position_bias="gated")
MODERN = Model(
    layers=3,
    hidden=16,
    heads=4,
    intermediate=10,
    positions=12,
    **options_of("modernbert") | {"biases": (), "tied": False, "key_value_heads": 2},
)
SIZES = [
    (XLM_R, {"layers": 5, "hidden": 20, "heads": 5, "intermediate": 17}),
    (MODERN, {"layers": 7, "hidden": 24, "heads": 6, "key_value_heads": 3, "intermediate": 13}),
]


def shapes_of(model, vocabulary_size):
    def init():
        params = encoder.init(jax.random.key(0), model, vocabulary_size, 0)
        return params | {"prediction_head": init_prediction(jax.random.key(0), model, 300)}

    return {name: leaf.shape for name, leaf in trees.named_leaves(jax.eval_shape(init)).items()}


def draw_params(model):
    rng = np.random.default_rng(0)
    shapes = shapes_of(model, 300)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def wrap(array, sizes):
    """Returns an array of these sizes, with the array in the middle and repeated around it."""
    before = [(size - old) // 2 for size, old in zip(sizes, array.shape, strict=True)]
    after = [s - old - b for s, old, b in zip(sizes, array.shape, before, strict=True)]
    return np.pad(array, list(zip(before, after, strict=True)), mode="wrap")


def widen_in_numpy(name, array, old, new):
    """Returns a parameter of the larger model; for `layers/`, of one layer."""
    size, rows = old.hidden // old.heads, array.shape[0]
    *_, part, last = name.split("/")
    if part in ("query", "key", "value"):
        count, more = (m.heads if part == "query" else m.groups for m in (old, new))
        if last == "bias":
            return wrap(array.reshape(count, size), (more, size)).ravel()
        whole = wrap(array.reshape(rows, count, size), (new.hidden, more, size))
        return whole.reshape(new.hidden, -1)
    if name.endswith("attention/output/kernel"):
        whole = wrap(array.reshape(old.heads, size, -1), (new.heads, size, new.hidden))
        return whole.reshape(-1, new.hidden)
    if part == "inner":
        halves = np.split(array, 1 if old.feed_forward == "gelu" else 2, axis=-1)
        sizes = (new.intermediate,) if last == "bias" else (new.hidden, new.intermediate)
        return np.concatenate([wrap(half, sizes) for half in halves], axis=-1)
    if name.endswith("outer/kernel"):
        return wrap(array, (new.intermediate, new.hidden))
    if part == "gates":
        return array if last == "kernel" else wrap(array, (new.heads,))
    if last == "table":
        return wrap(array, (rows, new.heads))
    if name == "prediction_head/bias":
        return array
    if name.endswith("dense/kernel"):
        return wrap(array, (new.hidden, new.hidden))
    return wrap(array, (*array.shape[:-1], new.hidden))


@pytest.mark.parametrize("old, sizes", SIZES)
def test_each_parameter_is_tiled_from_the_middle(old, sizes):
    leaves, new = draw_params(old), dataclasses.replace(old, **sizes)
    result = widening.widen_parameters(leaves, old, new, copied=True)
    assert {name: leaf.shape for name, leaf in result.items()} == shapes_of(new, 300)
    copied_layers = [
        min(round(layer * old.layers / new.layers), old.layers - 1) for layer in range(new.layers)
    ]
    for name, leaf in result.items():
        if not name.startswith("layers/"):
            expected = widen_in_numpy(name, leaves[name], old, new)
        elif len(leaves[name]) == old.layers:
            expected = np.stack(
                [widen_in_numpy(name, leaves[name][layer], old, new) for layer in copied_layers]
            )
        else:  # the first layer has no norm, so its copies have the norm of the second
            places = [max(layer, 1) - 1 for layer in copied_layers[1:]]
            expected = np.stack(
                [widen_in_numpy(name, leaves[name][place], old, new) for place in places]
            )
        np.testing.assert_array_equal(leaf, expected, err_msg=name)


@pytest.mark.parametrize("old", [XLM_R, MODERN])
def test_divided_weights_compute_the_same_logits(old, monkeypatch):
    """All indices have the same number of copies, so the norms are the same too."""
    monkeypatch.setattr(widening, "_NOISE_STD", 0.0)
    more = {"hidden": 3 * old.hidden, "heads": 3 * old.heads, "intermediate": 3 * old.intermediate}
    if old.key_value_heads:
        more["key_value_heads"] = 3 * old.key_value_heads
    new = dataclasses.replace(old, **more)
    small = {name: 0.3 * leaf for name, leaf in draw_params(old).items()}
    large = widening.widen_parameters(small, old, new, copied=False)
    rng = np.random.default_rng(1)
    tokens, ids = rng.integers(0, 300, (2, 6)), np.zeros((2, 6), int)
    inputs = encoder.Inputs(tokens, ids + np.arange(6), ids, ids)
    logits = []
    for model, leaves in ((old, small), (new, large)):

        def compute_logits(params, model=model):
            hidden, table = encoder.apply(params, model, inputs), params["embeddings"]["word"]
            vectors, table, bias = predict(params["prediction_head"], table, model, hidden)
            return vectors @ table.T + bias

        logits.append(jax.jit(compute_logits)(trees.nested(leaves)))
    assert np.std(logits[0]) > 0.1
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-4, atol=1e-4)


def test_weights_are_divided_by_the_number_of_copies_of_their_input(monkeypatch):
    monkeypatch.setattr(widening, "_NOISE_STD", 0.0)
    new, name = dataclasses.replace(XLM_R, hidden=12, heads=3), "layers/feed_forward/inner/kernel"
    copied, divided = (
        widening.widen_parameters(draw_params(XLM_R), XLM_R, new, copied=is_copied)[name]
        for is_copied in (True, False)
    )
    places = widening.tile_indices(8, 12).tolist()
    copies = np.array([places.count(place) for place in places])
    assert set(copies) == {1, 2}
    np.testing.assert_allclose(divided * copies[:, None], copied, rtol=1e-6)


def test_divided_weights_have_noise_that_separates_copies():
    model, new = XLM_R, dataclasses.replace(XLM_R, hidden=16, heads=4)
    large = widening.widen_parameters(draw_params(model), model, new, copied=False)
    name = "layers/feed_forward/inner/kernel"
    plain = widening.widen_parameters(draw_params(model), model, new, copied=True)[name] / 2
    noise = large[name] - plain
    np.testing.assert_allclose(noise.std() / plain.std(), widening._NOISE_STD, rtol=0.2)
    assert len(np.unique(noise)) == noise.size
    again = widening.widen_parameters(draw_params(model), model, new, copied=False)
    np.testing.assert_array_equal(again[name], large[name])
    np.testing.assert_array_equal(  # embeddings have no noise
        large["embeddings/word"],
        draw_params(model)["embeddings/word"][:, widening.tile_indices(8, 16)],
    )


def test_layers_are_copied_to_the_same_relative_depth():
    assert widening.layer_indices(22, 28)[:9].tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 6]
    assert widening.layer_indices(2, 8).tolist() == [
        0,
        0,
        0,
        1,
        1,
        1,
        1,
        1,
    ]  # round(7 * 2 / 8) is 2, which is limited to the last layer


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A checkpoint of a small model, with a head that is not tiled."""
    path = tmp_path_factory.mktemp("small") / "checkpoint"
    lines = {"en": list(itertools.islice(phrasebook.text_lines("en"), 300))}
    vocabulary = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 300, 1.0))
    leaves = draw_params(XLM_R) | {"detection_head/dense/kernel": np.zeros((8, 8), np.float32)}
    config = build({"model": dataclasses.asdict(XLM_R)})
    params = jax.tree.map(jax.numpy.asarray, trees.nested(leaves))
    writing.write_params(path, params, config, vocabulary, ["en"])
    return path


def test_widen_writes_a_checkpoint_from_which_runs_can_start(small, call, tmp_path):
    flags = [f"--{name}={size}" for name, size in SIZES[0][1].items()]
    printed = call(
        convert.main, "widen", f"--checkpoint={small}", *flags, f"--output={tmp_path}/new"
    ).out
    assert "not written (runs initialise them): detection_head/dense/kernel\n" in printed
    assert "tiled: layers 2 -> 5, hidden 8 -> 20, heads 2 -> 5, intermediate 12 -> 17" in printed
    model, new = stored_models.find(tmp_path / "new"), dataclasses.replace(XLM_R, **SIZES[0][1])
    assert model.model == new and model.languages == ("en",)
    expected = widening.widen_parameters(draw_params(XLM_R), XLM_R, new, copied=False)
    assert set(model.leaves) == set(expected)
    for name in ("layers/attention/query/kernel", "embeddings/word"):
        np.testing.assert_array_equal(model.leaves[name], expected[name])


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--hidden=4"], "--hidden=4 is smaller than the 8 of"),
        ([], "no size is larger than the model's"),
        (["--layers=2"], "no size is larger than the model's"),
        (["--hidden=12"], "expected --hidden to be 4 times --heads, because .* have 4 dimensions"),
        (["--intermediate=13", "--key_value_heads=3"], "not divisible by model.key_value_heads=3"),
    ],
)
def test_impossible_sizes_are_refused(small, call, tmp_path, flags, message):
    with pytest.raises(ConfigError, match=message):
        call(convert.main, "widen", f"--checkpoint={small}", *flags, f"--output={tmp_path}/new")
    assert not (tmp_path / "new").exists()
