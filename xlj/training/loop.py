"""The train loop, in order of execution: first state, resources, steps, metrics, checkpoints."""

import collections
import contextlib
import dataclasses
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj import __version__
from xlj.checkpoints import compatibility, preservation, reading, writing
from xlj.config import Config, ConfigError, Model, record
from xlj.data.rows.batches import Batches
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.store import RowStore
from xlj.distributed import hosts
from xlj.distributed.host_speeds import HostSpeeds
from xlj.distributed.preemption import Preemption
from xlj.io import atomic, json_file
from xlj.io.growing import GrowingFiles
from xlj.io.own_process import StepMemory
from xlj.io.storage import AnyPath
from xlj.objectives import build
from xlj.optimizers.schedules import Rates, rates
from xlj.sharding import meshes
from xlj.training import initialisation, memory, metrics, schedule
from xlj.training import state as states
from xlj.training.amounts import Amounts, StepAmounts
from xlj.training.evaluation import Evaluation
from xlj.training.metrics_writer import MetricsWriter, Probe, by_phase
from xlj.training.phases import jitted_steps
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import Counts, RunFlops
from xlj.training.start import Start
from xlj.training.state import State
from xlj.training.throughput import Throughput
from xlj.training.waits import Waits


class _Closable(Protocol):
    def close(self) -> object: ...


Resource = TypeVar("Resource", bound=_Closable)

