"""Properties of a train step on a topology: memory, operations, traffic, and a lower bound of its
time."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import jax
from tqdm import tqdm

from xlj.config import Config, Phase
from xlj.io import atomic
from xlj.io.json_file import Record
from xlj.objectives.objective import build
from xlj.sharding import meshes, trees
from xlj.tools.planning import estimate
from xlj.tools.planning.collectives import Collective, collectives
from xlj.tools.planning.hlo import Program
from xlj.tools.planning.products import products
from xlj.tools.planning.programs import StepProgram, compile_phase, rows_of
from xlj.tools.planning.topologies import Topology
from xlj.tools.planning.traffic import traffic
from xlj.training import run_flops
from xlj.training.memory import Sizes
from xlj.training.run_flops import Counts


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory of a device in bytes.

    Attributes:
      parameters: the device's part of the parameters.
      optimizer: the state of the optimizer, and the moving average of the parameters.
      objectives: the state of the objectives.
      rows: the batch of the step, and the counters of the run.
      working: temporary arrays: activations, gradients, gathered parameters.
      peak: the total, including the code of the program.
      limit: the memory of the chip.
    """

    parameters: float
    optimizer: float
    objectives: float
    rows: float
    working: float
    peak: float
    limit: float

    @property
    def fits(self) -> bool:
        """Whether the chip has enough memory."""
        return self.peak <= self.limit


@dataclasses.dataclass(frozen=True)
class Figures:
    """Figures of the step that a group of phases shares (`distinct_phases`).

    They are per device unless stated otherwise.

    Attributes:
      start: the zero-based number of the group's first step.
      steps: the number of steps of the group.
      whole_steps: the number of steps in units of whole batches: a step of the batch warm-up counts
        as its share of the whole batch.
      rows: (rows of all devices, length in tokens) of each objective.
      devices: the number of devices.
      counts: operations of all devices, counted by three conventions (`training.run_flops`).
      trains: whether a loss has a weight other than 0. If not, the step computes no gradients,
        although `counts` includes them.
      products: operations in the matrix products of the program by type, including recomputation.
      traffic: bytes from and to the memory of the chip by operation, largest first.
      collectives: the communication between devices.
      seconds: the time of products, memory, fast links and slow links, each at the peak rate.
      estimate: the estimated seconds by kind of kernel, of launches, and of links. Kernels and
        launches have measured rates (`chips.SHARES`). Links have peak rates, because collectives
        were not measured.
      peak_flops: the peak operations per second of a chip.
    """

    start: int
    steps: int
    whole_steps: float
    rows: dict[str, tuple[int, int]]
    devices: int
    memory: Memory
    counts: Counts
    trains: bool
    products: dict[str, float]
    traffic: dict[str, float]
    collectives: list[Collective]
    seconds: dict[str, float]
    estimate: dict[str, float]
    peak_flops: float

    @property
    def bottleneck(self) -> str:
        """The resource that takes the longest time, a key of `seconds`."""
        return max(self.seconds, key=self.seconds.__getitem__)

    @property
    def step_seconds(self) -> float:
        """The least time of a step in seconds: the time of the bottleneck, if all other work
        overlaps with it."""
        return self.seconds[self.bottleneck]

    @property
    def estimated_seconds(self) -> float:
        """The estimated time of a step in seconds: the sum of the parts of `estimate`. It assumes
        that the parts do not overlap."""
        return sum(self.estimate.values())

    @property
    def mfu(self) -> float | None:
        """The highest possible model FLOPs utilisation; None for a step without gradients."""
        if not self.trains:
            return None
        return self.counts.xlj / self.devices / self.peak_flops / self.step_seconds

    @property
    def tokens_per_second(self) -> float:
        """The highest possible throughput of all devices, including padding."""
        return sum(rows * length for rows, length in self.rows.values()) / self.step_seconds

    @property
    def days(self) -> float:
        """The least time (`step_seconds`) of all steps of the group of phases, in days."""
        return self.whole_steps * self.step_seconds / 86_400

    def record(self) -> Record:
        """Returns all figures as a JSON object."""
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
    """Groups consecutive phases that have the same compiled step.

    Changes of learning rates and sampling shares do not change the compiled step.

    Returns:
      The phases of each group, by the index of the group's first phase.
    """
    distinct: dict[int, list[Phase]] = {}
    for number, phase in enumerate(config.schedule):
        if number and phase.config.has_same_step_as(config.schedule[number - 1].config):
            distinct[max(distinct)].append(phase)
        else:
            distinct[number] = [phase]
    return distinct


