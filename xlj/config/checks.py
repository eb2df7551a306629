"""From a ConfigDict to a checked `Config`: refuses whatever a run would not read.

That is unknown keys, wrong types, impossible values, keys that contradict each other, dead keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import ml_collections

from xlj.config import (
    FREEZABLE,
    HELD_OUT,
    KINDS,
    ROW_KINDS,
    Config,
    MaskedLanguageModelling,
    Optimizer,
    build,
    keys,
    kinds_in,
    objectives_in,
    phase_configs,
)
from xlj.config.fields import ConfigError, lookup
from xlj.config.paths import local_path


def parse(config: ml_collections.ConfigDict, explicit: Collection[str] = ()) -> Config:
    """The frozen `Config` of a ConfigDict.

    Args:
      explicit: paths of the keys that the user set by hand, on top of the recipe. Each must be
        read; a recipe's own may be idle where another key makes them so.

    Raises:
      ConfigError: on an unknown key (the nearest valid one is offered), a wrong type, an impossible
        value, a key that nothing would read, or keys that contradict each other.
    """
    parsed = build(config.to_dict())
    local_path("data.cache", parsed.data.cache)
    phases = [phase for _, phase in phase_configs(parsed)]
    for phase in phases:
        _check_together(phase)
    _check_kept(phases)
    _check_evaluation(parsed)
    _check_read(parsed, explicit)
    return parsed


def _check_read(config: Config, explicit: Collection[str]) -> None:
    """Refuses keys that were set although nothing would read them."""
    for path, field in keys():
        if path == "phases" or lookup(config, path) == field.default:
            continue
        reason = _idle(config, path, field)
        if reason:
            raise dead(path, lookup(config, path), reason)
    for path in explicit:
        reason = _idle_by_recipe(config, path)
        if reason:
            raise dead(path, lookup(config, path), reason)
    order = phase_configs(config)
    for name, changes in config.phases.items():
        later = [phase for start, phase in order if start >= changes["start_step"]]
        for objective, options in changes.get("objectives", {}).items():
            on = objective not in ROW_KINDS or any(
                objective in p.objectives.active() for p in later
            )
            if not on and set(options) - {"batch_rows"}:
                path = f"phases.{name}.objectives.{objective}"
                raise dead(path, dict(options), "that objective is off from then on")


def dead(path: str, value: Any, reason: str) -> ConfigError:
    """The error of a key that is set although nothing reads it."""
    shown = ",".join(value) if isinstance(value, tuple) else value
    return ConfigError(f"{path} is set to {shown!r} but nothing reads it, because {reason}")


def _idle(config: Config, path: str, field: dataclasses.Field) -> str:
    """Why nothing reads a key, or nothing if something does."""
    objectives = objectives_in(config)
    condition, readers = field.metadata["read_when"], field.metadata["read_by"]
    if condition and lookup(config, condition[0]) not in condition[1]:
        value = lookup(config, condition[0])
        return f"{condition[0]} is {value!r}, not {' or '.join(condition[1])}"
    if readers and not set(readers) & set(objectives):
        return f"{' and '.join(readers)} are off"
    section, _, name = path.rpartition(".")
    if section.startswith("objectives.") and section.partition(".")[2] not in objectives:
        return f"{section}.batch_rows is 0"
    if section == "transfer" and not config.init_from:
        return "init_from is empty"
    if section in _EVALUATIONS and name != "source" and not lookup(config, f"{section}.source"):
        return f"{section}.source is empty"
    needs = {
        "data.languages": ("data.mono", config.data.mono),
        "data.pairs": ("data.parallel", config.data.parallel),
    }
    if path in needs and not needs[path][1]:
        return f"{needs[path][0]} is empty"
    if path == "model.language_embeddings" and config.model.language_embeddings == "predicted":
        if not {"camlm", "btmlm"} & set(objectives):
            return "camlm and btmlm are off"
    templates = config.data.mono + config.data.parallel
    if path == "data.seqio_modules" and not any(t.startswith("seqio:") for t in templates):
        return "data.mono and data.parallel name no seqio: source"
    return ""


def _idle_by_recipe(config: Config, path: str) -> str:
    """Why nothing reads a key that a recipe may well set and another key make idle."""
    given = "data.vocabulary names a vocabulary, so none is trained"
    if path.startswith("data.vocabulary_") and config.data.vocabulary:
        return given
    section, _, name = path.rpartition(".")
    pointing = (
        "alignment_weight",
        "label_layer",
        "query_layer",
        "filtering",
        "sinkhorn_iterations",
    )
    off = lookup(config, "objectives.dwa.queries") == "none"
    if section == "objectives.dwa" and name in pointing and off:
        return "objectives.dwa.queries is none"
    kinds = [KINDS[kind] for kind in kinds_in(config)]
    if path.startswith("evaluation.retrieval.") and HELD_OUT in config.evaluation.retrieval.source:
        if not any(kind.source == "data.parallel" for kind in kinds):
            return "no objective that is on reads sentence pairs, so none are held out"
    if path in ("data.length", "data.pair_length") and path not in {k.length for k in kinds}:
        return f"no objective that is on reads rows of {path}"
    if path in ("data.mono", "data.parallel") and path not in {k.source for k in kinds}:
        if config.data.vocabulary:
            return f"no objective that is on reads {path}, and {given}"
    return ""


def _check_together(config: Config) -> None:
    """Refuses values that contradict each other."""
    model, train, optimizer = config.model, config.train, config.optimizer
    if model.hidden % model.heads:
        raise ConfigError(
            f"model.hidden={model.hidden} is not divisible by model.heads={model.heads}"
        )
    if model.position_buckets % 2 or model.position_distance <= model.position_buckets // 4:
        raise ConfigError(
            f"model.position_buckets={model.position_buckets} must be even, and "
            f"model.position_distance={model.position_distance} more than a quarter of it"
        )
    if model.pair_token_types and model.token_types < 2:
        raise ConfigError("model.pair_token_types needs model.token_types=2")
    if model.position_bias == "none" and not model.absolute_positions:
        raise ConfigError(
            "model.absolute_positions is off; set model.position_bias to t5 or gated, or the model "
            "does not know the order of tokens"
        )
    if not config.objectives.active():
        raise ConfigError("no objective is on; set objectives.mmlm.batch_rows or another's")
    for name, objective in config.objectives.active().items():
        _check_objective(config, name, objective)
    if optimizer.decay_steps > train.steps:
        raise ConfigError(
            f"optimizer.decay_steps={optimizer.decay_steps} is more than train.steps={train.steps}"
        )
    check_optimizer(optimizer)
    if not config.transfer.parts or not set(config.transfer.parts) <= {"body", "embeddings"}:
        raise ConfigError(
            f"transfer.parts={','.join(config.transfer.parts)}; there are body and embeddings"
        )
    if config.data.mono and not config.data.languages:
        raise ConfigError("data.mono is set; say which languages with data.languages=en,de,...")
    if config.data.parallel and not config.data.pairs:
        raise ConfigError("data.parallel is set; say which pairs with data.pairs=en-de,...")


def check_optimizer(optimizer: Optimizer) -> None:
    """Raises a `ConfigError` on options of the optimizer that contradict each other."""
    if optimizer.schedule == "wsd" and not optimizer.decay_steps:
        raise ConfigError("optimizer.schedule is wsd; set optimizer.decay_steps")
    if not set(optimizer.frozen) <= set(FREEZABLE):
        raise ConfigError(
            f"optimizer.frozen={','.join(optimizer.frozen)}; there are {' and '.join(FREEZABLE)}"
        )


_EVALUATIONS = ("evaluation.retrieval", "evaluation.alignment")


def _check_evaluation(config: Config) -> None:
    """Refuses an evaluation of no pairs, of no layer, or of pairs that are not the run's."""
    for section in _EVALUATIONS:
        options = lookup(config, section)
        if not options.source:
            continue
        if options.layer > config.model.layers:
            raise ConfigError(
                f"{section}.layer={options.layer} is beyond model.layers={config.model.layers}"
            )
        if HELD_OUT not in options.source:
            if not options.pairs and not config.data.pairs:
                raise ConfigError(f"{section}.source is set; say of which pairs: {section}.pairs")
            continue
        if section == "evaluation.alignment" or len(options.source) > 1:
            raise ConfigError(
                f"{section}.source={','.join(options.source)}: held_out has no gold links, and "
                "stands alone in evaluation.retrieval.source"
            )
        unknown = set(options.pairs) - set(config.data.pairs)
        if unknown:
            raise ConfigError(
                f"{section}.pairs={','.join(sorted(unknown))}: only those of data.pairs are held "
                "out; name files in its source for others"
            )


