"""Config files on the command line: types, overrides, imports, several calls in one process."""

import json
import typing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xlj import bench, prepare, train
from xlj import config as schema
from xlj.cli import configs
from xlj.cli.configs import name_of
from xlj.config import ConfigError, finetuning
from xlj.config.families import options_of

QUICKSTART = "configs/quickstart.py"
FIELDS = {path: field for path, field in schema.keys() if path != "phases"}
NAMES = st.text("abcxyz019-_/{}#:.*", min_size=1, max_size=9)


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe that imports its number of steps from another file."""

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


def test_calls_in_one_process_do_not_affect_each_other(call, recipe):
    first, second = recipe("a", 300), recipe("b", 400)
    assert steps(call(train.main, first, "--check")) == 300
    assert steps(call(train.main, first, "--check", "--config.train.steps=500")) == 500
    assert steps(call(train.main, second, "--check")) == 400
    assert steps(call(prepare.main, first, "--check")) == 300
    with pytest.raises(ConfigError, match="train.stepz; did you mean train.steps?"):
        call(bench.main, first, "--config.train.stepz=1")
    assert steps(call(bench.main, first, "--check", "--rows=2")) == 300


def test_values_are_converted_to_the_types_of_their_keys(call, recipe):
    values = ["--config.train.steps=500", "--config.optimizer.learning_rate=1",
              "--config.data.languages=en,de", "-config.evaluation.perplexity=true",
              "--config.data.mono=phrasebook:{language}"]  # fmt: skip
    config = json.loads(call(train.main, *values, recipe("a", 300), "--check").out)
    assert config["train"]["steps"] == 500 and config["optimizer"]["learning_rate"] == 1.0
    assert config["data"]["languages"] == ["en", "de"]
    assert config["evaluation"]["perplexity"] is True
    with pytest.raises(ConfigError, match="train.steps"):
        call(train.main, recipe("a", 300), "--config.train.steps=many")


def test_unknown_flags_and_invalid_values_of_flags_are_refused(call):
    with pytest.raises(ConfigError, match="unknown flags.*--row=2; did you mean --rows?"):
        call(bench.main, "--config=configs/quickstart.py", "--row=2")
    with pytest.raises(ConfigError, match="cannot read 'extra'"):
        call(bench.main, "--config=configs/quickstart.py", "extra")
    for value, message in (("0", "--rows: 0 is below 1"), ("x", "invalid int value: 'x'")):
        with pytest.raises(ConfigError, match=message):
            call(bench.main, "--config=configs/quickstart.py", f"--rows={value}")


def test_the_name_of_a_config_consists_of_its_file_name_and_its_variants():
    assert name_of("configs/a.py") == "a" and name_of("a.py:b,tiny") == "a-b-tiny"


def test_help_is_printed_without_an_error(call):
    assert "--config.train.steps" in call(train.main, "--help").out


class UncheckedSchema:
    """The schema, without the checks that compare values of several keys."""

    keys = staticmethod(schema.keys)

    @staticmethod
    def parse(config, explicit):
        return schema.build(config.to_dict())


@st.composite
def settings(draw):
    """Draws (key, value), with a value that the key allows."""
    path = draw(st.sampled_from([path for path in FIELDS if path != "objective_modules"]))
    field = FIELDS[path]
    low, high, choices = (field.metadata[name] for name in ("low", "high", "choices"))
    if choices:
        return path, draw(st.sampled_from(list(choices)))
    if typing.get_origin(field.type) is tuple:
        return path, tuple(draw(st.lists(NAMES, unique=True, max_size=4)))
    if isinstance(field.default, bool):
        return path, draw(st.booleans())
    if isinstance(field.default, int):
        bounds = [None if bound is None else int(bound) for bound in (low, high)]
        return path, draw(st.integers(*bounds))
    if isinstance(field.default, float):
        value = draw(st.floats(low, high, allow_nan=False, allow_infinity=False))
        whole = value.is_integer() and draw(st.booleans())
        return path, int(value) if whole else value
    return path, draw(st.just("") | NAMES)


@given(st.lists(settings(), max_size=4).map(dict))
def test_values_on_the_command_line_reach_the_config_unchanged(values):
    texts = {k: ",".join(v) if isinstance(v, tuple) else v for k, v in values.items()}
    config = configs.load(
        QUICKSTART, [f"--config.{k}={v}" for k, v in texts.items()], UncheckedSchema
    )
    recipe = configs.load(QUICKSTART, [], UncheckedSchema)
    family = values.get("model.family")
    family_values = {f"model.{k}": v for k, v in options_of(family).items()} if family else {}
    for path in FIELDS:
        default = family_values.get(path, schema.lookup(recipe, path))
        value = schema.lookup(config, path)
        assert value == values.get(path, default) and type(value) is type(default), path
    recorded = json.loads(json.dumps(schema.record(config)))
    assert schema.build(recorded) == config, "the recorded config is not equal to the config"


PATHS = st.sampled_from(
    [*FIELDS, "phases", "phases.x.start_step", "data", "objectives.mmlm", "data.mono[1]", ".", "["]
)
BAD = ["None", "[1]", "()", "{}", "(1,", "'", "1e999", "-1", "nan", "inf", "1_0", "~nobody/x", "a,"]
VALUES = st.sampled_from(BAD) | st.text(max_size=9) | st.integers().map(str) | st.floats().map(str)


@given(st.lists(st.tuples(PATHS | st.text(max_size=9), VALUES), min_size=1, max_size=2))
@example([("train.steps", "1e3")])
@example([("data.cache", "\0")])
@example([("data.alpha", "nan")])
@example([("optimizer.learning_rate", "inf")])
@example([("transfer.accents[0]", "0")])
@example([("data.mono[0]", "0")])
def test_invalid_overrides_raise_only_config_errors(values):
    overrides = [f"--config.{path}={value}" for path, value in values]
    try:
        config = configs.load(QUICKSTART, overrides, schema)
    except ConfigError as error:
        assert str(error)
    else:
        assert {path for path, _ in values} <= set(FIELDS)
        assert schema.build(schema.record(config)) == config


@pytest.mark.parametrize("key", ["model.absolute_positions=", "train.aaaa", "train."])
def test_errors_shorten_long_keys_and_values(call, key):
    override = f"--config.{key}{'x' * 100_000}=1"
    with pytest.raises(ConfigError, match=key[:8]) as error:
        call(train.main, f"--config={QUICKSTART}", override, "--check")
    assert len(str(error.value)) < 2500


def test_a_key_of_the_schema_that_fine_tuning_does_not_read_is_not_called_unknown():
    message = "^this command does not read the config key data.length; did you mean task.length"
    with pytest.raises(ConfigError, match=message):
        configs.load("finetune/udpos:phrasebook", ["--config.data.length=32"], finetuning)
