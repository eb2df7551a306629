"""The fastest way to train a config on a topology: mesh, recomputation, and rows at a time."""

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

_BYTES = 45.0  # for a token, layer and hidden dimension: where a search begins, no more than that
_RECOMPUTED = 0.3  # of them, if layers are computed again


class Choice(NamedTuple):
    """What a search changes; the batch, and so the training, stays as it is."""

    fsdp: int
    remat: str
    accumulation: int
    gather: str = "layer"

    def of(self, config: Config) -> Config:
        """The config with it."""
        return dataclasses.replace(
            config,
            mesh=dataclasses.replace(config.mesh, fsdp=self.fsdp, replica=0, gather=self.gather),
            model=dataclasses.replace(config.model, remat=self.remat),
            train=dataclasses.replace(config.train, accumulation=self.accumulation),
        )

    def flags(self) -> str:
        """For a command line."""
        return (
            f"--config.mesh.fsdp={self.fsdp} --config.model.remat={self.remat} "
            f"--config.train.accumulation={self.accumulation} --config.mesh.gather={self.gather}"
        )


class Trial(NamedTuple):
    """A choice, and its figures; none if the compiler found that it does not fit."""

    choice: Choice
    figures: Figures | None
    needed: float
    """Bytes of a device."""

    @property
    def fits(self) -> bool:
        """Whether a chip has enough memory."""
        return self.figures is not None and self.figures.memory.fits

    def record(self) -> Record:
        """All of it as JSON values."""
        figures = self.figures.record() if self.figures else None
        found = {"needed": self.needed, "fits": self.fits, "figures": figures}
        return self.choice._asdict() | found


def search(
    config: Config, sizes: Sizes, topology: Topology, all_of_them: bool = True
) -> list[Trial]:
    """Tries what may be fastest, the best that fits first, then those that do not.

    For each mesh, for parameters gathered once a step and layer by layer, with and without
    recomputation, it looks for the most rows at a time that fit, in the phase with the most rows.

    Args:
      all_of_them: whether to go on once something fits: copies of the parameters come before
        sharding, and what is kept before what is computed again.

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
            if not all_of_them and any(trial.fits for trial in trials):
                break
            for trial in _most_rows(config, sizes, topology, phase, way, parts):
                trials.append(trial)
                bar.set_postfix_str(f"{len(trials)} programs")
    return sorted(trials, key=_order)


def ways(topology: Topology) -> list[Choice]:
    """All choices of one microbatch, those that are fast where they fit first: with copies of the
    parameters everywhere; sharded over the GPUs of a host, or a side of a torus; over all."""
    return [
        Choice(fsdp, remat, 1, gather)
        for fsdp in sorted({1, topology.shape[-1], topology.size})
        for gather in (("step", "layer") if fsdp > 1 else ("layer",))
        for remat in ("none", "all")
    ]


def divisors(config: Config, devices: int) -> list[int]:
    """Numbers of microbatches that divide every batch over the devices, the fewest first.

    Raises:
      ConfigError: if there is none.
    """
    batches = {
        f"{options.path(name)}.batch_rows={options.batch_rows}": options.batch_rows
        for name, options in config.options_by_phase()
    }
    for name, rows in batches.items():
        if rows % devices:
            raise ConfigError(
                f"nothing fits: {name} rows cannot be shared by {devices} devices; take fewer "
                "chips, or another batch"
            )
    smallest = min(batches.values()) // devices
    return [
        parts
        for parts in range(1, smallest + 1)
        if all(rows % (parts * devices) == 0 for rows in batches.values())
    ]


def heaviest(config: Config, sizes: Sizes) -> int:
    """The phase with the largest batch."""

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
    """Yields trials of one way, until the fewest microbatches that fit are known. Nothing is
    compiled if the state alone does not fit."""
    chip = topology.chip
    mesh = meshes.make_mesh(way.of(config), topology.devices())
    state = states.abstract(config, sizes.corpus, mesh)
    kept = sum(map(trees.bytes_on_device, jax.tree.leaves(state)))
    if kept > chip.memory:
        yield Trial(way._replace(accumulation=parts[-1]), None, kept)
        return
    active = config.objectives_by_phase[phase].values()
    tokens = sum(o.batch_rows * sizes.lengths[phase][o.rows] for o in active) / topology.size
    width = config.model.layers * config.model.hidden
    first = chip.memory / (_BYTES * width * (1 if way.remat == "none" else _RECOMPUTED))
    place = next((n for n, p in enumerate(parts) if tokens / p <= first), len(parts) - 1)
    too_few, enough = -1, len(parts)  # places of what is known not to fit, and to fit
    while too_few < place < enough:
        choice = way._replace(accumulation=parts[place])
        trial = _try(choice, config, sizes, topology, phase)
        yield trial
        ends = [_needed(trial, kept, parts[place] / part) for part in parts]
        too_few, enough = (too_few, place) if trial.fits else (place, enough)
        likely = (n for n in range(too_few + 1, enough) if trial.needed and ends[n] <= chip.memory)
        if enough == len(parts):  # nothing fits so far
            place = next(likely, len(parts) - 1)
        else:  # perhaps half of what is beside the state does not grow with the rows
            hope = _needed(trial, kept, (parts[place] / parts[enough - 1] + 1) / 2)
            place = next(likely, enough - 1 if hope <= chip.memory else enough)


def _needed(trial: Trial, kept: float, times: float) -> float:
    """Bytes of a device with so many times the rows, if all that a step needs beside the state
    grows with them."""
    working = trial.figures.memory.working if trial.figures else max(0.0, trial.needed - kept)
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
