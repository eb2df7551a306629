"""Section `task` of a config: the data and options of fine-tuning, and the table of kinds of tasks.

Users can extend the table.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from xlj.config.fields import ConfigError, Section, Unused, key, only_if_set, suggestion
from xlj.config.sections import TASK_POOLINGS
from xlj.config.user_code import function_of

KINDS = {
    "classification": "xlj.tasks.classification:Classification",
    "tagging": "xlj.tasks.tagging:Tagging",
    "question_answering": "xlj.tasks.question_answering:QuestionAnswering",
    "regression": "xlj.tasks.regression:Regression",
    "multiple_choice": "xlj.tasks.multiple_choice:MultipleChoice",
    "word_links": "xlj.tasks.word_links:WordLinks",
}
"""Kinds of tasks by name: `module:function`, where the function takes no arguments and returns a
`data.labelled.kind.TaskKind`. `task.kind` names a user's kind in the same form."""

VARIANTS = {"pair_classification": "xlj.tasks.classification:PairClassification"}
"""Kinds that another key of the task selects (`TaskKind.chosen_by`), in the form of `KINDS`."""


@cache
def load(kind: str) -> Any:
    """Returns the `TaskKind` of a kind.

    Args:
      kind: a name in `KINDS` or `VARIANTS`, or `module:function`.

    Raises:
      ConfigError: if there is no such kind, or if a user's kind has no name, the name of one of
        xlj's kinds, or no metrics.
    """
    implementation = (KINDS | VARIANTS).get(kind, kind)
    if ":" not in implementation:
        raise ConfigError(
            f"task.kind is {kind!r}; it must be one of {', '.join(KINDS)}, or module:function"
            f"{suggestion(kind, KINDS)}"
        )
    function = function_of(implementation, "task.kind")
    try:
        task_kind = function()
    except Exception as error:  # raised by the user's module
        raise ConfigError(f"task.kind={kind}: {type(error).__name__}: {error}") from error
    name, metrics = getattr(task_kind, "name", ""), getattr(task_kind, "metrics", ())
    if not isinstance(name, str) or not name.isidentifier() or not metrics:
        raise ConfigError(
            f"task.kind={kind}: the function must return a TaskKind with metrics and a name that "
            "is an identifier"
        )
    if is_own(kind) and name in KINDS | VARIANTS:
        raise ConfigError(f"task.kind={kind}: xlj already has a kind named {name}; rename yours")
    return task_kind


def is_own(kind: str) -> bool:
    """Whether a kind of task is user code, named `module:function`."""
    return ":" in kind


def read_by_kind(config: Any, path: str) -> Unused | None:
    """Checks that the kind of task reads a key, that is, names it in `reads`."""
    kind = config.task.kind
    if not kind:
        return Unused("task.kind is empty")
    if path.removeprefix("task.") in load(kind).reads:
        return None
    readers = [name for name in KINDS if path.removeprefix("task.") in load(name).reads]
    return Unused(f"task.kind is {kind!r}, not {' or '.join(readers)}")


def _for_dev(config: Any, path: str) -> Unused | None:
    """only if `task.dev` is set"""
    return None if config.task.dev else Unused("task.dev is empty", allowed_in_recipes=True)


def _for_test(config: Any, path: str) -> Unused | None:
    """Checks that there are test sets, or that the dev sets use `task.test_languages` too."""
    if config.task.test or not config.task.dev_languages:
        return None
    return Unused("task.test is empty", allowed_in_recipes=True)


_task_key = partial(key, used_when=only_if_set("task.kind"))
_kind_key = partial(key, used_when=read_by_kind)


