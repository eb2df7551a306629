"""Runs a sweep: one run after another on this machine, or submitted to a cluster."""

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
from xlj.tools.sweeping import state
from xlj.tools.sweeping.definition import Run


def run_all(
    selected: Sequence[Run], unfinished: Sequence[Run], configs: Mapping[str, Record]
) -> int:
    """Runs the unfinished runs of a selection one after another.

    Args:
      selected: all selected runs; a line is printed for each.
      unfinished: the runs of `selected` that are not finished.
      configs: the config of each run, by the run's name.

    Returns:
      The number of runs that failed.
    """
    width, failed, signals = max(len(run.name) for run in selected), 0, list[int]()
    with tqdm(total=len(selected), unit="run", dynamic_ncols=True) as bar:
        for run in selected:
            bar.set_description(run.name)
            outcome, seconds, result = "finished before", "", ""
            if run in unfinished:
                state.record_start(run, configs[run.name])
                start = time.monotonic()
                code = _call(run, signals)
                seconds = f"{time.monotonic() - start:.0f} s"
                if code not in (0, CONTINUE) and not signals:
                    failed += 1
                    outcome, result = "failed", _failure(run, code)
                else:
                    is_finished = state.is_finished(run, configs[run.name])
                    outcome = "finished" if is_finished else "stopped"
            try:
                result = result or state.describe_results(run.workdir)
            except ConfigError as error:  # damaged files of one run must not stop the others
                result = str(error)
            bar.write(f"{run.name:{width}}  {outcome:15} {seconds:>8}  {result}".rstrip())
            bar.update()
            if signals:
                bar.write("stopped; run the same command to resume")
                break
    return failed


def _call(run: Run, signals: list[int]) -> int:
    """Runs a command, appends its output to the log, and returns its exit code.

    On SIGTERM, adds the signal to `signals` and passes it on to the command, which then saves a
    checkpoint and ends.
    """
    child: subprocess.Popen | None = None

    def stop(number: int, _: FrameType | None) -> None:
        signals.append(number)
        if child:
            child.terminate()

    # With these variables, progress bars print one line per minute.
    variables = {"TQDM_MININTERVAL": "60", "PYTHONUNBUFFERED": "1"}
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with atomic.as_config_error(run.workdir / state.LOG):
            file = (run.workdir / state.LOG).open("ab", buffering=0)
        with file as log:
            with atomic.as_config_error(run.workdir / state.LOG):
                log.write(f"\n$ {shlex.join(run.command())}\n".encode())
            command = run.command(sys.executable)
            child = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **variables}
            )
            if signals:  # a signal came before `child` was set
                child.terminate()
            return child.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        if child and child.poll() is None:  # after Ctrl-C
            child.terminate()
            child.wait()


def _failure(run: Run, code: int) -> str:
    """Describes how a run failed, with the path and the last line of its log."""
    how = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    log = run.workdir / state.LOG
    last = (log.read_text("utf-8", "replace").strip().splitlines() or [""])[-1]
    return f"{how}, {log}: {last.rpartition(chr(13))[2][:300]}"


def check_template(template: str) -> None:
    """Checks the template of --submit.

    Raises:
      ConfigError: if the template has neither {command} nor {arguments}, or if its program does not
        exist.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"--submit={template}: {error}") from None
    if not any(place in word for word in words for place in ("{command}", "{arguments}")):
        raise ConfigError(
            f"--submit={template}: the command needs {{command}} or {{arguments}}, the places of "
            "a run's command or arguments"
        )
    if "{" not in words[0] and not shutil.which(words[0]):
        raise ConfigError(f"--submit={template}: the program {words[0]} does not exist")


def submit(run: Run, config: Record, template: str) -> bool:
    """Runs the --submit command of a run and prints its output; returns whether it succeeded."""
    state.record_start(run, config)
    done = subprocess.run(_fill_template(run, template), capture_output=True, text=True)
    outcome = f"failed, exit code {done.returncode}" if done.returncode else "submitted"
    print(f"{run.name}: {outcome}", (done.stdout + done.stderr).strip(), flush=True)
    return not done.returncode


def _fill_template(run: Run, template: str) -> list[str]:
    """Returns the words of a template, with the values of a run in place of the placeholders.

    If a placeholder is a whole word, each word of its value becomes a word. If it is a part of a
    word, as in --wrap={command}, its value is quoted for a shell and stays in this word.
    """
    values = {"{command}": run.command(), "{arguments}": run.arguments, "{name}": [run.name]}

    def quoted(place: re.Match[str]) -> str:
        return shlex.join(values[place[0]])

    words: list[str] = []
    for word in shlex.split(template):
        words += values.get(word) or [re.sub("|".join(map(re.escape, values)), quoted, word)]
    return words
