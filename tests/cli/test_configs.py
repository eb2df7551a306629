"""Config files on the command line: types, overrides, neighbours, many in one process."""

import json

import pytest

from xlj import bench, prepare, train
from xlj.cli.configs import name_of
from xlj.config import ConfigError


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe that takes its number of steps from a neighbour."""

    def write(folder, steps, helper=""):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "neighbour.py").write_text(f"STEPS = {steps}\n")
        file = tmp_path / folder / "mine.py"
        file.write_text(
            "import neighbour\nimport quickstart\n\n\n"
            "def get_config(variant=''):\n    config = quickstart.get_config()\n"
            f"    config.train.steps = neighbour.STEPS\n{helper}    return config\n"
        )
        return f"--config={file}"

    return write


def steps(printed):
    return json.loads(printed.out)["train"]["steps"]


def test_calls_in_one_process_know_nothing_of_each_other(call, recipe):
    first, second = recipe("a", 300), recipe("b", 400)
    assert steps(call(train.main, first, "--check")) == 300
    assert steps(call(train.main, first, "--check", "--config.train.steps=500")) == 500
    assert steps(call(train.main, second, "--check")) == 400
    assert steps(call(prepare.main, first, "--check")) == 300
    with pytest.raises(ConfigError, match="train.stepz; did you mean train.steps?"):
        call(bench.main, first, "--config.train.stepz=1")
    assert steps(call(bench.main, first, "--check", "--rows=2")) == 300


def test_values_have_the_types_of_their_keys(call, recipe):
    values = ["--config.train.steps=500", "--config.optimizer.learning_rate=1",
              "--config.data.languages=en,de", "-config.evaluation.perplexity=true",
              "--config.data.mono=phrasebook:{language}"]  # fmt: skip
    found = json.loads(call(train.main, *values, recipe("a", 300), "--check").out)
    assert found["train"]["steps"] == 500 and found["optimizer"]["learning_rate"] == 1.0
    assert found["data"]["languages"] == ["en", "de"] and found["evaluation"]["perplexity"] is True
    with pytest.raises(ConfigError, match="train.steps"):
        call(train.main, recipe("a", 300), "--config.train.steps=many")


def test_an_unknown_flag_is_refused_with_the_nearest(call):
    with pytest.raises(ConfigError, match="unrecognized .*--row=2; did you mean --rows?"):
        call(bench.main, "--config=configs/quickstart.py", "--row=2")
    with pytest.raises(ConfigError, match="cannot read 'extra'"):
        call(bench.main, "--config=configs/quickstart.py", "extra")
    for value, message in (("0", "--rows: 0 is below 1"), ("x", "invalid int value: 'x'")):
        with pytest.raises(ConfigError, match=message):
            call(bench.main, "--config=configs/quickstart.py", f"--rows={value}")


def test_names_of_configs():
    assert name_of("configs/a.py") == "a" and name_of("a.py:b,tiny") == "a-b-tiny"


def test_help_is_printed_and_no_error(call):
    assert "--config.train.steps" in call(train.main, "--help").out
