"""The train loop, read from top to bottom: rows, mesh, state, steps, evaluation, checkpoints."""

import collections
import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.checkpoints import differences, reading, writing
from xlj.config import Config, ConfigError, record
from xlj.data.rows.batches import Batches
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.distributed import hosts
from xlj.distributed.host_speeds import HostSpeeds
from xlj.distributed.preemption import Preemption
from xlj.io import atomic
from xlj.io.growing import GrowingFiles
from xlj.io.storage import AnyPath
from xlj.objectives import build_all
from xlj.sharding import meshes
from xlj.training import initialisation, memory, metrics
from xlj.training import state as states
from xlj.training.evaluation import Evaluation
from xlj.training.lines import Lines, Probe
from xlj.training.passes import passes, with_steps
from xlj.training.phases import Step, jitted_steps
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import Counts, RunFlops
from xlj.training.state import State
from xlj.training.step_memory import StepMemory
from xlj.training.throughput import Throughput


class _Closable(Protocol):
    def close(self) -> object: ...


Resource = TypeVar("Resource", bound=_Closable)

_IN_FLIGHT = 2  # steps that the host may be ahead of the devices


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    step: int
    finished: bool
    """False if it was asked to stop (SIGTERM) before the last step."""
    workdir: AnyPath
    checkpoint: AnyPath
    operations: Counts
    """Of all steps so far, those of earlier calls too."""

    @property
    def metrics(self) -> list[metrics.Line]:
        """All that was measured in the workdir so far: its lines, each with its `step`."""
        return metrics.read(self.workdir)


def train(
    config: Config, workdir: AnyPath, store: RowStore, probes: Sequence[Probe] = (), best: str = ""
) -> Outcome:
    """Trains from finished rows, from the workdir's latest checkpoint if there is one.

    The main process prints what the run will cost, and what slows it, before the first step.

    Args:
      config: as `xlj.config.checks.parse` returned it.
      workdir: where checkpoints and metrics are kept.
      store: the rows of `config.data`.
      probes: measured wherever held-out rows are, every `train.eval_every` steps.
      best: name of a metric; of the checkpoints after an evaluation, that where it is highest
        stays. Empty for none.

    Raises:
      ConfigError: before any work, if mesh, rows, vocabulary or checkpoint do not fit the config;
        later, if more than `train.max_skipped_steps` steps in a row were not finite.
    """
    config = with_steps(config, store)
    mesh = meshes.make_mesh(config)
    meshes.check_batches(config, mesh)
    vocabulary = Vocabulary.load(store.vocabulary_file)
    batches = Batches(store, config)
    objectives = build_all(config, batches.corpus)
    abstract = states.abstract(config, batches.corpus, mesh)
    sharding = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    latest = initialisation.check_resumable(config, workdir)
    state = initialisation.first_state(config, latest, store, abstract)
    start = int(state.progress.step)
    # What was to be said of the step before is due, if the run was stopped while measuring it.
    unsaid = latest is None or not latest.meta["measured"]
    flops = RunFlops(config, batches.corpus, batches.shapes)
    if latest is not None:
        finished = start == config.train.steps and (not unsaid or _is_said(workdir, start))
        _tell(latest, config, finished)
        if finished:
            return Outcome(start, True, workdir, latest.folder, flops.until(start))
    _tell_costs(config, mesh, flops, passes(config, store))
    pre_decay = initialisation.pre_decay_steps(config, workdir)
    run = _Run(
        config=config,
        workdir=workdir,
        store=store,
        batches=batches,
        mesh=mesh,
        sharding=sharding,
        flops=flops,
        steps=jitted_steps(config, batches.corpus, mesh, sharding),
        evaluations=[Evaluation(store, config, objectives, mesh), *probes],
        pre_decay=pre_decay,
        kept=(*pre_decay, *(initialisation.unmeasured_steps(workdir) if best else ())),
        best=best,
    )
    _record(config, workdir)
    with memory.advising(config):
        done, said = _go_on(run, vocabulary, state, start, unsaid)
    finished, folder = said and done == config.train.steps, workdir / "checkpoints" / str(done)
    return Outcome(done, finished, workdir, folder, flops.until(done))


def _is_said(workdir: AnyPath, step: int) -> bool:
    """Whether the metrics have a line of a step; process 0 reads them."""
    return hosts.told(lambda: any(line["step"] == step for line in metrics.read(workdir)))


@dataclasses.dataclass(frozen=True)
class _Run:
    """What stays the same from step to step."""

    config: Config
    workdir: AnyPath
    store: RowStore
    batches: Batches
    mesh: Mesh
    sharding: State
    flops: RunFlops
    steps: Sequence[Step]
    """By phase."""
    evaluations: Sequence[Probe]
    pre_decay: Collection[int]
    """Steps after which a checkpoint is due."""
    kept: tuple[int, ...]
    """Steps whose checkpoints stay."""
    best: str

    def saves_after(self, done: int) -> bool:
        """Whether a checkpoint is due after so many steps."""
        train = self.config.train
        return done % train.checkpoint_every == 0 or done in (train.steps, *self.pre_decay)


