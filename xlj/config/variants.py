"""Recipe variants: `--config=FILE:tiny`, or several, `--config=FILE:exp3,tiny`."""

from collections.abc import Callable, Mapping

import ml_collections

from xlj.config import durations, families
from xlj.config.fields import ConfigError, shared_in
from xlj.config.objectives import objectives_in, registered
from xlj.config.schema import default
from xlj.config.sections import HELD_OUT

Variant = Callable[[ml_collections.ConfigDict], object]
"""A function that changes some keys of a config in place."""

_MODERN_DEPTH = 22 / 12
_STEPS = 300
_LAYERS = 2
_ROWS = 64


def apply(
    config: ml_collections.ConfigDict, variant: str, own: Mapping[str, Variant] | None = None
) -> ml_collections.ConfigDict:
    """Applies variants to a recipe in order, `tiny` last.

    Every pretraining recipe has the variants `modern` and `tiny`. `modern` trains an encoder with
    the shape of ModernBERT from scratch; this encoder has about as many parameters as the recipe's
    encoder. `tiny` trains a small model with the recipe's objectives on the embedded corpus, in
    about two minutes on a laptop. Phases start after the same share of the steps as in the recipe.

    Args:
      variant: names separated by commas; empty for the unchanged recipe.
      own: further variants by name, the VARIANTS of the recipe's file.

    Raises:
      ConfigError: if there is no such variant.
    """
    names = variant.split(",") if variant else []
    ordered = sorted(names, key="tiny".__eq__)
    return choose(config, ",".join(ordered), {**(own or {}), "modern": _modern, "tiny": _tiny})


def choose(
    config: ml_collections.ConfigDict, variant: str, known: Mapping[str, Variant]
) -> ml_collections.ConfigDict:
    """Applies variants to a recipe in order; raises a `ConfigError` if there is no such variant."""
    for name in variant.split(",") if variant else []:
        if name not in known:
            raise ConfigError(f"there is no variant {name!r}; the variants are {', '.join(known)}")
        known[name](config)
    return config


def embedded(task: str, epochs: float, length: int) -> Variant:
    """Returns a variant of a fine-tuning recipe: the task on the embedded corpus.

    The model is trained on English and scored on all languages. The settings are for a model as
    small as the quickstart's.

    Args:
      task: the name of the task in the embedded corpus, such as `nli`.
      epochs: passes over the training data.
      length: tokens in a row.
    """

    def change(config: ml_collections.ConfigDict) -> None:
        source = f"phrasebook:{task}/{{language}}"
        for split in ("train", "dev", "test"):
            config.task[split] = f"{source}#{split}"
        config.task.languages = "en"
        config.task.test_languages = "en,de,fr,es,zh,tr,hi,sw"
        config.task.columns = config.task.labels = ""
        config.task.length = length
        config.optimizer.learning_rate = 1e-3
        config.optimizer.warmup_steps = "10%"
        config.task.batch_size = 32
        config.train.steps, config.train.eval_every = f"{epochs:g}ep", "100%"

    return change


def without(*objectives: str) -> Variant:
    """Returns a variant that turns objectives off in every phase. It also removes the parallel text
    if no other objective reads it."""

    def change(config: ml_collections.ConfigDict) -> None:
        for name in objectives:
            config.objectives[name].update(default().objectives[name])
        with config.unlocked():
            for name, phase in list(config.phases.items()):
                for objective in set(objectives) & set(phase.get("objectives", {})):
                    del phase.objectives[objective]
                if not phase.get("objectives") and set(phase) <= {"start_step", "objectives"}:
                    del config.phases[name]
        if not _read_pairs(_active_objectives(config)):
            config.data.parallel = config.data.pairs = ""

    return change


def text_only(config: ml_collections.ConfigDict) -> None:
    """Variant that turns off all objectives that read sentence pairs."""
    without(*(name for name in _active_objectives(config) if _read_pairs({name})))(config)


def from_scratch(config: ml_collections.ConfigDict) -> None:
    """Variant that initialises all parameters randomly instead of from another model."""
    config.init_from = ""
    config.transfer = default().transfer


def _active_objectives(config: ml_collections.ConfigDict) -> set[str]:
    """Returns the names of the objectives that are on in any phase."""
    return objectives_in(config) & registered().keys()


def _objectives(config: ml_collections.ConfigDict) -> list[ml_collections.ConfigDict]:
    """Returns the `objectives` sections of the recipe and of its phases."""
    phases = config.phases.values()
    return [config.objectives, *(phase.objectives for phase in phases if "objectives" in phase)]


def _scale_generator(config: ml_collections.ConfigDict, layer: Callable[[int], int]) -> None:
    """Maps the number of layers of the generator, if an objective trains one."""
    if any("generator" in shared_in(registered()[name]) for name in _active_objectives(config)):
        config.objectives.generator.layers = layer(config.objectives.generator.layers)


def _read_pairs(objectives: set[str]) -> bool:
    return any(registered()[name].row_kind.source == "data.parallel" for name in objectives)


