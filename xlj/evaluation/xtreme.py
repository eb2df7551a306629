"""Scores XTREME's nine tasks (Hu et al., 2020) from folders of labels and predictions."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from xlj.config import ConfigError
from xlj.data.labelled.conll import CHUNK_TAG
from xlj.evaluation import language_report, metrics, prediction_files
from xlj.evaluation.metrics import accuracy, chunk_scores, pair_scores
from xlj.evaluation.prediction_files import Form
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

_NLI = Form("entailment|neutral|contradiction", "entailment, neutral or contradiction")
_PARAPHRASE = Form("[01]", "0 or 1")
_INDEX = Form(r"-?\d+", "an index, a whole number")
_WORD_CLASS = Form(r"[A-Z]+|_", "a universal part-of-speech tag")
_ENTITY = Form(CHUNK_TAG, "O or a tag such as B-PER")

Score = Callable[[Path, Path, str], dict[str, float]]
"""A function (file of gold labels, file of predictions, language) -> scores (0 to 1) by metric. It
raises a `ConfigError` if a file is malformed."""


@dataclass(frozen=True)
class XtremeTask:
    """A task of XTREME. Its files are `NAME/test-LANGUAGE.ENDING`.

    Attributes:
      name: the name of the task's folder.
      group: the name of the task's group. XTREME reports the average score of each group.
      metrics: the metrics whose mean is the task's score.
      score: function that computes these metrics, and possibly other metrics, for one language.
      ending: the ending of the names of the task's files.
    """

    name: str
    group: str
    metrics: tuple[str, ...]
    score: Score
    ending: str = "tsv"

    @property
    def languages(self) -> set[str]:
        """The languages of the task in XTREME."""
        return set(_LANGUAGES[self.name].split())


@dataclass(frozen=True)
class Result:
    """The scores of a task in percent, by metric and language."""

    task: XtremeTask
    metrics: dict[str, dict[str, float]]

    @property
    def score(self) -> float:
        """The score that XTREME reports: the mean over languages, and for question answering the
        mean of exact match and F1."""
        averages = [language_report.average(self.metrics[name]) for name in self.task.metrics]
        return sum(averages) / len(averages)

    @property
    def transfer_gap(self) -> float | None:
        """The score in English minus the mean of the other languages; None if either is missing.

        For tasks with several metrics, it is the gap of exact match, as in XLM-E's Table 5.
        """
        return language_report.transfer_gap(self.metrics[self.task.metrics[0]])

    @property
    def is_complete(self) -> bool:
        """Whether all of the task's languages in XTREME have scores."""
        return set(self.metrics[self.task.metrics[0]]) == self.task.languages


def _labels(gold: Path, predicted: Path, language: str, form: Form) -> dict[str, float]:
    gold_values, predictions = prediction_files.labels(gold, predicted, form)
    return {"accuracy": accuracy(predictions, gold_values)}


def _tags(gold: Path, predicted: Path, language: str, form: Form, raw: bool) -> dict[str, float]:
    gold_values, predictions = prediction_files.tags(gold, predicted, form)
    return chunk_scores(predictions, gold_values, raw)._asdict()


def _pairs(gold: Path, predicted: Path, language: str) -> dict[str, float]:
    gold_values = prediction_files.pairs(gold)
    if not gold_values:
        raise ConfigError(f"{gold} is empty; expected gold pairs")
    return pair_scores(prediction_files.pairs(predicted), gold_values)._asdict()


def _answers(gold: Path, predicted: Path, language: str, by_language: bool) -> dict[str, float]:
    questions = prediction_files.questions(gold)
    predictions = prediction_files.answers(predicted)
    known = {identity for identity, _ in questions}
    if unknown := sorted(predictions.keys() - known):
        raise ConfigError(f"{predicted}: {quoted(unknown[0])} is not a question of {gold}")
    if missing := sorted(known - predictions.keys()):
        raise ConfigError(
            f"{predicted} answers {len(known) - len(missing)} of the {len(known)} questions of "
            f'{gold}, but not {quoted(missing[0])}; write "" for questions without an answer'
        )
    normalise = (
        partial(metrics.normalise_mlqa, language=language)
        if by_language
        else metrics.normalise_squad
    )
    return metrics.answer_scores(predictions, questions, normalise)._asdict()


_LANGUAGES = {
    "xnli": "ar bg de el en es fr hi ru sw th tr ur vi zh",
    "pawsx": "de en es fr ja ko zh",
    "udpos": "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl "
    "tr ur vi yo zh",
    "panx": "af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl "
    "pt ru sw ta te th tl tr ur vi yo zh",
    "xquad": "ar de el en es hi ru th tr vi zh",
    "mlqa": "ar de en es hi vi zh",
    "tydiqa": "ar bn en fi id ko ru sw te",
    "bucc2018": "de fr ru zh",
    "tatoeba": "af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru "
    "sw ta te th tl tr ur vi zh",
}
_SQUAD, _MLQA = partial(_answers, by_language=False), partial(_answers, by_language=True)
_EXACT_AND_F1 = ("exact_match", "f1")
TASKS = (
    XtremeTask("xnli", "classification", ("accuracy",), partial(_labels, form=_NLI)),
    XtremeTask("pawsx", "classification", ("accuracy",), partial(_labels, form=_PARAPHRASE)),
    XtremeTask("udpos", "tagging", ("f1",), partial(_tags, form=_WORD_CLASS, raw=True)),
    XtremeTask("panx", "tagging", ("f1",), partial(_tags, form=_ENTITY, raw=False)),
    XtremeTask("xquad", "qa", _EXACT_AND_F1, _SQUAD, "json"),
    XtremeTask("mlqa", "qa", _EXACT_AND_F1, _MLQA, "json"),
    XtremeTask("tydiqa", "qa", _EXACT_AND_F1, _SQUAD, "json"),
    XtremeTask("bucc2018", "retrieval", ("f1",), _pairs),
    XtremeTask("tatoeba", "retrieval", ("accuracy",), partial(_labels, form=_INDEX)),
)
"""XTREME's tasks, in the order of the papers' tables."""


