"""Configures the training of a sentence encoder that keeps its vectors: it is its own teacher."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Config, ConfigError
from xlj.config.checks import check_values
from xlj.interop.sentence_modules import SENTENCE, SentenceModules

if TYPE_CHECKING:
    from xlj.adaptation.stages import AdaptRequest

OBJECTIVES = ("sentence_distillation", "text_distillation")


def configure(
    config: Config, source: StoredModel, request: "AdaptRequest", explicit: Collection[str] = ()
) -> Config:
    """Returns the config of the training run: it distils `source` through its modules, which are
    not trained.

    Args:
      config: has both objectives of `OBJECTIVES`, with the teacher.
      explicit: paths of the config keys that the user set, which stay.

    Raises:
      ConfigError: if `source` has no sentence modules, or modules that cannot be trained.
    """
    values: dict[str, Any] = through_modules(source)
    prompt = request.prompt or (source.sentence.prompt(None) if source.sentence else "")
    values |= {"prompt": prompt}
    options = dict(config.objectives.options)
    for name in OBJECTIVES:
        own = {key: x for key, x in values.items() if f"objectives.{name}.{key}" not in explicit}
        options[name] = dataclasses.replace(options[name], **own)
    if "objectives.text_distillation.batch_size" not in explicit:
        rows = options["sentence_distillation"].batch_size
        share = request.replay_share
        count = max(8, 8 * round(rows * share / (1 - share) / 8))
        options["text_distillation"] = dataclasses.replace(
            options["text_distillation"], batch_size=count
        )
    rules = (*frozen_modules(source), *config.optimizer.rate_multipliers)
    return dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, rate_multipliers=rules),
        objectives=dataclasses.replace(config.objectives, options=options),
    )


def with_old_text(config: Config, request: "AdaptRequest") -> Config:
    """Returns the config of the training run, which has text of the old languages only.

    The vectors that the teacher has of a new language are not to be kept.
    """
    data = dataclasses.replace(config.data, languages=request.replay)
    config = dataclasses.replace(config, data=data)
    check_values(config)
    return config


def through_modules(source: StoredModel, flag: str = "--from") -> dict[str, Any]:
    """Returns the keys of an objective that distils a model into itself, through its modules.

    The loss is `cosine` if the modules normalise vectors, else `squared`.

    Args:
      flag: the flag that names the model, for errors.

    Raises:
      ConfigError: if the model has no sentence modules, or modules that cannot be trained.
    """
    modules = source.sentence
    if modules is None:
        raise ConfigError(
            f"{flag}={source.folder} has no sentence modules, so it is no sentence encoder; export "
            "it with python -m xlj.convert export --pooling=mean"
        )
    pooling = pooling_of(modules)
    dense = modules.steps[0] if modules.steps else None
    is_simple = not any(modules.steps[1:]) and not (dense and dense.residual)
    if pooling is None or not (is_simple and modules.include_prompt):
        raise ConfigError(
            f"{flag}={source.folder} has the modules {modules.report()}; vectors can be distilled "
            "through the mean or the first token, with the prompt, then at most one Dense module, "
            "without a residual connection, before Normalize"
        )
    keys: dict[str, Any] = {
        "pooling": pooling,
        "loss": "cosine" if None in modules.steps else "squared",
    }
    if dense:
        keys |= {"dense": dense.outputs, "bias": dense.bias, "activation": dense.activation}
    return keys


def pooling_of(modules: SentenceModules) -> str | None:
    """Returns the pooling of modules as a value of `choices.POOLINGS`; None for another pooling."""
    return {"mean": "mean", "cls": "first"}.get(" ".join(modules.pooling))


def frozen_modules(source: StoredModel) -> tuple[str, ...]:
    """Returns rules of `optimizer.rate_multipliers` that keep the Dense module of a model."""
    assert source.sentence is not None
    return (f"{SENTENCE}.*=0",) if any(source.sentence.steps) else ()
