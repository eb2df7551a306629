"""Metrics of a run: lines of `WORKDIR/metrics.jsonl`, and TensorBoard events beside them.

All values are pure functions of the run, except keys under `time/`.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlj.config import ConfigError
from xlj.config.user_code import function_of
from xlj.io import atomic, json_file
from xlj.io.atomic import as_config_error
from xlj.io.growing import GrowingFiles
from xlj.io.storage import AnyPath

FILE = "metrics.jsonl"
SCHEDULE = "schedule.json"
"""The schedule of a run (`training/schedule.py`): a list of lines like those of metrics, under
`lines`."""


class Metrics:
    """Appends metrics, each step once: lines after the step that a run resumes from are removed.

    Args:
      files: of the workdir. In a bucket, lines are visible once they are sent.
      step: the step that the run resumes from.
      write: True in one process of a run, False in all others.
      hook: `module:function`, called with (step, values) after each line is written. Errors in it
        are printed, and the run continues.

    Raises:
      ConfigError: here and in all methods, if writing fails, for example on a full disk.
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
        self._events = _Events(files.here / "tensorboard", step + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line, which is safely on disk when this returns."""
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

    tensorboardX's `SummaryWriter` has a thread of its own. If an error ends that thread, the run
    hangs.

    Args:
      purge_step: TensorBoard hides earlier events from this step on.
    """

    def __init__(self, folder: Path, purge_step: int):
        from tensorboardX import event_file_writer, summary
        from tensorboardX.proto import event_pb2

        self._event, self._scalar, self._folder = event_pb2.Event, summary.scalar, folder
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        with as_config_error(folder):
            folder.mkdir(exist_ok=True)
            self._writer = event_file_writer.EventsWriter(str(folder / "events"))
            self._write(step=purge_step, session_log=start)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        with as_config_error(self._folder):
            for name, value in values.items():
                self._write(step=step, summary=self._scalar(name, value))
            self._writer.flush()

    def close(self) -> None:
        with as_config_error(self._folder):
            self._writer.close()

    def _write(self, **fields: Any) -> None:
        self._writer.write_event(self._event(wall_time=time.time(), **fields))


Line = dict[str, Any]
"""A line of metrics: `step`, and numbers by name."""


def read(workdir: AnyPath, damaged: list[str] | None = None) -> list[Line]:
    """Reads all lines of a run's metrics, in order.

    A last line that was cut short is left out.

    Args:
      damaged: a list to which faults are appended; damaged lines are then left out.

    Raises:
      ConfigError: without `damaged`, if the file cannot be read or a line holds no metrics.
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
            raise ConfigError(f"{path}:{number} is not a line of metrics")
        else:
            damaged.append(f"{path.name}:{number} is not a line of metrics")
    return parsed
