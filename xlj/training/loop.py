"""The train loop: steps, metrics, checkpoints, in order of execution."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import jax
import numpy as np

from xlj.checkpoints import compatibility, metrics, reading
from xlj.config import Config, ConfigError, as_tree
from xlj.config.fields import suggestion
from xlj.data.rows.batches import Batches
from xlj.distributed import hosts
from xlj.io import json_file
from xlj.io.storage import AnyPath
from xlj.sharding import meshes
from xlj.training import memory
from xlj.training import state as states
from xlj.training.evaluation import Probe
from xlj.training.resources import Resources, RunState, metrics_due, open_run, write_metrics
from xlj.training.run_flops import Counts, RunFlops
from xlj.training.start import Start
from xlj.training.step import Batch

_IN_FLIGHT = 2  # number of steps that the host may be ahead of the devices


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of `train`."""

    step: int
    """The number of finished steps; 0 if the run stopped before it saved a checkpoint."""
    finished: bool
    """False if a signal (SIGTERM) stopped the run before the last step, or before the evaluation of
    the last step. `train.patience` can make a step before `train.steps` the last one."""
    workdir: AnyPath
    checkpoint: AnyPath
    """Folder of the checkpoint of `step`. It does not exist if `step` is 0."""
    operations: Counts
    """Floating-point operations of all finished steps, including steps of earlier calls."""

    @property
    def metrics(self) -> list[metrics.Line]:
        """All lines of metrics in the workdir, each with its `step`."""
        return metrics.read(self.workdir)


def train(start: Start, probes: Sequence[Probe] = ()) -> Outcome:
    """Trains from the latest checkpoint, if any, to the last step or until a stop is requested.

    Before the first step, process 0 prints the numbers of steps, tokens, passes and operations of
    the run, and a warning if `mesh.fsdp` makes it slow.

    Args:
      start: the result of `xlj.training.start.prepare`.
      probes: further evaluations. They run every `train.eval_every` steps, after the evaluation on
        held-out rows.

    Raises:
      ConfigError: before the first step, if a checkpoint or model is damaged, or if its tensors do
        not fit the run. After the first evaluation, if it has no metric `train.best_metric`. Later,
        if loss or gradient were not finite in more than `train.max_skipped_steps` steps in a row.
        At any time, if a device runs out of memory or a file cannot be written.
      KeyboardInterrupt: after Ctrl-C. After the first Ctrl-C, the run finishes the step and saves
        it. A second Ctrl-C stops the run without saving. The message names the step from which the
        run will resume.
    """
    config, latest, best = start.config, start.latest, start.config.train.best_metric
    last_step, scores = partial(metrics.last_step, as_tree(config)), _read_scores(start)
    batches = Batches(start.store, config)
    flops = RunFlops(config, batches)

    def outcome(done: int, finished: bool) -> Outcome:
        folder = start.workdir / "checkpoints" / str(done)
        return Outcome(done, finished, start.workdir, folder, flops.until(done))

    if latest is not None:
        finished = latest.step >= last_step(scores) and _is_measured(latest, start.workdir)
        _print_changes(latest, config, finished)
        if finished:
            return outcome(latest.step, finished=True)
    _print_costs(start, flops)
    with (
        memory.explain_out_of_memory(config),
        _naming_step(start.workdir),
        open_run(start, batches, flops, probes, scores) as (run, resources),
    ):
        first = states.copy_for_evaluation(run.state) if latest is None else None
        if latest is not None and not run.is_measured:
            write_metrics(run, resources)
        goes_on = run.is_measured and run.done < last_step(run.scores)
        for batch, tokens in resources.prefetch if goes_on or first else ():
            _take_step(run, resources, batch, tokens)
            if first is not None:
                # The initial state is evaluated after the first step, so that the first step need
                # not wait for the compilation of the evaluation.
                resources.step_memory.release()
                initial = RunState(first(), 0)
                if not write_metrics(initial, resources):
                    run.done = 0  # no checkpoint exists, so the next process starts over
                    break
                _check_metric(initial.line, best)
                first = None
            logs, evaluates = metrics_due(config, run.done)
            if logs or evaluates:
                resources.step_memory.release()
            stops = not write_metrics(run, resources) or resources.preemption.requested()
            stops |= run.done >= last_step(run.scores)
            is_due = run.done % config.train.checkpoint_every == 0 or (bool(best) and evaluates)
            if stops or is_due or run.done in resources.checkpointer.keep_steps:
                _save(run, resources)
            if evaluates and run.is_measured:
                _check_metric(run.line, best)  # a resumed run may have another metric
            if stops:
                break
        for step, skipped_in_a_row in run.in_flight:
            _check_finite(resources, step, skipped_in_a_row)
    finished = run.is_measured and run.done >= last_step(run.scores)
    if finished and run.done < config.train.steps:
        _print_early_end(start)
    if resources.preemption.by_user and not finished:
        saved = f"saved step {run.done:,}; the same command resumes from it"
        raise KeyboardInterrupt(saved if run.done else "nothing was saved; the run will start over")
    return outcome(run.done, finished)


