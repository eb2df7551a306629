"""Every recipe and each of its variants builds and traces; the tiny variants train."""

import importlib
from pathlib import Path

import chex
import jax
import pytest
from test_papers import recipes_of_papers

from xlj import config as schema
from xlj.config import ConfigError, parse, variants
from xlj.config.fields import lookup
from xlj.data.rows.store import Corpus
from xlj.data.text.templates import paired_languages
from xlj.data.text.text_tasks import text_tasks
from xlj.data.tokenizer import vocabulary_training
from xlj.objectives.masking.options import Masking
from xlj.objectives.objective import build
from xlj.optimizers import Rates
from xlj.sharding import meshes
from xlj.training import loop, resources, start, state
from xlj.training.step import make_train_step

ROOT = Path(__file__).parents[1]
RECIPES = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
TINY = parse(importlib.import_module("xlm_r_base").get_config("tiny"))


def load(name, variant=""):
    """The config of `configs/NAME.py:VARIANT`; pytest has `configs` on its path."""
    return importlib.import_module(name).get_config(variant)


def own_variants(name):
    return list(getattr(importlib.import_module(name), "VARIANTS", {}))


ALL = [(name, variant) for name in RECIPES for variant in ["", *own_variants(name)]]
MODERN = ("ernie_m_base", "infoxlm")
"""Recipes whose variant `modern` is traced and trained here. All recipes have this variant, and
`modern_xlm_e` and `modern_xlm_align` are recipes of their own."""
FAST = {(name, "") for name in ("ernie_m_base", "quickstart", "xlm_align", "xlm_e")}
"""Recipes that the fast tests trace; the slow tests trace all others."""
ALL_TINY = [(name, ",".join(filter(None, [variant, "tiny"]))) for name, variant in ALL]


def distinct(cases):
    """Returns (name, variant) without repetitions: of cases with the same config, the first."""
    first_cases = {}
    for name, variant in cases:
        first_cases.setdefault(load(name, variant).to_json(sort_keys=True), (name, variant))
    return list(first_cases.values())


def with_sources(config):
    """Adds text to the config, if the recipe leaves the text to the user."""
    if not config.data.mono:
        config.data.mono, config.data.languages = "DIR/{language}.txt", "en,de"
        config.data.parallel, config.data.pairs = "DIR/{pair}.tsv", "en-de"
    return config


def with_teachers(config):
    """Sets the size of the vectors of teachers, which a run reads from the teacher."""
    for name in ("sentence_distillation", "text_distillation"):
        options = config.objectives[name]
        if options.batch_size:
            options.width = options.dense or config.model.hidden
    return config


def corpus_of(config):
    """Returns the description of the rows that a config would build."""
    languages = tuple(dict.fromkeys([*config.data.languages, *paired_languages(config.data)]))
    return Corpus(vocabulary_training.requested_size(config.data), languages, (1,) * len(languages))


@pytest.mark.parametrize(
    "name, variant",
    [
        pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow])
        for case in distinct([*ALL, *((name, "modern") for name in MODERN)])
    ],
)
def test_recipes_build_and_trace(name, variant):
    config = with_teachers(with_sources(load(name, variant)))
    config = parse(config).for_platform("cpu")
    corpus = corpus_of(config)
    mesh = meshes.make_mesh(config, jax.devices()[:1])
    state.sharding(config, corpus, mesh)
    for phase in (each.config for each in config.schedule):
        active = phase.objectives.active()
        built = build(active, config.model, corpus)
        batch = {}
        for objective_name, options in active.items():
            length = lookup(config, options.row_kind.length) or 128  # auto: any length
            shapes = {objective_name: (options.batch_size, length)}
            batch |= resources.abstract_batch(active, shapes, "<u4", mesh)
        before = jax.eval_shape(lambda: state.init(config, corpus, 0))
        after = jax.eval_shape(
            make_train_step(phase, built, mesh), before, batch, 0, Rates(1e-3, 0.0)
        )
        chex.assert_trees_all_equal_shapes_and_dtypes(after, before)


@pytest.mark.parametrize("name, variant", ALL_TINY)
def test_tiny_variants_have_the_recipes_objectives_on_the_embedded_corpus(name, variant):
    full = parse(with_sources(load(name, variant.removesuffix("tiny").rstrip(","))))
    config = parse(load(name, variant))
    assert list(config.objectives_on()) == list(full.objectives_on())
    assert len(config.schedule) == len(full.schedule)
    assert config.init_from == "" and config.train.steps == TINY.train.steps
    assert config.data.mono == ("phrasebook:{language}",)
    assert config.model.layers == TINY.model.layers


@pytest.mark.parametrize("name, variant", ALL)
def test_variants_change_their_recipe(name, variant):
    equal_variant = {"ernie_m_ablations": "exp5"}.get(name, "")
    is_equal = parse(with_sources(load(name, variant))) == parse(with_sources(load(name)))
    assert is_equal == (variant in ("", equal_variant))


