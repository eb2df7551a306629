"""Old names of keys in recipes, on the command line, in recorded configs and in phases."""

import copy
import json

import pytest

from xlj import config as pretraining
from xlj import recipe
from xlj.cli import configs
from xlj.config import ConfigError, finetuning, parse, record, renamed, schema, variants
from xlj.reporting import runs
from xlj.sweeping import state
from xlj.sweeping.definition import Run

OLD, MRTD, TRTD = (
    f"{section}.generator_layers" for section in ("model", "objectives.mrtd", "objectives.trtd")
)


@pytest.fixture(autouse=True)
def new_process():
    renamed._print_once.cache_clear()


@pytest.fixture
def mrtd_config(tiny):
    """`tiny` with MRTD, whose generator has three layers, and without TRTD."""
    tiny.objectives.mrtd.batch_rows, tiny.objectives.mrtd.generator_layers = 8, 3
    return tiny


def generator_layers(config):
    return [config.objectives[name].generator_layers for name in ("mrtd", "trtd")]


def generator_layers_if_on(config, name):
    return config.objectives_on()[name].generator_layers


def test_a_recipe_may_set_an_old_key(mrtd_config, capsys):
    mrtd_config.model.generator_layers = 2
    for _ in range(2):  # the line is printed once
        parsed = parse(mrtd_config)
        assert parsed.objectives.mrtd.generator_layers == 2
        assert parsed.objectives.trtd.generator_layers == 4  # TRTD is off
    assert capsys.readouterr().err == f"{OLD}=2 is read as {MRTD}\n"
    assert mrtd_config.model.generator_layers == 2  # the user's config does not change
    mrtd_config.objectives.trtd.batch_rows = 8
    parsed = parse(mrtd_config)
    assert parsed.objectives.trtd.generator_layers == parsed.objectives.mrtd.generator_layers == 2
    assert capsys.readouterr().err == f"{OLD}=2 is read as {MRTD} and {TRTD}\n"


def test_a_config_without_old_keys_prints_nothing(mrtd_config, capsys):
    assert parse(mrtd_config).objectives.mrtd.generator_layers == 3
    assert capsys.readouterr() == ("", "")


def test_an_unused_old_key_is_refused_under_its_new_name(tiny):
    tiny.model.generator_layers = 2
    with pytest.raises(ConfigError, match=rf"{MRTD} is set to 2 but has no effect, because obj"):
        parse(tiny)


def test_unknown_keys_and_wrong_types_are_still_refused(tiny):
    with pytest.raises(AttributeError):
        tiny.model.generator_layer = 2
    tiny.objectives.mrtd.batch_rows, tiny.model.generator_layers = 8, "two"
    with pytest.raises(ConfigError, match=rf"{MRTD} is 'two' \(str\); it must be int"):
        parse(tiny)


@pytest.mark.parametrize(
    "overrides, expected",
    [
        ([f"{OLD}=2"], [2, 2]),  # over the recipe's new key
        ([f"{OLD}=2", f"{MRTD}=5", f"{TRTD}=5"], [5, 5]),
        (["model.generator_embeddings=separate", f"{MRTD}=5", f"{TRTD}=5"], [5, 5]),
    ],
)
def test_the_command_line_may_set_an_old_key(overrides, expected, capsys):
    flags = [f"--config.{override}" for override in overrides]
    config = configs.load("comparison:mrtd_trtd", flags, pretraining)
    objectives = [config.objectives.options[name] for name in ("mrtd", "trtd")]
    assert [options.generator_layers for options in objectives] == expected
    if "separate" in overrides[0]:
        assert {options.generator_embeddings for options in objectives} == {"separate"}


def test_a_new_key_on_the_command_line_overrides_an_old_key_in_the_recipe(mrtd_config, capsys):
    mrtd_config.model.generator_layers = 2
    assert parse(mrtd_config, [MRTD]).objectives.mrtd.generator_layers == 3


def test_an_unused_old_key_is_allowed_in_a_recipe_but_refused_on_the_command_line(
    tiny, monkeypatch
):
    """A recipe may set an unused key; the command line may not, under the old or the new name."""
    monkeypatch.setitem(renamed.RENAMED, "data.old_length", ("data.pair_length",))
    config = schema.default()
    config.update(tiny)
    config.objectives.tlm.batch_rows, config.data.pairs, config.data.parallel = 0, "", ""
    config.data.old_length = 64
    assert parse(config).data.pair_length == 64
    with pytest.raises(ConfigError, match=r"^data\.pair_length is set to 64 but has no effect"):
        parse(config, ["data.old_length"])


def test_the_tiny_variant_scales_an_old_key():
    config = recipe("xlm_e")
    config.model.layers, config.model.generator_layers = 12, 6
    scaled = variants.apply(config, "tiny")
    assert generator_layers(scaled) == [1, 1] and scaled.model.generator_layers is None


