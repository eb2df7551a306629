"""A run in phases: rates, rows, masks and shares of each step equal hand-written tables.

The run has the same bits wherever it is interrupted.
"""

import dataclasses
import shutil
from types import SimpleNamespace

import ml_collections
import numpy as np
import pytest

from xlj.api import runs
from xlj.checkpoints import metrics, reading, stored_models
from xlj.config import ConfigError, parse
from xlj.data.rows import draws
from xlj.data.rows.batches import Batches
from xlj.data.rows.draws import BLOCK
from xlj.data.rows.preparing import open_rows, prepare_rows
from xlj.data.tokenizer.layout import PAD
from xlj.distributed.preemption import Preemption
from xlj.training import loop, schedule, start
from xlj.training.evaluation import by_phase
from xlj.training.schedule import Schedule

PHASES = {
    "longer": {
        "start_step": 7,
        "data": {"length": 48, "alpha": 0.5},
        "model": {"rotary_base": 160_000.0},
        "optimizer": {"learning_rate": 2e-3, "weight_decay": 0.5},
        "objectives": {"masking": {"rate": 0.15}, "mmlm": {"batch_size": 8}},
        "train": {"gradient_accumulation_steps": 1},
    },
    "more": {
        "start_step": 9,
        "data": {"alpha": 0.3, "sampled": "en,de,sw"},
        "optimizer": {"schedule": "sqrt", "floor": 0.5, "warmup_steps": 0},
        "objectives": {"masking": {"rate": 0.05}},
    },
}
"""Phases like mmBERT's: longer rows and larger bases, then one more language during the decay."""

RATES = [5e-4, *[1e-3] * 6, 2e-3, 2e-3, 2e-3, 2e-3 - 1e-3 * 0.5**0.5]
"""A warm-up of two steps, twice the peak, then 1 - sqrt over two steps down to half."""
ROWS = [4, 4, 8, 8, 12, 12, 16, 8, 8, 8, 8]
"""A batch warm-up from one of four microbatches, over six steps."""
LENGTHS = [32] * 7 + [48] * 4
MASKS = [0.3] * 7 + [0.15] * 2 + [0.05] * 2
ALPHAS = [0.7] * 7 + [0.5] * 2 + [0.3] * 2


@pytest.fixture(scope="module")
def config(make_tiny):
    tiny = make_tiny()
    tiny.data.sampled = "en,de"
    tiny.model.layers, tiny.model.hidden, tiny.model.intermediate = 1, 16, 32
    tiny.model.absolute_positions, tiny.model.rotary_base = False, 10_000.0
    tiny.objectives.tlm.batch_size, tiny.objectives.masking.rate = 0, 0.3
    tiny.train.gradient_accumulation_steps, tiny.train.batch_warmup, tiny.train.steps = 4, 6, 11
    tiny.train.log_every, tiny.train.eval_every = 1, 99
    tiny.train.checkpoint_every, tiny.train.keep_checkpoints = 1, 99
    tiny.optimizer.schedule, tiny.optimizer.warmup_steps = "constant", 2
    tiny.phases = ml_collections.ConfigDict(PHASES)
    return parse(tiny)


@pytest.fixture(scope="module")
def store(config):
    return prepare_rows(config)


def test_every_step_has_the_rows_of_its_phase(config, store):
    assert [task.name for task in store.tasks("text")] == [
        *("text.en", "text@48.en", "text.de", "text@48.de", "text.sw", "text@48.sw")
    ]
    batches = Batches(store, config)
    for step in range(11):
        rows, length = batches.shapes(step)["mmlm"]
        drawn = batches.draw("mmlm", step, np.arange(rows))
        read_rows = batches.read("mmlm", step, np.arange(rows))["tokens"]
        assert (len(drawn), length) == (ROWS[step], LENGTHS[step])
        assert read_rows.shape == (max(16 * (step < 7), ROWS[step]), length)
        assert ((read_rows != PAD).any(1)).sum() == ROWS[step]
        options = config.phase_at(step).active()["mmlm"]
        assert options.mask_rate == MASKS[step]
        # Shares are m^alpha of the phase's languages, for the rows with the length of the phase.
        kind = "text" if length == 32 else "text@48"
        languages = ("en", "de") if step < 9 else ("en", "de", "sw")
        tokens = {f"{kind}.{name}": store.task(f"{kind}.{name}").train.tokens for name in languages}
        total = sum(count ** ALPHAS[step] for count in tokens.values())
        counts = draws.count_draws(store, options, config.phase_at(step).config)
        assert counts.keys() == tokens.keys() >= {task for task, _ in drawn}
        for name, count in tokens.items():
            assert counts[name] / BLOCK == pytest.approx(count ** ALPHAS[step] / total, abs=2e-5)


