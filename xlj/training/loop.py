"""The train loop, read from top to bottom: rows, mesh, state, steps, evaluation, checkpoints."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from xlj.config import Config, record
from xlj.data.rows.batches import Batches
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic
from xlj.objectives import build, build_all
from xlj.training import (
    checkpoints,
    differences,
    initialisation,
    metrics,
    optimizer,
    partitioning,
)
from xlj.training import state as states
from xlj.training.evaluation import Evaluation
from xlj.training.preemption import Interrupted, Preemption
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import RunFlops
from xlj.training.state import State
from xlj.training.step import make_train_step
from xlj.training.throughput import Throughput

Probe = Callable[[State, Callable[..., Any]], Mapping[str, float]]
"""A measure of a state, as metrics `eval/NAME/LANGUAGE/MEASURE`; it leaves the state as it is, and
calls its second argument from batch to batch, which raises `Interrupted` if the run is to stop."""

_IN_FLIGHT = 2  # steps that the host may be ahead of the devices


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    step: int
    finished: bool
    """False if it was asked to stop (SIGTERM) before the last step."""
    workdir: Path
    checkpoint: Path


def train(
    config: Config,
    workdir: Path,
    store: RowStore,
    probes: Sequence[Probe] = (),
    best: str = "",
) -> Outcome:
    """Trains from finished rows, from the workdir's latest checkpoint if there is one.

    Args:
      config: as `xlj.config.checks.parse` returned it.
      workdir: where checkpoints and metrics are kept.
      store: the rows of `config.data`.
      probes: measured wherever held-out rows are, every `train.eval_every` steps.
      best: name of a metric; of the checkpoints after an evaluation, that where it is highest
        stays. Empty for none.

    Raises:
      ConfigError: before any work, if mesh, rows, vocabulary or checkpoint do not fit the config.
      FloatingPointError: if more than `train.max_skipped_steps` steps in a row were not finite.
    """
    main_process = jax.process_index() == 0
    mesh = partitioning.make_mesh(config)
    partitioning.check_batches(config, mesh)
    vocabulary = Vocabulary.load(store.vocabulary_file)
    batches = Batches(store, config)
    objectives = build_all(config, batches.corpus)
    sharding = states.sharding(config, batches.corpus, mesh)
    initialisation.check_resumable(config, workdir)
    latest = checkpoints.find(workdir) if checkpoints.steps(workdir) else None
    state = initialisation.first_state(config, workdir, store, sharding, mesh)
    start = int(state.progress.step)
    # What was to be said of the step before is due, if the run was stopped while measuring it.
    unsaid = latest is None or not latest.meta["measured"]
    if latest is not None:
        finished = start == config.train.steps and (
            not unsaid or any(line["step"] == start for line in metrics.read(workdir))
        )
        if main_process:
            _tell(latest, config, finished)
        if finished:
            return Outcome(start, True, workdir, latest.folder)
    pre_decay = initialisation.pre_decay_steps(config, workdir)
    unscored = initialisation.unmeasured_steps(workdir) if best else ()
    rate = optimizer.learning_rate(config)
    flops = RunFlops(config, batches.corpus, batches.shapes)
    steps = _compiled_steps(config, batches.corpus, mesh, sharding)
    restart_sums = jax.jit(states.restart_sums, out_shardings=sharding.progress)
    evaluations: list[Probe] = [Evaluation(store, config, objectives, mesh), *probes]

    with atomic.mendable(workdir / "config.json"):
        workdir.mkdir(parents=True, exist_ok=True)
        if main_process:
            text = json.dumps(record(config), indent=1) + "\n"
            atomic.write(workdir / "config.json", text.encode())
    with contextlib.ExitStack() as stack:

        def until_the_end(resource: Any) -> Any:
            return stack.enter_context(_closing(resource))

        preemption = until_the_end(Preemption())
        writer = until_the_end(
            metrics.Metrics(workdir, start - 1 if unsaid else start, write=main_process)
        )
        checkpointer = until_the_end(
            checkpoints.Checkpointer(
                workdir, config.train.keep_checkpoints, (*pre_decay, *unscored), bool(best)
            )
        )
        bar = until_the_end(
            tqdm(
                total=config.train.steps,
                initial=start,
                unit="step",
                dynamic_ncols=True,
                disable=not main_process,
            )
        )
        prefetch = until_the_end(Prefetch(batches, mesh, start, config.train.steps))
        clock = Throughput(flops, prefetch)

        def say(before: State, done: int) -> tuple[State, dict[str, float], bool]:
            """Writes the line of metrics that is due after `done` steps, if one is. Returns the
            state with its sums begun anew, the line, and whether that was all; if the run is to
            stop meanwhile, nothing is written, and the state is as it was."""
            state, line = before, dict[str, float]()
            last = done == config.train.steps
            if done and (done % config.train.log_every == 0 or last):
                line = _training_line(state, float(rate(done - 1)), clock)
                state = dataclasses.replace(state, progress=restart_sums(state.progress))
                bar.set_postfix_str(_shown(line))
            if done % config.train.eval_every == 0 or last:
                try:
                    with clock.paused():
                        for measure in evaluations:
                            line |= measure(state, preemption.check)
                except Interrupted:
                    return before, {}, False
            if line:
                writer.log(done, line | {"flops": flops.until(done).xlj})
            return state, line, True

        def save(state: State, line: Mapping[str, float], said: bool) -> None:
            with clock.paused():
                score = line.get(best)
                checkpointer.save(state, config, store.manifest, vocabulary, score, said)

        done, said = start, True
        if unsaid:
            state, line, said = say(state, done)
            if not said:
                save(state, line, said)
        in_flight: collections.deque[tuple[int, jax.Array]] = collections.deque()
        for batch, tokens in prefetch if said else ():
            state, skipped_in_a_row = steps[batches.phase(done)[0]](state, batch)
            clock.count(done, tokens)
            done += 1
            in_flight.append((done - 1, skipped_in_a_row))
            if len(in_flight) > _IN_FLIGHT:
                _check_finite(config, batches, workdir, *in_flight.popleft())
            bar.update()
            state, line, said = say(state, done)
            last = done == config.train.steps
            stop = not said or preemption.requested()
            if done % config.train.checkpoint_every == 0 or last or stop or done in pre_decay:
                save(state, line, said)
            if stop:
                break
        for flag in in_flight:
            _check_finite(config, batches, workdir, *flag)
    finished = said and done == config.train.steps
    return Outcome(done, finished, workdir, workdir / "checkpoints" / str(done))


@contextlib.contextmanager
def _closing(resource: Any) -> Iterator[Any]:
    """As `contextlib.closing`, but an error in closing never hides one that came before."""
    try:
        yield resource
    except BaseException:
        with contextlib.suppress(Exception):
            resource.close()
        raise
    resource.close()


def _tell(latest: checkpoints.Checkpoint, config: Config, finished: bool) -> None:
    """Says what of the config is no longer what it was, and whether that has an effect."""
    if finished:
        print(f"{latest.folder} is the last of a finished run: nothing is left to do")
    for change in differences.changes(latest, config):
        print(f"no effect: {change}" if finished else f"resuming: {change}", flush=True)


def _compiled_steps(config: Config, corpus: Corpus, mesh: Any, sharding: State) -> list[Any]:
    """The jitted step of each phase; a phase that changes alpha alone shares that before it."""
    steps: list[Any] = []
    before: Config | None = None
    for start, phase in config.schedule:
        if before is not None and phase.objectives == before.objectives:
            steps.append(steps[-1])
            continue
        already = before.objectives.active() if before is not None else {}
        active = phase.objectives.active()
        begins = {name: start for name in active if name not in already}
        step = make_train_step(phase, build(active, config.model, corpus), mesh, begins)

        def with_flag(state: State, batch: Any, step: Any = step) -> tuple[State, jax.Array]:
            state = step(state, batch)
            return state, state.progress.skipped_in_a_row

        steps.append(jax.jit(with_flag, donate_argnums=0, out_shardings=(sharding, None)))
        before = phase
    return steps


def _training_line(state: State, learning_rate: float, clock: Throughput) -> dict[str, float]:
    progress = jax.device_get(state.progress)
    count = max(int(progress.steps_since_log), 1)
    line = {"train/loss": float(progress.loss / count)}
    for name, sums in progress.losses.items():
        if sums.count:
            line[f"train/{name}/loss"] = float(sums.sum / sums.count)
            line[f"train/{name}/accuracy"] = float(sums.correct / sums.count)
    line |= {
        "learning_rate": learning_rate,
        "gradient_norm": float(progress.gradient_norm / count),
        "skipped_steps": int(progress.skipped),
    }
    return line | clock.measures()


def _shown(line: dict[str, float]) -> str:
    losses = [
        f"{name.split('/')[1]} {value:.3f}"
        for name, value in line.items()
        if name.count("/") == 2 and name.startswith("train/") and name.endswith("/loss")
    ]
    return " ".join([*losses, f"{line['time/tokens_per_second']:.0f} tokens/s"])


def _check_finite(
    config: Config, batches: Batches, workdir: Path, step: int, skipped_in_a_row: jax.Array
) -> None:
    """Stops the run, and writes down the rows, once too many steps in a row were not finite."""
    if int(skipped_in_a_row) <= config.train.max_skipped_steps:
        return
    rows = {
        name: batches.draw(name, step, np.arange(shape[0]))
        for name, shape in batches.shapes(step).items()
    }
    path = workdir / f"not_finite_{step}.json"
    atomic.write(path, (json.dumps({"step": step, "rows": rows}) + "\n").encode())
    raise FloatingPointError(
        f"{skipped_in_a_row} steps in a row, up to step {step}, had a loss or gradient that is not "
        f"finite (train.max_skipped_steps={config.train.max_skipped_steps}); the rows of "
        f"that step are in {path}. A lower optimizer.learning_rate or optimizer.clip_norm may help"
    )
