"""Determines the steps whose checkpoints are never deleted."""

from collections.abc import Iterable, Iterator

from xlj.checkpoints.reading import Checkpoint
from xlj.config import Config, as_tree
from xlj.config.fields import ConfigTree
from xlj.config.schema import RATES_KEYS


def decay_start(config: ConfigTree) -> int | None:
    """Returns the step at which the final decay of a run's learning rate begins.

    This is the decay of the schedule `wsd`, or of a phase whose learning rate falls from the start
    of the phase.

    Args:
      config: a config as nested dicts.

    Returns:
      The step, or None if the run has no such decay.
    """
    return dict((end, start) for start, end in _decays(config)).get(config["train"]["steps"])


def pre_decay_steps(config: Config, earlier: Iterable[Checkpoint]) -> tuple[int, ...]:
    """Returns the steps at which decays begin, in a run's config and in the configs of earlier
    checkpoints."""
    configs = [*(checkpoint.config() for checkpoint in earlier), as_tree(config)]
    return tuple(sorted({start for each in configs for start, _ in _decays(each)}))


def _decays(config: ConfigTree) -> Iterator[tuple[int, int]]:
    """Yields (first step, step after the last step) of each decay.

    Args:
      config: a config as nested dicts.
    """
    options, begin, spans = config["optimizer"], 0, []
    phases = sorted(config["phases"].values(), key=lambda phase: phase["start_step"])
    for phase in phases:
        changes = phase.get("optimizer", {})
        if any(name in changes for name in RATES_KEYS):
            spans.append((begin, phase["start_step"], options))
            begin = phase["start_step"]
        options = {**options, **changes}
    spans.append((begin, config["train"]["steps"], options))
    for start, end, span_options in spans:
        if span_options["schedule"] == "wsd":
            yield end - span_options["decay_steps"], end
        elif start and span_options["schedule"] != "constant":
            yield start, end
