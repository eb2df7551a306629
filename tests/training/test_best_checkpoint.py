"""Commands load the best checkpoint by the metric of the latest one, if others are damaged too, and
a run ends if its best checkpoint is old."""

import pytest

from xlj.checkpoints import metrics, reading, stored_models
from xlj.config import ConfigError, parse
from xlj.distributed.preemption import Interrupted
from xlj.training import loop, start


@pytest.fixture
def train(tiny, store, tmp_path, devices):
    """A function that trains until a step, with a metric, and returns the step of the checkpoint
    that commands load. Accuracy rises and the error falls.

    Attributes:
      interrupted: steps whose evaluation is interrupted once.
    """
    devices(1)
    tiny.objectives.tlm.batch_size, tiny.model.layers, tiny.train.eval_rows = 0, 1, 0
    tiny.train.eval_every, tiny.train.checkpoint_every, tiny.train.keep_checkpoints = 2, 99, 1

    def probe(state, check):
        step = int(state.progress.step)
        if step in train.interrupted:
            train.interrupted.remove(step)
            raise Interrupted
        scores = {"eval/x/accuracy": 0.5 + step / 100, "eval/x/loss": step / 100}
        return scores | {metrics.LAYER_METRIC: step // 2}

    def train(steps, metric, patience=0):
        tiny.train.update({"steps": steps, "best_metric": metric, "patience": patience})
        train.outcome = loop.train(start.prepare(parse(tiny), tmp_path, store), [probe])
        return int(stored_models.find(tmp_path).folder.name)

    train.interrupted = []
    return train


def test_a_changed_metric_counts_at_earlier_steps(train):
    assert train(4, "eval/x/accuracy") == 4
    assert train(6, "-eval/x/loss") == 4
    with pytest.raises(ConfigError, match="no metric eval/x/los; did you mean eval/x/loss"):
        train(8, "-eval/x/los")


def test_damaged_checkpoints_and_metrics_are_skipped(train, tmp_path, capsys):
    assert train(4, "-eval/x/loss") == 2
    lines = (tmp_path / metrics.FILE).read_bytes()
    for damaged, step, message in (
        (b"{\n" + lines, "2", "skipped: metrics.jsonl:1 is not a line"),
        (b"", "4", "has no -eval/x/loss of a checkpoint, so the latest is used"),
    ):
        (tmp_path / metrics.FILE).write_bytes(damaged)
        assert stored_models.find(tmp_path).folder.name == step
        assert message in capsys.readouterr().err
    (tmp_path / metrics.FILE).write_bytes(lines)
    for file in (tmp_path / "checkpoints/2").rglob("*"):
        if file.is_file():
            file.write_bytes(b"{")
    assert stored_models.find(tmp_path).folder.name == "4"
    assert "skipped" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [[], [2], [4, 6, 6]])
def test_a_run_ends_if_its_metric_has_not_improved_also_if_it_was_interrupted(
    train, tmp_path, capsys, interrupted
):
    """Interruptions change neither the last step nor the best one, nor the layer of alignment."""
    train.interrupted += interrupted
    for step in interrupted:
        train(20, "-eval/x/loss", patience=2)
        assert (train.outcome.finished, train.outcome.step) == (False, step)
        assert reading.find(tmp_path).meta["measured"] is False
    for end in ("so the run ends before", "raise train.patience to continue"):
        assert train(20, "-eval/x/loss", patience=2) == 2
        assert (train.outcome.finished, train.outcome.step) == (True, 6)
        printed = capsys.readouterr().out
        assert end in printed and "resuming:" not in printed
    assert reading.steps(tmp_path) == [2, 6]
    evaluated = [line["step"] for line in metrics.read(tmp_path) if "eval/x/loss" in line]
    assert evaluated == [0, 2, 4, 6]
    layers = [stored_models.find(tmp_path / f"checkpoints/{n}").alignment.layer for n in (2, 6)]
    assert layers == [1, 3]
    if not interrupted:
        assert train(20, "-eval/x/loss", patience=3) == 2 and train.outcome.step == 8