_IN_FLIGHT = 2  # number of steps that the host may be ahead of the devices


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of `train`."""

    step: int
    """The number of finished steps; 0 if the run stopped before it saved a checkpoint."""
    finished: bool
    """False if a signal (SIGTERM) stopped the run before the last step, or before the evaluation of
    the last step."""
    workdir: AnyPath
    checkpoint: AnyPath
    """Folder of the checkpoint of `step`. It does not exist if `step` is 0."""
    operations: Counts
    """Floating-point operations of all finished steps, including steps of earlier calls."""

    @property
    def metrics(self) -> list[metrics.Line]:
        """All lines of metrics in the workdir, each with its `step`."""
        return metrics.read(self.workdir)


def train(start: Start, probes: Sequence[Probe] = (), best: str = "") -> Outcome:
    """Trains from the latest checkpoint, if any, to the last step or until a stop is requested.

    Before the first step, process 0 prints the numbers of steps, tokens, passes and operations of
    the run, and a warning if `mesh.fsdp` makes it slow.

    Args:
      start: the result of `xlj.training.start.prepare`.
      probes: further evaluations. They run every `train.eval_every` steps, after the evaluation on
        held-out rows.
      best: name of a metric. The checkpoint with the highest value of this metric is kept, in
        addition to the checkpoints that are kept without it. Empty to keep no best checkpoint.

    Raises:
      ConfigError: before the first step, if a checkpoint or model is damaged, or if its tensors do
        not fit the run. Later, if loss or gradient were not finite in more than
        `train.max_skipped_steps` steps in a row. At any time, if a device runs out of memory or a
        file cannot be written.
      KeyboardInterrupt: after Ctrl-C. After the first Ctrl-C, the run finishes the step and saves
        it. A second Ctrl-C stops the run without saving. The message names the step from which the
        run will resume.
    """
    config, workdir, mesh, latest = start.config, start.workdir, start.mesh, start.latest
    store = start.store
    batches = Batches(store, config)
    done, total = latest.step if latest is not None else 0, config.train.steps
    flops = RunFlops(config, batches.corpus, batches.shapes)

    def outcome(finished: bool) -> Outcome:
        folder = workdir / "checkpoints" / str(done)
        return Outcome(done, finished, workdir, folder, flops.until(done))

    # The previous process may have saved this step, but stopped before it wrote the step's metrics.
    is_measured = latest is not None and latest.meta["measured"]
    if latest is not None:
        finished = done == total and (is_measured or _is_in_metrics(workdir, done))
        _print_changes(latest, config, finished)
        if finished:
            return outcome(finished=True)
    amounts = Amounts(config, StepAmounts(store))
    _print_costs(config, mesh, flops, amounts)
    earlier = reading.list_all(workdir)
    pre_decay = preservation.pre_decay_steps(config, earlier)
    # Checkpoints whose metrics are not written yet may be the best ones, so they are kept too.
    unmeasured = [each.step for each in earlier if best and not each.meta["measured"]]
    keep = config.train.keep_checkpoints, (*pre_decay, *unmeasured), bool(best)
    with (
        memory.explain_out_of_memory(config),
        _naming_step(workdir),
        contextlib.ExitStack() as stack,
    ):

        def enter(resource: Resource) -> Resource:
            return stack.enter_context(_closing(resource))

        preemption = enter(Preemption(done))
        bar = enter(_progress_bar(amounts, done, total))
        waits = Waits(bar)
        with waits.on("initialising the state", "first_state"):
            abstract = states.abstract(config, batches.corpus, mesh)
            state = initialisation.first_state(start, abstract)
        sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        steps = jitted_steps(config, batches.corpus, mesh, sharding)
        evaluations = [
            by_phase(config, partial(_evaluation, config, store, batches.corpus, mesh)),
            *probes,
        ]
        _write_config(config, workdir, schedule.make_lines(config, store))
        files = enter(GrowingFiles(workdir))
        last_line, hook = done if is_measured else done - 1, config.train.metrics_hook
        log = enter(metrics.Metrics(files, last_line, jax.process_index() == 0, hook))
        checkpointer = enter(
            writing.Checkpointer(workdir, config, store.manifest, start.vocabulary, *keep)
        )
        prefetch = enter(Prefetch(batches, mesh, done, total))
        seen = latest.meta["tokens"] if latest is not None else 0
        clock = Throughput(flops, prefetch, seen)
        step_memory = enter(StepMemory(mesh.devices.flat[0].platform == "cpu"))
        speeds = HostSpeeds(files)
        restart_sums = jax.jit(states.restart_sums, out_shardings=sharding.progress)
        writer = MetricsWriter(
            *(config, evaluations, flops, amounts, log, clock, speeds, preemption, waits, bar),
            *(restart_sums, done),
        )

        def save(state: State, line: Mapping[str, float], is_measured: bool) -> None:
            with clock.paused():
                step_memory.release()
                files.send(now=True)  # no checkpoint is stored before the metrics of its steps
                checkpointer.save(
                    done, state.parts(), line.get(best), is_measured, tokens=clock.seen()
                )

        first = states.copy_for_evaluation(state) if latest is None else None
        if latest is not None and not is_measured:
            state, line, is_measured = writer.write(state, done)
            if not is_measured:
                save(state, line, is_measured)
        in_flight: collections.deque[tuple[int, jax.Array]] = collections.deque()
        for batch, tokens in prefetch if is_measured or first else ():
            step, arguments = steps[config.phase_at(done).start], _arguments(config, done)
            if step.program is None:
                with clock.paused(), waits.on("compiling the train step", "train_step"):
                    step.compile(state, batch, *arguments)
            preemption.started()
            with step_memory.retain():
                state, skipped_in_a_row = step(state, batch, *arguments)
            clock.count(done, tokens)
            done += 1
            in_flight.append((done - 1, skipped_in_a_row))
            if len(in_flight) > _IN_FLIGHT:
                _check_finite(config, batches, workdir, *in_flight.popleft())
            bar.set_description_str(f"{done:,}/{total:,}", refresh=False)
            bar.update(round(amounts.tokens(0, done)) - bar.n)
            if first is not None:
                # The initial state is evaluated after the first step, so that the first step need
                # not wait for the compilation of the evaluation.
                step_memory.release()
                if not writer.write(first(), 0)[2]:
                    done = 0  # no checkpoint exists, so the next process starts from the beginning
                    break
                first = None
            if any(writer.due(done)):
                step_memory.release()
            state, line, is_measured = writer.write(state, done)
            stops = not is_measured or preemption.requested()
            if stops or done % config.train.checkpoint_every == 0 or done in (total, *pre_decay):
                save(state, line, is_measured)
            if stops:
                break
        for flag in in_flight:
            _check_finite(config, batches, workdir, *flag)
    finished = is_measured and done == total
    if preemption.by_user and not finished:
        saved = f"saved step {done:,}; the same command resumes from it"
        raise KeyboardInterrupt(saved if done else "nothing was saved; the run will start over")
    return outcome(finished)


def _arguments(config: Config, step: int) -> tuple[np.uint32, Rates, np.int32 | None]:
    """Returns the arguments of a step other than state and batch.

    Args:
      step: zero-based.

    Returns:
      (seed, rates, number of microbatches that have rows). The number is None without a batch
      warm-up.
    """
    filled = np.int32(config.microbatches(step)) if config.batch_warmup else None
    return np.uint32(config.train.seed), rates(config, step), filled


def _evaluation(
    config: Config, store: RowStore, corpus: Corpus, mesh: Mesh, model: Model
) -> Evaluation:
    """Builds the evaluation on held-out rows, with the model of a phase."""
    return Evaluation(store, config, build(config.objectives_on(), model, corpus), mesh)


def _is_in_metrics(workdir: AnyPath, step: int) -> bool:
    """Returns whether the metrics have a line for a step; process 0 reads them."""
    return hosts.broadcast(lambda: any(line["step"] == step for line in metrics.read(workdir)))


def _progress_bar(amounts: Amounts, done: int, total: int) -> tqdm:
    """Returns the progress bar, which only process 0 shows.

    The bar counts tokens, not steps. So its estimate of the time left is right even if batches or
    rows grow during the run.
    """
    shown = "{percentage:3.0f}% {bar:8} {desc} [{n_fmt}/{total_fmt} tok, {remaining} left{postfix}]"
    return tqdm(
        total=round(amounts.tokens(0, total)),
        initial=round(amounts.tokens(0, done)),
        bar_format=shown,
        unit_scale=True,
        dynamic_ncols=True,
        disable=jax.process_index() > 0,
    )


@contextlib.contextmanager
def _naming_step(workdir: AnyPath) -> Iterator[None]:
    """Adds to a `KeyboardInterrupt` the step from which the run will resume."""
    try:
        yield
    except KeyboardInterrupt:
        step = max(reading.steps(workdir), default=0)
        raise KeyboardInterrupt(
            f"stopped without saving; the same command resumes from step {step:,}"
        ) from None


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


def _write_config(config: Config, workdir: AnyPath, lines: list[metrics.Line]) -> None:
    """Creates the workdir, and writes the config, the schedule and a description of the machine."""
    with atomic.as_config_error(workdir / "config.json"):
        workdir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0:
            json_file.write(workdir / "config.json", record(config))
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


def _print_costs(config: Config, mesh: Mesh, flops: RunFlops, amounts: Amounts) -> None:
    """Prints the numbers of steps, tokens, passes and operations, and a warning on a slow mesh."""
    if jax.process_index():
        return
    if meshes.crosses_hosts(mesh):
        print(
            f"slow: mesh.fsdp={config.mesh.fsdp} gathers the parameters of every layer across "
            "hosts or TPU slices; choose a value that divides the number of devices of each host "
            "or slice"
        )
    steps = config.train.steps
    passes = [f"{kind} {number:,.2f}" for kind, number in amounts.passes(0, steps).items()]
    print(f"steps of the run: {steps:,}, about {amounts.tokens(0, steps):,.0f} tokens")
    print(f"passes over the rows: {', '.join(passes)}")
    print(f"operations of the run: {flops.until(steps)}\n", flush=True)


def _print_changes(latest: reading.Checkpoint, config: Config, finished: bool) -> None:
    """Prints which config keys have changed since the checkpoint.

    In a finished run, changes have no effect. The lines then begin with "no effect".
    """
    if jax.process_index():
        return
    if finished:
        print(
            f"{latest.folder}: this run is finished (step {latest.step}); "
            "raise train.steps to continue it"
        )
    for change in compatibility.changes(latest, config):
        print(f"no effect: {change}" if finished else f"resuming: {change}", flush=True)


def _check_finite(
    config: Config, batches: Batches, workdir: AnyPath, step: int, skipped_in_a_row: jax.Array
) -> None:
    """Stops the run if too many steps in a row had a loss or gradient that was not finite.

    Before it raises the error, it writes which rows the step has read to `not_finite_STEP.json`.

    Args:
      step: zero-based.
      skipped_in_a_row: number of consecutive steps, up to this one, that were not finite, int32 [].

    Raises:
      ConfigError: if there are more than `train.max_skipped_steps` such steps.
    """
    if int(skipped_in_a_row) <= config.train.max_skipped_steps:
        return
    rows = {
        name: batches.draw(name, step, np.arange(shape[0]))
        for name, shape in batches.shapes(step).items()
    }
    path = workdir / f"not_finite_{step}.json"
    if jax.process_index() == 0:
        json_file.write(path, {"step": step, "rows": rows}, indent=None)
    raise ConfigError(
        f"the loss or gradient was not finite in {skipped_in_a_row} steps in a row, up to step "
        f"{step} (train.max_skipped_steps={config.train.max_skipped_steps}). {path} lists the rows "
        f"of step {step}. Try a lower optimizer.learning_rate or optimizer.clip_norm"
    )
