"""Runs a sweep: one recipe with many settings, one run after another, or each on a cluster.

    python -m xlj.sweep --config=configs/sweeps/NAME.py [--folder=DIR] [--config.KEY=VALUE]
    python -m xlj.sweep --config=configs/sweeps/NAME.py --print
    python -m xlj.sweep --config=... --submit='sbatch -J {name} launch/slurm.sh {arguments}'

The same command again runs what is not finished. --config.KEY=VALUE changes all runs.
docs/sweep.md tells more.
"""

from __future__ import annotations

import concurrent.futures
import fnmatch
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xlj import cli
from xlj.config import ConfigError
from xlj.config.fields import flat
from xlj.config.paths import local_path
from xlj.sweeping import definition
from xlj.sweeping.definition import Run, Sweep

_LOG, _CONFIG, _RESULTS = "log.txt", "config.json", "results.json"
_BEGUN = "sweep.json"  # of a workdir: the command and the config that it was begun with


def _flags() -> Namespace:
    parser = cli.Parser(__doc__)
    add = parser.add_argument
    add("--config", metavar="FILE", required=True, type=Path, help="the sweep (configs/sweeps/)")
    add(
        "--folder",
        metavar="DIR",
        type=Path,
        help="where the workdirs are; runs/ and the sweep's name by itself",
    )
    add("--only", metavar="PATTERN", default="*", help="only the runs of such names, as 'tlm-*'")
    add("--print", action="store_true", help="print the command of each unfinished run, and end")
    add(
        "--submit",
        metavar="COMMAND",
        help="call this for each unfinished run, and end. {command} in it becomes the run's "
        "command, {arguments} what follows its `python -m xlj.train`, {name} the run's name",
    )
    flags, overrides = parser.parse_known_args()
    for argument in overrides:
        if not argument.startswith("--config.") or "=" not in argument:
            parser.error(f"cannot read {argument!r}; there are flags, and --config.KEY=VALUE")
    flags.overrides = overrides
    return flags


def run(flags: Namespace) -> int:
    """Runs, prints or submits; returns how many runs failed."""
    _check_template(flags.submit)
    folder = local_path("--folder", flags.folder or Path("runs") / flags.config.stem)
    every = definition.runs(_sweep(flags.config, folder), folder, flags.overrides)
    chosen = [run for run in every if fnmatch.fnmatchcase(run.name, flags.only)]
    if not chosen:
        names = ", ".join(run.name for run in every)
        raise ConfigError(f"--only={flags.only} is no run of {flags.config}: {names}")
    configs = _checked(chosen)
    left = [run for run in chosen if not _is_finished(run, configs[run.name])]
    if flags.print:
        for run in left:
            print(shlex.join(run.command()))
        return 0
    if flags.submit:
        return sum(not _submit(run, configs[run.name], flags.submit) for run in left)
    return _run_all(chosen, left, configs)


def _sweep(file: Path, folder: Path) -> Sweep:
    """The sweep of a file; whatever goes wrong in it is said with its line."""
    if not file.is_file():
        raise ConfigError(f"--config={file}: there is no such file")
    try:
        sweep = runpy.run_path(str(file))["get_sweep"](folder)
    except ConfigError:
        raise
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(file)
        ]
        where = f"{file}:{lines[-1]}" if lines else str(file)
        raise ConfigError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(sweep, Sweep):
        raise ConfigError(f"{file}: get_sweep must return a Sweep, not {sweep!r}")
    return sweep


def _check_template(template: str | None) -> None:
    if template is None:
        return
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"--submit={template}: {error}") from None
    if not any(place in word for word in words for place in ("{command}", "{arguments}")):
        raise ConfigError(f"--submit={template} has neither {{command}} nor {{arguments}} in it")
    if "{" not in words[0] and not shutil.which(words[0]):
        raise ConfigError(f"--submit={template}: there is no program {words[0]}")


