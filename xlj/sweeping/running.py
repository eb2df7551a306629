"""Runs one after another on this machine, or handed to a cluster by a program."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.io import atomic
from xlj.io.exit_codes import CONTINUE
from xlj.io.json_file import Record
from xlj.sweeping import state
from xlj.sweeping.definition import Run


def run_all(chosen: Sequence[Run], left: Sequence[Run], configs: Mapping[str, Record]) -> int:
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
                if code not in (0, CONTINUE) and not asked:
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

    def stop(number: int, _: FrameType | None) -> None:
        asked.append(number)
        if child:
            child.terminate()

    quiet = {"TQDM_MININTERVAL": "60", "PYTHONUNBUFFERED": "1"}  # bars: a line a minute
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with atomic.as_config_error(run.workdir / state.LOG):
            file = (run.workdir / state.LOG).open("ab", buffering=0)
        with file as log:
            with atomic.as_config_error(run.workdir / state.LOG):
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


def check_template(template: str) -> None:
    """Raises ConfigError on a template that names no program, or has no place for a run."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"--submit={template}: {error}") from None
    if not any(place in word for word in words for place in ("{command}", "{arguments}")):
        raise ConfigError(f"--submit={template} has neither {{command}} nor {{arguments}} in it")
    if "{" not in words[0] and not shutil.which(words[0]):
        raise ConfigError(f"--submit={template}: there is no program {words[0]}")


def submit(run: Run, config: Record, template: str) -> bool:
    """Calls the template for a run; says what it answered, and whether it went well."""
    state.begin(run, config)
    done = subprocess.run(_submission(run, template), capture_output=True, text=True)
    outcome = f"failed, exit code {done.returncode}" if done.returncode else "submitted"
    print(f"{run.name}: {outcome}", (done.stdout + done.stderr).strip(), flush=True)
    return not done.returncode


def _submission(run: Run, template: str) -> list[str]:
    """The words of a template with a run in it; what stands alone becomes several words."""
    inside = {"{command}": run.command(), "{arguments}": run.arguments, "{name}": [run.name]}

    def quoted(place: re.Match[str]) -> str:  # in a word such as --wrap={command}
        return shlex.join(inside[place[0]])

    words: list[str] = []
    for word in shlex.split(template):
        words += inside.get(word) or [re.sub("|".join(map(re.escape, inside)), quoted, word)]
    return words
