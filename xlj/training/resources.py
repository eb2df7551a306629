"""The state and the resources of a run: files, threads and compiled programs."""

import collections
import contextlib
import dataclasses
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import jax
from tqdm import tqdm

from xlj import __version__
from xlj.checkpoints import preservation, reading, writing
from xlj.config import Model, record
from xlj.data.rows.batches import Batches
from xlj.distributed.host_speeds import HostSpeeds
from xlj.distributed.preemption import Preemption
from xlj.io import atomic, json_file
from xlj.io.growing import GrowingFiles
from xlj.io.own_process import StepMemory
from xlj.objectives.objective import build
from xlj.training import initialisation, metrics, schedule_tables
from xlj.training import state as states
from xlj.training.evaluation import Evaluation, Probe, by_phase
from xlj.training.phases import Step, jitted_steps
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import RunFlops
from xlj.training.schedule import Schedule
from xlj.training.start import Start
from xlj.training.state import Progress, State
from xlj.training.throughput import Throughput
from xlj.training.waits import Waits


class _Closable(Protocol):
    def close(self) -> object: ...


Resource = TypeVar("Resource", bound=_Closable)


@dataclasses.dataclass
class RunState:
    """What the steps of a run change."""

    state: State
    done: int
    """Number of finished steps."""
    is_measured: bool = False
    """Whether the metrics that are due after `done` steps are written."""
    line: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The metrics after `done` steps; empty if none are due."""
    in_flight: collections.deque[tuple[int, jax.Array]] = dataclasses.field(
        default_factory=collections.deque
    )
    """(zero-based step, its `skipped_in_a_row`) of steps whose results are not checked yet."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """What the steps of a run use."""

    start: Start
    batches: Batches
    flops: RunFlops
    """The operations of the run's steps."""
    steps: Mapping[int, Step]
    """The step of each phase, by the phase's first step."""
    evaluations: Sequence[Probe]
    restart_sums: Callable[[Progress], Progress]
    preemption: Preemption
    bar: tqdm
    waits: Waits
    files: GrowingFiles
    metrics: metrics.Metrics
    checkpointer: writing.Checkpointer
    prefetch: Prefetch
    clock: Throughput
    step_memory: StepMemory
    speeds: HostSpeeds


@contextlib.contextmanager
def open_run(
    start: Start, batches: Batches, flops: RunFlops, probes: Sequence[Probe], best: str
) -> Iterator[tuple[RunState, Resources]]:
    """Initialises the state of a run, and opens its resources during a `with` statement.

    No file in the workdir changes before the state is complete.

    Args:
      probes, best: the arguments of `xlj.training.loop.train`.
    """
    config, latest, done, workdir = start.config, start.latest, start.done, start.workdir
    is_measured = latest is not None and latest.meta["measured"]
    with contextlib.ExitStack() as stack:

        def enter(resource: Resource) -> Resource:
            return stack.enter_context(_closing(resource))

        preemption = enter(Preemption(done))
        bar = enter(_progress_bar(start.schedule, done))
        waits = Waits(bar)
        with waits.on("initialising the state", "first_state"):
            abstract = states.abstract(config, batches.corpus, start.mesh)
            run = RunState(initialisation.first_state(start, abstract), done, is_measured)
        sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        steps = jitted_steps(config, batches.corpus, start.mesh, sharding)
        evaluate = by_phase(config, partial(_evaluation, start, batches))
        _write_config(start)
        files = enter(GrowingFiles(workdir))
        last_line, hook = done if is_measured else done - 1, config.train.metrics_hook
        log = enter(metrics.Metrics(files, last_line, jax.process_index() == 0, hook))
        checkpointer = enter(_checkpointer(start, best))
        prefetch = enter(Prefetch(batches, start.mesh, done, config.train.steps))
        tokens = latest.meta["tokens"] if latest is not None else 0
        resources = Resources(
            start=start,
            batches=batches,
            flops=flops,
            steps=steps,
            evaluations=[evaluate, *probes],
            restart_sums=jax.jit(states.restart_sums, out_shardings=sharding.progress),
            preemption=preemption,
            bar=bar,
            waits=waits,
            files=files,
            metrics=log,
            checkpointer=checkpointer,
            prefetch=prefetch,
            clock=Throughput(flops, prefetch, tokens),
            step_memory=enter(StepMemory(start.mesh.devices.flat[0].platform == "cpu")),
            speeds=HostSpeeds(files),
        )
        yield run, resources


@contextlib.contextmanager
def _closing(resource: Resource) -> Iterator[Resource]:
    """Closes a resource at the end of a `with` statement.

    Unlike `contextlib.closing`, an error of `close` does not hide an earlier error.
    """
    try:
        yield resource
    except BaseException:
        with contextlib.suppress(Exception):
            resource.close()
        raise
    resource.close()


def _checkpointer(start: Start, best: str) -> writing.Checkpointer:
    """Returns the writer of checkpoints, which keeps the checkpoints before decays."""
    earlier = reading.list_all(start.workdir)
    pre_decay = preservation.pre_decay_steps(start.config, earlier)
    # Checkpoints whose metrics are not written yet may be the best ones, so they are kept too.
    unmeasured = [each.step for each in earlier if best and not each.meta["measured"]]
    return writing.Checkpointer(
        start.workdir,
        start.config,
        start.store.manifest,
        start.vocabulary,
        keep=start.config.train.keep_checkpoints,
        keep_steps=(*pre_decay, *unmeasured),
        keep_best=bool(best),
    )


def _evaluation(start: Start, batches: Batches, model: Model) -> Evaluation:
    """Builds the evaluation on held-out rows, with the model of a phase."""
    objectives = build(start.config.objectives_on(), model, batches.corpus)
    return Evaluation(start.store, start.config, objectives, start.mesh)


def _progress_bar(schedule: Schedule, done: int) -> tqdm:
    """Returns the progress bar, which only process 0 shows.

    The bar counts tokens, not steps. So its estimate of the time left is right even if batches or
    rows grow during the run.
    """
    shown = "{percentage:3.0f}% {bar:8} {desc} [{n_fmt}/{total_fmt} tok, {remaining} left{postfix}]"
    return tqdm(
        total=round(schedule.tokens(0, schedule.config.train.steps)),
        initial=round(schedule.tokens(0, done)),
        bar_format=shown,
        unit_scale=True,
        dynamic_ncols=True,
        disable=jax.process_index() > 0,
    )


def _write_config(start: Start) -> None:
    """Creates the workdir, and writes the config, the schedule and a description of the machine."""
    lines, workdir = schedule_tables.make_lines(start.schedule, start.store), start.workdir
    with atomic.as_config_error(workdir / "config.json"):
        workdir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0:
            json_file.write(workdir / "config.json", record(start.config))
            json_file.write(workdir / "machine.json", _machine())
            json_file.write(workdir / metrics.SCHEDULE, {"lines": lines}, indent=None)


def _machine() -> dict[str, str]:
    """Returns the time, machine and software of this start of the run, for reports."""
    devices = collections.Counter(device.device_kind for device in jax.devices())
    return {
        "started": time.strftime("%Y-%m-%d %H:%M"),
        "host": platform.node(),
        "devices": ", ".join(f"{count} x {kind}" for kind, count in devices.items()),
        "cores": f"{len(os.sched_getaffinity(0))}",
        "software": f"xlj {__version__}, jax {jax.__version__}, Python {platform.python_version()}",
    }
