"""The state and the resources of a run: files, threads and compiled programs.

A resource is, for example, the jitted step of each phase, or the writer of metrics, which measures
the state after the steps at which metrics are due.
"""

import collections
import contextlib
import dataclasses
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import jax
from jax.sharding import Mesh, NamedSharding
from tqdm import tqdm

from xlj import __version__
from xlj.checkpoints import compatibility, metrics, reading, writing
from xlj.config import Config, Model, Options, record
from xlj.data.rows.batches import Batches
from xlj.data.rows.store import Corpus
from xlj.distributed import hosts
from xlj.distributed.hosts import HostSpeeds
from xlj.distributed.preemption import Interrupted, Preemption
from xlj.io import atomic, json_file
from xlj.io.atomic import GrowingFiles
from xlj.io.own_process import StepMemory
from xlj.objectives.objective import abstract_rows, build
from xlj.sharding import meshes
from xlj.sharding.devices import ROWS
from xlj.training import initialisation
from xlj.training import state as states
from xlj.training.evaluation import Evaluation, Probe, by_phase
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import RunFlops
from xlj.training.schedule import Schedule, make_lines
from xlj.training.start import Start
from xlj.training.state import Progress, State
from xlj.training.step import Batch, TrainStep, make_train_step
from xlj.training.throughput import Throughput, Waits


class Step:
    """The training step of a phase. `compile` must be called before the first batch of each shape.

    Args:
      jitted: the jitted step.

    Attributes:
      program: the program that was compiled last; None before `compile`.
    """

    def __init__(self, jitted: Any):
        self.program: Any = None
        self._programs: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._jitted = jitted

    def trace(self, *arguments: Any) -> jax.stages.Traced:
        """Traces the step.

        Args:
          arguments: the arguments of `TrainStep`, of which only shapes, dtypes and shardings
            matter.
        """
        return self._jitted.trace(*arguments)

    def lower(self, *arguments: Any) -> jax.stages.Lowered:
        """Traces the step (`trace`), and lowers it for the devices of its arguments."""
        return self.trace(*arguments).lower()

    def compile(self, state: State, batch: Batch, *others: Any) -> None:
        """Compiles the step for arguments of these shapes, dtypes and shardings."""
        self.program = self.lower(state, batch, *others).compile()
        self._programs[_shapes(batch)] = self.program

    def is_compiled(self, batch: Batch) -> bool:
        """Returns whether the step is compiled for batches of this shape."""
        return _shapes(batch) in self._programs

    def __call__(self, state: State, batch: Batch, *others: Any) -> tuple[State, jax.Array]:
        """Returns (next state, `skipped_in_a_row`), and reuses the memory of the old state."""
        step: tuple[State, jax.Array] = self._programs[_shapes(batch)](state, batch, *others)
        return step


def _shapes(batch: Batch) -> tuple[tuple[int, ...], ...]:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))


def jitted_steps(config: Config, corpus: Corpus, mesh: Mesh, sharding: State) -> dict[int, Step]:
    """Returns the training step of each phase, by the zero-based number of the phase's first step.

    A phase that changes only learning rates, weight decay or sampling shares has the same `Step` as
    the previous phase.

    Args:
      sharding: of each leaf of the state.
    """
    steps: dict[int, Step] = {}
    before: Config | None = None
    for start, phase in ((phase.start, phase.config) for phase in config.schedule):
        if before is not None and phase.has_same_step_as(before):
            steps[start] = steps[max(steps)]
            continue
        already = before.objectives.active() if before is not None else {}
        active = phase.objectives.active()
        begins = {name: start for name in active if name not in already}
        step = make_train_step(phase, build(active, phase.model, corpus), mesh, begins)

        jitted = jax.jit(
            _with_flag(step),
            donate_argnums=0,
            out_shardings=(sharding, None),
            compiler_options=meshes.compiler_options(mesh),
        )
        steps[start] = Step(jitted)
        before = phase
    return steps


def _with_flag(step: TrainStep) -> Callable[..., tuple[State, jax.Array]]:
    """Returns the step with a second result, `skipped_in_a_row`.

    The next step reuses the memory of the state; the second result stays readable.
    """

    def train_step(*arguments: Any) -> tuple[State, jax.Array]:
        state = step(*arguments)
        return state, state.progress.skipped_in_a_row

    return train_step