def test_a_factor_of_a_language_multiplies_its_share(config, store):
    options = config.schedule[2].active()["mmlm"]
    for sampled, factors in (("en=3,de,sw=0.5", (3, 1, 0.5)), ("en,sw=2", (1, 0, 2))):
        data = dataclasses.replace(config.data, sampled=tuple(sampled.split(",")), length=48)
        counts = draws.count_draws(store, options, dataclasses.replace(config, data=data))
        expected = {
            name: factor * store.task(f"text@48.{name}").train.tokens ** config.data.alpha
            for name, factor in zip(("en", "de", "sw"), factors, strict=True)
            if factor
        }
        assert len(counts) == len(expected)
        for name, share in expected.items():
            count = counts[f"text@48.{name}"]
            assert count / BLOCK == pytest.approx(share / sum(expected.values()), abs=2e-5)


@pytest.mark.slow
def test_rows_for_the_length_of_a_phase_equal_those_of_a_run_with_that_length(config, store):
    data = dataclasses.replace(config.data, length=48)
    separate = prepare_rows(dataclasses.replace(config, data=data, phases={}))
    for name in ("en", "de", "sw"):
        longer = store.task(f"text@48.{name}")
        assert longer.length == 48
        assert dataclasses.replace(longer, name=f"text.{name}") == separate.task(f"text.{name}")


def test_finished_rows_must_have_the_lengths_of_all_phases(config, store):
    data = dataclasses.replace(config.data, rows=str(store.path))
    opened, rows = open_rows(dataclasses.replace(config, data=data))
    assert opened.data.length == 32 and rows.tasks("text") == store.tasks("text")
    phases = {**PHASES, "longer": {**PHASES["longer"], "data": {"length": 40}}}
    with pytest.raises(
        ConfigError, match=r"has no rows with phases\.longer\.data\.length=40; prep"
    ):
        open_rows(dataclasses.replace(config, data=data, phases=phases))


def test_a_state_is_evaluated_with_the_model_of_its_phase(config):
    measure = by_phase(config, lambda model: lambda state, check: {"base": model.rotary_base})

    def base(step):
        return measure(SimpleNamespace(progress=SimpleNamespace(step=step)), bool)["base"]

    assert [base(step) for step in (0, 7, 8, 11)] == [1e4, 1e4, 16e4, 16e4]


def test_a_dry_run_prints_and_plots_the_schedule(config, store, tmp_path, capsys, devices):
    devices(1)
    runs.dry_run(config, tmp_path / "run")
    printed = capsys.readouterr().out
    assert "first    0 to 6" in printed and "0.002 to 0.00129" in printed
    assert "text@48.en" in printed and not (tmp_path / "run" / "checkpoints").exists()
    page = (tmp_path / "run" / "schedule.html").read_text()
    for title in ("tokens", "learning rate", "rows mmlm", "mask rate mmlm", "share text@48.sw"):
        assert f"<h3>{title}</h3>" in page
    lines = schedule.make_lines(Schedule(config, store), store)
    assert [line["step"] for line in lines] == list(range(11))
    assert [line["rows/mmlm"] for line in lines] == ROWS
    assert [line["length/mmlm"] for line in lines] == LENGTHS
    assert [line["mask_rate/mmlm"] for line in lines] == MASKS
    np.testing.assert_allclose([line["learning_rate"] for line in lines], RATES, rtol=1e-6)
    shares = [line["share/text@48.sw"] for line in lines if "share/text@48.sw" in line]
    assert shares[:4] == [0.0] * 4 and shares[4] == shares[5] > 0  # first and last steps of phases


def without_times(line):
    """Returns the values of a line of metrics that do not depend on the clock."""
    return {name: value for name, value in line.items() if not name.startswith("time/")}


@pytest.mark.slow
def test_a_run_is_the_same_wherever_it_is_interrupted(
    config, store, tmp_path, monkeypatch, devices, capfd
):
    """Each step is repeated from the checkpoint before it. So there is an interruption before, at
    and after each change of the batch and the phase."""
    devices(1)
    whole = tmp_path / "whole"
    assert loop.train(start.prepare(config, whole, store)).finished
    assert capfd.readouterr().out.count(" left: ") == 1
    lines = metrics.read(whole)
    learning_rates = [line["learning_rate"] for line in lines[1:]]
    np.testing.assert_allclose(learning_rates, RATES, rtol=1e-6)
    batches, tokens = Batches(store, config), 0
    for step, line in enumerate(lines[1:]):
        tokens += int(
            (batches.read("mmlm", step, np.arange(16 if step < 7 else 8))["tokens"] != PAD).sum()
        )
        assert line["tokens"] == tokens
    monkeypatch.setattr(Preemption, "requested", lambda self: step < 10)
    for step in range(1, 11):
        resumed = tmp_path / f"from-{step}"
        shutil.copytree(whole / "checkpoints" / str(step), resumed / "checkpoints" / str(step))
        outcome = loop.train(start.prepare(config, resumed, store))
        assert outcome.step == step + 1
        expected = reading.read_meta(whole / "checkpoints" / str(step + 1)).meta
        assert reading.find(resumed).meta == expected, step
        assert without_times(metrics.read(resumed)[-1]) == without_times(lines[step + 1])
        model = stored_models.find(resumed).model
        assert model.rotary_base == (10_000 if step < 7 else 160_000)
