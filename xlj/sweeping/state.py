"""The state of a sweep's runs, which is that of their workdirs: begun, finished, their scores."""

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
from xlj.config.renamed import translate_recorded
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.sweeping.definition import Run
from xlj.training import metrics

LOG = "log.txt"
"""A file of a workdir: what the run printed."""
BEGUN = "sweep.json"
"""Another: the command and the config that it was begun with."""
_CONFIG, _RESULTS = "config.json", "results.json"


def checked(runs: Sequence[Run]) -> dict[str, Record]:
    """The config of each run, by name, as its command reads it. Raises ConfigError if the command
    refuses one, or a workdir was begun with another."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        configs = dict(zip([run.name for run in runs], pool.map(_config, runs), strict=True))
    for run in runs:
        before, now = flat(_begun(run)), flat(configs[run.name])
        if now.get("init_from") and not now.get("data.vocabulary"):
            before.pop("data.vocabulary", None)  # a run notes that of the model it starts from
        if now.get("data.rows"):  # a run notes the languages, lengths and so on of its rows
            own = ("data.rows", "data.alpha")
            before = {k: v for k, v in before.items() if not k.startswith("data.") or k in own}
        changed = [key for key in before if key in now and before[key] != now[key]]
        if changed:
            key = changed[0]
            raise ConfigError(
                f"{run.workdir} was begun with another config: {key} was {before[key]!r} and is "
                f"{now[key]!r}"
                + (f", and {len(changed) - 1} keys more" if changed[1:] else "")
                + "; take another --folder, or delete it"
            )
    return configs


def _begun(run: Run) -> Record:
    """The config that a workdir was begun with, by a sweep or by hand; nothing if it has no more
    than that yet."""
    there = {path.name for path in run.workdir.glob("*")}
    if there <= {BEGUN, LOG, "lock"}:
        return {}
    for file in (BEGUN, _CONFIG, _RESULTS):
        if file in there:
            found = json_file.read_object(run.workdir / file, not_finite=True)
            config = found if file == _CONFIG else found.get("config", {})
            if not isinstance(config, dict):
                raise ConfigError(f"{run.workdir / file} is damaged: config is no JSON object")
            return translate_recorded(config)
    return {}


def _config(run: Run) -> Record:
    """The config that the command reads, without any work."""
    command = [*run.command(sys.executable), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    if checked.returncode:
        message = (checked.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"run {run.name}: {message.removeprefix('error: ')}")
    return json.loads(checked.stdout)


def is_finished(run: Run, config: Record) -> bool:
    """Whether the last checkpoint is there and measured, or of a command that counts no steps the
    results.

    Both appear whole, after all else; but a run that is asked to stop in its last evaluation saves
    without it. An exit code says less: it is that of one call, and a submitted run has none.
    """
    steps = config.get("train", {}).get("steps")
    if steps is None:
        return (run.workdir / _RESULTS).exists()
    measured = any(line["step"] == steps for line in metrics.read(run.workdir, damaged=[]))
    return measured and (run.workdir / f"checkpoints/{steps}").exists()


def begin(run: Run, config: Record) -> None:
    """Makes the workdir of a run, and notes what it is begun with; ConfigError if it cannot."""
    with atomic.as_config_error(run.workdir):
        run.workdir.mkdir(parents=True, exist_ok=True)
    json_file.write(run.workdir / BEGUN, {"command": run.command(), "config": config})


def measures(workdir: Path) -> str:
    """The results of a run, or its last means on held-out data; nothing if it has neither."""
    results = workdir / _RESULTS
    if results.exists():
        try:
            return _results(json_file.read_object(results, not_finite=True))
        except (AttributeError, KeyError, TypeError):
            raise ConfigError(f"{results} is damaged: it holds no scores") from None
    lines = [line for line in metrics.read(workdir) if any(k.startswith("eval/") for k in line)]
    means = {
        key.removeprefix("eval/").removesuffix("/loss").replace("/", " "): value
        for key, value in (lines[-1] if lines else {}).items()
        if key.startswith("eval/") and key.count("/") == 2
    }
    # An objective's loss says enough of it.
    kept = [name for name in means if name.rpartition(" ")[0] not in means]
    return ", ".join(f"{name} {means[name]:.3f}" for name in kept)


def _results(results: Record) -> str:
    """Averages on the dev sets, which a setting is chosen by, and on the test sets."""
    metric, said = results["metric"], []
    for split in ("dev", "test"):
        found = [run[split].get(metric, {}) for run in results["runs"]]
        if values := [value for scores in found for value in scores.values()]:
            said.append(f"{split} {metric} {statistics.fmean(values):.2f}")
    return ", ".join(said)
