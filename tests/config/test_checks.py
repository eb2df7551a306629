"""Unused keys, impossible values and contradictions are errors that name the full key."""

import ml_collections
import pytest

from xlj import config as schema
from xlj.config import ConfigError, parse


def assert_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        parse(config)


def test_defaults_plus_an_objective_parse(tiny):
    config = parse(tiny)
    assert config.data.languages == ("en", "de", "sw")
    assert config.model.layers == 2 and config.optimizer.learning_rate == 1e-3


def test_an_integer_is_accepted_for_a_float_key():
    assert isinstance(schema.build({"data": {"alpha": 1}}).data.alpha, float)


def test_every_key_of_the_schema_is_in_the_default_config():
    default = schema.default()
    for path, field in schema.keys():
        value = default
        for name in path.split("."):
            value = value[name]
        assert field.metadata["doc"]


@pytest.mark.parametrize("section, key", [("train", "step"), ("data", "alpa"), ("model", "layer")])
def test_errors_for_unknown_keys_suggest_the_nearest_key(tiny, section, key):
    with tiny.unlocked():
        tiny[section][key] = 1
    assert_refused(tiny, rf"unknown config key {section}\.{key}; did you mean {section}\.{key[:3]}")


def test_the_error_for_a_key_in_the_wrong_section_names_the_right_key(tiny):
    with tiny.unlocked():
        tiny.train.alpha = 0.5
    assert_refused(tiny, r"train\.alpha.*data\.alpha")


@pytest.mark.parametrize("value", [3, "late", ["late"], {"late": 3}])
def test_phases_must_map_names_to_sections(tiny, value):
    with tiny.unlocked(), tiny.ignore_type():
        tiny.phases = value
    assert_refused(tiny, "it must map names to sections of keys")


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("train.steps", 1.5, r"train\.steps is 1\.5 \(float\); it must be int"),
        ("train.steps", True, r"train\.steps is True"),
        ("train.steps", 0, r"train\.steps is 0; it must be more than 0"),
        ("train.steps", "0tok", r"train\.steps is '0tok'; it must be more than 0"),
        ("train.steps", 3 * 10**9, r"train\.steps is 3000000000; it must be from 0 to 2147483647"),
        ("optimizer.warmup_steps", 2**31, r"optimizer\.warmup_steps is .* from 0 to 2147483647"),
        ("data.alpha", 1.5, r"data\.alpha is 1\.5; it must be from 0 to 1"),
        ("data.alpha", float("nan"), r"data\.alpha is nan"),
        ("model.dtype", "bfloat", r"must be one of auto, float32, bfloat16; did you mean bfloat16"),
        ("data.languages", "en,,de", r"data\.languages.*empty or repeated"),
        ("data.languages", "en,en", r"data\.languages.*empty or repeated"),
        ("model.position_buckets", 16, r"because model\.position_bias is 'none', not t5 or gated"),
        ("model.absolute_positions", False, r"set model\.position_bias to t5 or gated"),
        ("model.heads", 5, r"model\.hidden=32 is not divisible by model\.heads=5"),
        ("data.length", 60, r"data\.length=60 is beyond the model's positions"),
        ("data.pair_length", 49, r"data\.pair_length=49 is beyond .* allows 48"),
        (
            "train.gradient_accumulation_steps",
            3,
            r"mmlm\.batch_size=16 is not divisible by train\.gradient_accumulation_steps=3",
        ),
        ("optimizer.decay_steps", 2, r"has no effect, because optimizer\.schedule is 'linear'"),
        ("optimizer.schedule", "wsd", r"set optimizer\.decay_steps"),
        ("objectives.masking.mask_share", 0.95, r"add up to more than 1"),
        (
            "data.parallel",
            "",
            r"objectives\.tlm is on and .*, but data\.parallel is empty; set data\.parallel",
        ),
        ("data.pairs", "", r"name the language pairs of the text with data\.pairs"),
        ("data.languages", "en,a/b", r"data\.languages=a/b: the name is used as a folder name"),
        (
            "data.pairs",
            "en-de,en-../b",
            r"data\.pairs=en-\.\./b: the name is used as a folder name",
        ),
    ],
)
def test_errors_for_impossible_values_name_the_key(tiny, path, value, message):
    section, _, key = path.rpartition(".")
    parent = tiny
    for name in section.split("."):
        parent = parent[name]
    with parent.ignore_type():
        parent[key] = value
    assert_refused(tiny, message)


