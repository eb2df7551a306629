"""A trimmed sentence encoder is healed: its vectors approach those of the whole model."""

import re
from unittest.mock import MagicMock

import jax
import numpy as np
import pytest
from dense_modules import with_dense

import xlj
from xlj import convert
from xlj.adaptation import healing
from xlj.config import Config, ConfigError, Train
from xlj.conversion import trimming


@pytest.mark.slow
def test_trimmed_layers_are_healed_after_an_interruption(
    call, checkpoint, corpus, tmp_path, monkeypatch
):
    mean, out = tmp_path / "mean", tmp_path / "small"
    call(convert.main, "export", f"--checkpoint={checkpoint}", f"--output={mean}", "--pooling=mean")
    folder = with_dense(mean, tmp_path / "whole")
    text = [f"{corpus}/mono/{name}.txt" for name in ("en", "de")]
    trim = ["trim", f"--checkpoint={folder}", "--layers=0,2", "--heal", f"--output={out}"]
    trim += ["--seed=3", "--text"]
    monkeypatch.setattr(healing, "STEPS", 150)
    # The layers of a model with random weights change little, so noise damages the model more.
    select, rng = trimming.select_layers, np.random.default_rng(0)

    def damaged(*arguments):
        params = select(*arguments)
        noisy = jax.tree.map(lambda x: x + rng.normal(0, 0.03, x.shape).astype(np.float32), params)
        return noisy | {"sentence": params["sentence"]}  # the Dense module is not trained

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
    assert (configs[0].train.steps, configs[0].train.seed) == (150, 3)
    assert configs[0].data.duplicates == "drop"
    assert re.search(r"healing: 150 steps of [\d.]+ s, about [\d.]+ minutes plus", printed)
    assert re.search(r"\ntrained 150 steps in [\d.]+ minutes\n", printed)
    for name in ("en", "de"):
        (before, after) = map(
            float, re.search(rf"\n{name}.txt +\d+ +(\S+) +(\S+)\n", printed).groups()
        )
        assert before < after <= 1
    whole, small = xlj.load(folder), xlj.load(out)
    assert small.layers == 2 and small.pretrained.sentence == whole.pretrained.sentence
    for name in ("kernel", "bias"):
        kept, own = (x.pretrained.params["sentence"]["0"][name] for x in (whole, small))
        np.testing.assert_array_equal(own, kept)
    assert not (tmp_path / "small.healing").exists()


def test_the_number_of_steps_follows_from_the_time_of_a_step_and_stays(tmp_path, monkeypatch):
    config = Config(train=Train(steps=healing.STEPS))
    for name in ("stored_models.find", "prepare_rows", "teachers_of"):
        monkeypatch.setattr(f"xlj.adaptation.healing.{name}", MagicMock())
    monkeypatch.setattr(healing.start, "adopt_vocabulary", lambda *of: (of[0], None))
    monkeypatch.setattr(healing.plan, "choose_steps", lambda *_: 1000)
    for seconds, minutes, steps in ((2.0, 5, 150), (0.1, 5, 1000), (60, 5, 10)):
        monkeypatch.setattr(healing.plan, "measure_step", lambda *_, seconds=seconds: seconds)
        file = tmp_path / f"{steps}.json"
        assert healing._with_steps(config, file, minutes).train.steps == steps
        monkeypatch.setattr(healing.plan, "measure_step", None)
        assert healing._with_steps(config, file, 1).train.steps == steps


def test_healing_needs_text_and_sentence_modules(call, checkpoint, corpus, tmp_path):
    flags = ["trim", f"--checkpoint={checkpoint}", "--layers=0", f"--output={tmp_path}/x", "--heal"]
    with pytest.raises(ConfigError, match="--heal needs --text"):
        call(convert.main, *flags)
    with pytest.raises(ConfigError, match="--checkpoint=.* has no sentence modules"):
        call(convert.main, *flags, "--text", f"{corpus}/mono/en.txt")
    assert not [*tmp_path.iterdir()]
