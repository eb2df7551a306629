"""Merged models equal NumPy's means and TIES in every tensor, also if values have equal sizes."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from xlj import convert, phrasebook
from xlj.checkpoints import stored_models, writing
from xlj.config import ConfigError, Model, build
from xlj.conversion import merging
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.sharding import meshes, trees

MODEL = Model(layers=2, hidden=8, heads=2, intermediate=8, positions=42)
SOME = ("embeddings/word", "embeddings/norm/bias", "embeddings/norm/scale", "prediction_head/bias")
SOME += ("layers/attention/query/kernel",)
"""Parameters that suffice for most tests. Orbax needs time for each parameter."""


@pytest.fixture(scope="module")
def vocabularies():
    """An English and a Turkish vocabulary of 300 pieces each."""
    return [
        Vocabulary(
            vocabulary_training.train(
                {language: list(itertools.islice(phrasebook.text_lines(language), 300))},
                {language: 1},
                300,
                1.0,
            )
        )
        for language in ("en", "tr")
    ]


@pytest.fixture(scope="module")
def draw_params():
    """A function that draws multiples of 1/4, so that many differences have equal sizes."""

    def init():
        params = encoder.init(jax.random.key(0), MODEL, 300, 0)
        head = init_prediction(jax.random.key(1), MODEL, 300)
        return params | {"prediction_head": head}

    shapes = trees.named_leaves(jax.eval_shape(init))

    def of_seed(seed, names=SOME):
        rng = np.random.default_rng(seed)
        return {
            name: (np.round(4 * rng.normal(size=leaf.shape)) / 4).astype(np.float32)
            for name, leaf in shapes.items()
            if not names or name in names
        }

    return of_seed


@pytest.fixture(scope="module")
def write(vocabularies, tmp_path_factory):
    """A function that writes a checkpoint of some parameters and returns its folder."""
    folder, numbers = tmp_path_factory.mktemp("models"), itertools.count()

    def write(leaves, model=MODEL, vocabulary=vocabularies[0], languages=()):
        path = folder / str(next(numbers))
        params = jax.tree.map(jax.numpy.asarray, trees.nested(leaves))
        config = build({"model": dataclasses.asdict(model)})
        writing.write_params(path, params, config, vocabulary, list(languages))
        return path

    return write


@pytest.fixture(scope="module")
def models(draw_params, write):
    """Parameters of three models and their base, and their folders."""
    leaves = [draw_params(seed) for seed in range(4)]
    return leaves, [write(each) for each in leaves]


def merge(call, output, *arguments):
    call(convert.main, "merge", *arguments, f"--output={output}")
    model = stored_models.find(output)
    return {name: np.asarray(leaf) for name, leaf in model.leaves.items()}


@pytest.mark.parametrize("weights", [(), (3, 1, 0.5)])
def test_means_equal_those_of_numpy(models, call, tmp_path, weights):
    leaves, paths = models
    flags = ["--weights", *weights] if weights else []
    result = merge(call, tmp_path / "new", "--models", *paths[:3], *flags)
    shares = np.array(weights or (1, 1, 1)) / sum(weights or (1, 1, 1))
    assert result.keys() == leaves[0].keys()
    for name in result:
        expected = np.tensordot(
            shares, np.stack([each[name] for each in leaves[:3]], dtype=float), 1
        )
        np.testing.assert_allclose(result[name], expected, rtol=1e-6, atol=1e-7)
    assert [each.name for each in tmp_path.iterdir()] == ["new"]  # no temporary files remain


def test_a_model_moves_towards_the_model_before_its_training(models, write, tmp_path):
    """A parameter that only the trained model has keeps its value, such as a new head."""
    leaves, paths = models
    new = sorted(leaves[0])[-1]
    before = {name: tensor for name, tensor in leaves[1].items() if name != new}
    trained, start = (stored_models.find(path) for path in (paths[0], write(before)))
    moved = merging.towards(start, trained, 0.25)
    expected = {name: 0.25 * before[name] + 0.75 * leaves[0][name] for name in before}
    expected[new] = leaves[0][new]
    whole = trees.named_leaves(moved.params(meshes.one_device()))
    assert moved.leaves.keys() == whole.keys() == expected.keys()
    for name, tensor in expected.items():
        for found in (moved.leaves[name], whole[name]):
            np.testing.assert_allclose(found, tensor, rtol=1e-6, atol=1e-7)
    assert len({each.digest() for each in (trained, start, moved)}) == 3
    assert merging.towards(start, trained, 0) is trained
    longer = write(before | {new: np.zeros((3, 5))})
    with pytest.raises(ConfigError, match=rf"{longer}: {new} has shape \[3, 5\], but"):
        merging.towards(stored_models.find(longer), trained, 0.5)


def ties(leaves, base, share, scale):
    """Computes TIES in NumPy with all tensors as one vector."""
    names = sorted(base)
    vectors = [
        np.concatenate([each[n].ravel() - base[n].ravel() for n in names]) for each in leaves
    ]
    count = round(share * len(vectors[0]))
    trimmed = np.zeros((len(vectors), len(vectors[0])))
    for row, vector in zip(trimmed, vectors, strict=True):
        largest = np.argsort(-np.abs(vector), kind="stable")[:count]
        row[largest] = vector[largest]
    sign = np.sign(trimmed.sum(0))
    agrees = (np.sign(trimmed) == sign) & (trimmed != 0)
    mean = (trimmed * agrees).sum(0) / np.maximum(agrees.sum(0), 1)
    whole = np.concatenate([base[n].ravel() for n in names]) + scale * mean
    sizes = np.cumsum([base[n].size for n in names])[:-1]
    parts = np.split(whole, sizes)
    return {n: part.reshape(base[n].shape) for n, part in zip(names, parts, strict=True)}, trimmed


@pytest.mark.parametrize("share, scale", [(None, None), (0.35, 0.5)])
def test_ties_equals_ties_in_numpy(models, call, tmp_path, share, scale):
    leaves, paths = models
    flags = [f"--base={paths[3]}"]
    flags += [f"--share={share}", f"--scale={scale}"] if share else []
    result = merge(call, tmp_path / "new", "--models", *paths[:3], *flags)
    expected, trimmed = ties(leaves[:3], leaves[3], share or 0.2, scale or 1.0)
    sizes = np.sort(np.abs(trimmed[0][trimmed[0] != 0]))
    assert (sizes == sizes[0]).sum() > 10  # some values of the smallest size were dropped
    for name in result:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_ties_counts_sizes_that_differ_in_their_last_bits(draw_params, write, call, tmp_path):
    base, rng = draw_params(0), np.random.default_rng(1)
    base = {name: 0 * leaf for name, leaf in base.items()}
    leaves = [
        {
            n: (1 + rng.uniform(-1e-4, 1e-4, leaf.shape)).astype(np.float32)
            for n, leaf in base.items()
        }
        for _ in range(2)
    ]
    paths = [write(each) for each in (*leaves, base)]
    result = merge(call, tmp_path / "new", "--models", *paths[:2], f"--base={paths[2]}")
    expected, _ = ties(leaves, base, 0.2, 1.0)
    for name in result:
        np.testing.assert_allclose(result[name], expected[name], rtol=1e-6, err_msg=name)
    not_zero = sum((leaf != 0).sum() for leaf in result.values())
    numbers = sum(leaf.size for leaf in base.values())
    assert 0.2 * numbers <= not_zero <= 0.4 * numbers


def test_a_hugging_face_folder_can_be_merged(draw_params, write, call, tmp_path):
    leaves = [draw_params(seed, names=()) for seed in (0, 1)]
    paths = [write(each) for each in leaves]
    call(convert.main, "export", f"--checkpoint={paths[0]}", f"--output={tmp_path}/folder")
    result = merge(call, tmp_path / "new", "--models", tmp_path / "folder", paths[1])
    for name in result:
        np.testing.assert_allclose(result[name], (leaves[0][name] + leaves[1][name]) / 2, rtol=1e-6)
    record = stored_models.find(tmp_path / "new").checkpoint.meta["merged"]
    assert record["models"][1].startswith(f"{paths[1]} ") and len(record["models"]) == 2


def test_rows_without_an_id_are_left_out_if_a_model_lacks_them(draw_params, write, call, tmp_path):
    """A released folder may have rows beyond the tokenizer's ids; its trained export has none."""
    leaves = [draw_params(seed) for seed in (0, 1)]
    surplus = {"surplus/embeddings/word": np.ones((3, MODEL.hidden), np.float32)}
    released, trained = write(leaves[0] | surplus), write(leaves[1])
    for number, models in enumerate([(released, trained), (trained, released)]):
        result = merge(call, tmp_path / str(number), "--models", *models)
        assert result.keys() == leaves[0].keys()
    with_base = merge(
        call, tmp_path / "ties", "--models", trained, trained, "--base", released, "--share=1"
    )
    np.testing.assert_allclose(with_base["embeddings/word"], leaves[1]["embeddings/word"])
    both = merge(call, tmp_path / "both", "--models", released, released)
    assert both.keys() == leaves[0].keys() | surplus.keys()


