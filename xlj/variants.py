"""Variants that every recipe has: `--config=configs/NAME.py:tiny`."""

from __future__ import annotations

import ml_collections

from xlj.config import ROW_KINDS, ConfigError

VARIANTS = ("tiny",)


def apply(config: ml_collections.ConfigDict, variant: str) -> ml_collections.ConfigDict:
    """The recipe, or a variant of it.

    tiny: the same objectives and proportions on the embedded corpus, small enough for about two
    minutes on a laptop.

    Raises:
      ConfigError: if there is no such variant.
    """
    if variant == "tiny":
        return _tiny(config)
    if variant:
        raise ConfigError(f"there is no variant {variant!r}; there are: {', '.join(VARIANTS)}")
    return config


def _tiny(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    data, model, train, optimizer = config.data, config.model, config.train, config.optimizer
    data.languages, data.mono = "en,de,sw,zh", "phrasebook:{language}"
    if any(config.objectives[name].batch_rows for name in ROW_KINDS if ROW_KINDS[name] == "pairs"):
        data.pairs, data.parallel = "en-de,en-sw,en-zh", "phrasebook:{pair}"
    data.vocabulary, data.vocabulary_size = "", 2_000
    data.length = data.pair_length = 64
    model.layers, model.hidden, model.heads, model.intermediate = 2, 128, 4, 512
    model.positions, model.dtype, model.remat = 66, "float32", False
    for name in ROW_KINDS:
        objective = config.objectives[name]
        objective.batch_rows = 32 * (objective.batch_rows > 0)
    train.steps, train.accumulation = 300, 1
    train.log_every, train.eval_every, train.checkpoint_every = 25, 150, 150
    train.eval_rows = 32
    optimizer.learning_rate = max(optimizer.learning_rate, 1e-3)
    optimizer.warmup_steps = 30
    optimizer.decay_steps = 50 * (optimizer.schedule == "wsd")
    config.mesh.fsdp = 1
    return config
