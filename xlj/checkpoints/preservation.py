"""Steps whose checkpoints stay in a workdir, however many come after them."""

from collections.abc import Iterable

from xlj.checkpoints.reading import Checkpoint
from xlj.config import Config, as_tree
from xlj.config.fields import ConfigTree


def decay_start(config: ConfigTree) -> int | None:
    """The step at which wsd's decay begins under a config, as nested dicts; None without one."""
    if config["optimizer"]["schedule"] != "wsd":
        return None
    return config["train"]["steps"] - config["optimizer"]["decay_steps"]


def pre_decay_steps(config: Config, earlier: Iterable[Checkpoint]) -> tuple[int, ...]:
    """Steps at which wsd's decay begins, in a run and in those that wrote earlier checkpoints."""
    configs = [*(checkpoint.config() for checkpoint in earlier), as_tree(config)]
    return tuple(sorted({start for start in map(decay_start, configs) if start is not None}))