def test_phases_and_allow_change_may_name_old_keys(mrtd_config, monkeypatch, capsys):
    old, new = "objectives.mrtd.old_weight", "objectives.mrtd.generator_weight"
    monkeypatch.setitem(renamed.RENAMED, old, (new,))
    config = schema.default()  # accepts the old key
    config.update(mrtd_config)  # another ConfigDict that accepts old keys
    change = {"start_step": 2, "objectives": {"mrtd": {"old_weight": 2.5}}}
    config.phases = {"later": change}
    config.train.allow_change = f"{old},train.seed,{OLD}"
    config.objectives.mrtd.old_weight = 0.5
    parsed = parse(config)
    weights = [p.config.objectives.options["mrtd"].generator_weight for p in parsed.schedule]
    assert weights == [0.5, 2.5]
    assert parsed.train.allow_change == (new, "train.seed", MRTD, TRTD)
    stderr = capsys.readouterr().err
    assert f"{old}=0.5 is read as {new}\n" in stderr and f"{old}=2.5 is read as {new}\n" in stderr


def test_fine_tuning_configs_accept_their_own_old_keys(monkeypatch, capsys):
    monkeypatch.setitem(renamed.RENAMED, "optimizer.rate", ("optimizer.learning_rate",))
    config = finetuning.default()
    config.init_from, config.task.train, config.task.test = "model", "a", "b"
    config.task.select = "last"
    assert "generator_layers" not in config.model  # only pretraining has this old key
    config.optimizer.rate = 1e-4
    assert finetuning.parse(config).optimizer.learning_rate == 1e-4
    line = "optimizer.rate=0.0001 is read as optimizer.learning_rate\n"
    assert capsys.readouterr().err == line
    config.optimizer.rate = 0.0
    parsed = finetuning.parse(config, ["optimizer.rate"])
    assert parsed.optimizer.learning_rate == 0.0


def old_record(config):
    """The recorded config as commit 82c0b8b wrote it."""
    tree = copy.deepcopy(record(parse(config)))
    for name in ("generator_layers", "generator_embeddings"):
        tree["model"][name] = tree["objectives"]["mrtd"].pop(name)
        del tree["objectives"]["trtd"][name]
    return tree


def test_old_keys_of_a_recorded_config_move_to_the_objectives_that_were_on(mrtd_config, capsys):
    tree = old_record(mrtd_config)
    before = copy.deepcopy(tree)
    translated = renamed.translate_recorded(tree)
    assert tree == before and "generator_layers" not in translated["model"]
    assert translated["objectives"]["mrtd"]["generator_layers"] == 3
    assert "generator_layers" not in translated["objectives"]["trtd"]
    line = f"in a recorded config, {OLD}=3 is read as {MRTD}\n"
    assert capsys.readouterr().err.count(line) == 1
    mrtd_config.objectives.mrtd.batch_rows = 0
    mrtd_config.objectives.mrtd.generator_layers = 4
    translated = renamed.translate_recorded(old_record(mrtd_config))
    assert (
        translated == renamed.translate_recorded(translated)
        and "generator_layers" not in translated["model"]
    )
    assert capsys.readouterr().err == ""
    assert renamed.translate_recorded({"model": [], "phases": 3}) == {
        "model": [],
        "phases": 3,
    }  # of a damaged record


def test_reports_and_sweeps_read_recorded_configs_with_old_keys(mrtd_config, tmp_path):
    tree = old_record(mrtd_config)
    for name, content in (("config.json", tree), ("sweep.json", {"config": tree})):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(json.dumps(content))
        (folder / "results.json").write_text("{}")
        for config in (
            runs.read(folder, "a").config,
            schema.fields.flat(state._read_started_config(Run("a", folder, "xlj.train", ()))),
        ):
            assert config[MRTD] == 3 and OLD not in config


def test_objectives_that_share_a_generator_must_set_the_same_layers(mrtd_config):
    mrtd_config.objectives.trtd.batch_rows = 8
    message = rf"{MRTD}=3 and {TRTD}=4: these objectives train the same parameters; set the same"
    with pytest.raises(ConfigError, match=message):
        parse(mrtd_config)
    mrtd_config.objectives.trtd.batch_rows = 0
    later = {"start_step": 2, "objectives": {"trtd": {"batch_rows": 8}}}
    mrtd_config.phases = {"later": later}
    with pytest.raises(ConfigError, match=message):
        parse(mrtd_config)
    mrtd_config.phases.later.objectives.trtd.generator_layers = 3
    assert generator_layers_if_on(parse(mrtd_config), "trtd") == 3


def test_the_old_key_invalid_utf8_is_read_as_malformed(tiny, capsys):
    tiny.data.invalid_utf8 = "skip"
    assert parse(tiny).data.malformed == "skip"
    assert capsys.readouterr().err == "data.invalid_utf8=skip is read as data.malformed\n"
    translated = renamed.translate_recorded({"data": {"invalid_utf8": "error"}})
    assert translated == {"data": {"malformed": "error"}} and not capsys.readouterr().err


def test_every_new_name_is_a_key_and_no_old_name_is_a_key():
    keys = {path for path, _ in (*schema.keys(), *finetuning.keys())}
    assert keys >= {new for names in renamed.RENAMED.values() for new in names}
    assert not keys & renamed.RENAMED.keys()
