"""Configs of fine-tuning are refused if they have keys that only pretraining reads."""

import pytest

from xlj.config import ConfigError, finetuning


def parsed(**values):
    config = finetuning.default()
    config.init_from, config.task.train = "encoder", "{language}.tsv"
    config.task.dev = config.task.train
    config.update_from_flattened_dict(values)
    return finetuning.parse(config)


@pytest.mark.parametrize(
    "key, value",
    [("data.length", 32), ("objectives.mmlm.batch_size", 8), ("train.checkpoint_every", 5)],
)
def test_keys_that_only_pretraining_reads_are_refused(key, value):
    """A config file can set them; the command line has no such flags."""
    assert parsed().task.train == ("{language}.tsv",)
    with pytest.raises(ConfigError, match=f"{key} is set to {value} .* does not read this key"):
        parsed(**{key: value})
