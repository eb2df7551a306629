"""A trimmed sentence encoder is healed: its vectors approach those of the whole model."""

import re

import jax
import numpy as np
import pytest

import xlj
from xlj import convert
from xlj.adaptation import healing
from xlj.config import ConfigError
from xlj.conversion import trimming


@pytest.mark.slow
def test_trimmed_layers_are_healed_after_an_interruption(
    call, checkpoint, corpus, tmp_path, monkeypatch
):
    folder, out = tmp_path / "whole", tmp_path / "small"
    call(
        convert.main, "export", f"--checkpoint={checkpoint}", f"--output={folder}", "--pooling=mean"
    )
    text = [f"{corpus}/mono/{name}.txt" for name in ("en", "de")]
    trim = ["trim", f"--checkpoint={folder}", "--layers=0,2", "--heal", f"--output={out}", "--text"]
    monkeypatch.setattr(healing, "STEPS", 150)
    # The layers of a model with random weights change little, so noise damages the model more.
    select, rng = trimming.select_layers, np.random.default_rng(0)

    def damaged(*arguments):
        return jax.tree.map(
            lambda x: x + rng.normal(0, 0.03, x.shape).astype(np.float32), select(*arguments)
        )

    monkeypatch.setattr(trimming, "select_layers", damaged)
    pretrain = healing.runs.pretrain

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(healing.runs, "pretrain", killed)
        with pytest.raises(KeyboardInterrupt):
            convert.main([*trim, *text])
    assert not out.exists()
    configs = []
    monkeypatch.setattr(
        healing.runs, "pretrain", lambda *of: configs.append(of[0]) or pretrain(*of)
    )
    printed = call(convert.main, *trim, *text).out
    assert configs[0].train.steps == 150 and configs[0].data.duplicates == "drop"
    for name in ("en", "de"):
        (before, after) = map(
            float, re.search(rf"\n{name}.txt +\d+ +(\S+) +(\S+)\n", printed).groups()
        )
        assert before < after <= 1
    whole, small = xlj.load(folder), xlj.load(out)
    assert small.layers == 2 and small.pretrained.sentence == whole.pretrained.sentence
    assert small.encode(["a dog"]).shape == whole.encode(["a dog"]).shape
    assert not (tmp_path / "small.healing").exists()


def test_healing_needs_text_and_sentence_modules(call, checkpoint, corpus, tmp_path):
    flags = ["trim", f"--checkpoint={checkpoint}", "--layers=0", f"--output={tmp_path}/x", "--heal"]
    with pytest.raises(ConfigError, match="--heal needs --text"):
        call(convert.main, *flags)
    with pytest.raises(ConfigError, match="--checkpoint=.* has no sentence modules"):
        call(convert.main, *flags, "--text", f"{corpus}/mono/en.txt")
    assert not [*tmp_path.iterdir()]