def test_invalid_position_buckets_and_distances_are_refused(tiny):
    tiny.model.position_bias, tiny.model.position_buckets = "t5", 33
    assert_refused(tiny, r"model\.position_buckets=33 must be even")
    tiny.model.position_buckets, tiny.model.position_distance = 32, 8
    assert_refused(tiny, r"model\.position_distance=8 must be more than a quarter of model")


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("btmlm.batch_size", 8, r"data\.languages names only one"),
        ("btmlm.batch_size", 8, r"set model\.language_embeddings=predicted"),
        ("retrieval.batch_size", 1, r"retrieval\.batch_size=1: .* need at least 2 rows"),
        ("dwa.query_layer", 3, r"dwa\.query_layer=3 is beyond model\.layers=2"),
        (
            "xlco.queue",
            6,
            r"xlco\.queue=6 is too small .*: up to 8 from .*=8 rows of .*pair_length=48",
        ),
        ("xlco.layer", 0, r"xlco\.layer=0: .* the same vector; set a layer of at least 1"),
        ("distillation.batch_size", 8, r"name a checkpoint in .*teacher"),
    ],
)
def test_errors_for_objectives_that_cannot_work_name_the_key(tiny, path, value, message):
    name, key = path.split(".")
    tiny.objectives[name].batch_size = 8
    tiny.objectives[name][key] = value
    if name == "btmlm" and "one" in message:
        tiny.data.languages = "en"
    assert_refused(tiny, message)


@pytest.mark.parametrize("name", ["retrieval", "sentence_distillation"])
def test_rows_of_two_halves_have_an_even_length(tiny, name):
    tiny.objectives[name].batch_size = 8
    if name == "sentence_distillation":
        tiny.objectives[name].teacher = "teacher"
    tiny.data.pair_length = 47
    assert_refused(tiny, r"two halves; data\.pair_length=47 must be even")


def test_a_phase_must_not_change_the_queue_of_an_objective(tiny):
    tiny.objectives.xlco.batch_size, tiny.objectives.xlco.queue = 8, 16
    change = {"start_step": 2, "objectives": {"xlco": {"queue": 32}}}
    tiny.phases = phases(x=change)
    assert_refused(tiny, r"phases: objectives\.xlco\.queue must be the same in all")


def test_a_phase_must_not_change_a_generator_even_if_other_objectives_train_it(tiny):
    tiny.objectives.mrtd.batch_size = 8
    objectives = {
        "mrtd": {"batch_size": 0},
        "trtd": {"batch_size": 8},
        "generator": {"layers": 2},
    }
    tiny.phases = phases(x={"start_step": 2, "objectives": objectives})
    assert_refused(tiny, r"phases: objectives\.generator must be the same in all phases")
    del tiny.phases.x.objectives.generator
    assert len(parse(tiny).schedule) == 2


def test_dictionaries_need_the_rule_that_reads_them(tiny):
    tiny.init_from, tiny.transfer.vocabulary = "encoder", "matched"
    tiny.transfer.dictionaries, tiny.transfer.rules = "en-de.txt", "exact,accents"
    assert_refused(tiny, r"transfer.rules=exact,accents has no rule `dictionary`; add it")
    tiny.transfer.rules = "exact,dictionary"
    assert parse(tiny).transfer.dictionaries == ("en-de.txt",)


def test_a_decay_longer_than_the_run_is_refused(tiny):
    tiny.optimizer.schedule, tiny.optimizer.decay_steps = "wsd", 7
    assert_refused(tiny, r"decay_steps=7 is more than the 6 steps of the learning rate schedule")


@pytest.mark.parametrize(
    "steps, microbatches, message",
    [
        (7, 1, r"train\.batch_warmup=7: the batch warm-up must end by step 6, where the first"),
        (
            4,
            4,
            r"first_microbatches=4 to train\.gradient_accumulation_steps=4, which must be larger",
        ),
    ],
)
def test_an_invalid_batch_warmup_is_refused(tiny, steps, microbatches, message):
    tiny.train.gradient_accumulation_steps, tiny.train.batch_warmup = 4, steps
    tiny.train.first_microbatches = microbatches
    assert_refused(tiny, message)


def test_keys_of_an_objective_that_is_off_are_refused(tiny):
    tiny.objectives.tlm.batch_size = 0
    tiny.objectives.tlm.weight = 2.0
    assert_refused(tiny, r"objectives\.tlm\.weight is set to 2\.0 but has no effect")


