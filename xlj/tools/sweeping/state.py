"""The state of a sweep's runs, read from their workdirs: started, finished, scores."""

import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from xlj.config import ConfigError
from xlj.config.fields import flat
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.tools.sweeping.definition import Run
from xlj.training import metrics

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


def is_finished(run: Run, config: Record) -> bool:
    """Returns whether a run is finished.

    A run with `train.steps` is finished if the last checkpoint and the metrics of the last
    evaluation exist. If a run is stopped in its last evaluation, only the checkpoint exists. A run
    without `train.steps` (fine-tuning) is finished if results.json exists. Exit codes are not used,
    since an exit code belongs to one call of the command, and sweeps do not get the exit codes of
    submitted runs.
    """
    steps = config.get("train", {}).get("steps")
    if steps is None:
        return (run.workdir / _RESULTS).exists()
    is_evaluated = any(line["step"] == steps for line in metrics.read(run.workdir, damaged=[]))
    return is_evaluated and (run.workdir / f"checkpoints/{steps}").exists()


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
    metric, parts = results["metric"], []
    for split in ("dev", "test"):
        by_run = [run[split].get(metric, {}) for run in results["runs"]]
        if values := [value for scores in by_run for value in scores.values()]:
            parts.append(f"{split} {metric} {statistics.fmean(values):.2f}")
    return ", ".join(parts)
