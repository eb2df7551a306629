"""What the step of each phase takes, moves and could reach at best, on a topology."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
from tqdm import tqdm

from xlj.config import Config, Phase
from xlj.io import atomic
from xlj.io.json_file import Record
from xlj.objectives import build
from xlj.objectives.counting import operations
from xlj.objectives.flops import Operations
from xlj.planning import estimate
from xlj.planning.collectives import Collective, collectives
from xlj.planning.hlo import Program
from xlj.planning.products import products
from xlj.planning.programs import StepProgram, compile_phase, rows_of
from xlj.planning.topologies import Topology
from xlj.planning.traffic import traffic
from xlj.sharding import meshes, trees
from xlj.training import run_flops
from xlj.training.memory import Sizes
from xlj.training.run_flops import Counts


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of a device."""

    parameters: float
    optimizer: float
    objectives: float
    """What objectives keep."""
    rows: float
    """Of the step's batch, with the run's counters."""
    working: float
    """Activations, gradients, gathered parameters."""
    peak: float
    """Of all, with the code."""
    limit: float
    """That the chip has."""

    @property
    def fits(self) -> bool:
        """Whether the chip has enough."""
        return self.peak <= self.limit


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of the step of a phase; per device where nothing else is said."""

    start: int
    """The phase's first step."""
    steps: int
    """How many it has."""
    whole_steps: float
    """The same; in the batch warm-up each as the share of the batch that it has."""
    rows: dict[str, tuple[int, int]]
    """(rows of all devices, their length) of each objective."""
    devices: int
    memory: Memory
    operations: Operations
    """Of all devices, as `objectives/flops.py` counts them."""
    counts: Counts
    """Of all devices, by three conventions."""
    trains: bool
    """Whether anything has a weight; if not, there are no gradients, which the counts assume."""
    products: dict[str, float]
    """Operations in the program's matrix products, by type; those computed again are in it."""
    traffic: dict[str, float]
    """Bytes from and to the chip's memory, by operation, the largest first."""
    collectives: list[Collective]
    seconds: dict[str, float]
    """That products, memory, and fast and slow links take, each at its full speed."""
    estimate: dict[str, float]
    """Seconds of kernels by kind and of their launches, at measured rates (`chips.SHARES`); and of
    links at their full speed, since exchanges were not measured."""
    peak_flops: float
    """Of a chip, a second."""

    @property
    def bottleneck(self) -> str:
        """What takes longest."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def step_seconds(self) -> float:
        """The least time that a step can take: of its bottleneck, all else hidden behind it."""
        return self.seconds[self.bottleneck]

    @property
    def estimated_seconds(self) -> float:
        """The estimated time of a step: all parts, one after another."""
        return sum(self.estimate.values())

    @property
    def mfu(self) -> float | None:
        """The highest share of the peak that the model's operations can reach; None for a step
        without gradients."""
        if not self.trains:
            return None
        return self.operations.total / self.devices / self.peak_flops / self.step_seconds

    @property
    def tokens_per_second(self) -> float:
        """Of all devices, at most; padding included."""
        return sum(rows * length for rows, length in self.rows.values()) / self.step_seconds

    @property
    def days(self) -> float:
        """That all steps of the phase take at least."""
        return self.whole_steps * self.step_seconds / 86_400

    def record(self) -> Record:
        """All of it as JSON values."""
        tree = dataclasses.asdict(self)
        tree["counts"] = self.counts._asdict()
        tree["memory"]["fits"] = self.memory.fits
        tree["collectives"] = [
            each._asdict() | {"fast": each.fast, "slow": each.slow} for each in self.collectives
        ]
        for name in (
            *("bottleneck", "step_seconds", "estimated_seconds"),
            *("mfu", "tokens_per_second", "days"),
        ):
            tree[name] = getattr(self, name)
        return tree


def distinct_phases(config: Config) -> dict[int, list[Phase]]:
    """The phases whose steps differ, by number, each with those that have the same step: rates and
    shares change none."""
    found: dict[int, list[Phase]] = {}
    for number, phase in enumerate(config.schedule):
        if number and phase.config.has_same_step_as(config.schedule[number - 1].config):
            found[max(found)].append(phase)
        else:
            found[number] = [phase]
    return found


def of_run(
    config: Config,
    sizes: Sizes,
    topology: Topology,
    known: Mapping[int, Figures] | None = None,
    programs: Path | None = None,
) -> list[Figures]:
    """Of the phases whose steps differ, in their order.

    Args:
      known: those of some phases, which are not compiled again.
      programs: a folder for the text of the programs, if they are to be kept.

    Raises:
      ConfigError, DoesNotFit: as `compile_phase`.
    """
    phases, known = distinct_phases(config), known or {}
    bar = tqdm(phases, unit=" programs", dynamic_ncols=True, leave=False)
    return [known.get(n) or of_phase(config, sizes, topology, n, programs) for n in bar]


def of_phase(
    config: Config, sizes: Sizes, topology: Topology, phase: int, programs: Path | None = None
) -> Figures:
    """Compiles a phase's step, and reads its figures.

    Raises:
      ConfigError, DoesNotFit: as `compile_phase`.
    """
    devices = topology.devices()
    program = compile_phase(config, sizes, devices, phase)
    if programs:
        atomic.write(programs / f"phase-{phase}.txt", program.text.encode())
    schedule, chip = config.schedule, topology.chip
    alike = distinct_phases(config)[phase]
    rows = rows_of(config, sizes, phase)
    active = schedule[phase].config.objectives.active()
    model = schedule[phase].config.model
    built = build(active, model, sizes.corpus)
    counted = operations(active, model, sizes.corpus, rows)
    text = Program(program.text)
    mesh = meshes.make_mesh(config, devices)
    sent = collectives(text, list(mesh.devices.flat), chip.ring)
    multiplied, moved = products(text), traffic(text)
    seconds = {
        "products": sum(count / chip.rate(kind) for kind, count in multiplied.items()),
        "memory": sum(moved.values()) / chip.bandwidth,
        "fast links": sum(each.fast / each.links for each in sent) / chip.fast,
        "slow links": sum(each.slow for each in sent) / chip.slow,
    }
    parts = estimate.work(text, chip).estimate()
    parts["links"] = seconds["fast links"] + seconds["slow links"]
    return Figures(
        start=schedule[phase].start,
        steps=sum(each.end - each.start for each in alike),
        whole_steps=sum(each.done(each.end) for each in alike),
        rows=rows,
        devices=topology.size,
        memory=_memory(program, chip.memory),
        operations=sum(counted.values(), start=Operations()),
        counts=run_flops.of_step(schedule[phase].config, sizes.corpus, rows),
        trains=any(loss.weight for each in built.values() for loss in each.losses.values()),
        products=multiplied,
        traffic=moved,
        collectives=sent,
        seconds=seconds,
        estimate=parts,
        peak_flops=chip.flops,
    )


def _memory(program: StepProgram, limit: float) -> Memory:
    state = program.state
    parameters, optimizer, objectives = (
        float(sum(map(trees.bytes_on_device, jax.tree.leaves(part))))
        for part in (state.params, (state.optimizer, state.average), state.objectives)
    )
    rows = program.arguments - parameters - optimizer - objectives
    working, peak = program.working, program.peak
    return Memory(parameters, optimizer, objectives, rows, working, peak, limit)
