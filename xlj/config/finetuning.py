"""The schema of a fine-tuning config: a task, and how an encoder is trained on it."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ml_collections

from xlj.config import fields, renamed
from xlj.config.checks import check_optimizer
from xlj.config.fields import ConfigError, Section, Unused, check_unused, key, like, only_with
from xlj.config.paths import local_path
from xlj.config.sections import MOST_STEPS, Mesh, Model, Optimizer, Train
from xlj.config.tasks import KINDS, is_own, load, read_by_kind
from xlj.config.user_code import function_of


def _for_dev(config: "FinetuningConfig", path: str) -> Unused | None:
    return None if config.task.dev else Unused("task.dev is empty", allowed_in_recipes=True)


def _for_test(config: "FinetuningConfig", path: str) -> Unused | None:
    """Says that languages of the test sets are read for them, or for the dev sets."""
    if config.task.test or not config.task.dev_languages:
        return None
    return Unused("task.test is empty", allowed_in_recipes=True)


_kind_key = partial(key, used_when=read_by_kind)


@dataclasses.dataclass(frozen=True)
class Task(Section, path="task"):
    kind: str = key(
        "classification",
        f"what is learned: {', '.join(KINDS)}; or a user's own, module:function",
    )
    pairs: str = _kind_key(
        "together",
        "two sentences are read together, as one input (a cross-encoder), or apart: their mean "
        "vectors are compared (a bi-encoder)",
        choices=("together", "apart"),
    )
    train: tuple[str, ...] = key(
        (),
        "templates of labelled sources with {language}: TSV, CSV, JSONL, Parquet, CoNLL or SQuAD's "
        "JSON files, "
        "tfds:NAME#SPLIT, or phrasebook:TASK/{language}#SPLIT",
    )
    dev: tuple[str, ...] = key((), "likewise, for choosing a checkpoint")
    test: tuple[str, ...] = key((), "likewise, for the scores; labels may be missing")
    languages: tuple[str, ...] = key(
        ("en",), "languages trained on: en for transfer, all for translate-train-all"
    )
    test_languages: tuple[str, ...] = key(
        (), "languages of the test sets; empty means those trained on", used_when=_for_test
    )
    dev_languages: tuple[str, ...] = key(
        (), "languages of the dev sets; empty means those of the test sets", used_when=_for_dev
    )
    per_language: bool = key(
        False, "train a model for each language, on its own training data, not one for all"
    )
    columns: tuple[str, ...] = _kind_key(
        (),
        "what is read of a table: the names in its head (or JSON keys), of premise|sentence1 that "
        "which a file has; or numbers from 1 of a file without a head; texts first, the label "
        "last; empty means all columns, no head",
    )
    comments: str = _kind_key(
        "auto",
        "lines with # before a sentence's first word: yes, comments; no, words; auto, comments if "
        "they have other columns than the file or read as comments",
        choices=("auto", "yes", "no"),
    )
    labels: tuple[str, ...] = _kind_key(
        (), "labels or tags; empty means those in the training data"
    )
    names: tuple[str, ...] = _kind_key(
        (),
        "names of the labels or tags that files give as numbers, in order from 0, as Hugging "
        "Face's datasets do",
    )
    metric: str = key(
        "",
        "accuracy; chunk_f1 (entities), word_class_f1 (XTREME's F1 of parts of speech), "
        "tag_accuracy; squad or mlqa (F1 and exact match); spearman or pearson (correlations); "
        "empty means the kind's usual one",
    )
    select: str = key(
        "all",
        "the checkpoint that is kept: best on dev averaged over all languages, best on dev of the "
        "languages trained on, or the last",
        choices=("all", "trained", "last"),
    )
    length: int = key(128, "tokens in a row", low=16)
    stride: int = _kind_key(128, "tokens that two windows of a long context have in common", low=0)
    question_length: int = _kind_key(64, "most tokens of a question", low=1)
    answer_length: int = _kind_key(30, "most tokens of an answer", low=1)
    no_answer: bool = _kind_key(
        False,
        "questions may have no answer (SQuAD 2.0): then nothing is answered where <s> scores best",
    )
    misplaced: str = _kind_key(
        "error",
        "an answer that is not at its answer_start: an error; find: it is read from the one place "
        "that has its text; skip: it is left out, and its question if it has no other answer",
        choices=("error", "find", "skip"),
    )
    alpha: float = key(
        1.0, "exponent of language sampling, p_j = n_j^a / sum n_k^a with n_j rows", low=0, high=1
    )

    @property
    def effective_kind(self) -> str:
        """The kind, as `tasks.load` takes it: pairs read apart have one of their own."""
        return "pair_classification" if self.pairs == "apart" else self.kind

    @property
    def objective(self) -> str:
        """The name of the objective, of its rows, and of its head before `_head`."""
        return str(load(self.effective_kind).name)

    @property
    def scored_by(self) -> str:
        """The metric: as configured, or its kind's usual one."""
        return self.metric or str(load(self.kind).metrics[0])