def of_run(
    config: Config,
    sizes: Sizes,
    topology: Topology,
    known: Mapping[int, Figures] | None = None,
    programs: Path | None = None,
) -> list[Figures]:
    """Returns the figures of each group of phases with the same step (`distinct_phases`), in order.

    Args:
      known: figures of groups that need not be compiled again, by index of the first phase.
      programs: the folder in which the text of each program is saved as `phase-N.txt`, where N is
        the index of the group's first phase. Programs of `known` are not saved. None to save
        nothing.

    Raises:
      ConfigError: if the mesh or the batches do not fit the devices.
      DoesNotFit: if the compiler reports that a step needs too much memory.
    """
    phases, known = distinct_phases(config), known or {}
    bar = tqdm(phases, unit=" programs", dynamic_ncols=True, leave=False)
    return [known.get(n) or of_phase(config, sizes, topology, n, programs) for n in bar]


def of_phase(
    config: Config, sizes: Sizes, topology: Topology, phase: int, programs: Path | None = None
) -> Figures:
    """Compiles the step of a phase, and computes its figures.

    Args:
      phase: the index of the first phase of a group (`distinct_phases`).
      programs: the folder in which the text of the program is saved as `phase-N.txt`, where N is
        the index of the phase; None to save nothing.

    Raises:
      ConfigError: if the mesh or the batches do not fit the devices.
      DoesNotFit: if the compiler reports that the step needs too much memory.
    """
    devices = topology.devices()
    program = compile_phase(config, sizes, devices, phase)
    if programs:
        atomic.write(programs / f"phase-{phase}.txt", program.text.encode())
    schedule, chip = config.schedule, topology.chip
    phases = distinct_phases(config)[phase]
    rows = rows_of(config, sizes, phase)
    active = schedule[phase].config.objectives.active()
    model = schedule[phase].config.model
    built = build(active, model, sizes.corpus)
    fields = {
        name: active[name].row_kind.batch_fields(length, "<i4")
        for name, (_, length) in rows.items()
    }
    text = Program(program.text, program.kernels)
    mesh = meshes.make_mesh(config, devices)
    exchanged = collectives(text, list(mesh.devices.flat), chip.ring)
    by_type, by_operation = products(text), traffic(text)
    seconds = {
        "products": sum(count / chip.rate(kind) for kind, count in by_type.items()),
        "memory": sum(by_operation.values()) / chip.bandwidth,
        "fast links": sum(each.fast / each.links for each in exchanged) / chip.fast,
        "slow links": sum(each.slow for each in exchanged) / chip.slow,
    }
    seconds_of = estimate.work(text, chip).estimate()
    seconds_of["links"] = seconds["fast links"] + seconds["slow links"]
    return Figures(
        start=schedule[phase].start,
        steps=sum(each.end - each.start for each in phases),
        whole_steps=sum(each.done(each.end) for each in phases),
        rows=rows,
        devices=topology.size,
        memory=_memory(program, chip.memory),
        counts=run_flops.of_step(schedule[phase].config, sizes.corpus, rows, fields),
        trains=any(loss.weight for each in built.values() for loss in each.losses.values()),
        products=by_type,
        traffic=by_operation,
        collectives=exchanged,
        seconds=seconds,
        estimate=seconds_of,
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
