"""The train loop, read from top to bottom: first state, resources, steps, metrics, checkpoints."""

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
from xlj.io.storage import AnyPath
from xlj.objectives import build
from xlj.optimizers.schedules import Rates, rates
from xlj.sharding import meshes
from xlj.training import initialisation, memory, metrics, schedule
from xlj.training import state as states
from xlj.training.amounts import Amounts, Reading
from xlj.training.evaluation import Evaluation
from xlj.training.lines import MetricsWriter, Probe, by_phase
from xlj.training.phases import jitted_steps
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import Counts, RunFlops
from xlj.training.start import Start
from xlj.training.state import State
from xlj.training.step_memory import StepMemory
from xlj.training.throughput import Throughput
from xlj.training.waits import Waits


class _Closable(Protocol):
    def close(self) -> object: ...


Resource = TypeVar("Resource", bound=_Closable)

_IN_FLIGHT = 2  # steps that the host may be ahead of the devices


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    step: int
    finished: bool
    """False if it was asked to stop (SIGTERM) before the last step; if `step` is 0, nothing was
    saved."""
    workdir: AnyPath
    checkpoint: AnyPath
    operations: Counts
    """Of all steps so far, those of earlier calls too."""

    @property
    def metrics(self) -> list[metrics.Line]:
        """All that was measured in the workdir so far: its lines, each with its `step`."""
        return metrics.read(self.workdir)


def train(start: Start, probes: Sequence[Probe] = (), best: str = "") -> Outcome:
    """Trains to the last step, or until the run is to stop, from the latest checkpoint if any.

    The main process prints what the run will cost, and what slows it, before the first step.

    Args:
      start: as `xlj.training.start.prepare` returned it.
      probes: measured wherever held-out rows are, every `train.eval_every` steps.
      best: name of a metric; of the checkpoints after an evaluation, that where it is highest
        stays. Empty for none.

    Raises:
      ConfigError: before the first step, if a checkpoint or model is damaged, or its tensors do not
        fit; later, if more than `train.max_skipped_steps` steps in a row were not finite.
      KeyboardInterrupt: after Ctrl-C. Once finishes the step and saves it first, twice does not;
        the message is the step that the run goes on from.
    """
    config, workdir, mesh, latest = start.config, start.workdir, start.mesh, start.latest
    store = start.store
    batches = Batches(store, config)
    done, total = latest.step if latest is not None else 0, config.train.steps
    flops = RunFlops(config, batches.corpus, batches.shapes)

    def outcome(finished: bool) -> Outcome:
        folder = workdir / "checkpoints" / str(done)
        return Outcome(done, finished, workdir, folder, flops.until(done))

    # A run may stop after a step but before its metrics are written.
    is_measured = latest is not None and latest.meta["measured"]
    if latest is not None:
        finished = done == total and (is_measured or _is_in_metrics(workdir, done))
        _print_changes(latest, config, finished)
        if finished:
            return outcome(finished=True)
    amounts = Amounts(config, Reading(store))
    _print_costs(config, mesh, flops, amounts)
    earlier = reading.list_all(workdir)
    pre_decay = preservation.pre_decay_steps(config, earlier)
    # Steps whose checkpoints were saved before the metrics that were due there.
    unmeasured = [found.step for found in earlier if best and not found.meta["measured"]]
    keep = config.train.keep_checkpoints, (*pre_decay, *unmeasured), bool(best)
    with memory.advising(config), _naming_step(workdir), contextlib.ExitStack() as stack:

        def enter(resource: Resource) -> Resource:
            return stack.enter_context(_closing(resource))

        preemption = enter(Preemption(done))
        bar = enter(_progress_bar(amounts, done, total))
        waits = Waits(bar)
        with waits.on("making the first state", "first_state"):
            abstract = states.abstract(config, batches.corpus, mesh)
            state = initialisation.first_state(start, abstract)
        sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        steps = jitted_steps(config, batches.corpus, mesh, sharding)
        evaluations = [
            by_phase(config, partial(_evaluation, config, store, batches.corpus, mesh)),
            *probes,
        ]
        _write_config(config, workdir, schedule.lines(config, store))
        files = enter(GrowingFiles(workdir))
        last_line, hook = done if is_measured else done - 1, config.train.metrics_hook
        log = enter(metrics.Metrics(files, last_line, jax.process_index() == 0, hook))
        checkpointer = enter(
            writing.Checkpointer(workdir, config, store.manifest, start.vocabulary, *keep)
        )
        prefetch = enter(Prefetch(batches, mesh, done, total))
        seen = latest.meta.get("tokens") if latest is not None else 0
        if seen is None:  # the checkpoint is older than this count
            seen = round(amounts.tokens(0, done))
        clock = Throughput(flops, prefetch, seen)
        step_memory = enter(StepMemory(mesh))
        speeds = HostSpeeds(files)
        restart_sums = jax.jit(states.restart_sums, out_shardings=sharding.progress)
        writer = MetricsWriter(
            *(config, evaluations, flops, amounts, log, clock, speeds, preemption, waits, bar),
            *(restart_sums, done),
        )

        def save(state: State, line: Mapping[str, float], is_measured: bool) -> None:
            with clock.paused():
                step_memory.give_back()
                files.send(now=True)  # a checkpoint is never ahead of the metrics before it
                checkpointer.save(
                    done, state.parts(), line.get(best), is_measured, tokens=clock.seen()
                )

        first = states.set_aside(state) if latest is None else None
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
            with step_memory.kept():
                state, skipped_in_a_row = step(state, batch, *arguments)
            clock.count(done, tokens)
            done += 1
            in_flight.append((done - 1, skipped_in_a_row))
            if len(in_flight) > _IN_FLIGHT:
                _check_finite(config, batches, workdir, *in_flight.popleft())
            bar.set_description_str(f"{done:,}/{total:,}", refresh=False)
            bar.update(round(amounts.tokens(0, done)) - bar.n)
            if first is not None:
                # The first step need not wait until what measures step 0 is compiled.
                step_memory.give_back()
                if not writer.write(first(), 0)[2]:
                    done = 0  # nothing is saved, and the run begins again
                    break
                first = None
            if any(writer.due(done)):
                step_memory.give_back()
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
        saved = f"step {done:,} is saved, and the run goes on from there"
        raise KeyboardInterrupt(saved if done else "nothing is saved yet; the run begins again")
    return outcome(finished)


