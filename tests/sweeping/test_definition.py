"""The runs of a sweep have the right names and commands."""

from pathlib import Path

import pytest

from xlj.config import ConfigError
from xlj.sweeping import Sweep, grid
from xlj.sweeping.definition import make_runs


def names(*settings, **more):
    return [run.name for run in make_runs(Sweep("c.py", settings, **more), Path("f"))]


def test_a_grid_has_every_combination_of_values():
    assert grid({"a": [1, 2], "b": "xy"}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_a_name_lists_only_the_settings_of_its_run():
    one = {"variant": "tiny", "optimizer.learning_rate": 1e-3, "train.seed": 0}
    assert names(one) == ["tiny-learning_rate=0.001-seed=0"]
    assert names(one, {"train.seed": 1})[0] == names(one)[0]  # other runs do not change it
    assert names(one, settings={"train.steps": 5}) == names(one)
    assert names({}) == ["default"]


def test_keys_with_equal_last_parts_appear_in_full_in_a_name():
    name = names({"objectives.mmlm.batch_size": 1, "objectives.tlm.batch_size": 2})
    assert name == ["objectives.mmlm.batch_size=1-objectives.tlm.batch_size=2"]


def test_names_are_valid_names_of_folders():
    (name,) = names({"data.mono": ["a/b c", "../{language}"], "init_from": "$HOME/`x`"})
    assert name == "mono=a_b_c_..__language_-init_from=_HOME__x_"


@pytest.mark.parametrize("name", ["..", "a/b", ".a", "-a", "", "a" * 201, "é" * 101])
def test_invalid_names_of_folders_are_refused(name):
    with pytest.raises(ConfigError, match="a run is named"):
        names({"name": name})


def test_equal_names_and_sweeps_without_runs_are_refused():
    with pytest.raises(ConfigError, match="2 runs are named mono=a_b"):
        names({"data.mono": "a/b"}, {"data.mono": "a b"})
    with pytest.raises(ConfigError, match="no runs"):
        names()


def test_a_command_has_settings_of_the_run_and_of_the_sweep_then_overrides():
    sweep = Sweep("c.py", [{"variant": "v", "train.seed": 1}], {"train.seed": 0, "a": [1, 2]})
    (run,) = make_runs(sweep, Path("f"), ["--config.b=3"])
    assert run.command() == [
        *("python", "-m", "xlj.train", "--config=c.py:v", "--config.train.seed=1"),
        *("--config.a=1,2", "--workdir=f/v-seed=1", "--config.b=3"),
    ]
