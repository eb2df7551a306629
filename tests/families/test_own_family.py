"""A family of a user, outside xlj: its folders are imported and exported like those of xlj's."""

import importlib
import json
import re
from pathlib import Path

import jax
import modern_tokenizers
import numpy as np
import pytest

from xlj import config as schema
from xlj import families, phrasebook
from xlj.cli import configs
from xlj.config import Model
from xlj.config import families as table
from xlj.data.tokenizer.layout import SEPARATOR
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import from_hugging_face, to_hugging_face
from xlj.interop.folder import open_folder
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.sharding.trees import named_leaves

PAGE = Path(__file__).parents[2] / "docs/models.md"
SIZES = {"layers": 2, "hidden": 32, "heads": 4, "intermediate": 24, "positions": 42}


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """Registers the family of the page `docs/models.md` during a test."""
    monkeypatch.setitem(table._REGISTERED, "mine", "my_family:Mine")  # undone after the test
    monkeypatch.syspath_prepend(tmp_path)
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    (tmp_path / "my_family.py").write_text(code)
    yield importlib.import_module("my_family")
    del importlib.sys.modules["my_family"]
    table._load.cache_clear()


@pytest.fixture
def vocabulary():
    """A vocabulary with the separator of the family."""
    lines = [line for line, _ in zip(phrasebook.text_lines("en"), range(200), strict=False)]
    tokenizer = modern_tokenizers.eurobert(lines, 350)
    return Vocabulary(tokenizer.to_str().replace("<|parallel_sep|>", "<sep>").encode())


def leaves_of(model, size):
    key = jax.random.key(0)

    def init():
        params = encoder.init(key, model, size, 0)
        return params | {"prediction_head": init_prediction(key, model, size)}

    rng = np.random.default_rng(0)
    shapes = named_leaves(jax.eval_shape(init))
    return {name: rng.normal(size=leaf.shape).astype("f4") for name, leaf in shapes.items()}


def export(folder, model, vocabulary, leaves, pairs_as_rows=False):
    plan = to_hugging_face.plan(leaves, model, vocabulary, headless=False)
    folder.mkdir()
    to_hugging_face.write(folder, plan, leaves, model, vocabulary, pairs_as_rows)
    return plan


def test_a_folder_of_the_family_is_exported_and_imported(tmp_path, vocabulary):
    model = Model(**table.options_of("mine") | SIZES)
    leaves = leaves_of(model, vocabulary.size)
    export(tmp_path / "out", model, vocabulary, leaves)
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["model_type"] == "mine" and config["architectures"] == ["MineForMaskedLM"]
    assert config["rope_theta"] == 10_000 and config["norm_eps"] == 1e-5
    shapes = open_folder(tmp_path / "out").shapes
    assert set(shapes) == {
        "decoder.weight", "encoder.norm.weight", "encoder.words.weight",
        *(
            f"encoder.blocks.{layer}.{name}.weight"
            for layer in range(2)
            for name in ("qkv", "out", "norm1", "w12", "w3", "norm2")
        ),
    }  # fmt: skip
    assert tuple(shapes["encoder.blocks.1.qkv.weight"]) == (96, 32)
    imported = from_hugging_face.inspect(tmp_path / "out")
    assert imported.model == model and imported.architecture.model_type == "mine"
    assert not imported.ignored and set(imported.parameters) == set(leaves)
    rows = vocabulary.native_ids >= 0  # `<pad>` and `<unk>` exist only inside xlj
    for name, leaf in leaves.items():
        expected = leaf * rows[:, None] if name.endswith("/word") else leaf
        np.testing.assert_array_equal(
            from_hugging_face.read(imported, name), expected, err_msg=name
        )


def test_an_export_prefers_the_family_of_the_model(vocabulary):
    """EuroBERT's config.json describes these models too."""
    for name in ("mine", "eurobert"):
        model = Model(**table.options_of("mine") | SIZES | {"family": name})
        plan = to_hugging_face.plan(
            leaves_of(model, vocabulary.size), model, vocabulary, headless=False
        )
        assert plan.architecture.model_type == name


@pytest.mark.parametrize("marks", [(), ("separator",)])
def test_vocabularies_and_folders_have_the_separator_of_the_family(tmp_path, vocabulary, marks):
    assert vocabulary.separator == vocabulary.pieces[SEPARATOR] == "<sep>"
    model = Model(**table.options_of("eurobert") | SIZES | {"pair_marks": marks})
    leaves = leaves_of(model, vocabulary.size)
    export(tmp_path / "out", model, vocabulary, leaves, pairs_as_rows=True)
    assert from_hugging_face.inspect(tmp_path / "out").model == model


def test_the_family_is_a_value_of_the_key():
    load = configs.load("configs/xlm_r_base.py:tiny", ["--config.model.family=mine"], schema)
    expected = table.options_of("mine")
    assert {name: getattr(load.model, name) for name in expected} == expected
    assert set(families.architectures()) > {"mine", "eurobert"}


def test_two_families_with_one_name_are_refused():
    with pytest.raises(ValueError, match="family mine is already registered: my_family:Mine"):
        table.register_family("mine", "other:Mine")