def _checked(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """The config of each run, by name, as its door reads it.

    Raises:
      ConfigError: if a door refuses one, or a workdir was begun with another.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        configs = dict(zip([run.name for run in runs], pool.map(_config, runs), strict=True))
    for run in runs:
        before, now = flat(_begun(run)), flat(configs[run.name])
        if now.get("init_from") and not now.get("data.vocabulary"):
            before.pop("data.vocabulary", None)  # a run notes that of the model it starts from
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


def _begun(run: Run) -> dict[str, Any]:
    """The config that a workdir was begun with, by a sweep or by hand; nothing if it has no more
    than that yet."""
    there = {path.name for path in run.workdir.glob("*")}
    if there <= {_BEGUN, _LOG, "lock"}:
        return {}
    for file, key in ((_BEGUN, "config"), (_CONFIG, ""), (_RESULTS, "config")):
        if file in there:
            found = _read(run.workdir / file)
            config = found.get(key, {}) if key else found
            if not isinstance(config, dict):
                raise ConfigError(f"{run.workdir / file} is damaged: {key} is no JSON object")
            return config
    return {}


def _config(run: Run) -> dict[str, Any]:
    """The config that the door reads, without any work."""
    command = [*run.command(sys.executable), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    if checked.returncode:
        message = (checked.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"run {run.name}: {message.removeprefix('error: ')}")
    return json.loads(checked.stdout)


def _is_finished(run: Run, config: dict[str, Any]) -> bool:
    """Whether the last checkpoint is there and measured, or of a door that counts no steps the
    results.

    Both appear whole, after all else; but a run that is asked to stop in its last evaluation saves
    without it. An exit code says less: a run that was asked to stop has 0.
    """
    from xlj.training import metrics

    steps = config.get("train", {}).get("steps")
    if steps is None:
        return (run.workdir / _RESULTS).exists()
    lines = metrics.read(run.workdir, damaged=[])
    return (run.workdir / f"checkpoints/{steps}").exists() and any(
        line["step"] == steps for line in lines
    )


def _begin(run: Run, config: dict[str, Any]) -> None:
    from xlj.io import atomic

    run.workdir.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"command": run.command(), "config": config}, indent=1) + "\n"
    atomic.write(run.workdir / _BEGUN, text.encode())


def _submit(run: Run, config: dict[str, Any], template: str) -> bool:
    """Calls the template for a run; says what it answered, and whether it went well."""
    _begin(run, config)
    done = subprocess.run(_submission(run, template), capture_output=True, text=True)
    state = f"failed, exit code {done.returncode}" if done.returncode else "submitted"
    print(f"{run.name}: {state}", (done.stdout + done.stderr).strip(), flush=True)
    return not done.returncode


def _submission(run: Run, template: str) -> list[str]:
    """The words of a template with a run in it; what stands alone becomes several words."""
    inside = {
        "{command}": run.command(),
        "{arguments}": list(run.arguments),
        "{name}": [run.name],
    }

    def quoted(place: re.Match[str]) -> str:  # in a word such as --wrap={command}
        return shlex.join(inside[place[0]])

    words: list[str] = []
    for word in shlex.split(template):
        words += inside.get(word) or [re.sub("|".join(map(re.escape, inside)), quoted, word)]
    return words


def _run_all(chosen: Sequence[Run], left: Sequence[Run], configs: dict[str, Any]) -> int:
    """Runs what is left, one after another; returns how many failed."""
    from tqdm import tqdm

    width, failed, asked = max(len(run.name) for run in chosen), 0, list[int]()
    with tqdm(total=len(chosen), unit="run", dynamic_ncols=True) as bar:
        for run in chosen:
            bar.set_description(run.name)
            state, seconds, said = "finished before", "", ""
            if run in left:
                _begin(run, configs[run.name])
                start = time.monotonic()
                code = _call(run, asked)
                seconds = f"{time.monotonic() - start:.0f} s"
                if code and not asked:
                    failed += 1
                    state, said = "failed", _complaint(run, code)
                else:
                    state = "finished" if _is_finished(run, configs[run.name]) else "stopped"
            try:
                said = said or _measures(run.workdir)
            except ConfigError as error:  # a damaged file of this run is no matter of the others
                said = str(error)
            bar.write(f"{run.name:{width}}  {state:15} {seconds:>8}  {said}".rstrip())
            bar.update()
            if asked:
                bar.write("stopped; the same command goes on from there")
                break
    return failed


def _call(run: Run, asked: list[int]) -> int:
    """Calls the door, its output going to the end of the log; returns its exit code.

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
        with (run.workdir / _LOG).open("ab") as log:
            log.write(f"\n$ {shlex.join(run.command())}\n".encode())
            log.flush()
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
    log = run.workdir / _LOG
    last = (log.read_text("utf-8", "replace").strip().splitlines() or [""])[-1]
    return f"{how}, {log}: {last.rpartition(chr(13))[2][:300]}"


def _measures(workdir: Path) -> str:
    """The results of a run, or its last means on held-out data; nothing if it has neither."""
    from xlj.training import metrics

    results = workdir / _RESULTS
    if results.exists():
        try:
            return _results(_read(results))
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


def _results(results: dict[str, Any]) -> str:
    """Averages on the dev sets, which a setting is chosen by, and on the test sets."""
    metric, said = results["metric"], []
    for split in ("dev", "test"):
        found = [run[split].get(metric, {}) for run in results["runs"]]
        if values := [value for scores in found for value in scores.values()]:
            said.append(f"{split} {metric} {statistics.fmean(values):.2f}")
    return ", ".join(said)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is damaged: it holds no JSON object")
    return found


if __name__ == "__main__":
    with cli.readable_errors():
        raise SystemExit(int(run(_flags()) > 0))
