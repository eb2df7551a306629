"""Summarises fine-tuning over seeds and languages: JSON, a table, a plot, and XTREME's files."""

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from xlj.config import Config, durations, finetuning
from xlj.config.languages import is_english
from xlj.config.task import Task, languages_of
from xlj.data.labelled import kind
from xlj.data.rows.report import align_columns
from xlj.evaluation import language_report
from xlj.evaluation.language_report import average, transfer_gap
from xlj.finetuning.task_runs import Outcome, TaskRun
from xlj.finetuning.task_scores import Scores, selection_score
from xlj.io import atomic
from xlj.io.json_file import Record

FILE = "results.json"
"""The file in a workdir with all results (`as_json`)."""
TABLE = "results.md"
"""The file in a workdir with a table of scores (`as_markdown`)."""


def split_of(outcome: Outcome) -> str:
    """Returns the split whose scores are reported: test, or dev if no test set has labels."""
    return "test" if any(run.test for run in outcome.runs) else "dev"


def as_json(name: str, config: Config, outcome: Outcome) -> Record:
    """Returns all results as a JSON object, in percent with four decimals.

    `languages`, `average` and `transfer_gap` are means of the task's metric over seeds. The gap is
    null unless all training data is in English. `deviations` are standard deviations over seeds
    (n - 1 degrees of freedom); the key is absent if there is only one seed.
    """
    split = split_of(outcome)
    seeds = by_seed(outcome, split)
    metrics = {
        name: _summary([scores[name] for scores in seeds], config) for name in (seeds or [{}])[0]
    }
    metric = next(iter(metrics), "")
    return {
        "task": name,
        "config": finetuning.as_tree(config),
        "learning_rate": outcome.learning_rate,
        "kind": config.task.kind,
        "metric": metric,
        "split": split,
        "init_from": config.init_from,
        "fresh": not config.transfer.parts,
        "select": config.task.select,
        "seeds": sorted({run.seed for run in outcome.runs}),
        **metrics.get(metric, {}),
        "metrics": metrics,
        "baseline": _round(outcome.baseline),
        "runs": [
            {
                "folder": run.folder.name,
                "languages": list(run.languages),
                "seed": run.seed,
                "step": run.step,
                "dev": _round(run.dev),
                "test": _round(run.test),
            }
            for run in outcome.runs
        ],
    }


def as_markdown(name: str, config: Config, outcome: Outcome) -> str:
    """Returns a Markdown table with columns for languages, the average and the transfer gap."""
    head, cells = _description(name, config, outcome), _cells(config, outcome)
    if not cells:
        return f"# {head}\n"
    return f"# {head}\n\n{language_report.markdown(cells)}\n"


def as_text(name: str, config: Config, outcome: Outcome) -> str:
    """Returns the scores for a terminal: a line for each language, a column for each metric."""
    head, cells = _description(name, config, outcome), _cells(config, outcome)
    rows = [list(row) for row in zip(*cells, strict=True)]
    lines = [line.rstrip() for line in align_columns(rows)] if rows else []
    return "\n".join([head, "", *lines, *_below_baseline(config, outcome)])


def _below_baseline(config: Config, outcome: Outcome) -> list[str]:
    """Returns a warning if the mean of the main metric, the first, is not above the baseline's."""
    seeds = by_seed(outcome, split_of(outcome))
    metric = next(iter(seeds[0]), "") if seeds else ""
    if metric not in outcome.baseline:
        return []
    mean = statistics.fmean(average(seed[metric]) for seed in seeds)
    if mean > average(outcome.baseline[metric]):
        return []
    trains = durations.read(config.train.steps).amount > 0
    advice = "; train longer, or raise optimizer.learning_rate" if trains else ""
    return [f"warning: the mean of {metric} is not above the baseline without a model{advice}"]


def _description(name: str, config: Config, outcome: Outcome) -> str:
    split = split_of(outcome)
    seeds = by_seed(outcome, split)
    if not seeds:
        return f"{name}\n\nThe data has no labels, so there are predictions but no scores."
    return f"{name}\n\n{_describe_scores(config, split, len(seeds))}"


_BASELINE = "most frequent"
"""The baseline, which predicts the most frequent label."""


def _cells(config: Config, outcome: Outcome) -> list[list[str]]:
    """Returns the rows of a table: the languages, the average and the transfer gap, then the scores
    of each metric and of the baseline. Empty without labels."""
    seeds = by_seed(outcome, split_of(outcome))
    if not seeds:
        return []
    first = next(iter(seeds[0].values()))
    languages, has_gap = language_report.in_order(first), _gap(first, config) is not None
    cells = [["", *languages, "average", *["gap"] * has_gap]]
    for metric in seeds[0]:
        values = [scores[metric] for scores in seeds]
        row = [_cell([by_language[language] for by_language in values]) for language in languages]
        gaps = [_cell([transfer_gap(by_language) or 0.0 for by_language in values])] * has_gap
        cells.append([metric, *row, _cell([average(by_language) for by_language in values]), *gaps])
    for metric, by_language in outcome.baseline.items():
        summary = [average(by_language), *[transfer_gap(by_language)] * has_gap]
        row = [language_report.cell(x) for x in (*map(by_language.get, languages), *summary)]
        cells.append([f"{_BASELINE}: {metric}", *row])
    return cells