def score(labels: Path, predictions: Path) -> tuple[list[Result], list[str]]:
    """Scores all tasks that have a folder in both arguments, in XTREME's languages.

    Args:
      labels, predictions: folders with files `TASK/test-LANGUAGE.tsv` (`.json` for question
        answering).

    Returns:
      The results in the order of `TASKS`, and messages about tasks, languages and files that were
      skipped.

    Raises:
      ConfigError: if a folder is missing, there is nothing to score, a file is malformed, or a file
        is in one of the two folders only.
    """
    for folder in (labels, predictions):
        if not folder.is_dir():
            raise ConfigError(
                f"{folder} is not a folder; expected a folder with tasks of XTREME, such as xnli/"
            )
    results, notes = [], []
    for task in TASKS:
        sides = labels / task.name, predictions / task.name
        missing = [side for side in sides if not side.is_dir()]
        if missing:
            notes.append(f"skipped {task.name}: {missing[0]} does not exist")
        else:
            results.append(_score(task, *sides, notes))
    folders = {folder.name for folder in predictions.iterdir() if folder.is_dir()}
    for name in sorted(folders - _LANGUAGES.keys()):
        notes.append(f"skipped {name}: not a task of XTREME ({', '.join(_LANGUAGES)})")
    if not results:
        raise ConfigError(
            f"{labels} and {predictions} have no task in common; expected folders such as xnli/"
        )
    return results, notes


def _score(task: XtremeTask, labels: Path, predictions: Path, notes: list[str]) -> Result:
    metrics: dict[str, dict[str, float]] = {}
    missing = []
    ordered = language_report.in_order(task.languages)
    names = {language: f"test-{language}.{task.ending}" for language in ordered}
    for language, name in names.items():
        files = labels / name, predictions / name
        missing_files = [file for file in files if not file.is_file()]
        if len(missing_files) == 2:
            missing.append(language)
            continue
        if missing_files:
            raise ConfigError(
                f"{missing_files[0]} is missing, but the file of this name in the other folder "
                "exists; add the missing file, or remove both"
            )
        for metric, share in task.score(*files, language).items():
            metrics.setdefault(metric, {})[language] = 100 * share
    if not metrics:
        raise ConfigError(f"{labels} has no file test-LANGUAGE.{task.ending} of XTREME's languages")
    if missing:
        notes.append(f"{task.name}: no files for {', '.join(missing)}")
    for other in sorted({file.name for file in predictions.iterdir()} - {*names.values()}):
        notes.append(f"skipped {predictions / other}: not a language of this task in XTREME")
    return Result(task, metrics)


def overall(results: list[Result]) -> tuple[dict[str, float], float | None]:
    """Returns (scores by task group, score of all nine tasks), as XTREME computes them.

    Each score is the mean of the scores of its tasks. Groups with a missing or incomplete task are
    left out. The second value is None unless all nine tasks are complete.
    """
    complete_scores = {result.task.name: result.score for result in results if result.is_complete}
    by_group = {}
    for group, tasks in itertools.groupby(TASKS, lambda task: task.group):
        names = [task.name for task in tasks]
        if complete_scores.keys() >= {*names}:
            by_group[group] = sum(complete_scores[name] for name in names) / len(names)
    total = (
        sum(complete_scores.values()) / len(TASKS) if len(complete_scores) == len(TASKS) else None
    )
    return by_group, total


def as_json(results: list[Result]) -> Record:
    """Returns all scores as a JSON object, in percent with six decimals."""
    groups, total = overall(results)
    tasks = {
        result.task.name: {
            "score": _round(result.score),
            **{
                metric: {
                    "average": _round(language_report.average(scores)),
                    "transfer_gap": _round(language_report.transfer_gap(scores)),
                    "languages": {language: _round(value) for language, value in scores.items()},
                }
                for metric, scores in result.metrics.items()
            },
        }
        for result in results
    }
    rounded = {group: _round(value) for group, value in groups.items()}
    return {"score": _round(total), "groups": rounded, "tasks": tasks}


def as_markdown(results: list[Result]) -> str:
    """Returns Markdown: a summary, and a table of scores by language for each task, in percent."""
    cell, (_, total) = language_report.cell, overall(results)
    summary = [
        ["", *(result.task.name for result in results), "average"],
        ["score", *(cell(result.score) for result in results), cell(total)],
        ["transfer gap", *(cell(result.transfer_gap) for result in results), ""],
    ]
    sections = [
        "# XTREME",
        language_report.markdown(summary),
        "The score of question answering tasks is the mean of exact match and F1. The transfer gap "
        "is the score in English minus the mean of the other languages (for question answering, "
        "of exact match).",
    ]
    for result in results:
        headline = {_TITLES[name]: result.metrics[name] for name in result.task.metrics}
        sections += [f"## {result.task.name}", language_report.table(headline)]
    return "\n\n".join(sections) + "\n"


def panels(results: list[Result]) -> dict[str, dict[str, float]]:
    """Returns the panels of a plot: by title, the scores of each task in percent by language.

    The scores are the values of the task's last metric, which is F1 for question answering.
    """
    chosen = [(result, result.task.metrics[-1]) for result in results]
    return {f"{r.task.name}: {_TITLES[name]}": r.metrics[name] for r, name in chosen}


_TITLES = {"accuracy": "accuracy", "exact_match": "EM", "f1": "F1"}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
