"""What a report says first: what was trained, on what, for how long, with what result, where."""

import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard
from xml.etree.ElementTree import Element

from xlj.config import finetuning, schema
from xlj.io.json_file import Json
from xlj.reporting.markup import Content, node, table
from xlj.reporting.runs import Run

_MOST = 4  # runs; of more the table says enough
_LISTED = 6  # languages or pairs


def of(runs: Sequence[Run]) -> list[Element]:
    """A paragraph for each run that has begun, if they are few."""
    made = []
    for run in runs if len(runs) <= _MOST else ():
        parts = [_trained(run), _on(run), _duration(run), _result(run)]
        said = "; ".join(part for part in parts if part)
        if said:
            made.append(node("p", node("strong", run.name), f": {said}.", class_="headline"))
        if run.machine:
            names = ("started", "host", "devices", "cores", "software")
            values = [str(run.machine[name]) for name in names if name in run.machine]
            made.append(node("p", " · ".join(values).replace(" · 1 x cpu", "")))
    return made


def configs(runs: Sequence[Run]) -> Iterator[Element]:
    """For each run, folded, its keys that are not at their defaults."""
    for run in runs if len(runs) <= _MOST else ():
        of_kind = finetuning if "task.kind" in run.config else schema
        defaults = {path: field.default for path, field in of_kind.keys()}
        rows: list[list[Content]] = [
            [key, node("td", _shown(value), class_="text")]
            for key, value in run.config.items()
            if value != _plain(defaults.get(key))
        ]
        if rows:
            yield node("details", node("summary", run.name), table(["key", "value"], rows))


def _trained(run: Run) -> str:
    """The objectives, and the sizes of the model."""
    config = run.config
    ends = ("objectives.", ".batch_rows")
    on = [
        key.split(".")[1] for key, rows in config.items() if key.startswith(ends[0])
        and key.endswith(ends[1]) and rows
    ]  # fmt: skip
    what = f"{config['task.kind']}, fine-tuned" if "task.kind" in config else ", ".join(on)
    sizes = [config.get("model.layers"), config.get("model.hidden")]
    known = all(isinstance(size, int) for size in sizes)
    layers = f"{sizes[0]} layer{'s' * (sizes[0] != 1)}"
    return what + f" with {layers} of {sizes[1]}" * bool(what and known)


def _on(run: Run) -> str:
    """The languages and pairs."""
    languages, pairs, task = (
        run.config.get(key) for key in ("data.languages", "data.pairs", "task.languages")
    )
    parts = [_listed(named, what) for named, what in (
        (languages, "languages"), (pairs, "pairs"), (task, "languages"))]  # fmt: skip
    return "on " + " and ".join(filter(None, parts)) if any(parts) else ""


def _listed(names: Json, what: str) -> str:
    if not isinstance(names, list) or not names:
        return ""
    return ", ".join(map(str, names)) if len(names) <= _LISTED else f"{len(names)} {what}"


def _duration(run: Run) -> str:
    """Steps, and the time that they took."""
    if not run.lines:
        return ""
    steps = f"{run.lines[-1]['step']:,} steps"
    seconds = [line["time/seconds"] for line in run.lines if _is_number(line.get("time/seconds"))]
    if not seconds:
        return steps
    minutes = seconds[-1] / 60
    shown = f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"
    return f"{steps} in {shown if minutes >= 2 else f'{seconds[-1]:.0f} seconds'}"


def _result(run: Run) -> str:
    """The means of the first and of the last evaluation, and a task's average."""
    evaluations = [line for line in run.lines if any(key.startswith("eval/") for key in line)]
    said = []
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
            said.append(f"{name} {before}{last[key]:.3f}")
    average = run.results.get("average")
    if _is_number(average):
        said.append(f"{run.results.get('metric', 'score')} {average:.1f} on average")
    return ", ".join(said)


def _is_number(value: object) -> TypeGuard[float]:
    """Whether this is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