_KEPT = {"xlco": ("queue", "layer"), "distillation": ("teacher",)}
"""Keys that decide what objectives keep from step to step."""


def _check_kept(phases: list[Config]) -> None:
    """Refuses phases that change the shape or the meaning of what an objective keeps."""
    for name, kept in _KEPT.items():
        for field in kept:
            on = [phase.objectives.active()[name] for phase in phases
                  if name in phase.objectives.active()]  # fmt: skip
            if len({getattr(options, field) for options in on}) > 1:
                raise ConfigError(f"phases: objectives.{name}.{field} must be the same in all")


def _check_objective(config: Config, name: str, options: Any) -> None:
    """Refuses options of an objective that is on which contradict the rest."""
    path, model = f"objectives.{name}", config.model
    kind = KINDS[ROW_KINDS[name]]
    if not lookup(config, kind.source):
        raise ConfigError(f"{path} is on, but {kind.source} names no {ROW_KINDS[name]} to read")
    length = lookup(config, kind.length)
    if length > model.positions - 2:
        raise ConfigError(
            f"{kind.length}={length} is beyond the model's positions: "
            f"model.positions={model.positions} allows {model.positions - 2} tokens a row"
        )
    if ROW_KINDS[name] == "bitext" and length % 2:
        raise ConfigError(f"{path} reads a row in two halves; {kind.length}={length} must be even")
    if options.batch_rows % config.train.accumulation:
        raise ConfigError(
            f"{path}.batch_rows={options.batch_rows} is not divisible by "
            f"train.accumulation={config.train.accumulation}"
        )
    if isinstance(options, MaskedLanguageModelling):
        if options.mask_share + options.random_share > 1:
            raise ConfigError(f"{path}.mask_share and {path}.random_share add up to more than 1")
    for field in dataclasses.fields(options):
        if field.name.endswith("layer") and getattr(options, field.name) > model.layers:
            raise ConfigError(
                f"{path}.{field.name}={getattr(options, field.name)} is beyond "
                f"model.layers={model.layers}"
            )
    if name == "btmlm" and len(config.data.languages) < 2:
        raise ConfigError(f"{path} generates in another language; data.languages names only one")
    if name == "btmlm" and model.language_embeddings == "none":
        raise ConfigError(
            f"{path} asks for tokens of a language by its embedding; set "
            "model.language_embeddings=predicted (or all)"
        )
    if name in ("xlco", "retrieval") and options.batch_rows < 2:
        raise ConfigError(f"{path}.batch_rows=1: a pair needs others to be told from")
    if name == "xlco" and options.queue < options.batch_rows:
        raise ConfigError(
            f"{path}.queue={options.queue} does not hold the {path}.batch_rows="
            f"{options.batch_rows} keys of a step"
        )
    if name == "distillation":
        if not options.teacher:
            raise ConfigError(f"{path} is on; name a checkpoint with {path}.teacher")
        if options.language not in config.data.languages:
            raise ConfigError(f"{path}.language={options.language} is not among data.languages")