def _arguments(config: Config, step: int) -> tuple[np.uint32, Rates, np.int32 | None]:
    """What a step takes beside state and batch."""
    filled = np.int32(config.microbatches(step)) if config.batch_warmup else None
    return np.uint32(config.train.seed), rates(config, step), filled


def _evaluation(
    config: Config, store: RowStore, corpus: Corpus, mesh: Mesh, model: Model
) -> Evaluation:
    """The losses on held-out rows, with the model of a phase."""
    return Evaluation(store, config, build(config.objectives_on(), model, corpus), mesh)


def _is_in_metrics(workdir: AnyPath, step: int) -> bool:
    """Whether the metrics have a line of a step; process 0 reads them."""
    return hosts.told(lambda: any(line["step"] == step for line in metrics.read(workdir)))


def _progress_bar(amounts: Amounts, done: int, total: int) -> tqdm:
    """The progress bar, which process 0 shows. It counts tokens, by which it says what is left:
    steps take longer as batches and rows grow."""
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
    """Says in a `KeyboardInterrupt` from which step the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        step = max(reading.steps(workdir), default=0)
        raise KeyboardInterrupt(
            f"stopped without saving; the run goes on from step {step:,}"
        ) from None


@contextlib.contextmanager
def _closing(resource: Resource) -> Iterator[Resource]:
    """As `contextlib.closing`, but an error in closing never hides an earlier one."""
    try:
        yield resource
    except BaseException:
        with contextlib.suppress(Exception):
            resource.close()
        raise
    resource.close()


def _write_config(config: Config, workdir: AnyPath, lines: list[metrics.Line]) -> None:
    """Writes the config, what it does when, and where it runs into the workdir, which it makes."""
    with atomic.as_config_error(workdir / "config.json"):
        workdir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0:
            json_file.write(workdir / "config.json", record(config))
            json_file.write(workdir / "machine.json", _machine())
            json_file.write(workdir / metrics.SCHEDULE, {"lines": lines}, indent=None)


def _machine() -> dict[str, str]:
    """When and where the run was last started, for reports."""
    devices = collections.Counter(device.device_kind for device in jax.devices())
    return {
        "started": time.strftime("%Y-%m-%d %H:%M"),
        "host": platform.node(),
        "devices": ", ".join(f"{count} x {kind}" for kind, count in devices.items()),
        "cores": f"{len(os.sched_getaffinity(0))}",
        "software": f"xlj {__version__}, jax {jax.__version__}, Python {platform.python_version()}",
    }


def _print_costs(config: Config, mesh: Mesh, flops: RunFlops, amounts: Amounts) -> None:
    """Prints what the run will read and cost, and what slows it."""
    if jax.process_index():
        return
    if meshes.crosses_hosts(mesh):
        print(
            f"slow: mesh.fsdp={config.mesh.fsdp} gathers the parameters of every layer from "
            "several hosts or TPU slices; one that divides the devices of each would not"
        )
    steps = config.train.steps
    passes = [f"{kind} {number:,.2f}" for kind, number in amounts.passes(0, steps).items()]
    print(f"steps of the run: {steps:,}, about {amounts.tokens(0, steps):,.0f} tokens")
    print(f"passes over the rows: {', '.join(passes)}")
    print(f"operations of the run: {flops.until(steps)}\n", flush=True)


def _print_changes(latest: reading.Checkpoint, config: Config, finished: bool) -> None:
    """Prints which keys of the config have changed, and whether that has an effect."""
    if jax.process_index():
        return
    if finished:
        print(f"{latest.folder} is the last of a finished run: nothing is left to do")
    for change in compatibility.changes(latest, config):
        print(f"no effect: {change}" if finished else f"resuming: {change}", flush=True)


def _check_finite(
    config: Config, batches: Batches, workdir: AnyPath, step: int, skipped_in_a_row: jax.Array
) -> None:
    """Stops the run, and writes the rows to a file, if too many steps in a row were not finite."""
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
        f"{skipped_in_a_row} steps in a row, up to step {step}, had a loss or gradient that is not "
        f"finite (train.max_skipped_steps={config.train.max_skipped_steps}); the rows of "
        f"that step are in {path}. A lower optimizer.learning_rate or optimizer.clip_norm may help"
    )