def abstract_batch(
    options: Mapping[str, Options], shapes: Mapping[str, tuple[int, int]], ids: str, mesh: Mesh
) -> Batch:
    """Returns the shapes, dtypes and shardings of a batch, without values.

    Args:
      options: the options of each objective, by name.
      shapes: (number of rows, length of a row) of each objective.
      ids: the type of token ids, such as `<u2`.
    """
    sharding = NamedSharding(mesh, ROWS)

    def placed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    rows = {
        name: abstract_rows(options[name].row_kind.batch_fields(length, ids), count)
        for name, (count, length) in shapes.items()
    }
    batch: Batch = jax.tree.map(placed, rows)
    return batch


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
    scores: dict[int, float] = dataclasses.field(default_factory=dict)
    """The scores of the steps that were evaluated so far (`metrics.scores`)."""
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
    start: Start,
    batches: Batches,
    flops: RunFlops,
    probes: Sequence[Probe],
    scores: dict[int, float],
) -> Iterator[tuple[RunState, Resources]]:
    """Initialises the state of a run, and opens its resources during a `with` statement.

    No file in the workdir changes before the state is complete.

    Args:
      probes: the argument of `xlj.training.loop.train`.
      scores: the scores of the steps up to the latest checkpoint (`metrics.scores`).
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
            state = initialisation.first_state(start, abstract)
            run = RunState(state, done, is_measured, scores=scores)
        sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        steps = jitted_steps(config, batches.corpus, start.mesh, sharding)
        evaluate = by_phase(config, partial(_evaluation, start, batches))
        _write_config(start)
        files = enter(GrowingFiles(workdir))
        last_line, hook = done if is_measured else done - 1, config.train.metrics_hook
        log = enter(metrics.Metrics(files, last_line, jax.process_index() == 0, hook))
        checkpointer = enter(_checkpointer(start, scores))
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


def _checkpointer(start: Start, scores: Mapping[int, float]) -> writing.Checkpointer:
    """Returns the writer of checkpoints, which keeps the checkpoints before decays."""
    earlier = reading.list_all(start.workdir)
    return writing.Checkpointer(
        start.workdir,
        start.config,
        start.store.manifest,
        start.vocabulary,
        keep=start.config.train.keep_checkpoints,
        keep_steps=compatibility.pre_decay_steps(start.config, earlier),
        scores=scores,
        from_pairs=start.started_from_pairs,
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
    lines, workdir = make_lines(start.schedule, start.store), start.workdir
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


def metrics_due(config: Config, done: int) -> tuple[bool, bool]:
    """Returns whether metrics of training, and of evaluations, are due after `done` steps."""
    is_last = done == config.train.steps
    logs = done > 0 and (done % config.train.log_every == 0 or is_last)
    return logs, done % config.train.eval_every == 0 or is_last


def write_metrics(run: RunState, resources: Resources) -> bool:
    """Writes the line that is due after `run.done` steps, if any.

    If metrics of training are due, their sums in `run.state` become zero. If a stop is requested
    during an evaluation, nothing is written, and the state stays as it is.

    Returns:
      `run.is_measured`: False if a stop was requested during an evaluation.
    """
    state, done, line = run.state, run.done, dict[str, float]()
    run.line, run.is_measured = {}, False
    logs, evaluates = metrics_due(resources.start.config, done)
    if logs:
        line = _training_metrics(run, resources)
        progress = resources.restart_sums(state.progress)
        state = dataclasses.replace(state, progress=progress)
    if evaluates:
        try:
            with (
                resources.clock.paused(),
                resources.waits.on("evaluating held-out rows", "evaluations"),
            ):
                for measure in resources.evaluations:
                    line |= measure(state, resources.preemption.check)
        except Interrupted:
            return False
    if line:
        of_run = {"flops": resources.flops.until(done).xlj} | resources.waits.measures()
        resources.metrics.log(done, line | of_run)
    best = resources.start.config.train.best_metric
    if best and evaluates:  # all processes must end the run after the same step
        found = hosts.broadcast(lambda: [*metrics.scores([{"step": done, **line}], best).items()])
        run.scores.update(dict(found))
    run.state, run.line, run.is_measured = state, line, True
    return True


def _print_time_left(run: RunState, resources: Resources, speed: float) -> None:
    """Prints how long the rest of the run takes.

    Args:
      speed: tokens per second.
    """
    start = resources.start
    tokens_left = start.schedule.tokens(run.done, start.config.train.steps)
    if tokens_left and speed and jax.process_index() == 0:
        time = _in_words(tokens_left / speed)
        resources.bar.write(
            f"{time} left: {tokens_left:,.0f} tokens, at {speed:,.0f} tokens per second"
        )


def _training_metrics(run: RunState, resources: Resources) -> dict[str, float]:
    """Returns the metrics of training, and shows loss and speed on the progress bar."""
    progress, start = jax.device_get(run.state.progress), resources.start
    count = max(int(progress.steps_since_log), 1)
    line = {"train/loss": float(progress.loss / count)}
    for name, sums in progress.losses.items():
        if sums.count:
            line[f"train/{name}/loss"] = float(sums.sum / sums.count)
            line[f"train/{name}/accuracy"] = float(sums.correct / sums.count)
    last = run.done - 1
    line["learning_rate"] = float(start.schedule.learning_rate(last))
    line["gradient_norm"] = float(progress.gradient_norm / count)
    line["skipped_steps"] = int(progress.skipped)
    line |= resources.clock.measures()
    of_hosts, slow = resources.speeds.measures(run.done, line["time/waiting_share"])
    line |= of_hosts
    # At the first line of metrics of this process:
    if last - last % start.config.train.log_every <= start.done:
        _print_time_left(run, resources, line["time/tokens_per_second"])
    shown = [
        f"loss {line['train/loss']:.3f}",
        f"{line['time/tokens_per_second']:,.0f} tok/s",
    ]
    shown += [slow] if slow else []
    resources.bar.set_postfix_str(", ".join(shown))
    return line


def _in_words(seconds: float) -> str:
    """Formats a duration in days, hours, minutes or seconds: the largest unit with at least two."""
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:,.1f} {name}"
    count = round(seconds)
    return f"about {count} second{'' if count == 1 else 's'}"
