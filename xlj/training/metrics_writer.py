"""Measures the state of a run, and writes the metrics, after the steps at which they are due."""

import dataclasses

import jax

from xlj.config import Config
from xlj.distributed.preemption import Interrupted
from xlj.training.resources import Resources, RunState


def due(config: Config, done: int) -> tuple[bool, bool]:
    """Returns whether metrics of training, and of evaluations, are due after `done` steps."""
    is_last = done == config.train.steps
    logs = done > 0 and (done % config.train.log_every == 0 or is_last)
    return logs, done % config.train.eval_every == 0 or is_last


def write(run: RunState, resources: Resources) -> bool:
    """Writes the line that is due after `run.done` steps, if any.

    If metrics of training are due, their sums in `run.state` become zero. If a stop is requested
    during an evaluation, nothing is written, and the state stays as it is.

    Returns:
      `run.is_measured`: False if a stop was requested during an evaluation.
    """
    state, done, line = run.state, run.done, dict[str, float]()
    run.line, run.is_measured = {}, False
    logs, evaluates = due(resources.start.config, done)
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
    return f"about {seconds:,.0f} seconds"
