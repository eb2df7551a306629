"""Turns a ConfigDict into a checked `Config`.

Unknown keys, wrong types, values out of range, contradictions and unused keys are errors.
"""

from collections.abc import Collection, Sequence
from typing import Any

import ml_collections

from xlj.config import durations, language_file
from xlj.config.families import load, options_of
from xlj.config.fields import (
    ConfigError,
    check_unused,
    flat,
    keys_of,
    lookup,
    nearest,
    shared_in,
    suggestion,
    unused_key_error,
)
from xlj.config.objectives import check_common, import_modules, reserved
from xlj.config.optimizers import factors_of
from xlj.config.paths import check_storable
from xlj.config.schema import Config, build, unresolved
from xlj.config.sections import (
    ATTENTION,
    BIASES,
    DROPOUT_PARTS,
    FREEZABLE,
    HELD_OUT,
    KEYS_OF_RUN,
    MATCHING_RULES,
    PAIR_MARKS,
    Model,
    Optimizer,
)
from xlj.config.user_code import check_arguments


def parse(config: ml_collections.ConfigDict, explicit: Collection[str] = ()) -> Config:
    """Returns the frozen `Config` of a ConfigDict.

    Args:
      explicit: paths of the keys that the user set on the command line. Each of them must have an
        effect. Some keys may be unused if only the recipe sets them (`Unused.allowed_in_recipes`).

    Raises:
      ConfigError: if a key is unknown (suggests the nearest valid key), has a wrong type or an
        impossible value, or has no effect, or if keys contradict each other.
    """
    parsed = build_config(config)
    if parsed.task.kind:
        raise ConfigError(
            f"task.kind={parsed.task.kind}: this config is of fine-tuning; use `python -m "
            "xlj.finetune`"
        )
    if not durations.read(parsed.train.steps).amount:
        raise ConfigError(f"train.steps is {parsed.train.steps!r}; it must be more than 0")
    check_storable("data.cache", parsed.data.cache)
    check_storable("data.rows", parsed.data.rows)
    _check_model_keys(parsed, explicit)
    if parsed.transfer.model == "config":
        check_values(parsed)
    check_unused(parsed, explicit, keys_of(Config))
    return parsed


def build_config(config: ml_collections.ConfigDict) -> Config:
    """Returns the frozen `Config` of a ConfigDict, of which only single values are checked.

    Raises:
      ConfigError: if a key is unknown, has a wrong type or an impossible value, or names a module
        or function that cannot be imported.
    """
    tree = config.to_dict()
    import_modules(tree.get("objective_modules", ""))
    parsed = build(tree | {"data": language_file.expand(tree.get("data", {}))})
    if parsed.train.metrics_hook:
        check_arguments(parsed.train.metrics_hook, "train.metrics_hook", ("step", "values"))
    return parsed


def check_values(config: Config) -> None:
    """Raises a `ConfigError` if values of a config contradict each other.

    `parse` calls this function if `transfer.model` is `config`. If the model is that of
    `init_from`, `training.start.adopt_model` calls it.
    """
    if not config.data.rows:  # `open_rows` checks finished rows
        for phase in config.schedule:
            _check_text(phase.config)
        check_languages(config)
    check_phases(config)
    _check_state(config)
    _check_evaluation(config)
    _check_phases_unused(config)


def _check_model_keys(config: Config, explicit: Collection[str]) -> None:
    """Refuses keys of `model` that the user set, if their values come from `init_from`'s model."""
    if config.transfer.model == "config":
        return
    if not config.init_from:
        raise ConfigError(
            "transfer.model=init_from uses the model of init_from, which is empty; set init_from"
        )
    for path in explicit:
        section, _, name = path.partition(".")
        if section == "model" and name not in KEYS_OF_RUN:
            reason = f"transfer.model=init_from takes this key from {config.init_from}"
            raise unused_key_error(path, lookup(config, path), reason)


def check_phases(config: Config) -> None:
    """Raises a `ConfigError` if values of a phase contradict each other. Durations that are not yet
    converted to steps are not compared."""
    is_open = bool(unresolved(config))
    if not is_open:
        first = config.schedule[0]
        first.batch_sizes.check(first.end)
    for phase in config.schedule:
        _check_together(phase.config)
        if phase.config.optimizer.schedule != "wsd" or is_open:
            continue
        decay, steps = phase.config.optimizer.decay_steps, phase.rates_end - phase.rates_start
        if decay > steps:
            where = f"phases.{phase.name}." if phase.name else ""
            raise ConfigError(
                f"{where}optimizer.decay_steps={decay} is more than the {steps} steps of the "
                f"learning rate schedule, which ends at step {phase.rates_end}; lower it"
            )


