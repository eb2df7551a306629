"""Searches for the fastest way to train on a topology: mesh, recomputation, and microbatches."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import jax
from tqdm import tqdm

from xlj.config import Config, ConfigError
from xlj.io.json_file import Record
from xlj.planning.figures import Figures, distinct_phases, of_phase
from xlj.planning.programs import DoesNotFit
from xlj.planning.topologies import Topology
from xlj.sharding import meshes, trees
from xlj.training import state as states
from xlj.training.memory import Sizes

_BYTES = 45.0  # per token, layer and hidden dimension; only determines where a search starts
_RECOMPUTED = 0.3  # the share of these bytes with recomputation


class Choice(NamedTuple):
    """The options that a search changes. They change neither the batch nor the results."""

    fsdp: int
    remat: str
    accumulation: int
    gather: str = "layer"

    def of(self, config: Config) -> Config:
        """Returns the config with this choice."""
        return dataclasses.replace(
            config,
            mesh=dataclasses.replace(config.mesh, fsdp=self.fsdp, replica=0, gather=self.gather),
            model=dataclasses.replace(config.model, remat=self.remat),
            train=dataclasses.replace(config.train, accumulation=self.accumulation),
        )

    def flags(self) -> str:
        """Returns the choice as command line flags."""
        return (
            f"--config.mesh.fsdp={self.fsdp} --config.model.remat={self.remat} "
            f"--config.train.accumulation={self.accumulation} --config.mesh.gather={self.gather}"
        )


class Trial(NamedTuple):
    """A choice and its figures.

    Attributes:
      figures: None if the compiler reports that it does not fit.
      needed: the bytes that a device needs.
    """

    choice: Choice
    figures: Figures | None
    needed: float

    @property
    def fits(self) -> bool:
        """Whether a chip has enough memory."""
        return self.figures is not None and self.figures.memory.fits

    def record(self) -> Record:
        """Returns the trial as JSON."""
        figures = self.figures.record() if self.figures else None
        results = {"needed": self.needed, "fits": self.fits, "figures": figures}
        return self.choice._asdict() | results


def search(config: Config, sizes: Sizes, topology: Topology, try_all: bool = True) -> list[Trial]:
    """Tries promising choices; returns those that fit, fastest first, then the others.

    It tries each mesh, with parameters gathered once per step or layer by layer, with and without
    recomputation. For each it searches for the largest microbatch that fits, in the phase with the
    largest batch.

    Args:
      try_all: whether to continue after the first choice that fits. Replicated parameters are tried
        before sharded ones, and stored activations before recomputed ones.

    Raises:
      ConfigError: if no number of microbatches divides the batches over the devices.
    """
    # The batches of a warm-up follow from the number of microbatches.
    is_fixed = config.train.batch_warmup > 0
    parts = [config.train.accumulation] if is_fixed else divisors(config, topology.size)
    phase = heaviest(config, sizes)
    trials: list[Trial] = []
    with tqdm(ways(topology), unit=" meshes", dynamic_ncols=True) as bar:
        for way in bar:
            if not try_all and any(trial.fits for trial in trials):
                break
            for trial in _most_rows(config, sizes, topology, phase, way, parts):
                trials.append(trial)
                bar.set_postfix_str(f"{len(trials)} programs")
    return sorted(trials, key=_order)


def ways(topology: Topology) -> list[Choice]:
    """Returns all choices with one microbatch, in the order of their expected speed.

    Parameters are replicated; sharded over the GPUs of a host or a side of a torus; or sharded over
    all devices.
    """
    return [
        Choice(fsdp, remat, 1, gather)
        for fsdp in sorted({1, topology.shape[-1], topology.size})
        for gather in (("step", "layer") if fsdp > 1 else ("layer",))
        for remat in ("none", "all")
    ]


def divisors(config: Config, devices: int) -> list[int]:
    """Returns the numbers of microbatches that divide every batch over the devices, rising.

    Raises:
      ConfigError: if no number does.
    """
    batches = {
        f"{options.path(name)}.batch_rows={options.batch_rows}": options.batch_rows
        for name, options in config.options_by_phase()
    }
    for name, rows in batches.items():
        if rows % devices:
            raise ConfigError(
                f"nothing fits: {name} is not divisible by {devices} devices; use fewer chips or "
                "another batch size"
            )
    smallest = min(batches.values()) // devices
    return [
        parts
        for parts in range(1, smallest + 1)
        if all(rows % (parts * devices) == 0 for rows in batches.values())
    ]


def heaviest(config: Config, sizes: Sizes) -> int:
    """Returns the phase with the largest batch."""

    def tokens(phase: int) -> int:
        lengths, active = sizes.lengths[phase], config.objectives_by_phase[phase].values()
        return sum(options.batch_rows * lengths[options.rows] for options in active)

    return max(distinct_phases(config), key=tokens)


def _most_rows(
    config: Config,
    sizes: Sizes,
    topology: Topology,
    phase: int,
    way: Choice,
    parts: list[int],
) -> Iterator[Trial]:
    """Yields trials of one choice, until the smallest number of microbatches that fits is known.

    Nothing is compiled if the state alone does not fit.
    """
    chip = topology.chip
    mesh = meshes.make_mesh(way.of(config), topology.devices())
    state = states.abstract(config, sizes.corpus, mesh)
    of_state = sum(map(trees.bytes_on_device, jax.tree.leaves(state)))
    if of_state > chip.memory:
        yield Trial(way._replace(accumulation=parts[-1]), None, of_state)
        return
    active = config.objectives_by_phase[phase].values()
    tokens = sum(o.batch_rows * sizes.lengths[phase][o.rows] for o in active) / topology.size
    width = config.model.layers * config.model.hidden
    first = chip.memory / (_BYTES * width * (1 if way.remat == "none" else _RECOMPUTED))
    place = next((n for n, p in enumerate(parts) if tokens / p <= first), len(parts) - 1)
    too_few, enough = -1, len(parts)  # indices in `parts` known not to fit, and to fit
    while too_few < place < enough:
        choice = way._replace(accumulation=parts[place])
        trial = _try(choice, config, sizes, topology, phase)
        yield trial
        estimates = [_needed(trial, of_state, parts[place] / part) for part in parts]
        too_few, enough = (too_few, place) if trial.fits else (place, enough)
        untried = range(too_few + 1, enough)
        likely = (n for n in untried if trial.needed and estimates[n] <= chip.memory)
        if enough == len(parts):  # nothing fits so far
            place = next(likely, len(parts) - 1)
        else:  # optimistically, half of the memory beside the state does not grow with the rows
            optimistic = _needed(trial, of_state, (parts[place] / parts[enough - 1] + 1) / 2)
            place = next(likely, enough - 1 if optimistic <= chip.memory else enough)


def _needed(trial: Trial, of_state: float, times: float) -> float:
    """Estimates the bytes of a device with `times` as many rows, if all memory beside the state
    grows with the rows."""
    working = trial.figures.memory.working if trial.figures else max(0.0, trial.needed - of_state)
    return trial.needed + (times - 1) * working


def _try(choice: Choice, config: Config, sizes: Sizes, topology: Topology, phase: int) -> Trial:
    try:
        figures = of_phase(choice.of(config), sizes, topology, phase)
    except DoesNotFit as error:
        return Trial(choice, None, error.needed)
    return Trial(choice, figures, figures.memory.peak)


def _order(trial: Trial) -> tuple[bool, float]:
    seconds = trial.figures.step_seconds if trial.figures else trial.needed
    return not trial.fits, seconds
