"""`xlj.convert` refuses wrong outputs before it reads a model, and extends vocabularies."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from xlj import convert, phrasebook
from xlj.checkpoints import stored_models, writing
from xlj.config import ConfigError, Model, build
from xlj.conversion import importing
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.models import encoder, heads
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


def test_extend_adds_pieces_and_keeps_the_parameters_of_old_pieces(tmp_path, call):
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 8, "positions": 42}
    model = Model(**sizes, tied=False)  # so that the head has its own table
    lines = {"en": list(itertools.islice(phrasebook.text_lines("en"), 300))}
    old = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 300, 1.0))
    key = jax.random.key(0)
    params = encoder.init(key, model, old.size, 0)
    head = heads.init_prediction(key, model, old.size)
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