def _go_on(
    run: _Run, vocabulary: Vocabulary, state: State, start: int, unsaid: bool
) -> tuple[int, bool]:
    """Steps, lines of metrics and checkpoints, to the end or until the run is to stop: how many
    steps are done, and whether all was said of them."""
    config, batches, total = run.config, run.batches, run.config.train.steps
    with contextlib.ExitStack() as stack:

        def until_the_end(resource: Resource) -> Resource:
            return stack.enter_context(_closing(resource))

        preemption = until_the_end(Preemption())
        hook, said_before = config.train.metrics_hook, start - 1 if unsaid else start
        files = until_the_end(GrowingFiles(run.workdir))
        writer = until_the_end(metrics.Metrics(files, said_before, jax.process_index() == 0, hook))
        of_run = config, run.store.manifest, vocabulary
        stay = config.train.keep_checkpoints, run.kept, bool(run.best)
        checkpointer = until_the_end(writing.Checkpointer(run.workdir, *of_run, *stay))
        bar = until_the_end(_bar(start, total))
        prefetch = until_the_end(Prefetch(batches, run.mesh, start, total))
        clock = Throughput(run.flops, prefetch)
        restart_sums = jax.jit(states.restart_sums, out_shardings=run.sharding.progress)
        speeds = HostSpeeds(files)
        step_memory = until_the_end(StepMemory(run.mesh))
        lines = Lines(
            config, run.evaluations, run.flops, writer, clock, speeds, preemption, bar, restart_sums
        )

        def save(state: State, line: Mapping[str, float], said: bool) -> None:
            with clock.paused():
                step_memory.give_back()
                files.send(now=True)  # a checkpoint is never ahead of what was said before it
                checkpointer.save(done, state.parts(), line.get(run.best), said)

        done, said = start, True
        if unsaid:
            state, line, said = lines.write(state, done)
            if not said:
                save(state, line, said)
        in_flight: collections.deque[tuple[int, jax.Array]] = collections.deque()
        for batch, tokens in prefetch if said else ():
            step = run.steps[batches.phase(done)[0]]
            with step_memory.kept(step):
                state, skipped_in_a_row = step(state, batch)
            clock.count(done, tokens)
            done += 1
            in_flight.append((done - 1, skipped_in_a_row))
            if len(in_flight) > _IN_FLIGHT:
                _check_finite(config, batches, run.workdir, *in_flight.popleft())
            bar.update()
            if any(lines.due(done)):
                step_memory.give_back()
            state, line, said = lines.write(state, done)
            if (stop := not said or preemption.requested()) or run.saves_after(done):
                save(state, line, said)
            if stop:
                break
        for flag in in_flight:
            _check_finite(config, batches, run.workdir, *flag)
    return done, said


def _bar(start: int, total: int) -> tqdm:
    """The bar of steps, which process 0 shows."""
    silent = jax.process_index() > 0
    return tqdm(total=total, initial=start, unit="step", dynamic_ncols=True, disable=silent)


@contextlib.contextmanager
def _closing(resource: Resource) -> Iterator[Resource]:
    """As `contextlib.closing`, but an error in closing never hides one that came before."""
    try:
        yield resource
    except BaseException:
        with contextlib.suppress(Exception):
            resource.close()
        raise
    resource.close()


def _record(config: Config, workdir: AnyPath) -> None:
    """Writes the config into the workdir, which it makes."""
    with atomic.mendable(workdir / "config.json"):
        workdir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0:
            text = json.dumps(record(config), indent=1) + "\n"
            atomic.write(workdir / "config.json", text.encode())


def _tell_costs(config: Config, mesh: Mesh, flops: RunFlops, read: dict[str, float]) -> None:
    """Says what the run will read and cost, and what slows it."""
    if jax.process_index():
        return
    if meshes.crosses_hosts(mesh):
        print(
            f"slow: mesh.fsdp={config.mesh.fsdp} gathers the parameters of every layer from "
            "several hosts or TPU slices; one that divides the devices of each would not"
        )
    times = ", ".join(f"{kind} {number:,.2f}" for kind, number in read.items())
    print(f"passes over the rows: {times}")
    print(f"operations of the run: {flops.until(config.train.steps)}\n", flush=True)


def _tell(latest: reading.Checkpoint, config: Config, finished: bool) -> None:
    """Says what of the config is no longer what it was, and whether that has an effect."""
    if jax.process_index():
        return
    if finished:
        print(f"{latest.folder} is the last of a finished run: nothing is left to do")
    for change in differences.changes(latest, config):
        print(f"no effect: {change}" if finished else f"resuming: {change}", flush=True)


def _check_finite(
    config: Config, batches: Batches, workdir: AnyPath, step: int, skipped_in_a_row: jax.Array
) -> None:
    """Stops the run, and writes down the rows, once too many steps in a row were not finite."""
    if int(skipped_in_a_row) <= config.train.max_skipped_steps:
        return
    rows = {
        name: batches.draw(name, step, np.arange(shape[0]))
        for name, shape in batches.shapes(step).items()
    }
    path = workdir / f"not_finite_{step}.json"
    if jax.process_index() == 0:
        atomic.write(path, (json.dumps({"step": step, "rows": rows}) + "\n").encode())
    raise ConfigError(
        f"{skipped_in_a_row} steps in a row, up to step {step}, had a loss or gradient that is not "
        f"finite (train.max_skipped_steps={config.train.max_skipped_steps}); the rows of "
        f"that step are in {path}. A lower optimizer.learning_rate or optimizer.clip_norm may help"
    )