def test_ablations_of_ernie_m_train_the_objectives_of_table_6():
    trained = {
        f"exp{n}": set(parse(load("ernie_m_ablations", f"exp{n}")).objectives_on())
        for n in range(1, 6)
    }
    assert trained == {
        "exp1": {"mmlm"},
        "exp2": {"mmlm", "tlm"},
        "exp3": {"mmlm", "camlm"},
        "exp4": {"mmlm", "camlm", "btmlm"},
        "exp5": {"mmlm", "tlm", "camlm", "btmlm"},
    }
    for name in ("exp1", "exp2"):
        assert parse(load("ernie_m_ablations", name)).model.language_embeddings == "none"


def test_xlm_e_masks_all_selected_tokens():
    """XLM-E, sections 2 and 3.1 ("the task is the same")."""
    for options in parse(load("xlm_e")).objectives.active().values():
        assert options.masking == Masking(rate=0.15, mask_share=1, random_share=0)


def test_xlm_align_reads_wikipedia_and_ccnet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = ("data/wiki/de.txt.gz", "data/ccnet/de.txt.xz", "data/ccnet/sw.txt.xz")
    for name in text:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    config = load("xlm_align", "mmlm")
    config.data.languages = "de,sw"
    german, swahili = text_tasks(parse(config).data)
    assert [len(task.sources) for task in (german, swahili)] == [2, 1]


def test_meta_xlm_matches_vocabularies_as_in_section_3_2():
    plain, translated = (parse(load("meta_xlm", name)).transfer for name in ("", "dict"))
    assert not plain.dictionaries and plain.rules == ("exact", "normalised", "dictionary")
    assert translated.rules == ("dictionary", "exact", "normalised")


def test_back_translation_follows_cross_attention():
    before, after = parse(load("ernie_m_base")).schedule
    first, second = before.config, after.config
    assert after.start == 100_000
    assert "btmlm" not in first.objectives.active() and "btmlm" in second.objectives.active()
    assert load("ernie_m_base", "tiny").phases.back_translation.start_step == 150


def test_infoxlm_fills_its_queue_before_it_trains():
    before, after = parse(load("infoxlm")).schedule
    filling, training, begin = before.config, after.config, after.start
    xlco = training.objectives.xlco
    assert begin * 8 * xlco.batch_size == xlco.queue  # a row has about eight pairs
    assert not any(options.weight for options in filling.objectives.active().values())
    assert all(options.weight == 1 for options in training.objectives.active().values())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_modern_variant(name):
    full, modern = (parse(with_sources(load(name, variant))) for variant in ("", "modern"))
    tiny = parse(load(name, "modern,tiny"))
    assert list(full.objectives_on()) == list(modern.objectives_on()) == list(tiny.objectives_on())
    assert modern.model.family == tiny.model.family == "modernbert"


def test_a_recipe_of_modernberts_family_is_its_own_modern_variant():
    assert parse(load("mmbert_base", "modern")) == parse(load("mmbert_base"))


def test_modern_variants_are_deeper_and_have_narrower_feed_forward_layers():
    """As ModernBERT base compared with BERT base. Layer numbers in options grow with the depth."""
    for name, layer in (("xlm_e", 4), ("xlm_align", 10)):
        plain, modern = parse(load(name)), parse(load(name, "modern"))
        assert modern.model.family == "modernbert" and modern.init_from == ""
        assert (plain.model.layers, modern.model.layers) == (12, 22)
        assert modern.model.intermediate == 1.5 * plain.model.hidden
        options = modern.objectives_on()
        layers = {
            getattr(options[objective], key, None) for objective in options for key in LAYER_OPTIONS
        } | {modern.objectives.generator.layers}
        assert round(layer * 22 / 12) in layers
    config = parse(load("xlm_e", "modern,tiny"))
    assert config.objectives.generator.layers == 1  # 7 of 22 layers, now of 2
    tiny = config.model
    assert (tiny.local_attention, tiny.intermediate, tiny.norm) == (16, 192, "embeddings")


def test_variants_are_applied_in_order_and_tiny_last():
    config = schema.default()
    own = {
        "long": lambda config: config.train.update(steps=7),
        "longer": lambda config: config.train.update(steps=3 * config.train.steps),
    }
    variants.apply(config, "long,longer", own)
    assert config.train.steps == 21
    config.objectives.mmlm.batch_size = 8
    assert variants.apply(config, "tiny,long", own).train.steps == TINY.train.steps


@pytest.mark.parametrize("variant", ["none", "tiny,none", "tiny,", ",", "Tiny"])
def test_errors_of_unknown_variants_list_the_known_variants(variant):
    with pytest.raises(
        ConfigError, match="there is no variant .*; the variants are big, modern, tiny$"
    ):
        variants.apply(schema.default(), variant, {"big": lambda config: None})


