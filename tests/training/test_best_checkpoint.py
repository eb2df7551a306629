"""Commands load the best checkpoint by the metric of the latest one, if others are damaged too."""

import pytest

from xlj.checkpoints import stored_models
from xlj.config import ConfigError, parse
from xlj.training import loop, start


@pytest.fixture
def train(tiny, store, tmp_path, devices):
    """A function that trains until a step, with a metric; accuracy rises and the error falls."""
    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers, tiny.train.eval_rows = 0, 1, 0
    tiny.train.eval_every = tiny.train.checkpoint_every = 2
    tiny.train.keep_checkpoints = 1

    def probe(state, check):
        step = int(state.progress.step)
        return {"eval/x/accuracy": 0.5 + step / 100, "eval/x/loss": step / 100}

    def train(steps, metric):
        tiny.train.steps, tiny.train.best_metric = steps, metric
        loop.train(start.prepare(parse(tiny), tmp_path, store), [probe], metric)
        return stored_models.find(tmp_path).folder.name

    return train


def test_scores_of_an_earlier_metric_do_not_count(train):
    assert train(2, "eval/x/accuracy") == "2"
    assert train(4, "-eval/x/loss") == "4"  # 2 has a higher score, of the other metric
    with pytest.raises(ConfigError, match="no metric eval/x/los; did you mean eval/x/loss"):
        train(6, "-eval/x/los")


def test_a_damaged_earlier_checkpoint_is_skipped(train, tmp_path, capsys):
    assert train(4, "-eval/x/loss") == "2"
    for file in (tmp_path / "checkpoints/2").rglob("*"):
        if file.is_file():
            file.write_bytes(b"{")
    assert stored_models.find(tmp_path).folder.name == "4"
    assert "skipped" in capsys.readouterr().err