def _describe_scores(config: Config, split: str, seeds: int) -> str:
    """Returns a sentence that describes the scores."""
    training_languages = (
        "each language" if config.task.per_language else ", ".join(config.task.languages)
    )
    checkpoint_choice = {
        "all": "checkpoints chosen by the mean dev score",
        "trained": f"checkpoints chosen by the dev score of {training_languages}",
        "last": "the last checkpoint",
    }
    trains = durations.read(config.train.steps).amount > 0
    training = f"trained on {training_languages}" if trains else "without further training"
    phrases = [
        f"From {config.init_from}{'' if config.transfer.parts else ' (fresh weights)'}",
        *["pairs encoded separately"] * (config.task.pairs == "apart"),
        f"{training}; {split} scores in percent",
        *[f"mean ± standard deviation over {seeds} seeds"] * (seeds > 1),
        *[checkpoint_choice[config.task.select]] * trains,
    ]
    return ", ".join(phrases) + "."


def by_seed(outcome: Outcome, split: str) -> list[Scores]:
    """Returns the scores of each seed, in order of the seeds.

    If each language has its own model, the scores of the models with one seed are merged.
    """
    merged: dict[int, Scores] = {}
    for run in outcome.runs:
        for metric, scores in getattr(run, split).items():
            merged.setdefault(run.seed, {}).setdefault(metric, {}).update(scores)
    return [merged[seed] for seed in sorted(merged)]


def write(workdir: Path, name: str, config: Config, outcome: Outcome) -> tuple[Path, Path]:
    """Writes `FILE` and `TABLE` into the workdir.

    Returns:
      The paths of the two files.
    """
    content = json.dumps(as_json(name, config, outcome), indent=1, ensure_ascii=False) + "\n"
    atomic.write(workdir / TABLE, as_markdown(name, config, outcome).encode())
    # Written last: a sweep regards the run as finished if this file exists.
    atomic.write(workdir / FILE, content.encode())
    return workdir / FILE, workdir / TABLE


def panels(outcome: Outcome) -> dict[str, dict[str, float]]:
    """Returns the panels of a plot: by metric, the means over seeds by language; empty without
    labels."""
    seeds = by_seed(outcome, split_of(outcome))
    return {
        metric: {
            language: statistics.fmean(scores[metric][language] for scores in seeds)
            for language in seeds[0][metric]
        }
        for metric in (seeds or [{}])[0]
    }


def submission_files(folder: Path, task: Task) -> list[Path]:
    """Returns the paths to which `submit` may write predictions in the folder of a task."""
    ending, languages = kind.find(task.effective_kind).ending, languages_of(task)["test"]
    return [folder / f"test-{language}.{ending}" for language in languages]


def submit(folder: Path, name: str, config: Config, outcome: Outcome) -> tuple[Path, list[Path]]:
    """Copies predictions of test sets to `folder/NAME/test-LANGUAGE.ENDING`, XTREME's layout.

    The predictions are those of the seed with the best score on dev.

    Returns:
      The folder `folder/NAME`, and the files test-* in it that this call did not write.
    """
    best: dict[tuple[str, ...], TaskRun] = {}
    for run in outcome.runs:  # among equal scores, the first seed is used
        candidates = best.get(run.languages, run), run
        best[run.languages] = max(candidates, key=lambda run: _dev_score(run, config.task))
    ending = kind.find(config.task.effective_kind).ending
    files = [file for run in best.values()
             for file in sorted((run.folder / "predictions").glob(f"test-*.{ending}"))]  # fmt: skip
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / name / file.name)
    copied = {file.name for file in files}
    others = [file for file in (folder / name).glob("test-*") if file.name not in copied]
    return folder / name, sorted(others)


def _dev_score(run: TaskRun, task: Task) -> float:
    return selection_score(run.dev, task, run.languages) if run.dev else 0.0


def _gap(scores: Mapping[str, float], config: Config) -> float | None:
    """Returns the transfer gap if the training data is English only, else None."""
    transfers = all(map(is_english, config.task.languages))
    return transfer_gap(scores) if transfers else None


def _summary(seeds: Sequence[Mapping[str, float]], config: Config) -> Record:
    languages = language_report.in_order(seeds[0])
    summary: Record = {
        "languages": {
            name: round(statistics.fmean(seed[name] for seed in seeds), 4) for name in languages
        }
    }
    averages = [average(seed) for seed in seeds]
    gaps = [gap for seed in seeds if (gap := _gap(seed, config)) is not None]
    summary["average"] = round(statistics.fmean(averages), 4)
    summary["transfer_gap"] = round(statistics.fmean(gaps), 4) if gaps else None
    if len(seeds) > 1:
        summary["deviations"] = {
            name: round(statistics.stdev(seed[name] for seed in seeds), 4) for name in languages
        }
        summary["deviation_of_average"] = round(statistics.stdev(averages), 4)
        if gaps:
            summary["deviation_of_transfer_gap"] = round(statistics.stdev(gaps), 4)
    return summary


def _cell(values: Sequence[float]) -> str:
    shown = language_report.cell(statistics.fmean(values))
    return f"{shown} ± {statistics.stdev(values):.1f}" if len(values) > 1 else shown


def _round(scores: Scores) -> Scores:
    return {name: {k: round(v, 4) for k, v in values.items()} for name, values in scores.items()}
