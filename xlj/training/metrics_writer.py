"""Writes the metrics of training and evaluations, after the steps at which they are due."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import jax
from tqdm import tqdm

from xlj.config import Config, Model
from xlj.distributed.host_speeds import HostSpeeds
from xlj.distributed.preemption import Interrupted, Preemption
from xlj.training.metrics import Metrics
from xlj.training.run_flops import RunFlops
from xlj.training.schedule import Schedule
from xlj.training.state import Progress, State
from xlj.training.throughput import Throughput
from xlj.training.waits import Waits


class Check(Protocol):
    """A function that an evaluation calls between batches.

    To stop the evaluation, the function raises an exception.

    Args:
      done: number of rows that the evaluation has finished.
    """

    def __call__(self, done: int = 0, /) -> object: ...


Probe = Callable[[State, Check], Mapping[str, float]]
"""A function (state, check) -> metrics `eval/NAME/LANGUAGE/MEASURE`, by name. It calls `check`
between batches. `check` raises `Interrupted` if the run should stop."""


def by_phase(config: Config, make: Callable[[Model], Probe]) -> Probe:
    """Returns a probe that uses the model options of the phase in which a state was trained last.

    Args:
      make: (model options of a phase) -> a probe that uses these options.
    """
    models = dict.fromkeys(phase.config.model for phase in config.schedule)
    probes = {model: make(model) for model in models}

    def measure(state: State, check: Check = bool) -> Mapping[str, float]:
        last = max(0, int(state.progress.step) - 1) if len(probes) > 1 else 0
        return probes[config.phase_at(last).config.model](state, check)

    return measure


class Written(NamedTuple):
    """Result of `MetricsWriter.write`."""

    state: State
    """The state. If metrics of training were due, its sums are zero."""
    line: dict[str, float]
    """The metrics; empty if none were due."""
    is_measured: bool
    """False if a stop was requested during an evaluation. Then nothing is written."""


@dataclasses.dataclass(frozen=True)
class MetricsWriter:
    """Measures states, and writes a line of metrics after each step where one is due."""

    schedule: Schedule
    evaluations: Sequence[Probe]
    flops: RunFlops
    metrics: Metrics
    clock: Throughput
    speeds: HostSpeeds
    preemption: Preemption
    waits: Waits
    bar: tqdm
    restart_sums: Callable[[Progress], Progress]
    begun: int
    """Number of finished steps when this process started."""

    def due(self, done: int) -> tuple[bool, bool]:
        """Returns whether metrics of training, and of evaluations, are due after `done` steps."""
        train = self.schedule.config.train
        is_last = done == train.steps
        logs = done > 0 and (done % train.log_every == 0 or is_last)
        return logs, done % train.eval_every == 0 or is_last

    def write(self, before: State, done: int) -> Written:
        """Writes the line that is due after `done` steps, if any.

        Args:
          before: the state after `done` steps, before its sums are set to zero.
          done: number of finished steps.
        """
        state, line = before, dict[str, float]()
        logs, evaluates = self.due(done)
        if logs:
            line = self._training_metrics(state.progress, done)
            state = dataclasses.replace(state, progress=self.restart_sums(state.progress))
        if evaluates:
            try:
                with self.clock.paused(), self.waits.on("evaluating held-out rows", "evaluations"):
                    for measure in self.evaluations:
                        line |= measure(state, self.preemption.check)
            except Interrupted:
                return Written(before, {}, False)
        if line:
            of_run = {"flops": self.flops.until(done).xlj} | self.waits.measures()
            self.metrics.log(done, line | of_run)
        return Written(state, line, True)

    def _print_time_left(self, done: int, speed: float) -> None:
        """Prints how long the rest of the run takes.

        Args:
          done: number of finished steps.
          speed: tokens per second.
        """
        tokens_left = self.schedule.tokens(done, self.schedule.config.train.steps)
        if tokens_left and speed and jax.process_index() == 0:
            time = _in_words(tokens_left / speed)
            self.bar.write(
                f"{time} left: {tokens_left:,.0f} tokens, at {speed:,.0f} tokens per second"
            )

    def _training_metrics(self, progress: Progress, done: int) -> dict[str, float]:
        """Returns the metrics of training, and shows loss and speed on the progress bar."""
        progress = jax.device_get(progress)
        count = max(int(progress.steps_since_log), 1)
        line = {"train/loss": float(progress.loss / count)}
        for name, sums in progress.losses.items():
            if sums.count:
                line[f"train/{name}/loss"] = float(sums.sum / sums.count)
                line[f"train/{name}/accuracy"] = float(sums.correct / sums.count)
        line["learning_rate"] = float(self.schedule.learning_rate(done - 1))
        line["gradient_norm"] = float(progress.gradient_norm / count)
        line["skipped_steps"] = int(progress.skipped)
        line |= self.clock.measures()
        of_hosts, slow = self.speeds.measures(done, line["time/waiting_share"])
        line |= of_hosts
        # At the first line of metrics of this process:
        log_every = self.schedule.config.train.log_every
        if (done - 1) // log_every * log_every <= self.begun:
            self._print_time_left(done, line["time/tokens_per_second"])
        shown = [
            f"loss {line['train/loss']:.3f}",
            f"{line['time/tokens_per_second']:,.0f} tok/s",
        ]
        shown += [slow] if slow else []
        self.bar.set_postfix_str(", ".join(shown))
        return line


def _in_words(seconds: float) -> str:
    """Formats a duration in days, hours, minutes or seconds: the largest unit with at least two."""
    for name, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:,.1f} {name}"
    return f"about {seconds:,.0f} seconds"
