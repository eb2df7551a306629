"""The report page: compares runs by step, language, layer, task and config.

CSS rules give each run its colour, and hide it.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard
from xml.etree.ElementTree import Element

from xlj.checkpoints.metrics import Line
from xlj.evaluation import adaptation_record
from xlj.io.json_file import Json, Record
from xlj.io.markup import Content, document, node, table
from xlj.tools.reporting import headline
from xlj.tools.reporting.charts import Series, draw_bars, draw_curves
from xlj.tools.reporting.runs import Run

_LOWER_IS_BETTER = ("loss", "perplexity", "aer", "xsim", "xsimpp")
_SUMMARIES = ("average", "transfer_gap")
_NONE = "–"


def page(runs: Sequence[Run], title: str) -> str:
    """Returns the HTML of a report as a single self-contained page."""
    body = [node("h1", title), *headline.describe_runs(runs)]
    for heading, note, content in (
        ("Runs", "Untick a run to hide it.", [_overview(runs)]),
        ("Notes", "", _notes(runs)),
        (
            "Before and after",
            "First bar: the model before it was adapted. Second bar: after.",
            [element for run in runs for element in _adaptation(run)],
        ),
        (
            "Losses",
            "Thin lines: training data. Lines with points: held-out data.",
            [_charts(_losses(runs))],
        ),
        ("Other metrics on held-out data", "", [_charts(_other_metrics(runs))]),
        ("Schedule", "Values that the config sets at each step.", _schedule(runs)),
        (
            "Results by language",
            "These are the results of the last evaluation of each run.",
            _by_language(runs),
        ),
        ("Results by layer", "Layer 0 is the embeddings.", [_charts(_by_layer(runs))]),
        (
            "Tasks",
            "Scores are in percent. A run with several seeds has mean ± standard deviation.",
            _tasks(runs),
        ),
        ("Config differences", "Keys with different values in these runs.", [*_differences(runs)]),
        ("Configs", "Keys that differ from the defaults.", [*headline.list_configs(runs)]),
        ("Training metrics", "", _training(runs)),
    ):
        content = [element for element in content if len(element)]
        if content:
            body += [node("h2", heading), *[node("p", note)] * bool(note), *content]
    return document(title, style(max(2, len(runs))), body)


def _overview(runs: Sequence[Run]) -> Element:
    last = [_last_evaluation(run) | _result(run) for run in runs]
    keys = _ordered(key for values in last for key in values if _is_main(key, values, levels=3))
    head = ["run", "steps", "time", "tokens/s", *(_title(key) for key in keys)]
    best = {key: _best(key, [values.get(key) for values in last]) for key in keys}
    rows: list[list[Content]] = []
    for place, (run, values) in enumerate(zip(runs, last, strict=True)):
        cells = [_value(values.get(key), values.get(key) == best[key]) for key in keys]
        rows.append([_label(place, run.name), _steps(run), _time(run), _speed(run), *cells])
    return table(head, rows)


def _label(place: int, name: str) -> Element:
    """Returns a run's name, a checkbox that shows or hides the run, and a sample of its line."""
    box = node("input", type="checkbox", checked="", id=f"show{place}")
    line = node("svg", node("polyline", points="0,5 26,5"), viewBox="0 0 26 10")
    return node("label", box, line, name, class_=f"of{place}")


def _steps(run: Run) -> str:
    if not run.lines:
        return _NONE
    done, planned = run.lines[-1]["step"], run.config.get("train.steps")
    is_unfinished = isinstance(planned, int) and planned != done
    return f"{done:,} of {planned:,}" if is_unfinished else f"{done:,}"