@pytest.mark.parametrize(
    "path, value, reason",
    [
        ("data.seqio_modules", "mine.tasks", "have no seqio: source"),
        ("objectives.generator.layers", 2, r"objectives\.trtd\.batch_size are 0"),
        ("objectives.btmlm.pseudo_ratio", 0.2, r"objectives\.btmlm\.batch_size is 0"),
        ("evaluation.retrieval.sentences", 9, r"evaluation\.retrieval\.source is empty"),
        ("evaluation.alignment.pairs", "en-de", r"evaluation\.alignment\.source is empty"),
    ],
)
def test_unused_keys_are_refused(tiny, path, value, reason):
    *sections, key = path.split(".")
    parent = tiny
    for name in sections:
        parent = parent[name]
    parent[key] = value
    assert_refused(tiny, rf"{path} is set to .* but has no effect, because .*{reason}")


def test_languages_and_pairs_without_text_are_refused(tiny):
    tiny.objectives.tlm.batch_size, tiny.data.parallel = 0, ""
    assert_refused(tiny, r"data\.pairs is set to 'en-de,en-sw' but .* data\.parallel is empty")
    tiny.data.pairs, tiny.objectives.mmlm.batch_size = "", 0
    tiny.objectives.tlm.batch_size = 8
    tiny.data.pairs, tiny.data.parallel, tiny.data.mono = "en-de", "{pair}.tsv", ""
    assert_refused(tiny, r"data\.languages is set to 'en,de,sw' but .* data\.mono is empty")


@pytest.mark.parametrize(
    "path, reason",
    [
        ("data.vocabulary_size", "names a vocabulary, so none is trained"),
        ("data.pair_length", "no objective that is on reads rows"),
        ("data.parallel", r"no objective that is on reads data\.parallel"),
    ],
)
def test_unused_keys_are_allowed_in_a_recipe_but_refused_if_explicit(tiny, path, reason):
    tiny.objectives.tlm.batch_size, tiny.data.vocabulary = 0, "some.model"
    assert parse(tiny).data.vocabulary_size == 400
    with pytest.raises(ConfigError, match=rf"{path} is set to .* because .*{reason}"):
        parse(tiny, explicit=[path])


@pytest.mark.parametrize(
    "section, source, key, value, message",
    [
        ("retrieval", "held_out", "layer", 3, r"retrieval\.layer=3 is beyond model\.layers=2"),
        ("retrieval", "held_out,{pair}.tsv", "layer", 1, "held_out .* only entry of"),
        ("retrieval", "held_out", "pairs", "en-de,en-fr", r"retrieval\.pairs=en-fr: only pairs of"),
        ("alignment", "held_out", "layer", 1, "held_out has no gold links"),
    ],
)
def test_errors_for_evaluations_that_cannot_work_name_the_key(
    tiny, section, source, key, value, message
):
    options = tiny.evaluation[section]
    options.source = source
    options[key] = value
    assert_refused(tiny, message)


def test_evaluation_on_files_requires_language_pairs(tiny):
    tiny.objectives.tlm.batch_size, tiny.data.parallel, tiny.data.pairs = 0, "", ""
    tiny.evaluation.retrieval.source = "{pair}.tsv"
    assert_refused(tiny, r"name the language pairs with evaluation\.retrieval\.pairs")


def test_missing_held_out_pairs_are_allowed_in_a_recipe_but_refused_if_explicit(tiny):
    tiny.evaluation.retrieval.source, tiny.objectives.tlm.batch_size = "held_out", 0
    parse(tiny)
    with pytest.raises(ConfigError, match="reads sentence pairs, so none are held out"):
        parse(tiny, explicit=["evaluation.retrieval.source"])


def test_parallel_text_that_only_the_vocabulary_reads_counts_as_used(tiny):
    tiny.objectives.tlm.batch_size = 0
    assert parse(tiny, explicit=["data.parallel", "data.pairs"]).data.parallel


def test_a_config_without_an_objective_is_refused(tiny):
    tiny.objectives.tlm.batch_size = tiny.objectives.mmlm.batch_size = 0
    assert_refused(tiny, "no objective is on")


def phases(**changes):
    return ml_collections.ConfigDict(changes)


