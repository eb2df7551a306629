"""Runs one after another on this machine."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.io import atomic
from xlj.sweeping import state
from xlj.sweeping.definition import Run


def run_all(chosen: Sequence[Run], left: Sequence[Run], configs: dict[str, Any]) -> int:
    """Runs what is left, one after another; returns how many failed."""
    width, failed, asked = max(len(run.name) for run in chosen), 0, list[int]()
    with tqdm(total=len(chosen), unit="run", dynamic_ncols=True) as bar:
        for run in chosen:
            bar.set_description(run.name)
            outcome, seconds, said = "finished before", "", ""
            if run in left:
                state.begin(run, configs[run.name])
                start = time.monotonic()
                code = _call(run, asked)
                seconds = f"{time.monotonic() - start:.0f} s"
                if code and not asked:
                    failed += 1
                    outcome, said = "failed", _complaint(run, code)
                else:
                    is_finished = state.is_finished(run, configs[run.name])
                    outcome = "finished" if is_finished else "stopped"
            try:
                said = said or state.measures(run.workdir)
            except ConfigError as error:  # a damaged file of this run is no matter of the others
                said = str(error)
            bar.write(f"{run.name:{width}}  {outcome:15} {seconds:>8}  {said}".rstrip())
            bar.update()
            if asked:
                bar.write("stopped; the same command goes on from there")
                break
    return failed


def _call(run: Run, asked: list[int]) -> int:
    """Calls the command, its output going to the end of the log; returns its exit code.

    A SIGTERM goes on to it, so that it saves and ends; that is noted in `asked`.
    """
    child: subprocess.Popen | None = None

    def stop(number: int, _: Any) -> None:
        asked.append(number)
        if child:
            child.terminate()

    quiet = {"TQDM_MININTERVAL": "60", "PYTHONUNBUFFERED": "1"}  # bars: a line a minute
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with atomic.mendable(run.workdir / state.LOG):
            file = (run.workdir / state.LOG).open("ab", buffering=0)
        with file as log:
            with atomic.mendable(run.workdir / state.LOG):
                log.write(f"\n$ {shlex.join(run.command())}\n".encode())
            command = run.command(sys.executable)
            child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **quiet})
            if asked:  # while it was being started
                child.terminate()
            return child.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        if child and child.poll() is None:  # Ctrl-C
            child.terminate()
            child.wait()


def _complaint(run: Run, code: int) -> str:
    how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    log = run.workdir / state.LOG
    last = (log.read_text("utf-8", "replace").strip().splitlines() or [""])[-1]
    return f"{how}, {log}: {last.rpartition(chr(13))[2][:300]}"
