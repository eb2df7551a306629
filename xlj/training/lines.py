"""The line of metrics that is due after a step: of training, and of evaluations."""

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


class Check(Protocol):
    """Is called from batch to batch, also with a number of rows that are done; it may raise, to
    stop."""

    def __call__(self, done: int = 0, /) -> object: ...


Probe = Callable[[State, Check], Mapping[str, float]]
"""A measure of a state, as metrics `eval/NAME/LANGUAGE/MEASURE`; it leaves the state as it is, and
calls its second argument from batch to batch, which raises `Interrupted` if the run is to stop."""


@dataclasses.dataclass(frozen=True)
class Lines:
    """Measures a state and writes what is due of it."""

    config: Config
    evaluations: Sequence[Probe]
    flops: RunFlops
    writer: Metrics
    clock: Throughput
    speeds: HostSpeeds
    preemption: Preemption
    bar: tqdm
    restart_sums: Callable[[Progress], Progress]

    def due(self, done: int) -> tuple[bool, bool]:
        """Whether training and evaluations are to be told after `done` steps."""
        train = self.config.train
        last = done == train.steps
        logs = done > 0 and (done % train.log_every == 0 or last)
        return logs, done % train.eval_every == 0 or last

    def write(self, before: State, done: int) -> tuple[State, dict[str, float], bool]:
        """Writes the line that is due after `done` steps, if one is. Returns the state with its
        sums begun anew, the line, and whether that was all; if the run is to stop meanwhile,
        nothing is written, and the state is as it was."""
        state, line = before, dict[str, float]()
        logs, measures = self.due(done)
        if logs:
            line = self._of_training(state.progress, done)
            state = dataclasses.replace(state, progress=self.restart_sums(state.progress))
        if measures:
            try:
                with self.clock.paused():
                    for measure in self.evaluations:
                        line |= measure(state, self.preemption.check)
            except Interrupted:
                return before, {}, False
        if line:
            self.writer.log(done, line | {"flops": self.flops.until(done).xlj})
        return state, line, True

    def _of_training(self, progress: Progress, done: int) -> dict[str, float]:
        progress = jax.device_get(progress)
        count = max(int(progress.steps_since_log), 1)
        line = {"train/loss": float(progress.loss / count)}
        shown = []
        for name, sums in progress.losses.items():
            if sums.count:
                line[f"train/{name}/loss"] = float(sums.sum / sums.count)
                line[f"train/{name}/accuracy"] = float(sums.correct / sums.count)
                shown.append(f"{name} {line[f'train/{name}/loss']:.3f}")
        line["learning_rate"] = float(learning_rate(self.config)(done - 1))
        line["gradient_norm"] = float(progress.gradient_norm / count)
        line["skipped_steps"] = int(progress.skipped)
        line |= self.clock.measures()
        of_hosts, slow = self.speeds.measures(done, line["time/waiting_share"])
        line |= of_hosts
        shown.append(f"{line['time/tokens_per_second']:.0f} tokens/s")
        shown += [slow] if slow else []
        self.bar.set_postfix_str(" ".join(shown))
        return line
