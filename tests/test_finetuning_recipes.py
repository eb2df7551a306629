"""Every fine-tuning recipe and each of its variants is a valid config."""

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

from xlj.config import finetuning
from xlj.sweeping import definition

FOLDER = Path(__file__).parents[1] / "configs" / "finetune"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py"))


def recipe(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])  # recipes import other recipes
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


GRIDS = {  # XLM-E, Table 7: batch rows, learning rates, epochs
    "udpos": ((8, 16, 32), (1e-5, 2e-5, 3e-5), (10,)),
    "panx": ((8,), (5e-6, 6e-6, 7e-6, 8e-6, 9e-6), (10,)),
    "xquad": ((32,), (2e-5, 3e-5, 4e-5), (4,)),
    "mlqa": ((32,), (2e-5, 3e-5, 4e-5), (2, 3, 4)),
    "tydiqa": ((32,), (2e-5, 3e-5, 4e-5), (10, 20, 40)),
    "xnli": ((32,), (5e-6, 6e-6, 7e-6, 8e-6), (10,)),
    "pawsx": ((32,), (8e-6, 9e-6, 1e-5, 2e-5), (10,)),
}
XLM_ALIGN_GRIDS = {  # XLM-Align, Table 12, where it differs
    "tydiqa_xlm_align": ((32,), (2e-5, 3e-5), (5, 10, 15, 20)),
    "pawsx_xlm_align": ((32,), (1e-5, 2e-5), (10,)),
}


@pytest.mark.parametrize("sweep", [*GRIDS, *XLM_ALIGN_GRIDS])
def test_sweeps_try_the_papers_grids(sweep, monkeypatch, tmp_path):
    """XLM-E, Table 7, and XLM-Align, Table 12.

    A sweep runs each combination once. The values of the recipe itself are one of them.
    """
    name = sweep.partition("_")[0]
    actual = definition.read(FOLDER.parent / f"sweeps/finetune_{sweep}.py", tmp_path)
    assert (actual.config, actual.command) == (f"configs/finetune/{name}.py", "xlj.finetune")
    config = recipe(name, monkeypatch).get_config()
    recipe_values = {
        "train.batch_size": config.train.batch_size,
        "optimizer.learning_rate": config.optimizer.learning_rate,
        "train.epochs": config.train.epochs,
    }
    assert not actual.settings and all(set(run) <= set(recipe_values) for run in actual.runs)
    runs = [tuple((recipe_values | run).values()) for run in actual.runs]
    assert sorted(runs) == sorted(itertools.product(*(GRIDS | XLM_ALIGN_GRIDS)[sweep]))
    assert tuple(recipe_values.values()) in itertools.product(*GRIDS[name])
    optimizer = config.optimizer
    assert (optimizer.schedule, optimizer.weight_decay) == ("linear", 0)
    warmup = optimizer.warmup_steps, optimizer.warmup_share  # without steps, the share applies
    assert warmup == (12_500 if name == "xnli" else 0, 0.1)


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
def test_recipes_have_meta_xlms_settings(name, variant, values, monkeypatch):
    """MetaXLM, Table 8: batch rows, learning rate, warm-up, weight decay, epochs."""
    config = recipe(name, monkeypatch).get_config(variant)
    optimizer, train = config.optimizer, config.train
    assert optimizer.schedule == "linear"
    assert values == (
        train.batch_size,
        optimizer.learning_rate,
        optimizer.warmup_share,
        optimizer.warmup_steps,  # 0: the share applies
        optimizer.weight_decay,
        train.epochs,
    )
