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


@pytest.mark.parametrize(
    "name, variant, values",
    [
        ("udpos", "meta_xlm", (32, 1e-5, 0.1, 0, 0.0, 10)),
        ("panx", "", (8, 7e-6, 0.1, 0, 0.0, 10)),
        ("xquad", "", (32, 3e-5, 0.1, 0, 0.0, 4)),
        ("mlqa", "", (32, 3e-5, 0.1, 0, 0.0, 4)),
        ("tydiqa", "meta_xlm", (32, 4e-5, 0.1, 0, 0.0, 40)),
        ("xnli", "meta_xlm", (32, 1e-5, 0.1, 0, 0.01, 6)),
        ("pawsx", "meta_xlm", (32, 2e-5, 0.1, 0, 0.01, 10)),
        ("amazon_reviews", "", (32, 2e-5, 0.1, 0, 0.01, 5)),
    ],
)
def test_meta_xlms_settings(name, variant, values, monkeypatch):
    """MetaXLM, Table 8: batch, rate, warm-up, weight decay, epochs."""
    config = recipe(name, monkeypatch).get_config(variant)
    optimizer, train = config.optimizer, config.train
    assert optimizer.schedule == "linear"
    assert values == (
        train.batch_rows,
        optimizer.learning_rate,
        optimizer.warmup_share,
        optimizer.warmup_steps,  # 0: that share
        optimizer.weight_decay,
        train.epochs,
    )
