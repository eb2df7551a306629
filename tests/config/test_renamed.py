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
def detecting(tiny):
    """`tiny` with MRTD, whose generator has three layers, and without TRTD."""
    tiny.objectives.mrtd.batch_rows, tiny.objectives.mrtd.generator_layers = 8, 3
    return tiny


def layers(config):
    return [config.objectives[name].generator_layers for name in ("mrtd", "trtd")]


def of_phases(config, name):
    return config.objectives_on()[name].generator_layers


def test_a_recipe_may_set_an_old_key(detecting, capsys):
    detecting.model.generator_layers = 2
    for _ in range(2):  # the line is printed once
        parsed = parse(detecting)
        assert parsed.objectives.mrtd.generator_layers == 2
        assert parsed.objectives.trtd.generator_layers == 4  # TRTD is off
    assert capsys.readouterr().err == f"{OLD}=2 is read as {MRTD}\n"
    assert detecting.model.generator_layers == 2  # the user's config does not change
    detecting.objectives.trtd.batch_rows = 8
    parsed = parse(detecting)
    assert parsed.objectives.trtd.generator_layers == parsed.objectives.mrtd.generator_layers == 2
    assert capsys.readouterr().err == f"{OLD}=2 is read as {MRTD} and {TRTD}\n"


def test_a_config_without_old_keys_prints_nothing(detecting, capsys):
    assert parse(detecting).objectives.mrtd.generator_layers == 3
    assert capsys.readouterr() == ("", "")


def test_an_old_key_that_nothing_reads_is_refused_by_its_new_name(tiny):
    tiny.model.generator_layers = 2
    with pytest.raises(ConfigError, match=rf"{MRTD} is set to 2 but has no effect, because obj"):
        parse(tiny)


def test_the_lock_still_refuses_what_was_never_a_key(tiny):
    with pytest.raises(AttributeError):
        tiny.model.generator_layer = 2
    tiny.objectives.mrtd.batch_rows, tiny.model.generator_layers = 8, "two"
    with pytest.raises(ConfigError, match=rf"{MRTD} is 'two' \(str\); it must be int"):
        parse(tiny)


@pytest.mark.parametrize(
    "overrides, wanted",
    [
        ([f"{OLD}=2"], [2, 2]),  # over the recipe's new key
        ([f"{OLD}=2", f"{MRTD}=5", f"{TRTD}=5"], [5, 5]),
        (["model.generator_embeddings=separate", f"{MRTD}=5", f"{TRTD}=5"], [5, 5]),
    ],
)
def test_the_command_line_may_set_an_old_key(overrides, wanted, capsys):
    flags = [f"--config.{override}" for override in overrides]
    config = configs.load("comparison:mrtd_trtd", flags, pretraining)
    found = [config.objectives.options[name] for name in ("mrtd", "trtd")]
    assert [options.generator_layers for options in found] == wanted
    if "separate" in overrides[0]:
        assert {options.generator_embeddings for options in found} == {"separate"}


def test_a_new_key_on_the_command_line_wins_over_an_old_one_of_the_recipe(detecting, capsys):
    detecting.model.generator_layers = 2
    assert parse(detecting, [MRTD]).objectives.mrtd.generator_layers == 3


def test_an_old_key_on_the_command_line_is_explicit(tiny, monkeypatch):
    """A recipe may set an unused key; the command line may not, by either name."""
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
    small = variants.apply(config, "tiny")
    assert layers(small) == [1, 1] and small.model.generator_layers is None


def test_phases_and_allow_change_may_name_old_keys(detecting, monkeypatch, capsys):
    old, new = "objectives.mrtd.old_weight", "objectives.mrtd.generator_weight"
    monkeypatch.setitem(renamed.RENAMED, old, (new,))
    config = schema.default()  # accepts the old key
    config.update(detecting)  # another ConfigDict that accepts old keys
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


def test_fine_tuning_configs_have_their_old_keys(monkeypatch, capsys):
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
    """A record as 82c0b8b wrote it."""
    tree = copy.deepcopy(record(parse(config)))
    for name in ("generator_layers", "generator_embeddings"):
        tree["model"][name] = tree["objectives"]["mrtd"].pop(name)
        del tree["objectives"]["trtd"][name]
    return tree


def test_a_recorded_config_has_the_keys_of_objectives_that_were_on(detecting, capsys):
    tree = old_record(detecting)
    before = copy.deepcopy(tree)
    found = renamed.translate_recorded(tree)
    assert tree == before and "generator_layers" not in found["model"]
    assert found["objectives"]["mrtd"]["generator_layers"] == 3
    assert "generator_layers" not in found["objectives"]["trtd"]
    line = f"in a recorded config, {OLD}=3 is read as {MRTD}\n"
    assert capsys.readouterr().err.count(line) == 1
    detecting.objectives.mrtd.batch_rows = 0
    detecting.objectives.mrtd.generator_layers = 4
    found = renamed.translate_recorded(old_record(detecting))
    assert found == renamed.translate_recorded(found) and "generator_layers" not in found["model"]
    assert capsys.readouterr().err == ""
    assert renamed.translate_recorded({"model": [], "phases": 3}) == {
        "model": [],
        "phases": 3,
    }  # damaged


def test_reports_and_sweeps_read_recorded_configs(detecting, tmp_path):
    tree = old_record(detecting)
    for name, text in (("config.json", tree), ("sweep.json", {"config": tree})):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(json.dumps(text))
        (folder / "results.json").write_text("{}")
        for found in (
            runs.read(folder, "a").config,
            schema.fields.flat(state._read_started_config(Run("a", folder, "xlj.train", ()))),
        ):
            assert found[MRTD] == 3 and OLD not in found


def test_objectives_with_one_generator_agree_on_it(detecting):
    detecting.objectives.trtd.batch_rows = 8
    message = rf"{MRTD}=3 and {TRTD}=4: these objectives train the same parameters; set the same"
    with pytest.raises(ConfigError, match=message):
        parse(detecting)
    detecting.objectives.trtd.batch_rows = 0
    later = {"start_step": 2, "objectives": {"trtd": {"batch_rows": 8}}}
    detecting.phases = {"later": later}
    with pytest.raises(ConfigError, match=message):
        parse(detecting)
    detecting.phases.later.objectives.trtd.generator_layers = 3
    assert of_phases(parse(detecting), "trtd") == 3


def test_invalid_utf8_is_malformed(tiny, capsys):
    tiny.data.invalid_utf8 = "skip"
    assert parse(tiny).data.malformed == "skip"
    assert capsys.readouterr().err == "data.invalid_utf8=skip is read as data.malformed\n"
    found = renamed.translate_recorded({"data": {"invalid_utf8": "error"}})
    assert found == {"data": {"malformed": "error"}} and not capsys.readouterr().err


def test_every_new_name_is_a_key_and_no_old_one_is():
    known = {path for path, _ in (*schema.keys(), *finetuning.keys())}
    assert known >= {new for names in renamed.RENAMED.values() for new in names}
    assert not known & renamed.RENAMED.keys()