def _check_phases_unused(config: Config) -> None:
    """Refuses a phase that sets options of an objective that is off in this phase and all later
    phases, or a key that has no effect in the phase."""
    fields = dict(keys_of(type(config)))
    for number, phase in enumerate(config.schedule[1:], 1):
        name, changes = phase.name, config.phases[phase.name]
        later = [each.config for each in config.schedule[number:]]
        objectives = changes.get("objectives", {})
        shared = {key: value for key, value in objectives.items() if key in reserved()}
        for path, value in flat({**changes, "objectives": shared}).items():
            used_when = fields[path].metadata["used_when"] if path in fields else None
            unused = used_when(phase.config, path) if used_when else None
            if unused and not unused.allowed_in_recipes:
                raise unused_key_error(f"phases.{name}.{path}", value, unused.reason)
        for objective, options in objectives.items():
            on = objective in shared or any(objective in each.objectives.active() for each in later)
            if not on and set(options) - {"batch_size"}:
                path = f"phases.{name}.objectives.{objective}"
                reason = "the objective is off in this phase and all later phases"
                raise unused_key_error(path, dict(options), reason)


def _check_together(config: Config) -> None:
    """Refuses values that contradict each other."""
    model, train, optimizer = config.model, config.train, config.optimizer
    check_model(model)
    _check_attention(model.attention)
    if not config.objectives.active():
        raise ConfigError(
            "no objective is on; set objectives.mmlm.batch_size, or batch_size of another objective"
        )
    for name, options in config.objectives.active().items():
        check_common(options.path(name), options, config)
        options.check(options.path(name), config)
    check_optimizer(optimizer)
    if not config.transfer.parts or not set(config.transfer.parts) <= {"body", "embeddings"}:
        raise ConfigError(
            f"transfer.parts={','.join(config.transfer.parts)}: the parts are body and embeddings"
        )
    _check_names("transfer.rules", config.transfer.rules, MATCHING_RULES)
    if config.transfer.dictionaries and "dictionary" not in config.transfer.rules:
        raise ConfigError(
            f"transfer.dictionaries is set, but transfer.rules={','.join(config.transfer.rules)} "
            "has no rule `dictionary`; add it"
        )
    if config.transfer.optimizer and (
        config.transfer.vocabulary != "same" or len(config.transfer.parts) < 2
    ):
        raise ConfigError(
            "transfer.optimizer copies the moments of all parameters; it needs "
            "transfer.parts=body,embeddings and transfer.vocabulary=same"
        )
    known = [path for path, _ in keys_of(type(config))]
    for path in train.allow_change:
        if path not in known:
            raise ConfigError(
                f"train.allow_change: unknown config key {path}{nearest(path, known)}"
            )


def check_model(model: Model) -> None:
    """Raises a `ConfigError` if options of the model contradict each other."""
    of_xlm_r = options_of("xlm_r")
    if load(model.family) is not load("xlm_r") and all(
        getattr(model, name) == value for name, value in of_xlm_r.items() if name != "family"
    ):
        raise ConfigError(
            f"model.family={model.family}, but the other options of model are those of XLM-R; in a "
            f"config file call xlj.config.families.set_family(config, {model.family!r}), which "
            "sets all options of the family"
        )
    if model.hidden % model.heads:
        raise ConfigError(
            f"model.hidden={model.hidden} is not divisible by model.heads={model.heads}"
        )
    if "types" in model.pair_marks and model.token_types < 2:
        raise ConfigError("model.pair_marks=types needs model.token_types=2")
    if not model.has_own_head:
        raise ConfigError(
            "model.prediction=linear with model.tied=True leaves the masked-token head without "
            "parameters; set model.tied=False, or add vocabulary to model.biases"
        )
    if model.heads % model.groups:
        raise ConfigError(
            f"model.heads={model.heads} is not divisible by model.key_value_heads="
            f"{model.key_value_heads}"
        )
    if model.local_attention == 1:
        raise ConfigError(
            "model.local_attention=1 is a window in which a token attends only to itself; set a "
            "larger window, or 0 for full attention"
        )
    for layer in model.full_layers:
        if layer not in map(str, range(model.layers)):
            raise ConfigError(
                f"model.full_layers={','.join(model.full_layers)}: there is no layer {layer}; "
                f"the layers are 0 to {model.layers - 1} (model.layers={model.layers})"
            )
    _check_positions(model)
    _check_names("model.biases", model.biases, BIASES)
    _check_names("model.dropout_parts", model.dropout_parts, DROPOUT_PARTS)
    _check_names("model.pair_marks", model.pair_marks, PAIR_MARKS)