_FEWEST_EPOCHS = 0.001


@dataclasses.dataclass(frozen=True)
class TaskModel(Section, path="model"):
    """Keys of the model that may differ from those of `init_from`."""

    dropout: float = key(
        0.1, "dropout of embeddings, of every sub-layer's output and of the head", low=0, high=0.9
    )
    attention_dropout: float = like(Model, "attention_dropout")
    attention: str = like(Model, "attention")
    dtype: str = like(Model, "dtype")
    scan_layers: bool = like(Model, "scan_layers")
    remat: str = like(Model, "remat")


@dataclasses.dataclass(frozen=True)
class TaskOptimizer(Optimizer):
    learning_rate: float = like(Optimizer, "learning_rate", 2e-5)
    warmup_share: float = key(
        0.1, "share of the steps that warm up; unless warmup_steps says how many", low=0, high=1
    )
    warmup_steps: int = key(0, "steps of linear warm-up", low=0, high=MOST_STEPS)
    decay_steps: int = key(
        0, "steps of the final decay", low=0, used_when=only_with("optimizer.schedule", "wsd")
    )
    weight_decay: float = like(Optimizer, "weight_decay", 0.0)
    clip_norm: float = like(Optimizer, "clip_norm", 1.0)


@dataclasses.dataclass(frozen=True)
class TaskTrain(Section, path="train"):
    epochs: float = key(
        10.0, "how often each example is seen; 0 scores the head that init_from has", low=0
    )
    batch_rows: int = key(32, "rows a step: examples, or parts of long ones", low=1)
    evaluations: int = key(10, "most evaluations on dev in a run, evenly spread", low=1)
    seed: int = key(0, "seed of the head's weights, batches and dropout", low=0, high=2**32 - 1)
    seeds: int = key(1, "runs, with this seed and those after it: mean and deviation", low=1)
    log_every: int = key(50, "steps between lines of training metrics", low=1)
    accumulation: int = like(Train, "accumulation")
    max_skipped_steps: int = like(Train, "max_skipped_steps")
    damaged_checkpoint: str = like(Train, "damaged_checkpoint")
    metrics_hook: str = like(Train, "metrics_hook")


@dataclasses.dataclass(frozen=True)
class FinetuningConfig(Section):
    """All that fine-tuning reads."""

    init_from: str = key(
        "", "workdir, checkpoint or Hugging Face folder of the encoder to fine-tune"
    )
    fresh: bool = key(
        False, "draw all weights anew; of init_from only sizes and vocabulary (a baseline)"
    )
    cache: str = key("runs/rows", "folder where rows live")
    task: Task = Task()
    model: TaskModel = TaskModel()
    optimizer: TaskOptimizer = TaskOptimizer()
    train: TaskTrain = TaskTrain()
    mesh: Mesh = Mesh()


def languages_of(task: Task) -> dict[str, tuple[str, ...]]:
    """The languages of each split."""
    tested = task.test_languages or task.languages
    return {"train": task.languages, "dev": task.dev_languages or tested, "test": tested}


TASK = "task.json"
"""A file beside a fine-tuned model, of a run or in a Hugging Face folder: how its head is used."""

_LABELLING_KEYS = (
    "kind",
    "pairs",
    "length",
    "stride",
    "question_length",
    "answer_length",
    "no_answer",
)


def labelling_options(task: Task) -> dict[str, Any]:
    """What of a task decides how its model labels new text: the content of `TASK`."""
    return {name: getattr(task, name) for name in _LABELLING_KEYS}


