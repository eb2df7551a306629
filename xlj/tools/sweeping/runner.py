"""Runs a sweep: one run after another on this machine, or submitted to a cluster.

The state of the runs (started, finished, scores) is read from their workdirs.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from tqdm import tqdm

from xlj.checkpoints import metrics
from xlj.config import ConfigError
from xlj.config.fields import flat
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.io.own_process import CONTINUE
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
                record_start(run, configs[run.name])
                start = time.monotonic()
                code = _call(run, signals)
                seconds = f"{time.monotonic() - start:.0f} s"
                if code not in (0, CONTINUE) and not signals:
                    failed += 1
                    outcome, result = "failed", _failure(run, code)
                else:
                    outcome = "finished" if is_finished(run) else "stopped"
            try:
                result = result or describe_results(run.workdir)
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
        with atomic.as_config_error(run.workdir / LOG):
            file = (run.workdir / LOG).open("ab", buffering=0)
        with file as log:
            with atomic.as_config_error(run.workdir / LOG):
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
    log = run.workdir / LOG
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
    record_start(run, config)
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


LOG = "log.txt"
"""The file in a workdir to which the output of the run is appended."""
START_FILE = "sweep.json"
"""The file in a workdir with the command and the config with which a sweep started the run."""
_CONFIG, _RESULTS = "config.json", "results.json"


def check(runs: Sequence[Run]) -> dict[str, Record]:
    """Checks the configs of all runs.

    Returns:
      The config of each run after all overrides, by the run's name.

    Raises:
      ConfigError: if a command refuses its config, or if the run in a workdir was started with
        another config.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        configs = dict(zip([run.name for run in runs], pool.map(_read_config, runs), strict=True))
    for run in runs:
        stored, config = flat(_read_started_config(run)), flat(configs[run.name])
        if config.get("init_from") and not config.get("data.vocabulary"):
            # The started run recorded the vocabulary of init_from under this key.
            stored.pop("data.vocabulary", None)
        if config.get("data.rows"):
            # The started run recorded the data keys of its rows, such as the languages.
            compared = ("data.rows", "data.alpha")
            stored = {k: v for k, v in stored.items() if not k.startswith("data.") or k in compared}
        changed = [key for key in stored if key in config and stored[key] != config[key]]
        if changed:
            key = changed[0]
            raise ConfigError(
                f"{run.workdir} was started with another config: {key} was {stored[key]!r} and is "
                f"{config[key]!r}"
                + (f" (and {len(changed) - 1} more keys)" if changed[1:] else "")
                + "; use another --folder, or delete the workdir"
            )
    return configs


def _read_started_config(run: Run) -> Record:
    """Returns the config with which the run in a workdir was started; empty if it has written no
    files yet. A sweep or a single command may have started the run."""
    names = {path.name for path in run.workdir.glob("*")}
    if names <= {START_FILE, LOG, "lock"}:
        return {}
    for file in (START_FILE, _CONFIG, _RESULTS):
        if file in names:
            content = json_file.read_object(run.workdir / file, not_finite=True)
            config = content if file == _CONFIG else content.get("config", {})
            if not isinstance(config, dict):
                raise ConfigError(f"{run.workdir / file} is damaged: config is not a JSON object")
            return config
    return {}


def _read_config(run: Run) -> Record:
    """Returns the config of a run after all overrides.

    The command of the run prints it if it is called with --check, and does nothing else.
    """
    command = [*run.command(sys.executable), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    if checked.returncode:
        message = (checked.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"run {run.name}: {message.removeprefix('error: ')}")
    return json.loads(checked.stdout)


def is_finished(run: Run) -> bool:
    """Returns whether a run is finished.

    A pretraining run is finished if the last checkpoint and the metrics of the last evaluation
    exist. If it is stopped in its last evaluation, only the checkpoint exists. A fine-tuning run,
    whose folder has no config.json, is finished if results.json exists. Exit codes are not used,
    since an exit code belongs to one call of the command, and sweeps do not get the exit codes of
    submitted runs.
    """
    file, lines = run.workdir / _CONFIG, metrics.read(run.workdir, damaged=[])
    if not file.exists():
        return (run.workdir / _RESULTS).exists()
    try:
        started = json_file.read_object(file)  # with all durations in steps
        scores = metrics.scores(lines, started["train"].get("best_metric", ""))
        last = metrics.last_step(started, scores)
    except (ConfigError, KeyError):  # damaged: the run itself reports it
        return False
    is_evaluated = any(line["step"] == last for line in lines)
    return is_evaluated and (run.workdir / f"checkpoints/{last}").exists()


def record_start(run: Run, config: Record) -> None:
    """Creates the workdir of a run and records its command and config.

    Raises:
      ConfigError: if the workdir cannot be written.
    """
    with atomic.as_config_error(run.workdir):
        run.workdir.mkdir(parents=True, exist_ok=True)
    json_file.write(run.workdir / START_FILE, {"command": run.command(), "config": config})


def describe_results(workdir: Path) -> str:
    """Describes the results of a run, or the mean metrics of its last evaluation; empty if the run
    has neither."""
    results = workdir / _RESULTS
    if results.exists():
        try:
            return _describe_averages(json_file.read_object(results, not_finite=True))
        except (AttributeError, KeyError, TypeError):
            raise ConfigError(f"{results} is damaged: it has no scores") from None
    lines = [line for line in metrics.read(workdir) if any(k.startswith("eval/") for k in line)]
    means = {
        key.removeprefix("eval/").removesuffix("/loss").replace("/", " "): value
        for key, value in (lines[-1] if lines else {}).items()
        if key.startswith("eval/") and key.count("/") == 2
    }
    # If an objective has a loss, its other metrics are not shown.
    names = [name for name in means if name.rpartition(" ")[0] not in means]
    return ", ".join(f"{name} {means[name]:.3f}" for name in names)


def _describe_averages(results: Record) -> str:
    """Describes the mean score on the dev sets and on the test sets, over languages and seeds.

    Dev scores are included because users choose settings by them.
    """
    metric, phrases = results["metric"], []
    for split in ("dev", "test"):
        by_run = [run[split].get(metric, {}) for run in results["runs"]]
        if values := [value for scores in by_run for value in scores.values()]:
            phrases.append(f"{split} {metric} {statistics.fmean(values):.2f}")
    return ", ".join(phrases)