@dataclasses.dataclass(frozen=True)
class Task(Section, path="task"):
    """What an encoder is fine-tuned for. Without a kind, the config is of pretraining."""

    kind: str = key(
        "",
        f"kind of task: {', '.join(KINDS)}; or your own kind, module:function (docs/tasks.md). "
        "Empty in a config of pretraining",
    )
    pairs: str = _kind_key(
        "together",
        "how the two sentences of a pair are encoded. together: as one input (cross-encoder); "
        "apart: separately, and the head compares the two mean vectors (bi-encoder)",
        choices=("together", "apart"),
    )
    pooling: str = _kind_key(
        "auto",
        "model.task_pooling of the fine-tuned model: first, mean or late; auto: the value of "
        "init_from",
        choices=("auto", *TASK_POOLINGS),
    )
    train: tuple[str, ...] = _task_key(
        (),
        "training data, as templates with {language}: TSV, CSV, JSONL, Parquet, CoNLL or SQuAD "
        "JSON files, tfds:NAME#SPLIT, or phrasebook:TASK/{language}#SPLIT (the embedded corpus). "
        "For word links, {language} is a pair of languages, and a template may be PAIRS|LINKS",
    )
    dev: tuple[str, ...] = _task_key(
        (), "dev data that selects a checkpoint, in the formats of train"
    )
    test: tuple[str, ...] = _task_key(
        (), "test data for the scores, in the formats of train; labels may be missing"
    )
    languages: tuple[str, ...] = _task_key(
        ("en",),
        "training languages: en for zero-shot transfer; the list of all languages for "
        "translate-train-all",
    )
    test_languages: tuple[str, ...] = key(
        (),
        "languages of the test sets; empty: the training languages",
        used_when=_for_test,
    )
    dev_languages: tuple[str, ...] = key(
        (),
        "languages of the dev sets; empty: the languages of the test sets",
        used_when=_for_dev,
    )
    rate_by_size: bool = _task_key(
        True,
        "raise optimizer.learning_rate to at least 5e-4 if the layers of the model have fewer than "
        "10 million parameters, and to 1e-3 below 1 million; no effect if the command line sets "
        "optimizer.learning_rate",
    )
    per_language: bool = _task_key(
        False, "train one model per language on the data of that language, not one model for all"
    )
    columns: tuple[str, ...] = _kind_key(
        (),
        "columns to read, texts first and the label last. A column is a name in the header or a "
        "JSON key, or a one-based number for files without a header. premise|sentence1 means "
        "the one of the two columns that a file has; for multiple choice, A+B joins two texts. "
        "Empty: columns with usual names, or all columns of a table without a header; for tagging, "
        "see docs/finetune.md",
    )
    comments: str = _kind_key(
        "auto",
        "whether lines that start with # before the first word of a sentence are comments. yes: "
        "all are comments; no: all are words; auto: a line is a comment if it has the form of a "
        "comment or another number of columns than other lines, or if the file has word ids; an "
        "ambiguous line is an error",
        choices=("auto", "yes", "no"),
    )
    labels: tuple[str, ...] = _kind_key(
        (), "labels or tags; empty: the labels or tags of the training data"
    )
    names: tuple[str, ...] = _kind_key(
        (),
        "names of the labels or tags 0, 1, 2, ... for files that store labels as numbers, as "
        "Hugging Face datasets do; for multiple choice, the labels of the choices in files, in "
        "order, such as 1,2,3,4",
    )
    loss: str = _kind_key(
        "",
        "loss of scores. order: CoSENT, for rerankers: of any two examples of a batch, the one "
        "with the higher gold score should have the higher score. Empty: the squared error",
        choices=("", "order"),
    )
    positives: str = _kind_key(
        "sure",
        "links that word links are trained on. sure: sure links, and possible links are no links; "
        "both: sure and possible links; weighted: both, possible links with half the weight; "
        "ignored: sure links, and possible links are left out of the softmax",
        choices=("sure", "both", "weighted", "ignored"),
    )
    gold_from: str = _kind_key(
        "auto",
        "number of the first word in links, 0 or 1; auto: 1 for files with one link per line, else "
        "0",
        choices=("auto", "0", "1"),
    )
    threshold: float = _kind_key(
        0.0,
        "minimum probability of a word link; 0: the threshold with the lowest alignment error rate "
        "on dev",
        low=0,
    )
    metric: str = _task_key(
        "",
        "accuracy; for tagging, chunk_f1 (entities), word_class_f1 (XTREME's F1 of parts of "
        "speech) or tag_accuracy; for questions, squad or mlqa (F1 and exact match); for "
        "regression, spearman or pearson (correlations); for word links, link_f1. Empty: the "
        "default of the kind",
    )
    select: str = _task_key(
        "all",
        "which checkpoint is scored. all: the checkpoint with the best mean score over all dev "
        "languages; trained: the checkpoint with the best mean score over the dev sets of the "
        "training languages; last: the last checkpoint",
        choices=("all", "trained", "last"),
    )
    length: int = _task_key(128, "number of tokens in a row", low=16)
    tagged_piece: str = _kind_key(
        "",
        "the piece of a word that has the tag. first: the first piece, as in run_ner.py of "
        "transformers; text: the first piece that is more than the mark of a word's start. Empty: "
        "the rule of the tagging head in init_from (first, if xlj did not train it), else text",
        choices=("", "first", "text"),
    )
    stride: int = _kind_key(
        128, "overlap of consecutive windows of a long context, in tokens", low=0
    )
    question_length: int = _kind_key(64, "maximum number of tokens in a question", low=1)
    answer_length: int = _kind_key(30, "maximum number of tokens in an answer", low=1)
    no_answer: bool = _kind_key(
        False,
        "whether questions may have no answer (SQuAD 2.0); the model gives no answer if <s> scores "
        "best",
    )
    misplaced: str = _kind_key(
        "error",
        "what to do with an answer whose text is not at answer_start. error: stop; find: use the "
        "position of the text if the context has it exactly once, else stop; skip: drop the "
        "answer, and drop the question if no other answer remains",
        choices=("error", "find", "skip"),
    )
    malformed: str = _task_key(
        "error",
        "what to do with an example without a label (empty, -, or the class number -1), or without "
        "tags or answers, if other examples of the language have them. error: stop; skip: skip and "
        "count such examples",
        choices=("error", "skip"),
    )
    batch_size: int = _task_key(32, "rows per step: examples, or windows of long examples", low=1)
    seeds: int = _task_key(
        1,
        "number of runs, with the seeds train.seed, train.seed + 1, ...; results are the mean and "
        "the standard deviation of the runs",
        low=1,
    )

    @property
    def effective_kind(self) -> str:
        """The kind for `task.load`: `pair_classification` for pairs that are encoded apart."""
        return "pair_classification" if self.pairs == "apart" else self.kind

    @property
    def objective(self) -> str:
        """The name of the objective and of its rows. The name of the head is this name followed by
        `_head`."""
        return str(load(self.effective_kind).name)

    @property
    def scored_by(self) -> str:
        """The metric `metric` or, if it is empty, the default metric of the kind."""
        return self.metric or str(load(self.kind).metrics[0])


