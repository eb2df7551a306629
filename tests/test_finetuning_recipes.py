"""Every recipe of fine-tuning, and each of its variants, is a config that can be run."""

import importlib.util
import sys
from pathlib import Path

import pytest

from xlj.config import finetuning

FOLDER = Path(__file__).parents[1] / "configs" / "finetune"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py"))


def recipe(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])  # recipes build on their neighbours
    spec = importlib.util.spec_from_file_location(f"finetune_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_recipes_and_their_variants_parse(name, monkeypatch):
    module = recipe(name, monkeypatch)
    parsed = set()
    for variant in ("", *getattr(module, "VARIANTS", {})):
        config = module.get_config(variant)
        config.init_from = "somewhere"
        parsed.add(finetuning.parse(config))
    assert len(parsed) == 1 + len(getattr(module, "VARIANTS", {}))  # each changes something


def test_the_papers_settings(monkeypatch):
    """XLM-E, Table 7."""
    wanted = {
        "udpos": (16, 10),
        "panx": (8, 10),
        "xquad": (32, 4),
        "xnli": (32, 10),
        "pawsx": (32, 10),
    }
    for name, (rows, epochs) in wanted.items():
        train = recipe(name, monkeypatch).get_config().train
        assert (train.batch_rows, train.epochs) == (rows, epochs)