def _modern(config: ml_collections.ConfigDict) -> None:
    """Variant with the shape of ModernBERT.

    The changes are the differences between ModernBERT base and BERT base: 22/12 as many layers, and
    gated feed-forward layers, each half of which is 1.5 times as wide as the hidden vectors.
    Recipes of the family `modernbert` do not change.
    """
    if config.model.family == "modernbert":
        return
    model, layers = config.model, config.model.layers

    def scaled(layer: int) -> int:
        return round(layer * _MODERN_DEPTH)

    from_scratch(config)
    marks = model.pair_marks
    families.set_family(config, "modernbert")
    model.pair_marks = marks
    _remove_pair_mark(model, "types")
    model.layers, model.intermediate = scaled(layers), model.hidden * 3 // 2
    model.full_layers = ""
    for objectives in _objectives(config):
        for name in _active_objectives(config) & set(objectives):
            type(registered()[name]).scale_layers(objectives[name], scaled)
    _scale_generator(config, scaled)
    evaluation = config.evaluation
    for name in ("retrieval", "sts", "search", "alignment"):
        section = evaluation[name]
        section.layer = scaled(section.layer) if section.layer > 0 else section.layer


def _remove_pair_mark(model: ml_collections.ConfigDict, mark: str) -> None:
    model.pair_marks = ",".join(name for name in model.pair_marks.split(",") if name != mark)


def _tiny(config: ml_collections.ConfigDict) -> None:
    data, model, train, optimizer = config.data, config.model, config.train, config.optimizer
    on, layers, steps = _active_objectives(config), model.layers, train.steps
    rows = _ROWS // 2 if len(on) <= 2 else _ROWS // 4
    from_scratch(config)
    is_english = data.languages == "en"
    data.languages = "en" if is_english else "en,de,sw,zh"
    data.mono = "phrasebook:{language}"
    if _read_pairs(on):
        data.pairs, data.parallel = "en-de,en-sw,en-zh", "phrasebook:{pair}"
    if any(registered()[name].row_kind.source == "data.examples" for name in on):
        data.examples, data.passage_length = "phrasebook:{language}", 64
    data.vocabulary, data.vocabulary_size = "", 700 if is_english else 2_000
    data.length = data.pair_length = 64
    is_gated = model.feed_forward != "gelu"
    model.layers, model.hidden, model.heads = _LAYERS, 128, 4
    model.intermediate = 192 if is_gated else 512
    model.key_value_heads, model.full_layers = 2 * bool(model.key_value_heads), ""
    model.local_attention = min(model.local_attention, 16)
    model.positions, model.dtype, model.remat = 66, "auto", "none"
    _remove_pair_mark(model, "separator")  # trained vocabularies have none
    train.gradient_accumulation_steps = 4 if train.batch_warmup else 1
    train.batch_warmup = 40 if train.batch_warmup else 0
    train.steps, train.first_microbatches = _STEPS, 1
    train.log_every, train.eval_every, train.checkpoint_every = 25, 150, 150
    train.eval_rows = 32
    optimizer.learning_rate = max(optimizer.learning_rate, 1e-3)
    optimizer.warmup_steps = 30
    optimizer.decay_steps = 50 * (optimizer.schedule == "wsd")
    held_out = config.evaluation.retrieval.source == HELD_OUT
    # The recipe's evaluation files and layers do not fit this corpus and model. The alignment
    # method is kept.
    config.evaluation.retrieval = default().evaluation.retrieval
    config.evaluation.retrieval.source = HELD_OUT if held_out else ""
    config.evaluation.sts = default().evaluation.sts
    config.evaluation.search = default().evaluation.search
    alignment = config.evaluation.alignment
    alignment.source, alignment.layer = "", min(alignment.layer, _LAYERS)
    config.mesh.fsdp = 1
    phases = list(config.phases.items())

    def scaled(layer: int) -> int:
        return max(1, round(layer * _LAYERS / layers))

    for objectives in _objectives(config):
        for name in on & set(objectives):
            type(registered()[name]).shrink(objectives[name], rows, scaled)
    _scale_generator(config, scaled)
    if data.sampled:
        data.sampled = "en,de"  # _shrink selects all languages in a later phase
    starts = {name: durations.share(phase.start_step, steps) for name, phase in phases}
    for number, (name, phase) in enumerate(phases, 1):
        share = starts[name]
        # The share is None if start_step and train.steps have different units.
        share = number / (1 + len(phases)) if share is None else share
        with phase.ignore_type():
            phase.start_step = max(1 + train.batch_warmup, int(share * _STEPS + 1e-6))
            _shrink(phase)
    if any("length" in phase.get("data", {}) for _, phase in phases):
        model.positions = 2 * data.length + 2


def _shrink(phase: ml_collections.ConfigDict) -> None:
    """Adapts the changes of a phase to a short run on the embedded corpus, in place."""
    rates, data = phase.get("optimizer", {}), phase.get("data", {})
    for name in ("warmup_steps", "decay_steps"):
        if rates.get(name):
            rates[name] = 10
    if "length" in data:
        data.length = 128
    if "sampled" in data:
        data.sampled = "en,de,sw,zh"
    if "gradient_accumulation_steps" in phase.get("train", {}):
        phase.train.gradient_accumulation_steps = 1
