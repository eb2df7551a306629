"""Writes the line of metrics that is due after a step: of training, and of evaluations."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import jax
from tqdm import tqdm

from xlj.config import Config
from xlj.distributed.host_speeds import HostSpeeds
from xlj.distributed.preemption import Interrupted, Preemption
from xlj.optimizers.schedules import learning_rate
from xlj.training.metrics import Metrics
from xlj.training.run_flops import RunFlops
from xlj.training.state import Progress, State
from xlj.training.throughput import Throughput
from xlj.training.waits import Waits


class Check(Protocol):
    """Is called between batches, also with a number of rows that are done; raises to stop."""

    def __call__(self, done: int = 0, /) -> object: ...


Probe = Callable[[State, Check], Mapping[str, float]]
"""Measures a state, as metrics `eval/NAME/LANGUAGE/MEASURE`, and does not change it. It calls its
second argument between batches, which raises `Interrupted` if the run is to stop."""


@dataclasses.dataclass(frozen=True)
class MetricsWriter:
    """Measures states, and writes a line of metrics after each step where one is due."""

    config: Config
    evaluations: Sequence[Probe]
    flops: RunFlops
    metrics: Metrics
    clock: Throughput
    speeds: HostSpeeds
    preemption: Preemption
    waits: Waits
    bar: tqdm
    restart_sums: Callable[[Progress], Progress]

    def due(self, done: int) -> tuple[bool, bool]:
        """Whether metrics of training, and of evaluations, are due after `done` steps."""
        train = self.config.train
        is_last = done == train.steps
        logs = done > 0 and (done % train.log_every == 0 or is_last)
        return logs, done % train.eval_every == 0 or is_last

    def write(self, before: State, done: int) -> tuple[State, dict[str, float], bool]:
        """Writes the line that is due after `done` steps, if one is.

        Returns:
          The state with its sums at zero, the line, and True. If the run is to stop meanwhile,
          nothing is written: the state unchanged, an empty line, and False.
        """
        state, line = before, dict[str, float]()
        logs, evaluates = self.due(done)
        if logs:
            line = self._of_training(state.progress, done)
            state = dataclasses.replace(state, progress=self.restart_sums(state.progress))
        if evaluates:
            try:
                with self.clock.paused(), self.waits.on("measuring held-out rows", "evaluations"):
                    for measure in self.evaluations:
                        line |= measure(state, self.preemption.check)
            except Interrupted:
                return before, {}, False
        if line:
            of_run = {"flops": self.flops.until(done).xlj} | self.waits.measures()
            self.metrics.log(done, line | of_run)
        return state, line, True

    def _of_training(self, progress: Progress, done: int) -> dict[str, float]:
        progress = jax.device_get(progress)
        count = max(int(progress.steps_since_log), 1)
        line = {"train/loss": float(progress.loss / count)}
        for name, sums in progress.losses.items():
            if sums.count:
                line[f"train/{name}/loss"] = float(sums.sum / sums.count)
                line[f"train/{name}/accuracy"] = float(sums.correct / sums.count)
        line["learning_rate"] = float(learning_rate(self.config, done - 1))
        line["gradient_norm"] = float(progress.gradient_norm / count)
        line["skipped_steps"] = int(progress.skipped)
        line |= self.clock.measures()
        of_hosts, slow = self.speeds.measures(done, line["time/waiting_share"])
        line |= of_hosts
        shown = [
            f"loss {line['train/loss']:.3f}",
            f"{line['time/tokens_per_second']:,.0f} tokens/s",
        ]
        shown += [slow] if slow else []
        self.bar.set_postfix_str(", ".join(shown))
        return line
