"""Recipes are found by file and by name, from any working directory."""

import sys

import pytest

from xlj import config as schema
from xlj.config import ConfigError, recipes


def test_names_and_files_of_recipes_are_resolved_to_the_files(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    folder = recipes.folder()
    for name, file in (
        ("quickstart", "quickstart.py"),
        ("quickstart.py:tlm", "quickstart.py:tlm"),
        ("configs/xlm_e.py:tiny", "xlm_e.py:tiny"),
        ("finetune/udpos:phrasebook", "finetune/udpos.py:phrasebook"),
    ):
        assert recipes.find(name) == f"{folder}/{file}"
    (tmp_path / "quickstart").write_text("")
    assert recipes.find("quickstart:a") == "quickstart:a", "an existing file has precedence"
    assert {"quickstart", "finetune/udpos", "sweeps/comparison"} <= set(recipes.names())


@pytest.mark.parametrize("name, hint", [
    ("quikstart:tlm", "did you mean quickstart?"),
    ("finetune/udpso", "did you mean finetune/udpos?"),
    ("zzz", "the recipes are in "),
    ("../setup", "the recipes are in "),
])  # fmt: skip
def test_the_error_for_a_missing_recipe_has_a_hint(name, hint):
    with pytest.raises(
        ConfigError, match=f"--config={name}: there is no such file or recipe"
    ) as error:
        recipes.find(name)
    assert hint in str(error.value)


def test_the_values_that_a_run_records_are_not_a_config_file(tmp_path):
    (tmp_path / "config.json").write_text('{"train": {"shuffle": false}}')
    with pytest.raises(ConfigError, match="config.json: a config is a Python file"):
        recipes.find(f"{tmp_path}/config.json")


def test_a_recipe_imports_neighbouring_files_and_then_restores_sys_path_and_modules(tmp_path):
    paths, modules = list(sys.path), set(sys.modules)
    config = recipes.read("xlm_e:tiny")
    assert config.model.position_bias == "gated" and config.train.steps < 1000
    (tmp_path / "mine.py").write_text(
        "import other\n\n\ndef get_config(variant):\n    return other.config(variant)\n"
    )
    (tmp_path / "other.py").write_text(
        "from xlj import config\n\n\ndef config(variant):\n"
        "    made = schema.default()\n    made.data.languages = variant\n    return made\n"
        .replace("from xlj import config", "from xlj import config as schema")
    )  # fmt: skip
    assert recipes.read(f"{tmp_path}/mine.py:sw").data.languages == "sw"
    assert sys.path == paths
    assert not {"mine", "other"} & (set(sys.modules) - modules)
    assert type(config) is type(schema.default())