def _check_attention(names: str) -> None:
    for name in names.split(","):
        if ":" in name:
            check_arguments(name, "model.attention", ("query", "key", "value", "mask"))
        elif name not in ATTENTION:
            raise ConfigError(
                f"model.attention={names}: the names are {', '.join(ATTENTION)}, or "
                f"module:function{suggestion(name, ATTENTION)}"
            )


def _check_positions(model: Model) -> None:
    if model.position_buckets % 2 or model.position_distance <= model.position_buckets // 4:
        raise ConfigError(
            f"model.position_buckets={model.position_buckets} must be even, and "
            f"model.position_distance={model.position_distance} must be more than a quarter of "
            "model.position_buckets"
        )
    if model.position_bias == "none" and not (model.absolute_positions or model.rotary_base):
        raise ConfigError(
            "model.absolute_positions is off, so the model does not see the order of tokens; set "
            "model.position_bias to t5 or gated, or set model.rotary_base"
        )
    if "positions" in model.pair_marks and not (model.absolute_positions or model.rotary_base):
        raise ConfigError("model.pair_marks=positions needs learned or rotary positions")
    if model.absolute_positions and model.rotary_base:
        raise ConfigError(
            f"model.rotary_base={model.rotary_base:g}: rotary positions replace learned positions; "
            "set model.absolute_positions=False"
        )
    if model.rotary_base and model.hidden // model.heads % 2:
        raise ConfigError(
            f"model.rotary_base rotates pairs of dimensions, but model.hidden={model.hidden} and "
            f"model.heads={model.heads} give heads of an odd size"
        )


def _check_names(path: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{path}={','.join(names)}: the names are {', '.join(known)}"
                f"{suggestion(name, known)}"
            )


def check_optimizer(optimizer: Optimizer) -> None:
    """Raises a `ConfigError` if options of the optimizer contradict each other."""
    if optimizer.schedule == "wsd" and not optimizer.decay_steps:
        raise ConfigError("optimizer.schedule is wsd; set optimizer.decay_steps")
    if optimizer.decoupling == "fully" and not optimizer.learning_rate:
        raise ConfigError(
            "optimizer.decoupling=fully divides by optimizer.learning_rate, which is 0; set "
            "optimizer.weight_decay=0 without decoupling, or set a learning rate above 0"
        )
    if not set(optimizer.frozen) <= set(FREEZABLE):
        raise ConfigError(
            f"optimizer.frozen={','.join(optimizer.frozen)}: the parts are "
            f"{' and '.join(FREEZABLE)}"
        )
    for name in ("rate_multipliers", "decay_multipliers"):
        factors_of(f"optimizer.{name}", getattr(optimizer, name))


_PAIR_EVALUATIONS = ("evaluation.retrieval", "evaluation.alignment")
_LANGUAGE_EVALUATIONS = ("evaluation.sts", "evaluation.search")
_EVALUATIONS = (*_PAIR_EVALUATIONS, *_LANGUAGE_EVALUATIONS)


def _check_evaluation(config: Config) -> None:
    """Refuses an evaluation of a layer that does not exist, and unsuitable uses of `held_out`."""
    for section in _EVALUATIONS:
        options = lookup(config, section)
        if not options.source:
            continue
        if options.layer > config.model.layers:
            raise ConfigError(
                f"{section}.layer={options.layer} is beyond model.layers={config.model.layers}; "
                "lower it"
            )
        is_retrieval = section == "evaluation.retrieval"
        if HELD_OUT in options.source and (not is_retrieval or len(options.source) > 1):
            reason = "cannot be combined with files"
            if not is_retrieval:
                reason = "has no gold links or scores"
            raise ConfigError(
                f"{section}.source={','.join(options.source)}: held_out {reason}; use it as the "
                "only entry of evaluation.retrieval.source"
            )
    retrieval = config.evaluation.retrieval
    if HELD_OUT in retrieval.source and retrieval.changed:
        raise ConfigError(
            f"evaluation.retrieval.changed={','.join(retrieval.changed)} needs text, but held_out "
            "has only token ids; name files in evaluation.retrieval.source"
        )