def languages_of(task: Task) -> dict[str, tuple[str, ...]]:
    """Returns the languages of each split."""
    tested = task.test_languages or task.languages
    return {"train": task.languages, "dev": task.dev_languages or tested, "test": tested}


TASK = "task.json"
"""The file with the options of the head, in the folder of a fine-tuned model. The folder is that of
a run, or a Hugging Face folder."""

_LABELLING_KEYS = (
    "kind",
    "pairs",
    "length",
    "stride",
    "question_length",
    "answer_length",
    "no_answer",
    "tagged_piece",
    "threshold",
)


def labelling_options(task: Task) -> dict[str, Any]:
    """Returns the options of a task that affect how its model labels new text. The file `TASK`
    stores them."""
    return {name: getattr(task, name) for name in _LABELLING_KEYS}


def task_of_model(
    kind: str, length: int, labels: Sequence[str], saved: Mapping[str, Any] | None = None
) -> Task:
    """Returns the task that a fine-tuned model was trained for.

    Args:
      kind: the kind of task: a name in `task.KINDS` or `task.VARIANTS`, or `module:function`.
      length: tokens in a row, used if `saved` has no length.
      labels: the labels of the head's outputs, in order.
      saved: the content of `TASK`, if the file exists.

    Raises:
      ConfigError: if a value of `saved` is impossible.
    """
    options: dict[str, Any] = {"length": max(length, 16)}
    options |= {name: value for name, value in (saved or {}).items() if name in _LABELLING_KEYS}
    options |= {"kind": kind} if is_own(kind) else load(kind).chosen_by
    return Task(**options, labels=tuple(labels))