def test_each_phase_starts_from_the_config_of_the_previous_phase(tiny):
    tiny.phases = phases(
        late={"start_step": 4, "objectives": {"masking": {"rate": 0.3}}},
        early={"start_step": 2, "data": {"alpha": 0.1}},
    )
    schedule = parse(tiny).schedule
    assert [(phase.name, phase.start, phase.end) for phase in schedule] == [
        ("", 0, 2),
        ("early", 2, 4),
        ("late", 4, 6),
    ]
    configs = [phase.config for phase in schedule]
    assert [c.data.alpha for c in configs] == [0.7, 0.1, 0.1]
    assert [c.objectives.tlm.mask_rate for c in configs] == [0.15, 0.15, 0.3]


@pytest.mark.parametrize(
    "phase, message",
    [
        ({"data": {"alpha": 0.1}}, r"phases\.x\.start_step is None"),
        ({"start_step": "5th", "data": {"alpha": 0.1}}, r"phases\.x\.start_step is '5th'; it must"),
        ({"start_step": True, "data": {"alpha": 0.1}}, r"phases\.x\.start_step is True"),
        (
            {"start_step": 2, "objectives": {"generator": {"layers": 2}}},
            r"phases\.x\.objectives\.generator\.layers is set to 2 but has no effect",
        ),
        ({"start_step": 2, "data": 3}, r"phases\.x\.data must be a section of keys, not 3"),
        ({"start_step": 6, "data": {"alpha": 0.1}}, r"before train\.steps=6"),
        ({"start_step": 0, "data": {"alpha": 0.1}}, r"must be a step after 0"),
        (
            {"start_step": 2, "train": {"seed": 1}},
            r"x\.train.*may change only data\.alpha.*objectives",
        ),
        ({"start_step": 2, "optimizer": {"b1": 0.5}}, r"phases\.x\.optimizer\.b1: a phase may"),
        ({"start_step": 2, "optimizer": {"decay_steps": 2}}, r"set to 2 but has no effect"),
        (
            {"start_step": 3, "optimizer": {"schedule": "wsd", "decay_steps": 4}},
            r"phases\.x\.optimizer\.decay_steps=4 is more than the 3 steps of the learning rate",
        ),
        ({"start_step": 2, "data": {"pair_length": 16}}, r"data\.pair_length: a phase may change"),
        ({"start_step": 2, "data": {"length": 60}}, r"data\.length=60 is beyond the model's"),
        (
            {"start_step": 2, "data": {"sampled": "en,fr"}},
            r"phases\.x\.data\.sampled: fr is not in data\.languages or data\.pairs",
        ),
        ({"start_step": 2, "data": {"sampled": "en=0"}}, r"data\.sampled: 'en=0' must be NAME"),
        ({"start_step": 2, "data": {"sampled": "en=a,de"}}, r"data\.sampled: 'en=a' must be NAME"),
        ({"start_step": 2, "model": {"rotary_base": 5.0}}, r"rotary positions replace learned"),
        (
            {"start_step": 2, "train": {"gradient_accumulation_steps": 3}},
            r"not divisible by train\.gradient_accumulation_steps=3",
        ),
        ({"start_step": 2, "objectives": {"tlm": {"mask_rat": 1.0}}}, r"mask_rat.*did you mean"),
        ({"start_step": 2}, r"phases\.x changes nothing in the previous phase"),
        ({"start_step": 2, "data": {"alpha": 0.7}}, r"phases\.x changes nothing"),
        ({"start_step": 2, "objectives": {"camlm": {"weight": 2.0}}}, r"camlm.* is off in this"),
        (
            {"start_step": 2, "objectives": {"xlco": {"batch_size": 1}}},
            r"xlco\.batch_size=1: .* at least 2 rows",
        ),
    ],
)
def test_invalid_phases_are_refused(tiny, phase, message):
    tiny.phases = phases(x=phase)
    assert_refused(tiny, message)


def test_with_finished_rows_keys_of_text_are_not_required_and_refused_if_explicit(tiny):
    tiny.data.rows, tiny.data.mono, tiny.data.parallel = "some/rows", "", ""
    tiny.data.length = 60  # more than model.positions; only the length of the finished rows counts
    parse(tiny, explicit=["data.rows", "data.alpha", "data.vocabulary"])
    for path in ("data.languages", "data.length", "data.vocabulary_size", "data.cache"):
        with pytest.raises(
            ConfigError,
            match=rf"{path} is set .* because data\.rows (names|is the folder of) finished",
        ):
            parse(tiny, explicit=[path])
