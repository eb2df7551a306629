"""Runs that are started from Python."""

import numpy as np
import pytest

import xlj
from xlj.api import runs
from xlj.config import ConfigError, parse
from xlj.finetuning.task_runs import TaskRun
from xlj.io.atomic import GrowingFiles

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.mark.slow
def test_pretraining_returns_the_logged_metrics(tiny, tmp_path, monkeypatch):
    (tmp_path / "my_hook.py").write_text(
        "logged = []\n\n\ndef log(step, values):\n    logged.append((step, values))\n"
        "    if step == 4:\n        raise OSError('no network')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    tiny.train.metrics_hook = "my_hook:log"
    tiny.train.steps = 4
    first = xlj.pretrain(tiny, tmp_path / "run")
    assert (first.step, first.finished, first.checkpoint.name) == (4, True, "4")
    import my_hook

    lines = first.metrics
    assert [{"step": step, **values} for step, values in my_hook.logged] == lines
    assert lines[-1]["step"] == 4 and "eval/mmlm/loss" in lines[0]
    tiny.train.steps, tiny.train.metrics_hook = 6, ""
    longer = xlj.pretrain(parse(tiny), str(tmp_path / "run"))
    assert longer.step == longer.metrics[-1]["step"] == 6 and longer.metrics[: len(lines)] == lines
    assert len(my_hook.logged) == len(lines), "a run can resume with another hook or without one"
    model = xlj.load(tmp_path / "run")
    assert len(model.fill("the <mask>", 7)[0]) == 7 and model.embed(["a"]).shape == (1, 32)
    assert repr(model).startswith(f"<xlj.Encoder of {tmp_path / 'run'}: 2 layers of 32")
    with pytest.raises(ConfigError, match="device='nowhere': there is no such device; .* cpu:0"):
        xlj.load(tmp_path / "run", device="nowhere")
    model.save_pretrained(tmp_path / "saved")
    same = xlj.load(tmp_path / "saved", device="cpu").embed(["a"])
    # A saved folder gives the vectors of sentence-transformers, which come from the last layer.
    last_layer = model.embed(["a"], layer=2, pooling="mean")
    np.testing.assert_allclose(same, last_layer, rtol=1e-4, atol=1e-5)
    assert "<polyline" in longer.plot().page and "srcdoc" in longer.plot()._repr_html_()


def test_errors_in_a_hook_are_reported_and_the_run_continues(tmp_path, monkeypatch, capsys):
    from xlj.checkpoints.metrics import Metrics, read

    (tmp_path / "bad_hook.py").write_text("def log(step, values):\n    1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    writer = Metrics(GrowingFiles(tmp_path), 0, hook="bad_hook:log")
    writer.log(3, {"x": 1.0})
    writer.close()
    expected = "train.metrics_hook=bad_hook:log, step 3: ZeroDivisionError: division by zero\n"
    assert capsys.readouterr().err == expected and len(read(tmp_path)) == 1
    Metrics(GrowingFiles(tmp_path), 3, write=False, hook="bad_hook:log").log(4, {"x": 1.0})
    assert not capsys.readouterr().err


def test_scores_of_all_seeds_form_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "frame", lambda rows, *columns: (columns, rows))  # pandas is optional
    accuracy = {"accuracy": {"en": 90.0, "de": 80.0}, "kappa": {"en": 0.5, "de": 0.4}}
    task_runs = [
        TaskRun(("en", "de"), seed, 7, {"accuracy": {"en": 70.0 + seed}}, accuracy, tmp_path)
        for seed in (0, 1)
    ]
    columns, rows = runs.FinetuningRun(tuple(task_runs), {}, True, 1e-3, tmp_path).to_pandas()
    assert columns == ("trained", "seed", "split", "language", "measure", "value")
    assert rows[:3] == [
        ("en+de", 0, "dev", "en", "accuracy", 70.0),
        ("en+de", 0, "test", "en", "accuracy", 90.0),
        ("en+de", 0, "test", "de", "accuracy", 80.0),
    ]
    assert rows[-1] == ("en+de", 1, "test", "de", "kappa", 0.4) and len(rows) == 10


def test_invalid_options_are_refused_before_any_work(tiny, tmp_path):
    tiny.train.metrics_hook = "json:no_such"
    with pytest.raises(ConfigError, match="train.metrics_hook=json:no_such: module 'json' has no"):
        xlj.pretrain(tiny, tmp_path / "run")
    with pytest.raises(ConfigError, match="init_from"):
        xlj.fine_tune(xlj.recipe("finetune/udpos:phrasebook"), tmp_path / "run")
    assert not list(tmp_path.iterdir())
