"""`xlj.convert` refuses wrong outputs before it reads a model, and extends vocabularies."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from xlj import convert, phrasebook
from xlj.checkpoints import stored_models, writing
from xlj.config import ConfigError, Model, build
from xlj.conversion import importing
from xlj.conversion.exporting import export
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import sentence_modules
from xlj.interop.folder import open_folder
from xlj.interop.sentence_modules import Dense, SentenceModules
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.sharding import meshes, trees


@pytest.fixture
def expect_error(call):
    """Calls the command, and expects an error that matches."""

    def expect_error(match, *arguments):
        with pytest.raises(ConfigError, match=match):
            call(convert.main, *arguments)

    return expect_error


@pytest.mark.parametrize("action", ["import", "export", "extend"])
def test_an_existing_output_is_refused_before_the_inputs_are_read(
    expect_error, tmp_path, monkeypatch, action
):
    monkeypatch.chdir(tmp_path)
    more = {
        "import": ["--source=none"],
        "export": ["--checkpoint=none"],
        "extend": ["--checkpoint=none", "--text=none", "--pieces=3"],
    }[action]
    for output in (".", tmp_path):
        expect_error("exists already", action, *more, f"--output={output}")


def test_an_error_while_writing_names_the_output(expect_error, tmp_path, monkeypatch):
    def raise_disk_full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(importing, "import_folder", raise_disk_full)
    expect_error(r"--output=.*new cannot be written: no space left",
            "import", "--source=none", f"--output={tmp_path}/new")  # fmt: skip


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--heal"], "--heal needs --text"),
        (["--minutes=5"], r"--minutes=5: .* --heal"),
        (["--seed=0"], "--seed=0 needs --heal"),
        (["--heal", "--text=none", "--minutes=0"], "--minutes=0: expected above 0"),
    ],
)
def test_flags_of_healing_contradict_each_other(expect_error, tmp_path, flags, message):
    expect_error(message, "trim", "--checkpoint=none", "--layers=0", *flags,
                 f"--output={tmp_path}/new")  # fmt: skip


@pytest.mark.slow
def test_extend_adds_pieces_and_keeps_the_parameters_of_old_pieces(tmp_path, call):
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 8, "positions": 42}
    model = Model(**sizes, tied=False)  # so that the head has its own table
    lines = {"en": list(itertools.islice(phrasebook.text_lines("en"), 300))}
    old = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 300, 1.0))
    key = jax.random.key(0)
    params = encoder.init(key, model, old.size, 0)
    head = init_prediction(key, model, old.size)
    params["prediction_head"] = head | {"bias": jax.random.normal(key, (old.size,))}
    config = build({"model": dataclasses.asdict(model)})
    writing.write_params(tmp_path / "old", params, config, old, [])
    turkish = list(itertools.islice(phrasebook.text_lines("tr"), 300))
    (tmp_path / "tr.txt").write_text("\n\n".join(turkish))
    arguments = ["extend", f"--checkpoint={tmp_path}/old", f"--text={tmp_path}/tr.txt"]
    printed = call(convert.main, *arguments, "--pieces=50", f"--output={tmp_path}/new").out
    source = stored_models.find(tmp_path / "new")
    new, new_params = source.vocabulary(), source.params(meshes.one_device())
    assert new.pieces[: old.size - 1] == old.pieces[:-1] and new.size == old.size + 50
    assert len(new.encode(turkish).ids) < len(old.encode(turkish).ids)
    for name in ("embeddings/word", "prediction_head/bias", "prediction_head/word"):
        before, after = (trees.named_leaves(p)[name] for p in (params, new_params))
        np.testing.assert_array_equal(after[: old.size - 1], before[:-1])
        np.testing.assert_array_equal(after[-1], before[-1])  # <mask>
        assert after.shape[0] == new.size and np.isfinite(after).all()
    assert "300 -> 350 ids" in printed


def test_an_export_has_the_sentence_modules_of_its_origin(checkpoint, tmp_path):
    """Other exports have the modules of the exported model, but a run, such as that of an
    adaptation, has none."""
    source = stored_models.find(checkpoint)
    modules = SentenceModules(("mean",), steps=(Dense(32, 8, "Tanh"), None), length=64)
    rng = np.random.default_rng(0)
    weights = {
        "sentence/0/kernel": rng.normal(size=(32, 8)).astype(np.float32),
        "sentence/0/bias": rng.normal(size=8).astype(np.float32),
    }
    origin = dataclasses.replace(source, sentence=modules, leaves=weights)
    export(str(checkpoint), tmp_path / "with", origin=origin)
    export(str(checkpoint), tmp_path / "without")
    assert not (tmp_path / "without/modules.json").exists()
    read = stored_models.find(tmp_path / "with")
    assert read.sentence == modules
    _, stored = sentence_modules.read(tmp_path / "with", open_folder(tmp_path / "with"), 32)
    assert stored.keys() == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(stored[name], weight, name)
    tensors = load_file(tmp_path / "without/model.safetensors")
    encoder_alone = load_file(tmp_path / "with/model.safetensors")
    np.testing.assert_array_equal(encoder_alone.pop("pooler.dense.weight"), np.eye(32))
    np.testing.assert_array_equal(encoder_alone.pop("pooler.dense.bias"), np.zeros(32))
    heads = {name for name in tensors if not name.startswith("roberta.")}
    assert heads and {f"roberta.{name}" for name in encoder_alone} == {*tensors} - heads
    for name, tensor in encoder_alone.items():
        np.testing.assert_array_equal(tensor, tensors[f"roberta.{name}"], name)
