"""Runs, as their workdirs tell of them: config, metrics, results, scores by layer."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.config import ConfigError
from xlj.config.fields import flat
from xlj.config.renamed import translate_recorded
from xlj.io import json_file
from xlj.io.json_file import Record
from xlj.training import metrics
from xlj.training.metrics import Line

_CONFIG, _RESULTS, _SWEEP = "config.json", "results.json", "sweep.json"
_MACHINE = "machine.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """The content of a workdir. A file that is missing is empty; one that cannot be read is in
    `notes`."""

    name: str
    workdir: Path
    config: Record
    """Values by full path."""
    lines: Sequence[Line]
    """The lines of metrics.jsonl."""
    results: Record
    """Scores of a task: what xlj.finetune writes (`finetuning/task_results.py`)."""
    layers: Mapping[str, Mapping[int, float]]
    """By file and measure, a score of each layer."""
    notes: Sequence[str]
    machine: Record = dataclasses.field(default_factory=dict)
    """When and where it was last started."""
    schedule: Sequence[Line] = ()
    """What it does at which step (`xlj.training.schedule.lines`)."""


def find(arguments: Sequence[str]) -> list[Run]:
    """The runs of arguments: `WORKDIR`, `NAME=WORKDIR`, or a folder whose folders are workdirs.

    A run without a name gets that of its folder, with as much before it as tells it from others.

    Raises:
      ConfigError: on a folder that is not there, or holds nothing of a run.
    """
    named: dict[Path, str] = {}
    for argument in arguments:
        name, _, path = ("", "", argument) if Path(argument).exists() else argument.partition("=")
        folder = Path(path or argument)
        if not folder.is_dir():
            raise ConfigError(f"{argument}: there is no such folder")
        if name and (name in named.values() or named.get(folder)):
            raise ConfigError(f"{argument}: one name a workdir, and another for each")
        for workdir in _workdirs(folder):  # a run of fine-tuning has runs in it, one a seed
            named[workdir] = (name if workdir == folder else "") or named.get(workdir, "")
    paths = [os.path.abspath(path) for path, name in named.items() if not name]
    short = dict(zip(paths, _shortest(paths), strict=True))
    return [read(path, name or short[os.path.abspath(path)]) for path, name in named.items()]


def _workdirs(folder: Path) -> list[Path]:
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and _is_workdir(path))
    if _is_workdir(folder):
        return [folder, *inside]
    if not inside:
        raise ConfigError(
            f"{folder} is no workdir, and holds none: there is no {metrics.FILE}, {_CONFIG} or "
            f"{_RESULTS}"
        )
    return [found for path in inside for found in _workdirs(path)]


def _is_workdir(folder: Path) -> bool:
    return any((folder / file).is_file() for file in (metrics.FILE, _CONFIG, _RESULTS, _SWEEP))


def _shortest(paths: Sequence[str]) -> list[str]:
    """The last parts of each path: one, or as many as tell all of them apart."""
    parts = [path.strip(os.sep).split(os.sep) for path in paths]
    for count in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def read(workdir: Path, name: str) -> Run:
    """Reads what there is."""
    notes: list[str] = []
    results = _object(workdir / _RESULTS, notes)
    begun = _object(workdir / _SWEEP, notes)
    config = _object(workdir / _CONFIG, notes) or (begun or results).get("config", {})
    if not isinstance(config, dict):
        notes.append(f"{_SWEEP if begun else _RESULTS} is damaged: its config is no JSON object")
        config = {}
    lines = metrics.read(workdir, notes)
    if not lines and not results and not notes:
        notes.append(f"there is no {metrics.FILE} yet, and no {_RESULTS}")
    layers: dict[str, Mapping[int, float]] = {}
    for file in files(workdir):
        if file.suffix == ".jsonl" and file.name != metrics.FILE:
            layers |= _by_layer(file, notes)
    machine = _object(workdir / _MACHINE, notes)
    schedule = _object(workdir / metrics.SCHEDULE, notes).get("lines", [])
    if not isinstance(schedule, list) or not all(isinstance(x, dict) for x in schedule):
        notes.append(f"{metrics.SCHEDULE} is damaged: it holds no lines")
        schedule = []
    schedule = [line for line in schedule if isinstance(line.get("step"), int)]
    return Run(
        name,
        workdir,
        flat(translate_recorded(config)),
        lines,
        results,
        layers,
        notes,
        machine,
        schedule,
    )


def files(workdir: Path) -> list[Path]:
    """The files of a workdir that are read, if they are there."""
    fixed = [workdir / name for name in (_CONFIG, _RESULTS, _SWEEP, _MACHINE, metrics.SCHEDULE)]
    return fixed + sorted(workdir.glob("*.jsonl"))


def _object(path: Path, notes: list[str]) -> Record:
    try:
        found = json_file.parse(path.read_bytes(), path.name, not_finite=True)
        if isinstance(found, dict):
            return found
        notes.append(f"{path.name} is damaged: it holds no JSON object")
    except FileNotFoundError:
        pass
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
    except ConfigError as error:
        notes.append(f"{path.name} is damaged: {error}")
    return {}


def _by_layer(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    """Scores of a file with a line of JSON a layer, as xlj.retrieve --layers=all prints.

    Lines of several languages count as their mean; `encode` and `method`, which xlj.align writes
    where it crosses them, belong to the measure's name.
    """
    found: dict[str, dict[int, list[float]]] = {}
    bad: list[int] = []
    try:
        content = file.read_bytes()
    except OSError as error:
        notes.append(f"{file.name} cannot be read: {error.strerror}")
        return {}
    for number, text in enumerate(content.splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = json_file.parse(text, f"{file}:{number}", not_finite=True)
            layer, language = int(line["layer"]), line.get("language")
        except (ValueError, AttributeError, KeyError, TypeError, OverflowError):
            bad.append(number)
            continue
        if language == "average":  # of the lines before
            continue
        for measure, value in line.items():
            if isinstance(value, float):
                ways = (line[key] for key in ("encode", "method") if isinstance(line.get(key), str))
                scores = found.setdefault(" ".join([file.stem, *ways, measure]), {})
                scores.setdefault(layer, []).append(value)
    if bad:
        more = f", nor have {len(bad) - 1} lines more" if bad[1:] else ""
        notes.append(f"{file.name}:{bad[0]} has no scores of a layer{more}")
    elif not found:
        notes.append(f"{file.name} has no scores by layer")
    return {
        measure: {layer: sum(values) / len(values) for layer, values in sorted(scores.items())}
        for measure, scores in found.items()
    }
