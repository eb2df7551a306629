"""Reads runs from their workdirs: config, metrics, results and scores by layer."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.checkpoints import metrics
from xlj.checkpoints.metrics import Line
from xlj.config import ConfigError
from xlj.config.fields import flat
from xlj.distributed import hosts
from xlj.evaluation import adaptation_record
from xlj.io import json_file
from xlj.io.json_file import Record

_CONFIG, _RESULTS, _SWEEP = "config.json", "results.json", "sweep.json"
_MACHINE = "machine.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """The content of a workdir. An attribute is empty if its file does not exist.

    Attributes:
      name: the name that the report shows.
      workdir: the folder.
      config: the value of each config key, by the full path of the key, such as `train.steps`.
      lines: the lines of metrics.jsonl.
      results: the scores of a task, as xlj.finetune writes them (`finetuning/task_results.py`).
      layers: scores by curve, then by layer. The name of a curve has the file and the metric.
      notes: one line for each file that cannot be read.
      machine: time and machine of the last start of the run (machine.json).
      schedule: the values that the config sets at selected steps
        (`xlj.training.schedule.make_lines`).
      adaptation: the measures before and after `xlj.adapt` (`evaluation/word_loss.py`).
    """

    name: str
    workdir: Path
    config: Record
    lines: Sequence[Line]
    results: Record
    layers: Mapping[str, Mapping[int, float]]
    notes: Sequence[str]
    machine: Record = dataclasses.field(default_factory=dict)
    schedule: Sequence[Line] = ()
    adaptation: Record = dataclasses.field(default_factory=dict)


def find(arguments: Sequence[str]) -> list[Run]:
    """Reads the runs that arguments name: `WORKDIR`, `NAME=WORKDIR`, or a folder of workdirs.

    If an argument has no NAME, the name of a run is the end of its path. The end is long enough to
    make all names different.

    Raises:
      ConfigError: if a folder does not exist or contains no run, or a name is used twice.
    """
    named: dict[Path, str] = {}
    for argument in arguments:
        name, _, path = ("", "", argument) if Path(argument).exists() else argument.partition("=")
        folder = Path(path or argument)
        if not folder.is_dir():
            raise ConfigError(
                f"{argument}: no such folder; name a workdir, NAME=WORKDIR or a folder of workdirs"
            )
        if name and (name in named.values() or named.get(folder)):
            raise ConfigError(
                f"{argument}: a workdir or a name is repeated; name each workdir once, and give "
                "each workdir a different name"
            )
        for workdir in _workdirs(folder):  # a fine-tuning run contains one run per seed
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
            f"{folder}: neither a workdir nor a folder of workdirs; a workdir contains "
            f"{metrics.FILE}, {_CONFIG} or {_RESULTS}"
        )
    return [workdir for path in inside for workdir in _workdirs(path)]


def _is_workdir(folder: Path) -> bool:
    return any((folder / file).is_file() for file in (metrics.FILE, _CONFIG, _RESULTS, _SWEEP))


def _shortest(paths: Sequence[str]) -> list[str]:
    """Returns the end of each path, long enough to make all names different."""
    folders = [path.strip(os.sep).split(os.sep) for path in paths]
    for count in range(1, max(map(len, folders), default=0) + 1):
        names = ["/".join(part[-count:]) for part in folders]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def read(workdir: Path, name: str) -> Run:
    """Reads the files of a workdir.

    Damaged files are reported in `Run.notes`. Missing files are not, unless the run has neither
    metrics nor results.
    """
    notes: list[str] = []
    results = _object(workdir / _RESULTS, notes)
    sweep = _object(workdir / _SWEEP, notes)
    config = _object(workdir / _CONFIG, notes) or (sweep or results).get("config", {})
    if not isinstance(config, dict):
        notes.append(f"{_SWEEP if sweep else _RESULTS} is damaged: its config is not a JSON object")
        config = {}
    lines = metrics.read(workdir, notes)
    if not lines and not results and not notes:
        notes.append(f"has no {metrics.FILE} and no {_RESULTS} yet")
    layers: dict[str, Mapping[int, float]] = {}
    for file in files(workdir):
        if file.suffix == ".jsonl" and file.name not in (metrics.FILE, hosts.FILE):
            layers |= _by_layer(file, notes)
    machine = _object(workdir / _MACHINE, notes)
    schedule = _object(workdir / metrics.SCHEDULE, notes).get("lines", [])
    if not isinstance(schedule, list) or not all(isinstance(x, dict) for x in schedule):
        notes.append(f"{metrics.SCHEDULE} is damaged: it has no list of lines")
        schedule = []
    schedule = [line for line in schedule if isinstance(line.get("step"), int)]
    adaptation = _object(workdir / adaptation_record.FILE, notes)
    if not _is_adaptation(adaptation):
        notes.append(f"{adaptation_record.FILE} is damaged: its measures are not numbers")
        adaptation = {}
    return Run(
        name,
        workdir,
        flat(config),
        lines,
        results,
        layers,
        notes,
        machine,
        schedule,
        adaptation,
    )


def files(workdir: Path) -> list[Path]:
    """Returns the paths of the files that `read` reads; some of the files may not exist."""
    fixed = [
        workdir / name
        for name in (_CONFIG, _RESULTS, _SWEEP, _MACHINE, metrics.SCHEDULE, adaptation_record.FILE)
    ]
    return fixed + sorted(workdir.glob("*.jsonl"))


def _is_adaptation(record: Record) -> bool:
    """Returns whether the measures of a record have the type `adaptation_record.Scores`."""
    for scores in adaptation_record.sides(record).values():
        if not isinstance(scores, dict):
            return False
        for values in scores.values():
            if not isinstance(values, dict):
                return False
            if not all(isinstance(value, int | float) for value in values.values()):
                return False
    return True


def _object(path: Path, notes: list[str]) -> Record:
    try:
        content = json_file.parse(path.read_bytes(), path.name, not_finite=True)
        if isinstance(content, dict):
            return content
        notes.append(f"{path.name} is damaged: it is not a JSON object")
    except FileNotFoundError:
        pass
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
    except ConfigError as error:
        notes.append(f"{path.name} is damaged: {error}")
    return {}


def _by_layer(file: Path, notes: list[str]) -> dict[str, dict[int, float]]:
    """Reads a file with one JSON line per layer, as `xlj.retrieve --layers=all` prints them.

    Scores of several languages are averaged. If `xlj.align` wrote lines for several methods, the
    lines have the keys `encode` and `method`, whose values become part of the metric's name.

    Returns:
      The scores by curve (`Run.layers`).
    """
    by_metric: dict[str, dict[int, list[float]]] = {}
    malformed: list[int] = []
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
            malformed.append(number)
            continue
        if language == "average":  # this line has the average of the lines before it
            continue
        for metric, value in line.items():
            if isinstance(value, float):
                keys = ("encode", "method")
                options = (line[key] for key in keys if isinstance(line.get(key), str))
                scores = by_metric.setdefault(" ".join([file.stem, *options, metric]), {})
                scores.setdefault(layer, []).append(value)
    if malformed:
        more = f" (and {len(malformed) - 1} more lines)" if malformed[1:] else ""
        notes.append(f"{file.name}:{malformed[0]}: the line has no scores of a layer{more}")
    elif not by_metric:
        notes.append(f"{file.name}: the file has no scores by layer")
    return {
        metric: {layer: sum(values) / len(values) for layer, values in sorted(scores.items())}
        for metric, scores in by_metric.items()
    }