def _take_step(run: RunState, resources: Resources, batch: Batch, tokens: int) -> None:
    """Takes the next step, and checks the step that the devices have finished by now.

    Args:
      batch: the rows of each objective.
      tokens: number of tokens, without padding, in this process's rows.
    """
    schedule, seed = resources.start.schedule, np.uint32(resources.start.config.train.seed)
    planned = schedule.at(run.done)
    rates, filled = planned.rates, planned.filled
    step = resources.steps[planned.phase.start]
    if not step.is_compiled(batch):
        with resources.clock.paused(), resources.waits.on("compiling the train step", "train_step"):
            step.compile(run.state, batch, seed, rates, filled)
    resources.preemption.started()
    with resources.step_memory.retain():
        run.state, skipped_in_a_row = step(run.state, batch, seed, rates, filled)
    resources.clock.count(run.done, tokens)
    run.in_flight.append((run.done, skipped_in_a_row))
    run.done += 1
    if len(run.in_flight) > _IN_FLIGHT:
        number, skipped_in_a_row = run.in_flight.popleft()
        _check_finite(resources, number, skipped_in_a_row)
    bar = resources.bar
    bar.set_description_str(f"{run.done:,}/{resources.start.config.train.steps:,}", refresh=False)
    bar.update(round(schedule.tokens(0, run.done)) - bar.n)


def _save(run: RunState, resources: Resources) -> None:
    """Starts to write a checkpoint."""
    with resources.clock.paused():
        resources.step_memory.release()
        resources.files.send(now=True)  # no checkpoint is stored before the metrics of its steps
        layer = run.line.get(metrics.LAYER_METRIC)
        resources.checkpointer.save(
            run.done,
            run.state.items(),
            measured=run.is_measured,
            tokens=resources.clock.seen(),
            layer=None if layer is None else int(layer),
        )


def _check_metric(line: Mapping[str, float], best: str) -> None:
    """Raises a `ConfigError` if the evaluation does not have the metric that selects the best
    checkpoint."""
    name, names = best.removeprefix("-"), [each for each in line if each.startswith("eval/")]
    if name and name not in names:
        raise ConfigError(
            f"train.best_metric={best}: the evaluation has no metric {name}"
            f"{suggestion(name, names)}; its metrics are {', '.join(names) or 'none'}"
        )


def _read_scores(start: Start) -> dict[int, float]:
    """Returns the scores of the steps up to the latest checkpoint; process 0 reads them."""
    best = start.config.train.best_metric
    if not best:
        return {}

    def read() -> list[tuple[int, float]]:
        lines = (line for line in metrics.read(start.workdir) if line["step"] <= start.done)
        return [*metrics.scores(lines, best).items()]

    return dict(hosts.broadcast(read))


def _is_measured(latest: reading.Checkpoint, workdir: AnyPath) -> bool:
    """Returns whether the metrics of a checkpoint's step are written; process 0 reads them.

    The previous process may have saved the step, but stopped before it wrote the metrics.
    """

    def is_in_metrics() -> bool:
        return any(line["step"] == latest.step for line in metrics.read(workdir))

    return latest.meta["measured"] or hosts.broadcast(is_in_metrics)


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


def _print_costs(start: Start, flops: RunFlops) -> None:
    """Prints the numbers of steps, tokens, passes and operations, and a warning on a slow mesh."""
    if jax.process_index():
        return
    config, schedule = start.config, start.schedule
    if meshes.crosses_hosts(start.mesh):
        print(
            f"slow: mesh.fsdp={config.mesh.fsdp} gathers the parameters of every layer across "
            "hosts or TPU slices; choose a value that divides the number of devices of each host "
            "or slice"
        )
    print(*start.attention, sep="\n")
    steps = config.train.steps
    passes = [f"{kind} {number:,.2f}" for kind, number in schedule.passes(0, steps).items()]
    print(f"steps of the run: {steps:,}, about {schedule.tokens(0, steps):,.0f} tokens")
    print(f"passes over the rows: {', '.join(passes)}")
    print(f"operations of the run: {flops.until(steps)}\n", flush=True)


def _print_early_end(start: Start) -> None:
    """Prints why a run ended before `train.steps`, and the best checkpoint."""
    if jax.process_index() == 0:
        train = start.config.train
        print(
            f"{train.best_metric} has not improved in {train.patience} evaluations "
            f"(train.patience), so the run ends before train.steps={train.steps}; the best "
            f"checkpoint is {reading.best(start.workdir).folder}",
            flush=True,
        )


def _print_changes(latest: reading.Checkpoint, config: Config, finished: bool) -> None:
    """Prints which config keys have changed since the checkpoint.

    In a finished run, changes have no effect. The lines then begin with "no effect".
    """
    if jax.process_index():
        return
    if finished:
        keys = "train.patience"
        if latest.step == config.train.steps:
            keys = "train.steps" + (" and train.patience" if config.train.patience else "")
        print(
            f"{latest.folder}: this run is finished (step {latest.step}); raise {keys} to "
            "continue it"
        )
    for change in compatibility.changes(latest, config):
        print(f"no effect: {change}" if finished else f"resuming: {change}", flush=True)


def _check_finite(resources: Resources, step: int, skipped_in_a_row: jax.Array) -> None:
    """Stops the run if too many steps in a row had a loss or gradient that was not finite.

    Before it raises the error, it writes which rows the step has read to `not_finite_STEP.json`.

    Args:
      step: zero-based.
      skipped_in_a_row: number of consecutive steps, up to this one, that were not finite, int32 [].

    Raises:
      ConfigError: if there are more than `train.max_skipped_steps` such steps.
    """
    limit, batches = resources.start.config.train.max_skipped_steps, resources.batches
    if int(skipped_in_a_row) <= limit:
        return
    rows = {
        name: batches.draw(name, step, np.arange(shape[0]))
        for name, shape in batches.shapes(step).items()
    }
    path = resources.start.workdir / f"not_finite_{step}.json"
    if jax.process_index() == 0:
        json_file.write(path, {"step": step, "rows": rows}, indent=None)
    raise ConfigError(
        f"the loss or gradient was not finite in {skipped_in_a_row} steps in a row, up to step "
        f"{step} (train.max_skipped_steps={limit}). {path} lists the rows "
        f"of step {step}. Try a lower optimizer.learning_rate or optimizer.clip_norm"
    )