def _time(run: Run) -> str:
    seconds = [value for _, value in _points(run.lines, "time/seconds") if math.isfinite(value)]
    if not seconds:
        return _NONE
    minutes, rest = divmod(round(seconds[-1]), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _speed(run: Run) -> str:
    speeds = [value for _, value in _points(run.lines, "time/tokens_per_second")]
    return f"{statistics.median(speeds):,.0f}" if speeds else _NONE


def _value(value: float | None, is_best: bool = False) -> Content:
    if value is None:
        return _NONE
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"
    return node("b", text) if is_best else text


def _best(key: str, values: Sequence[float | None]) -> float | None:
    """Returns the best finite value of a metric; None if there are not two different values."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(set(finite)) < 2:
        return None
    return min(finite) if key.rpartition("/")[2] in _LOWER_IS_BETTER else max(finite)


def _notes(runs: Sequence[Run]) -> list[Element]:
    return [node("ul", *(node("li", f"{run.name}: {x}") for run in runs for x in run.notes))]


def _adaptation(run: Run) -> Iterator[Element]:
    """Yields bars and a table of the measures before and after an adaptation."""
    scores = adaptation_record.sides(run.adaptation)
    if not scores:
        return
    figures = []
    for measure, label in adaptation_record.LABELS.items():
        groups: dict[str, dict[int, float]] = {}
        for side, values in enumerate(scores.values()):
            for name, value in values.get(measure, {}).items():
                groups.setdefault(name, {})[side] = value
        figures.append((label, draw_bars(groups, list(scores))))
    yield _charts(figures)
    head, *rows = adaptation_record.table(*scores.values())
    yield node("details", node("summary", "as a table"), table(head, list(map(list, rows))))


def _losses(runs: Sequence[Run]) -> Iterator[tuple[str, Element | None]]:
    keys = _all_keys(runs)
    for name in _ordered(key.split("/")[1] for key in keys if _is_loss(key)):
        held_out = _series(runs, f"eval/{name}/loss")
        training = _series(runs, f"train/{name}/loss", faint=True)
        yield name, draw_curves([*training, *held_out], "step")


def _is_loss(key: str) -> bool:
    return key.startswith(("train/", "eval/")) and key.endswith("/loss") and key.count("/") == 2


def _other_metrics(runs: Sequence[Run]) -> Iterator[tuple[str, Element | None]]:
    for key in _all_keys(runs):
        if key.startswith("eval/") and key.count("/") == 2 and not _is_loss(key):
            yield _title(key), draw_curves(_series(runs, key), "step")


def schedule(lines: Sequence[Line], title: str) -> str:
    """Returns the HTML of a page that draws the schedule of a run.

    Args:
      lines: the result of `xlj.training.schedule.make_lines`.
      title: the title of the page.
    """
    run = Run(title, Path(), {}, (), {}, {}, (), schedule=lines)
    return document(title, style(1), [node("h1", title), *_schedule([run])])


def _schedule(runs: Sequence[Run]) -> list[Element]:
    charts = _charts(
        (_plain(key), draw_curves(_series(runs, key, faint=True, of="schedule"), "step"))
        for key in _ordered(key for run in runs for line in run.schedule for key in line)
        if key != "step"
    )
    return [charts] if len(charts) else []


def _plain(key: str) -> str:
    return key.replace("/", " ").replace("_", " ")


def _training(runs: Sequence[Run]) -> list[Element]:
    """Returns collapsed charts of the metrics that are neither losses nor evaluations."""
    charts = _charts(
        (_plain(key), draw_curves(_series(runs, key), "step"))
        for key in _all_keys(runs)
        if not key.startswith("eval/") and not _is_loss(key) and key not in ("step", "time/seconds")
    )
    return [node("details", node("summary", "Show charts"), charts)] if len(charts) else []


def _by_language(runs: Sequence[Run]) -> list[Element]:
    last = [_last_evaluation(run) for run in runs]
    keys = _ordered(key for values in last for key in values if _is_main(key, values, levels=4))
    groups: dict[str, dict[str, dict[int, float]]] = {}
    for key in keys:
        _, name, language, metric = key.split("/")
        by_run = {place: values[key] for place, values in enumerate(last) if key in values}
        groups.setdefault(_title(f"/{name}/{metric}"), {})[language] = by_run
    names = [run.name for run in runs]
    charts = _charts((title, draw_bars(group, names)) for title, group in groups.items())
    tables = [
        element
        for title, group in groups.items()
        for element in (node("h3", title), _language_table(group, names))
    ]
    return [charts, node("details", node("summary", "Show tables"), *tables)] if groups else []


def _language_table(groups: Mapping[str, Mapping[int, float]], names: Sequence[str]) -> Element:
    """Returns a table with a row per run that has values, and a column per language."""
    with_values = [
        run for run in range(len(names)) if any(run in group for group in groups.values())
    ]
    rows: list[list[Content]] = [
        [names[run], *(_value(group.get(run)) for group in groups.values())] for run in with_values
    ]
    return table(["", *groups], rows)


def _by_layer(runs: Sequence[Run]) -> Iterator[tuple[str, Element | None]]:
    for title in _ordered(metric for run in runs for metric in run.layers):
        series = [
            Series(place, run.name, list(run.layers[title].items()))
            for place, run in enumerate(runs)
            if title in run.layers
        ]
        yield title.replace("_", " "), draw_curves(series, "layer")


def _tasks(runs: Sequence[Run]) -> list[Element]:
    """Returns a bar chart and a table for each task and metric with results."""
    elements: list[Element] = []
    for task in _ordered(_task(run) for run in runs if run.results):
        run_indices = [
            place for place, run in enumerate(runs) if run.results and _task(run) == task
        ]
        groups: dict[str, dict[int, float]] = {}
        for place in run_indices:
            for language, score in _scores(runs[place].results.get("languages")).items():
                groups.setdefault(language, {})[place] = score
        languages = list(groups)
        rows = [
            _task_row(runs[place].name, runs[place].results, languages) for place in run_indices
        ]
        rows += _baselines([runs[place] for place in run_indices], languages)
        elements.append(_charts([(task, draw_bars(groups, [run.name for run in runs]))]))
        elements.append(table(["", *languages, "average", "transfer gap"], rows))
    return elements


def _baselines(runs: Sequence[Run], languages: Sequence[str]) -> Iterator[list[Content]]:
    """Yields a row with the scores of always predicting the most frequent label. If the scores of
    the runs differ, yields a row for each run."""
    baselines = [
        (run, _scores(_dict(run.results.get("baseline")).get(_metric(run)))) for run in runs
    ]
    baselines = [(run, scores) for run, scores in baselines if scores]
    same = all(scores == baselines[0][1] for _, scores in baselines)
    for run, scores in baselines[:1] if same else baselines:
        name = "most frequent label" if same else f"most frequent label: {run.name}"
        average = statistics.fmean(scores.values())
        yield _task_row(name, {"languages": scores, "average": average}, languages)


def _task(run: Run) -> str:
    """Returns the title of the table that contains a run's results.

    Runs without a labelled test set have results on dev sets, which are in a separate table.
    """
    on_dev = " (dev)" if run.results.get("split") == "dev" else ""
    return f"{run.results.get('task', 'task')} {_metric(run)}{on_dev}".strip()


def _metric(run: Run) -> str:
    return str(run.results.get("metric", ""))


def _task_row(name: str, results: Record, languages: Sequence[str]) -> list[Content]:
    scores, deviations = _scores(results.get("languages")), _scores(results.get("deviations"))
    scores |= {key: value for key, value in _scores(results).items() if key in _SUMMARIES}
    for key in _SUMMARIES:
        if _is_number(deviation := results.get(f"deviation_of_{key}")):
            deviations[key] = deviation
    row: list[Content] = [name]
    for column in (*languages, *_SUMMARIES):
        spread = f" ± {deviations[column]:.1f}" if column in deviations else ""
        row.append(f"{scores[column]:.1f}{spread}" if column in scores else _NONE)
    return row


def _scores(value: Json) -> dict[str, float]:
    return {name: score for name, score in _dict(value).items() if _is_number(score)}


def _dict(value: Json) -> dict:
    return value if isinstance(value, dict) else {}


def _differences(runs: Sequence[Run]) -> Iterator[Element]:
    """Yields tables of the config keys that differ between runs.

    Pretraining runs and fine-tuning runs have different keys, so each kind has a table. The run of
    a single seed is left out if the fine-tuning run that contains it is on the page.
    """
    folders = {run.workdir for run in runs}
    whole = [run for run in runs if run.config and run.workdir.parent not in folders]
    for fine_tunes in (False, True):
        of_schema = [run for run in whole if bool(run.config.get("task.kind")) == fine_tunes]
        configs = [run.config for run in of_schema]
        keys = _ordered(key for config in configs for key in config)
        rows: list[list[Content]] = [
            [key, *(node("td", _setting(config.get(key)), class_="text") for config in configs)]
            for key in keys
            if any(config.get(key) != configs[0].get(key) for config in configs)
        ]
        if rows:
            yield table(["", *(run.name for run in of_schema)], rows)


def _setting(value: Json) -> str:
    if value is None or value == "":
        return _NONE
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _charts(titled: Iterable[tuple[str, Element | None]]) -> Element:
    """Returns a grid of figures. Charts that are None are left out."""
    figures = []
    for title, chart in titled:
        if chart is not None:
            kind = "broad" if any("style" in element.attrib for element in chart) else ""
            figures.append(node("figure", node("h3", title), chart, class_=kind))
    return node("div", *figures, class_="charts")


def _series(runs: Sequence[Run], key: str, faint: bool = False, of: str = "lines") -> list[Series]:
    """Returns the values of a key by step, for each run that has values.

    Args:
      of: the attribute of `Run` with the values, `lines` (metrics) or `schedule`.
    """
    series = [
        Series(place, run.name, _points(getattr(run, of), key), faint)
        for place, run in enumerate(runs)
    ]
    return [one for one in series if one.points]


def _points(lines: Sequence[Line], key: str) -> list[tuple[float, float]]:
    return [(line["step"], line[key]) for line in lines if _is_number(line.get(key))]


def _last_evaluation(run: Run) -> dict[str, float]:
    """Returns the metrics of the last evaluation of a run; empty if the run has none."""
    for line in reversed(run.lines):
        values = {k: v for k, v in line.items() if k.startswith("eval/") and _is_number(v)}
        if values:
            return values
    return {}


def _result(run: Run) -> dict[str, float]:
    """Returns the average of a run's results, under a key in the form `task/TASK/average`."""
    average = run.results.get("average")
    return {f"task/{_task(run).replace('/', ' ')}/average": average} if _is_number(average) else {}


def _is_main(key: str, values: Mapping[str, float], levels: int) -> bool:
    """Returns whether tables and bar charts show a metric.

    Args:
      key: the key of the metric, such as `eval/NAME/METRIC`.
      values: all metrics by key. If an evaluation has a loss, its other metrics are not shown.
      levels: the number of levels that the key must have.
    """
    stem, _, metric = key.rpartition("/")
    return key.count("/") == levels - 1 and (metric == "loss" or f"{stem}/loss" not in values)


def _title(key: str) -> str:
    return " ".join(key.split("/")[1:]).replace("_", " ")


def _is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_keys(runs: Sequence[Run]) -> list[str]:
    return _ordered(key for run in runs for line in run.lines for key in line)


def _ordered(names: Iterable[str]) -> list[str]:
    """Returns each name once, in the order of first appearance."""
    return list(dict.fromkeys(names))


_COLOURS = "#3b82c4 #e8742c #2f9e61 #c9423f #8b63c9 #b0850f #12969e #d6539c #7a8b2a #7f7f8c".split()
"""Colours of the runs, readable on white and on black backgrounds."""
_DASHES = ("none", "6 3", "2 2", "8 3 2 3")


def style(runs: int) -> str:
    """Returns the CSS rules that colour and hide each run.

    From the eleventh run on, the colours repeat, and lines are dashed.

    Args:
      runs: the number of runs.
    """
    rules = []
    for run in range(runs):
        cycle, place = divmod(run, len(_COLOURS))
        colour, dash = _COLOURS[place], _DASHES[cycle % len(_DASHES)]
        rules.append(f".run{run}, .of{run} {{ --colour: {colour}; --dash: {dash}; }}")
        rules.append(f"body:has(#show{run}:not(:checked)) .run{run} {{ display: none; }}")
    return "\n".join(rules)
