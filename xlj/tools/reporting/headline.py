"""Opening paragraphs of a report: objectives, data, duration, result and machine of each run."""

import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard
from xml.etree.ElementTree import Element

from xlj.config import finetuning, schema
from xlj.io.json_file import Json
from xlj.io.markup import Content, node, table
from xlj.tools.reporting.runs import Run

_MAX_RUNS = 4  # with more runs, the report has a table of runs, but no opening paragraphs
_MAX_NAMES = 6  # if there are more languages or pairs, their number is printed instead


def describe_runs(runs: Sequence[Run]) -> list[Element]:
    """Returns a paragraph for each run that has started; empty for more than `_MAX_RUNS` runs."""
    elements = []
    for run in runs if len(runs) <= _MAX_RUNS else ():
        phrases = [
            _describe_model(run),
            _describe_data(run),
            _describe_duration(run),
            _describe_result(run),
        ]
        text = "; ".join(part for part in phrases if part)
        if text:
            elements.append(node("p", node("strong", run.name), f": {text}.", class_="headline"))
        if run.machine:
            names = ("started", "host", "devices", "cores", "software")
            values = [str(run.machine[name]) for name in names if name in run.machine]
            elements.append(node("p", " · ".join(values).replace(" · 1 x cpu", "")))
    return elements


def list_configs(runs: Sequence[Run]) -> Iterator[Element]:
    """Yields for each run a collapsed table of the config keys that differ from the defaults.

    Yields nothing for more than `_MAX_RUNS` runs.
    """
    for run in runs if len(runs) <= _MAX_RUNS else ():
        run_schema = finetuning if run.config.get("task.kind") else schema
        defaults = {path: field.default for path, field in run_schema.keys()}
        rows: list[list[Content]] = [
            [key, node("td", _shown(value), class_="text")]
            for key, value in run.config.items()
            if value != _plain(defaults.get(key))
        ]
        if rows:
            yield node("details", node("summary", run.name), table(["key", "value"], rows))


def _describe_model(run: Run) -> str:
    """Describes the objectives and the size of the model."""
    config = run.config
    objectives = [
        key.split(".")[1]
        for key, rows in config.items()
        if key.startswith("objectives.") and key.endswith(".batch_size") and rows
    ]
    is_fine_tuning = bool(config.get("task.kind"))
    goal = f"fine-tuned for {config['task.kind']}" if is_fine_tuning else ", ".join(objectives)
    sizes = [config.get("model.layers"), config.get("model.hidden")]
    known = all(isinstance(size, int) for size in sizes)
    layers = f"{sizes[0]} layer{'s' * (sizes[0] != 1)}"
    return goal + f" with {layers} of size {sizes[1]}" * bool(goal and known)


def _describe_data(run: Run) -> str:
    """Describes the languages and pairs of the data."""
    languages, pairs, task = (
        run.config.get(key) for key in ("data.languages", "data.pairs", "task.languages")
    )
    phrases = [_names_or_count(names, noun) for names, noun in (
        (languages, "languages"), (pairs, "pairs"), (task, "languages"))]  # fmt: skip
    return "on " + " and ".join(filter(None, phrases)) if any(phrases) else ""


def _names_or_count(names: Json, noun: str) -> str:
    if not isinstance(names, list) or not names:
        return ""
    return ", ".join(map(str, names)) if len(names) <= _MAX_NAMES else f"{len(names)} {noun}"


def _describe_duration(run: Run) -> str:
    """Describes the number of steps and the time of the run."""
    if not run.lines:
        return ""
    steps = f"{run.lines[-1]['step']:,} steps"
    seconds = [line["time/seconds"] for line in run.lines if _is_number(line.get("time/seconds"))]
    if not seconds:
        return steps
    minutes = seconds[-1] / 60
    shown = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
    return f"{steps} in {shown if minutes >= 2 else f'{seconds[-1]:.0f} seconds'}"


def _describe_result(run: Run) -> str:
    """Describes the mean metrics in the first and last evaluation, and the average task score."""
    evaluations = [line for line in run.lines if any(key.startswith("eval/") for key in line)]
    phrases = []
    if evaluations:
        first, last = evaluations[0], evaluations[-1]
        keys = [key for key in last if key.startswith("eval/") and key.count("/") == 2]
        keys = [key for key in keys if _is_number(last[key])]
        losses = [key for key in keys if key.endswith("/loss")]
        others = [key for key in keys if key.rpartition("/")[0] + "/loss" not in keys]
        for key in losses + others:
            name = " ".join(key.split("/")[1:]).replace("_", " ")
            before = (
                f"{first[key]:.3f} → " if _is_number(first.get(key)) and first is not last else ""
            )
            phrases.append(f"{name} {before}{last[key]:.3f}")
    average = run.results.get("average")
    if _is_number(average):
        phrases.append(f"average {run.results.get('metric', 'score')} {average:.1f}")
    return ", ".join(phrases)


def _is_number(value: object) -> TypeGuard[float]:
    """Returns whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