def task_of_model(
    kind: str, length: int, labels: Sequence[str], saved: Mapping[str, Any] | None = None
) -> Task:
    """The task that a fine-tuned model was trained for.

    Args:
      kind: as `tasks.load` takes it.
      length: tokens in a row, unless `saved` says it.
      labels: of the head's outputs, in order.
      saved: the content of `TASK`, where there is one.

    Raises:
      ConfigError: if a value of `saved` cannot be.
    """
    options: dict[str, Any] = {"length": max(length, 16)}
    options |= {name: value for name, value in (saved or {}).items() if name in _LABELLING_KEYS}
    options |= {"kind": kind} if is_own(kind) else load(kind).chosen_by
    return Task(**options, labels=tuple(labels))


def default() -> ml_collections.ConfigDict:
    """A ConfigDict with every key of the schema at its default, locked against other keys."""
    return renamed.accept_old_keys(fields.default_of(FinetuningConfig))


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """(full path, field) of every key of the schema, in order."""
    return fields.keys_of(FinetuningConfig)


def parse(config: ml_collections.ConfigDict, explicit: Collection[str] = ()) -> FinetuningConfig:
    """The frozen `FinetuningConfig` of a ConfigDict.

    Args:
      explicit: paths of the keys that the user set by hand; each must be read.

    Raises:
      ConfigError: on an unknown key, a wrong type, an impossible value, a key that nothing would
        read, or keys that contradict each other.
    """
    tree = config.to_dict()
    explicit = renamed.translate(tree, explicit)
    parsed: FinetuningConfig = fields.build(FinetuningConfig, tree)
    local_path("cache", parsed.cache)
    if parsed.train.metrics_hook:
        function_of(parsed.train.metrics_hook, "train.metrics_hook")
    check_unused(parsed, explicit)
    _check_together(parsed)
    check_optimizer(parsed.optimizer)
    return parsed


def _check_together(parsed: FinetuningConfig) -> None:
    """Refuses values that contradict each other."""
    task, train, optimizer = parsed.task, parsed.train, parsed.optimizer
    if not parsed.init_from:
        raise ConfigError(
            "init_from is empty; name a workdir, a checkpoint or a Hugging Face folder with "
            "--config.init_from=DIR"
        )
    if parsed.fresh and not train.epochs:
        raise ConfigError("train.epochs=0 scores the head of init_from, and fresh has none")
    if train.epochs and train.epochs < _FEWEST_EPOCHS:
        raise ConfigError(
            f"train.epochs={train.epochs:g}: at least {_FEWEST_EPOCHS:g}, or 0 to score the head "
            "that init_from has"
        )
    if parsed.fresh and optimizer.frozen:
        raise ConfigError(
            "fresh draws all weights anew, and some would stay as they were drawn: "
            f"optimizer.frozen={','.join(optimizer.frozen)}; add --config.optimizer.frozen="
        )
    if train.epochs and not task.train or not task.languages:
        raise ConfigError("task.train and task.languages must say what to train on")
    if train.epochs and not task.dev and task.select != "last":
        raise ConfigError(
            f"task.select={task.select} chooses a checkpoint on dev, but task.dev is empty; name "
            "dev sets, or set task.select=last"
        )
    for split, names in languages_of(task).items():
        if task.per_language and getattr(task, split) and set(names) != set(task.languages):
            raise ConfigError(
                f"task.per_language scores each model in its own language, but task.{split} is for "
                f"{', '.join(names)} and task.languages is {', '.join(task.languages)}; set "
                "task.test_languages and task.dev_languages to these, or leave them empty"
            )
    if not task.dev and not task.test:
        raise ConfigError("task.dev and task.test are empty: there is nothing to score")
    kind = load(task.effective_kind)
    if task.metric and task.metric not in kind.metrics:
        raise ConfigError(
            f"task.metric={task.metric} is none of {task.kind}; there are {', '.join(kind.metrics)}"
        )
    kind.check(task)
    if train.batch_rows % train.accumulation:
        raise ConfigError(
            f"train.batch_rows={train.batch_rows} is not divisible by "
            f"train.accumulation={train.accumulation}"
        )
