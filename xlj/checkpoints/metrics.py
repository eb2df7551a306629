"""Metrics of a run: lines of `WORKDIR/metrics.jsonl`, and TensorBoard events in `tensorboard/`.

Repeating a run gives the same values, except for keys under `time/`. The scores in these lines
select the best checkpoint, and end a run (`train.patience`). They do not depend on interruptions: a
run repeats an interrupted evaluation when it resumes.
"""

import json
import math
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from xlj.config import ConfigError
from xlj.config.fields import ConfigTree
from xlj.config.user_code import function_of
from xlj.io import atomic, json_file
from xlj.io.atomic import GrowingFiles, as_config_error
from xlj.io.storage import AnyPath

FILE = "metrics.jsonl"
"""A file in the workdir: one JSON object per line, with `step` and numbers by name."""
SCHEDULE = "schedule.json"
"""A file in the workdir with the schedule of the run (`training/schedule.py`): a JSON object
whose key `lines` has a list of objects with `step` and numbers by name."""
LAYER_METRIC = "eval/word_alignment/layer"
"""The metric whose value checkpoints store as the layer for word alignment."""


class Metrics:
    """Appends lines of metrics to the files of a run.

    The constructor removes the lines of steps after `step`, so that each step has one line.

    Args:
      files: of the workdir. If the workdir is in a bucket, lines are uploaded about once a minute.
      step: the last step whose line stays.
      write: True in one process of a run, False in all others.
      hook: `module:function`, called with (step, values) after each line is written; empty for no
        hook. Errors of the function are printed, and the run continues.

    Raises:
      ConfigError: in the constructor and in all methods, if writing fails, for example on a full
        disk.
    """

    def __init__(self, files: GrowingFiles, step: int, write: bool = True, hook: str = ""):
        self._files, self._write, self._hook = files, write, hook
        if not write:
            return
        self._path = files.folder / FILE  # the path that errors show
        with as_config_error(self._path):
            local = files.path(FILE)
            if local.exists():
                earlier = [
                    json.dumps(line) + "\n" for line in read(files.folder) if line["step"] <= step
                ]
                atomic.write(local, "".join(earlier).encode())
            self._file = local.open("a", encoding="utf-8")
        self._events = _Events(files.local_folder / "tensorboard", step + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line. When the function returns, the line is on the local disk."""
        if not self._write:
            return
        with as_config_error(self._path):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._events.log(step, values)
        self._files.send()
        if self._hook:
            try:
                function_of(self._hook, "train.metrics_hook")(step, dict(values))
            except Exception as error:
                where = f"train.metrics_hook={self._hook}, step {step}"
                print(f"{where}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Closes the files."""
        if self._write:
            with as_config_error(self._path):
                self._file.close()
            self._events.close()


class _Events:
    """Writes TensorBoard events in the calling thread.

    TensorBoard's own `EventFileWriter` writes in a thread, and imports TensorFlow if it is there.

    Args:
      purge_step: TensorBoard hides events of this step and later steps that earlier processes
        wrote.
    """

    def __init__(self, folder: Path, purge_step: int):
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._folder = event_pb2.Event, summary_pb2.Summary, folder
        with as_config_error(folder):
            folder.mkdir(exist_ok=True)
            # TensorBoard reads files with "tfevents" in their names, in the order of their names.
            path = folder / f"events.out.tfevents.{time.time_ns()}"
            self._writer = RecordWriter(path.open("xb"))
            self._write(file_version="brain.Event:2")
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=purge_step, session_log=start)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        scalars = [self._summary.Value(tag=tag, simple_value=x) for tag, x in values.items()]
        with as_config_error(self._folder):
            self._write(step=step, summary=self._summary(value=scalars))
            self._writer.flush()

    def close(self) -> None:
        with as_config_error(self._folder):
            self._writer.close()

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **fields).SerializeToString())


Line = dict[str, Any]
"""A line of metrics: `step`, and numbers by name."""


def read(workdir: AnyPath, damaged: list[str] | None = None) -> list[Line]:
    """Reads all lines of a run's metrics, in order.

    The result is empty if the file does not exist. An incomplete last line is omitted.

    Args:
      damaged: a list to which the function appends descriptions of damaged lines, which it then
        omits; None to raise an error instead.

    Raises:
      ConfigError: without `damaged`, if the file cannot be read or a line is damaged.
    """
    path = workdir / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        if damaged is None:
            raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
        damaged.append(f"{path.name} cannot be read: {error.strerror or error}")
        return []
    lines, parsed = content.splitlines(), []
    for number, line in enumerate(lines, 1):
        try:
            record = json_file.parse(line, f"{path}:{number}", not_finite=True)
        except ConfigError:
            if number == len(lines) and not content.endswith(b"\n"):
                continue
            record = None
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            parsed.append(record)
        elif damaged is None:
            raise ConfigError(f"{path}:{number} is not a line of metrics; delete this line")
        else:
            damaged.append(f"{path.name}:{number} is not a line of metrics")
    return parsed


def scores(lines: Iterable[Line], metric: str) -> dict[int, float]:
    """Returns the score of each evaluated step, by step. Higher scores are better.

    Step 0 has no score, because it has no checkpoint. The score of a value that is not finite is
    minus infinity.

    Args:
      lines: the lines of metrics.
      metric: the value of `train.best_metric`: the name of a metric; with a minus before the name,
        the score is the negative value. No step has a score if it is empty.
    """
    name, sign = metric.removeprefix("-"), -1 if metric.startswith("-") else 1
    values = {
        line["step"]: line[name]
        for line in lines
        if line["step"] and isinstance(line.get(name), int | float)
    }
    return {
        step: float(sign * value) if math.isfinite(value) else -math.inf
        for step, value in values.items()
    }


def rank(by_step: Mapping[int, float], steps: Collection[int]) -> list[int]:
    """Returns the steps that have a score, the best first; of equal scores, the latest first.

    Args:
      by_step: the result of `scores`.
    """
    return sorted({*steps} & by_step.keys(), key=lambda n: (by_step[n], n), reverse=True)


def last_step(config: ConfigTree, by_step: Mapping[int, float]) -> int:
    """Returns the step after which a run ends.

    It is `train.steps`, or the evaluation at which the scores have not risen in `train.patience`
    evaluations. Only evaluations in the last of `phases` count.

    Args:
      config: the config of the run as nested dicts, with all durations in steps.
      by_step: the result of `scores`.
    """
    patience = config["train"].get("patience", 0)
    phases = config.get("phases", {}).values()
    begin = max((phase["start_step"] for phase in phases), default=0)
    best, worse = -math.inf, 0
    for step in sorted(by_step) if patience else ():
        if step > begin:
            worse = 0 if by_step[step] > best else worse + 1
            best = max(best, by_step[step])
            if worse == patience:
                return step
    steps: int = config["train"]["steps"]
    return steps
