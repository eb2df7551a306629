"""`xlj.plan` prints and writes figures, and refuses bad arguments before any work."""

import json
from types import SimpleNamespace

import jax
import pytest

from xlj import plan
from xlj.config import ConfigError
from xlj.tools.planning import figures, search, table, topologies
from xlj.tools.planning.programs import DoesNotFit

RECIPE = "--config=configs/xlm_r_base.py:tiny"


@pytest.fixture(autouse=True)
def local_devices(monkeypatch):
    """Compiles for this machine's devices, whatever the topology."""
    monkeypatch.setattr(topologies, "use_compilers", lambda: None)
    monkeypatch.setattr(topologies.Topology, "devices", lambda self: jax.devices()[: self.size])


@pytest.mark.slow
def test_a_plan_is_printed_and_written(call, tmp_path):
    path, programs = tmp_path / "plan.json", tmp_path / "programs"
    printed = call(
        plan.main, RECIPE, "--topology=h100:1x2", f"--json={path}", f"--programs={programs}"
    ).out
    record = json.loads(path.read_text())
    (phase,) = record["phases"]
    assert record["topology"] == "h100:1x2" and phase["devices"] == 2
    assert f"at most               {phase['mfu']:.1%} MFU" in printed
    assert f"all {phase['steps']:,} steps: at least {phase['days']:,.1f} days" in printed
    assert [p.name for p in programs.iterdir()] == ["phase-0.txt"]
    assert "rows count" not in printed


@pytest.mark.slow
def test_a_search_prints_flags_that_give_its_best_plan_again(call, tmp_path):
    path = tmp_path / "plan.json"
    arguments = (RECIPE, "--topology=h100:1x1", "--config.model.layers=1")
    printed = call(plan.main, *arguments, "--search", f"--json={path}").out
    flags = printed.splitlines()[-1].removeprefix("flags: ")
    best = json.loads(path.read_text())["trials"][0]
    assert flags == search.Choice(*(best[key] for key in search.Choice._fields)).flags()
    again = call(plan.main, *arguments, *flags.split()).out
    assert (
        again.splitlines()[2:]
        == printed.partition("\n\n")[2].rpartition("\n\n")[0].splitlines()[2:]
    )


@pytest.mark.slow
def test_a_plan_without_rows_assumes_full_rows_and_prints_so(call):
    flags = "--config.train.steps=2ep", "--config.train.fewest_steps=7"
    printed = call(plan.main, RECIPE, "--topology=h100:1x1", *flags).out
    assert "train.steps=2ep: 7 steps, about 14,336 tokens\nassumed: every row is full" in printed


def test_a_plan_that_does_not_fit_is_reported_with_exit_code_1(capsys, monkeypatch):
    def too_large(*arguments):
        raise DoesNotFit("Ran out of memory. Used 16.4G of 15.7G hbm")

    monkeypatch.setattr(figures, "of_phase", too_large)
    assert plan.main([RECIPE, "--topology=v5e:1x1"]) == 1
    assert "does not fit: Ran out of memory. Used 16.4G" in capsys.readouterr().out
    monkeypatch.setattr(search, "of_phase", too_large)
    assert plan.main([RECIPE, "--topology=v5e:1x1", "--search"]) == 1
    printed = capsys.readouterr().out
    assert "nothing fits: use more or larger chips" in printed and "flags:" not in printed


def test_a_search_prints_no_flags_if_another_phase_does_not_fit(capsys, monkeypatch):
    """The search tries the phase with the most rows; another may still need more memory."""

    def too_large(*arguments):
        raise DoesNotFit("Used 16.4G of 15.7G hbm")

    monkeypatch.setattr(figures, "of_phase", too_large)
    trial = SimpleNamespace(fits=True, figures=object(), record=dict)
    trial.choice = search.Choice(1, "none", 1)
    monkeypatch.setattr(search, "search", lambda *arguments: [trial])
    monkeypatch.setattr(table, "trials", lambda trials: "trials")
    recipe = "--config=configs/ernie_m_small.py:tiny"
    assert plan.main([recipe, "--topology=h100:1x1", "--search"]) == 1
    printed = capsys.readouterr().out
    assert "does not fit: Used 16.4G" in printed
    assert "nothing fits in every phase" in printed and "flags:" not in printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--topology=tpu"], "--topology=tpu: expected a100"),
        ([], "--topology"),
        (
            ["--topology=h100:1x1", "--json=no/such/plan.json"],
            "the folder .*no/such does not exist",
        ),
        (
            ["--topology=h100:1x5"],
            "objectives.mmlm.batch_size=.* not divisible by 5 devices",
        ),
        (["--topology=h100:1x5", "--search"], "nothing fits: objectives.mmlm.batch_size="),
        (
            ["--topology=h100:1x1", "--config.data.vocabulary=no.model"],
            "no.model cannot be read: .*; a plan needs only the size of the vocabulary, for "
            "example --config.data.voc",
        ),
        (
            ["--topology=h100:1x4", "--config.mesh.fsdp=3"],
            "mesh.fsdp=3 make a mesh of 3 devices, but this run has 4",
        ),
    ],
)
def test_bad_input_is_an_error_before_any_work(call, monkeypatch, arguments, message):
    monkeypatch.setattr(jax.stages.Lowered, "compile", None)
    with pytest.raises(ConfigError, match=message):
        call(plan.main, RECIPE, *arguments)