def test_models_that_differ_are_refused_with_the_difference(
    models, draw_params, write, vocabularies, call, tmp_path
):
    leaves, paths = models
    wide = {
        name: leaf[..., :4] if name.endswith("norm/scale") else leaf
        for name, leaf in draw_params(5).items()
    }
    headless = {
        n: leaf for n, leaf in draw_params(5).items() if not n.startswith("prediction_head/")
    }
    broken = draw_params(5) | {"embeddings/norm/bias": np.full(8, np.nan, np.float32)}
    others = {
        r"model.heads: 2 -> 4": write(draw_params(5), dataclasses.replace(MODEL, heads=4)),
        r"the vocabularies differ in size \(300 and 300 ids\) or in pieces": write(
            draw_params(5), vocabulary=vocabularies[1]
        ),
        r"embeddings/norm/scale has shape \[4\], expected \[8\]": write(wide),
        r"/\d+ has no prediction_head/bias": write(headless),
        r"embeddings/norm/bias has values that are not finite": write(broken),
    }
    for message, path in others.items():
        with pytest.raises(ConfigError, match=message):
            merge(call, tmp_path / "new", "--models", paths[0], path)
    with pytest.raises(ConfigError, match="cannot be merged with .*: model.heads"):
        merge(
            call, tmp_path / "new", "--models", *paths[:2], f"--base={next(iter(others.values()))}"
        )
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "expected at least two models"),
        (["b", "--weights", "1"], "1 weights for 2 models"),
        (["b", "--weights", "1", "0"], "expected one weight above 0 for each model"),
        (["b", "--weights", "1", "1", "--base=c"], "--weights applies to the mean only"),
        (["b", "--base=c", "--share=0"], "--share=0: expected above 0"),
        (["b", "--share=0.5"], "--share is an option of TIES"),
    ],
)
def test_contradicting_flags_are_refused_before_any_model_is_read(call, tmp_path, flags, message):
    with pytest.raises(ConfigError, match=message):
        merge(call, tmp_path / "new", "--models", "a", *flags)
