"""Configs of fine-tuning: their defaults, the keys that they read, and their checks.

They have the schema of pretraining, with the section `task`.
"""

import dataclasses
from collections.abc import Collection, Iterator

import ml_collections

from xlj.config import durations, fields, schema
from xlj.config.checks import build_config, check_optimizer
from xlj.config.fields import ConfigError, check_unused, flat, unused_key_error
from xlj.config.paths import local_path
from xlj.config.schema import Config
from xlj.config.sections import KEYS_OF_RUN
from xlj.config.task import languages_of, load

DEFAULTS = {
    "task.kind": "classification",
    "data.alpha": 1.0,
    "optimizer.learning_rate": 2e-5,
    "optimizer.warmup_steps": "10%",
    "optimizer.weight_decay": 0.0,
    "optimizer.clip_norm": 1.0,
    "train.steps": "10ep",
    "train.log_every": 50,
    "train.eval_every": "10%",
}
"""The defaults of fine-tuning that differ from those of pretraining."""

KEYS_OF_MODEL = tuple(
    f"model.{name}" for name in KEYS_OF_RUN if name not in ("language_embeddings", "middle_norm")
)
"""The keys of the model that may differ from `init_from`."""

_KEYS = (
    "init_from",
    "objective_modules",
    "transfer.parts",
    "data.cache",
    "data.alpha",
    "train.steps",
    "train.seed",
    "train.log_every",
    "train.eval_every",
    "train.gradient_accumulation_steps",
    "train.max_skipped_steps",
    "train.damaged_checkpoint",
    "train.metrics_hook",
    *KEYS_OF_MODEL,
)
_SECTIONS = ("task", "optimizer", "mesh")


def default() -> ml_collections.ConfigDict:
    """Returns a ConfigDict with every key of the schema at its default for fine-tuning. Setting an
    unknown key is an error."""
    config = schema.default()
    with config.ignore_type():
        for path, value in DEFAULTS.items():
            section, _, name = path.partition(".")
            config[section][name] = value
    return config


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """Yields (full path, field) of every key that fine-tuning reads, in order. The field has the
    default of fine-tuning."""
    for path, field in schema.keys():
        if path in _KEYS or path.partition(".")[0] in _SECTIONS:
            yield path, fields.with_default(field, DEFAULTS.get(path, field.default))


def parse(config: ml_collections.ConfigDict, explicit: Collection[str] = ()) -> Config:
    """Returns the frozen `Config` of a ConfigDict of fine-tuning.

    Args:
      explicit: paths of the keys that the user set on the command line; each must have an effect.
        A learning rate that the user set is used for models of all sizes.

    Raises:
      ConfigError: if a key is unknown, has a wrong type or an impossible value, or has no effect,
        or if keys contradict each other.
    """
    parsed = build_config(config)
    if not parsed.task.kind:
        raise ConfigError(
            "task.kind is empty, so this config is of pretraining; use `python -m xlj.train`, or a "
            "recipe of configs/finetune"
        )
    local_path("data.cache", parsed.data.cache)
    _check_read(parsed)
    check_unused(parsed, explicit, keys())
    _check_together(parsed)
    check_optimizer(parsed.optimizer)
    if "optimizer.learning_rate" in explicit:
        task = dataclasses.replace(parsed.task, rate_by_size=False)
        parsed = dataclasses.replace(parsed, task=task)
    return parsed


def as_tree(config: Config) -> fields.ConfigTree:
    """Returns the keys that fine-tuning reads, with their values, as nested dicts."""
    tree: fields.ConfigTree = {}
    for path, _ in keys():
        *sections, name = path.split(".")
        part = tree
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = fields.lookup(config, path)
    return tree


def _check_read(parsed: Config) -> None:
    """Refuses keys that are set although fine-tuning does not read them."""
    read = {path for path, _ in keys()}
    default = flat(fields.as_tree(Config()))
    for path, value in flat(fields.as_tree(parsed)).items():
        if path not in read and value != default.get(path):
            raise unused_key_error(path, value, "fine-tuning does not read this key")


def _check_together(parsed: Config) -> None:
    """Refuses values that contradict each other."""
    task, optimizer = parsed.task, parsed.optimizer
    trains, parts = durations.read(parsed.train.steps).amount > 0, parsed.transfer.parts
    if not parsed.init_from:
        raise ConfigError(
            "init_from is empty; name a workdir, a checkpoint or a Hugging Face folder with "
            "--config.init_from=DIR"
        )
    if parts and set(parts) != {"body", "embeddings"}:
        raise ConfigError(
            f"transfer.parts={','.join(parts)}: fine-tuning loads body,embeddings or, if "
            "transfer.parts is empty, no parameters"
        )
    if task.pooling != "auto" and not trains:
        raise ConfigError(
            f"task.pooling={task.pooling}: train.steps=0 scores the head of init_from, which was "
            "trained with its own pooling; remove task.pooling"
        )
    if not parts and not trains:
        raise ConfigError(
            "train.steps=0 scores the head of init_from, but with transfer.parts empty no "
            "parameters are loaded; set train.steps above 0, or transfer.parts=body,embeddings"
        )
    if not parts and optimizer.frozen:
        raise ConfigError(
            f"with transfer.parts empty, all weights are initialised randomly, but "
            f"optimizer.frozen={','.join(optimizer.frozen)} would not train some of them; add "
            "--config.optimizer.frozen="
        )
    if trains and not task.train or not task.languages:
        raise ConfigError("task.train or task.languages is empty; name training data and languages")
    if trains and not task.dev and task.select != "last":
        raise ConfigError(
            f"task.select={task.select} selects a checkpoint on dev, but task.dev is empty; name "
            "dev data, or set task.select=last"
        )
    for split, names in languages_of(task).items():
        if task.per_language and getattr(task, split) and set(names) != set(task.languages):
            raise ConfigError(
                f"task.per_language scores each model in its own language, but task.{split} has "
                f"the languages {', '.join(names)} and task.languages is "
                f"{', '.join(task.languages)}; set task.test_languages and task.dev_languages to "
                "the value of task.languages, or leave them empty"
            )
    if not task.dev and not task.test:
        raise ConfigError("task.dev and task.test are empty; name data to score in one of them")
    kind = load(task.effective_kind)
    if task.metric and task.metric not in kind.metrics:
        raise ConfigError(
            f"task.metric={task.metric} is not a metric of task.kind={task.kind}; the metrics are "
            f"{', '.join(kind.metrics)}"
        )
    kind.check(task)
    if task.batch_size % parsed.train.gradient_accumulation_steps:
        raise ConfigError(
            f"task.batch_size={task.batch_size} is not divisible by "
            f"train.gradient_accumulation_steps={parsed.train.gradient_accumulation_steps}"
        )