def test_without_turns_objectives_off_in_all_phases(tiny):
    tiny.objectives.btmlm.pseudo_ratio = 0.2
    tiny.phases = {
        "both": {"start_step": 2, "objectives": {"btmlm": {"batch_size": 8}, "tlm": {"weight": 2}}},
        "alpha": {"start_step": 3, "data": {"alpha": 0.1}, "objectives": {"tlm": {"weight": 3}}},
    }
    variants.without("btmlm")(tiny)
    assert list(parse(tiny).objectives_on()) == ["mmlm", "tlm"] and tiny.data.pairs == "en-de,en-sw"
    variants.without("tlm")(tiny)
    assert (
        list(parse(tiny).objectives_on()) == ["mmlm"]
        and tiny.data.pairs == tiny.data.parallel == ""
    )
    assert list(tiny.phases) == ["alpha"]


def test_base_and_large_have_the_papers_sizes():
    for name, millions in (
        ("xlm_r_base", 278),
        ("xlm_r_large", 560),
        ("xlm_align", 279),
        ("meta_xlm", 278),
    ):
        config = parse(load(name))
        shapes = jax.eval_shape(lambda c=config: state.init(c, corpus_of(c), 0)).params
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes)) / 1e6
        assert count == pytest.approx(millions, rel=0.01)


def few_steps(config, corpus, rows_folder):
    """Shortens a config to one step in each phase, and one more, without evaluation.

    Evaluation would take most of the compilation; the quickstart and the tutorials test it. The
    text is that of other tests, since rows of the whole phrasebook take longer than the training,
    except if a phase names languages.
    """
    data = config.data
    data.cache = str(rows_folder)
    if not any("sampled" in phase.get("data", {}) for phase in config.phases.values()):
        data.languages, data.mono = "en,de,sw", f"{corpus}/mono/{{language}}.txt"
        data.vocabulary_size = 400
        if data.pairs:
            data.pairs, data.parallel = "en-de,en-sw", f"{corpus}/pairs/{{pair}}.tsv"
    train, optimizer = config.train, config.optimizer
    train.batch_warmup = min(1, train.batch_warmup)
    for step, phase in enumerate(config.phases.values(), start=1 + train.batch_warmup):
        phase.start_step = step
    train.steps = len(config.phases) + 2 + train.batch_warmup
    optimizer.warmup_steps, optimizer.decay_steps = 0, min(1, optimizer.decay_steps)
    train.eval_rows, train.best_metric, train.patience = 0, "", 0
    config.evaluation = schema.default().evaluation
    return config


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, corpus, rows_folder):
    """A checkpoint as small as `:tiny`, for distillation."""
    config = parse(few_steps(load("meta_xlm", "tiny"), corpus, rows_folder))
    return loop.train(start.prepare(config, tmp_path_factory.mktemp("teacher"))).workdir


TRAINED_ELSEWHERE = ("aligner", "quickstart", "mmbert_small")
"""Recipes whose variant `tiny` other tests or `.ci/run` train, or that train like another."""

ON_A_MESH = ("infoxlm", "modern_xlm_e", "ernie_m_base")
"""Recipes that the slow tests train on all devices. Others train on one device, whose programs
compile faster; tests of the step and of the objectives compare meshes."""

LAYER_OPTIONS = ("label_layer", "query_layer")


def cases_to_train():
    """Returns (name, variant) of the configs that the slow tests train.

    These are the tiny variants of all other recipes, and the papers' variants that train other
    objectives or freeze other parts of the model than the cases before them. Other options
    of variants are traced above, and the tests of the objectives compute with them.
    """
    cases = {}
    tiny = [(name, "tiny") for name in RECIPES if name not in TRAINED_ELSEWHERE]
    for name, variant in distinct([*tiny, *recipes_of_papers()]):
        config = parse(load(name, variant))
        active = [[*phase.config.objectives.active()] for phase in config.schedule]
        key = (name, variant) if variant == "tiny" else (str(active), config.optimizer.frozen)
        cases.setdefault(key, (name, variant))
        cases.setdefault((str(active), config.optimizer.frozen), None)
    return [case for case in cases.values() if case]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, variant", [*cases_to_train(), *((name, "modern,tiny") for name in MODERN)]
)
def test_tiny_variants_take_steps_in_each_phase(
    name, variant, tmp_path, corpus, rows_folder, teacher, devices
):
    devices(8 if name in ON_A_MESH else 1)
    config = few_steps(load(name, variant), corpus, rows_folder)
    if "kd" in variant:
        config.objectives.distillation.teacher = str(teacher)
    config = parse(config)
    outcome = loop.train(start.prepare(config, tmp_path))
    assert outcome.finished and outcome.checkpoint.is_dir()
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text("utf-8")
