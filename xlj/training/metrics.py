"""Metrics of a run: lines of `WORKDIR/metrics.jsonl`, and TensorBoard events beside them.

Everything is a pure function of the run except keys under `time/`.
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
"""What a run does at which step (`training/schedule.py`): lines as of metrics, under `lines`."""


class Metrics:
    """Appends metrics, each step once: lines after the step that a run resumes from are cut off.

    Args:
      files: of the workdir. In a bucket, lines are there once they are sent.
      step: the step the run goes on from.
      write: False in all processes of a run but one.
      hook: `module:function`, called with (step, values) for each line, behind the files; an error
        in it is printed, and the run goes on.

    Raises:
      ConfigError: here and in all methods, if nothing can be written: the disk is full, say.
    """

    def __init__(self, files: GrowingFiles, step: int, write: bool = True, hook: str = ""):
        self._files, self._write, self._hook = files, write, hook
        if not write:
            return
        self._path = files.folder / FILE  # as people know it
        with as_config_error(self._path):
            here = files.path(FILE)
            if here.exists():
                kept = [
                    json.dumps(line) + "\n" for line in read(files.folder) if line["step"] <= step
                ]
                atomic.write(here, "".join(kept).encode())
            self._file = here.open("a", encoding="utf-8")
        self._events = _Events(files.here / "tensorboard", step + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line, safely on disk when this returns."""
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
    """TensorBoard's events, written when they are logged. tensorboardX's own `SummaryWriter` has a
    thread for it; once that has died of an error, the run waits for ever.

    Args:
      purge_step: TensorBoard hides events from here on that were written before.
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
"""A line of metrics: its `step`, and numbers by name."""


def read(workdir: AnyPath, damaged: list[str] | None = None) -> list[Line]:
    """All lines of a run's metrics, in order.

    Args:
      damaged: gets the faults of the file and of its lines, which are left out then.

    Raises:
      ConfigError: if the file cannot be read, or on a line that holds no metrics, other than a last
        one that was cut short; without `damaged`.
    """
    path = workdir / FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        if damaged is None:
            raise ConfigError(f"{path}: cannot read it ({error.strerror or error})") from None
        damaged.append(f"{path.name} cannot be read: {error.strerror or error}")
        return []
    lines, parsed = content.splitlines(), []
    for number, line in enumerate(lines, 1):
        try:
            found = json_file.parse(line, f"{path}:{number}", not_finite=True)
        except ConfigError:
            if number == len(lines) and not content.endswith(b"\n"):
                continue
            found = None
        if isinstance(found, dict) and isinstance(found.get("step"), int):
            parsed.append(found)
        elif damaged is None:
            raise ConfigError(f"{path}:{number} is not a line of metrics")
        else:
            damaged.append(f"{path.name}:{number} is not a line of metrics")
    return parsed