def _check_text(config: Config) -> None:
    """Refuses text without languages, objectives without text, and rows that are too long for the
    model."""
    for path in ("data.languages", "data.pairs"):
        for name in lookup(config, path):
            if "/" in name or "\0" in name:
                raise ConfigError(
                    f"{path}={name}: the name is used as a folder name; remove the slash"
                )
    if (config.data.mono or config.data.examples) and not config.data.languages:
        key = "data.mono" if config.data.mono else "data.examples"
        raise ConfigError(
            f"{key} is set, but data.languages is empty; name the languages of the text with "
            "data.languages=en,de,..."
        )
    if config.data.path_of and not any(
        "{path}" in template for template in config.data.mono + config.data.examples
    ):
        raise ConfigError(
            "data.paths (or the file of data.languages) has paths, but no template uses them; set "
            "data.mono={path}, or another template with {path}"
        )
    if config.data.parallel and not config.data.pairs:
        raise ConfigError(
            "data.parallel is set, but data.pairs is empty; name the language pairs of the text "
            "with data.pairs=en-de,..."
        )
    positions = config.model.positions
    for name, options in config.objectives.active().items():
        path, kind = options.path(name), options.row_kind
        if not lookup(config, kind.source):
            raise ConfigError(
                f"{path} is on and reads {kind.name}, but {kind.source} is empty; set {kind.source}"
            )
        length = lookup(config, kind.length)
        if length > positions - 2:
            raise ConfigError(
                f"{kind.length}={length} is beyond the model's positions: "
                f"model.positions={positions} allows {positions - 2} tokens per row"
            )
        if kind.has_halves and length % 2:
            raise ConfigError(
                f"{path} splits each row into two halves; {kind.length}={length} must be even"
            )


def check_languages(config: Config) -> None:
    """Refuses objectives and evaluations that need languages or pairs that the data does not have.

    Args:
      config: has the languages and pairs of the text, or of the finished rows, in data.languages
        and data.pairs.
    """
    data = config.data
    languages = f"data.rows={data.rows}" if data.rows else "data.languages"
    pairs = f"data.rows={data.rows}" if data.rows else "data.pairs"
    for name, options in config.options_by_phase():
        options.check_languages(options.path(name), data.languages, languages)
    for phase in config.schedule:
        prefix = f"phases.{phase.name}." if phase.name else ""
        sources = [f"{name}.{each}" for name in data.languages for each in data.example_sources]
        names = {*data.languages, *data.pairs, *sources}
        for name in phase.config.data.shares:
            if name not in names:
                known = " or ".join(dict.fromkeys((languages, pairs)))
                raise ConfigError(f"{prefix}data.sampled: {name} is not in {known}")
    for section in _LANGUAGE_EVALUATIONS:
        options = lookup(config, section)
        if options.source and not options.languages and not data.languages:
            raise ConfigError(
                f"{section}.source is set, but {section}.languages and data.languages are empty; "
                f"name the languages with {section}.languages"
            )
    for section in _PAIR_EVALUATIONS:
        options = lookup(config, section)
        if not options.source:
            continue
        if HELD_OUT not in options.source:
            if not options.pairs and not data.pairs:
                raise ConfigError(
                    f"{section}.source is set, but {section}.pairs and data.pairs are empty; name "
                    f"the language pairs with {section}.pairs"
                )
        elif unknown := set(options.pairs) - set(data.pairs):
            raise ConfigError(
                f"{section}.pairs={','.join(sorted(unknown))}: only pairs of {pairs} are held out; "
                f"for other pairs name files in {section}.source"
            )


def _check_state(config: Config) -> None:
    """Refuses phases that change the shape or meaning of an objective's state."""
    values: dict[str, Any] = {}
    for name, options in config.options_by_phase():
        for key in options.state_keys:
            owner = "objectives" if key in shared_in(options) else options.path(name)
            path, value = f"{owner}.{key}", getattr(options, key)
            if values.setdefault(path, value) != value:
                raise ConfigError(f"phases: {path} must be the same in all phases")
