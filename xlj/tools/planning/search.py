"""Searches for the fastest options to train on a topology: mesh, recomputation, microbatches."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import jax
from tqdm import tqdm

from xlj.config import Config, ConfigError
from xlj.io.json_file import Record
from xlj.sharding import meshes, trees
from xlj.tools.planning.figures import Figures, distinct_phases, of_phase
from xlj.tools.planning.programs import DoesNotFit
from xlj.tools.planning.topologies import Topology
from xlj.training import state as states
from xlj.training.memory import Sizes

# A search starts from this guess of the memory: bytes per token, layer and hidden dimension.
_BYTES_PER_TOKEN = 45.0
_RECOMPUTED_SHARE = 0.3  # the share of these bytes that remains with recomputation


class Choice(NamedTuple):
    """The options that a search varies. They change neither the batch nor the results.

    Attributes are keys of the config: `mesh.fsdp`, `model.remat`, `mesh.gather` and
    `train.gradient_accumulation_steps`.
    """

    fsdp: int
    remat: str
    accumulation: int
    gather: str = "layer"

    def of(self, config: Config) -> Config:
        """Returns a config with these options."""
        return dataclasses.replace(
            config,
            mesh=dataclasses.replace(config.mesh, fsdp=self.fsdp, replica=0, gather=self.gather),
            model=dataclasses.replace(config.model, remat=self.remat),
            train=dataclasses.replace(config.train, gradient_accumulation_steps=self.accumulation),
        )

    def flags(self) -> str:
        """Returns the options as command-line flags."""
        return (
            f"--config.mesh.fsdp={self.fsdp} --config.model.remat={self.remat} "
            f"--config.train.gradient_accumulation_steps={self.accumulation} "
            f"--config.mesh.gather={self.gather}"
        )


class Trial(NamedTuple):
    """A choice that was compiled, and its figures.

    Attributes:
      figures: the figures; None if the compiler reports that the step does not fit.
      needed: the bytes that a device needs; 0 if unknown.
    """

    choice: Choice
    figures: Figures | None
    needed: float

    @property
    def fits(self) -> bool:
        """Whether a chip has enough memory."""
        return self.figures is not None and self.figures.memory.fits

    def record(self) -> Record:
        """Returns the trial as a JSON object."""
        figures = self.figures.record() if self.figures else None
        results = {"needed": self.needed, "fits": self.fits, "figures": figures}
        return self.choice._asdict() | results


def search(config: Config, sizes: Sizes, topology: Topology, try_all: bool = True) -> list[Trial]:
    """Compiles promising choices, and returns a trial for each of them.

    Choices that fit come first, in order of `Figures.step_seconds` (the least time of a step).

    The search tries each way to train: each mesh, with parameters gathered once per step or layer
    by layer, with and without recomputation (`ways`). For each way it looks for the largest
    microbatch that fits. It compiles only the phase with the largest batch.

    Args:
      try_all: whether to continue after the first way that fits. The order is that of `ways`.

    Raises:
      ConfigError: if the batches cannot be divided over the devices.
    """
    # The number of microbatches determines the batches of a batch warm-up, so it must not change.
    is_fixed = config.schedule[0].batch_sizes.grow
    counts = (
        [config.train.gradient_accumulation_steps]
        if is_fixed
        else microbatch_counts(config, topology.size)
    )
    phase = find_largest_phase(config, sizes)
    trials: list[Trial] = []
    with tqdm(ways(topology), unit=" meshes", dynamic_ncols=True) as bar:
        for way in bar:
            if not try_all and any(trial.fits for trial in trials):
                break
            for trial in _search_microbatches(config, sizes, topology, phase, way, counts):
                trials.append(trial)
                bar.set_postfix_str(f"{len(trials)} programs")
    return sorted(trials, key=_order)


def ways(topology: Topology) -> list[Choice]:
    """Returns all choices with one microbatch, ordered by expected speed.

    Parameters are replicated, sharded over the GPUs of a host (for TPUs: over the last side of the
    torus), or sharded over all devices, in this order. For sharded parameters, gathering once per
    step precedes gathering layer by layer. Stored activations precede recomputed activations.
    """
    return [
        Choice(fsdp, remat, 1, gather)
        for fsdp in sorted({1, topology.shape[-1], topology.size})
        for gather in (("step", "layer") if fsdp > 1 else ("layer",))
        for remat in ("none", "all")
    ]


def microbatch_counts(config: Config, devices: int) -> list[int]:
    """Returns the possible numbers of microbatches in ascending order.

    Each number times the number of devices divides every batch.

    Raises:
      ConfigError: if a batch is not divisible by the number of devices.
    """
    batches = {
        f"{options.path(name)}.batch_size={options.batch_size}": options.batch_size
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
        counts
        for counts in range(1, smallest + 1)
        if all(rows % (counts * devices) == 0 for rows in batches.values())
    ]


def find_largest_phase(config: Config, sizes: Sizes) -> int:
    """Returns the index of the phase with the largest batch in tokens."""

    def tokens(phase: int) -> int:
        lengths, active = sizes.lengths[phase], config.objectives_by_phase[phase].values()
        return sum(options.batch_size * lengths[options.rows] for options in active)

    return max(distinct_phases(config), key=tokens)


def _search_microbatches(
    config: Config,
    sizes: Sizes,
    topology: Topology,
    phase: int,
    way: Choice,
    counts: list[int],
) -> Iterator[Trial]:
    """Yields trials of one way until the smallest number of microbatches that fits is known.

    If the state alone does not fit, it compiles nothing and yields one trial without figures.

    Args:
      phase: the index of the phase to compile.
      way: a choice whose number of microbatches is replaced.
      counts: the possible numbers of microbatches in ascending order.
    """
    chip = topology.chip
    mesh = meshes.make_mesh(way.of(config), topology.devices())
    state = states.abstract(config, sizes.corpus, mesh)
    state_bytes = sum(map(trees.bytes_on_device, jax.tree.leaves(state)))
    if state_bytes > chip.memory:
        yield Trial(way._replace(accumulation=counts[-1]), None, state_bytes)
        return
    active = config.objectives_by_phase[phase].values()
    tokens = sum(o.batch_size * sizes.lengths[phase][o.rows] for o in active) / topology.size
    width = config.model.layers * config.model.hidden
    max_tokens = chip.memory / (
        _BYTES_PER_TOKEN * width * (1 if way.remat == "none" else _RECOMPUTED_SHARE)
    )
    index = next((n for n, p in enumerate(counts) if tokens / p <= max_tokens), len(counts) - 1)
    # Indices in `counts`: the largest that is known not to fit, the smallest that is known to fit.
    too_few, enough = -1, len(counts)
    while too_few < index < enough:
        choice = way._replace(accumulation=counts[index])
        trial = _try(choice, config, sizes, topology, phase)
        yield trial
        estimates = [_estimate_needed(trial, state_bytes, counts[index] / part) for part in counts]
        too_few, enough = (too_few, index) if trial.fits else (index, enough)
        untried = range(too_few + 1, enough)
        likely = (n for n in untried if trial.needed and estimates[n] <= chip.memory)
        if enough == len(counts):  # no trial fits so far
            index = next(likely, len(counts) - 1)
        else:
            # The optimistic estimate: only half of the memory except the state grows with the rows.
            optimistic = _estimate_needed(
                trial, state_bytes, (counts[index] / counts[enough - 1] + 1) / 2
            )
            index = next(likely, enough - 1 if optimistic <= chip.memory else enough)


def _estimate_needed(trial: Trial, state_bytes: float, times: float) -> float:
    """Estimates the bytes that a device needs with `times` as many rows as in a trial.

    It assumes that all memory except the state is proportional to the rows.
    """
    working = (
        trial.figures.memory.working if trial.figures else max(0.0, trial.needed - state_bytes)
    )
    return trial.needed + (times - 1) * working


def _try(choice: Choice, config: Config, sizes: Sizes, topology: Topology, phase: int) -> Trial:
    try:
        figures = of_phase(choice.of(config), sizes, topology, phase)
    except DoesNotFit as error:
        return Trial(choice, None, error.needed)
    return Trial(choice, figures, figures.memory.peak)


def _order(trial: Trial) -> tuple[bool, float]:
    # Trials that do not fit follow in any order, so seconds and bytes may be compared.
    rank = trial.figures.step_seconds if trial.figures else trial.needed
    return not trial.fits, rank
