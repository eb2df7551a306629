"""Schema of fine-tuning configs: a task, and how an encoder is trained on it."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ml_collections

from xlj.config import fields
from xlj.config.checks import check_optimizer
from xlj.config.fields import ConfigError, Section, Unused, check_unused, key, like, only_with
from xlj.config.paths import local_path
from xlj.config.sections import MOST_STEPS, Mesh, Model, Optimizer, Train
from xlj.config.tasks import KINDS, is_own, load, read_by_kind
from xlj.config.user_code import function_of


def _for_dev(config: "FinetuningConfig", path: str) -> Unused | None:
    """only if `task.dev` is set"""
    return None if config.task.dev else Unused("task.dev is empty", allowed_in_recipes=True)


def _for_test(config: "FinetuningConfig", path: str) -> Unused | None:
    """Checks that there are test sets, or that the dev sets use `task.test_languages` too."""
    if config.task.test or not config.task.dev_languages:
        return None
    return Unused("task.test is empty", allowed_in_recipes=True)


_kind_key = partial(key, used_when=read_by_kind)


@dataclasses.dataclass(frozen=True)
class Task(Section, path="task"):
    kind: str = key(
        "classification",
        f"kind of task: {', '.join(KINDS)}; or your own kind, module:function (docs/tasks.md)",
    )
    pairs: str = _kind_key(
        "together",
        "how the two sentences of a pair are encoded. together: as one input (cross-encoder); "
        "apart: separately, and the head compares the two mean vectors (bi-encoder)",
        choices=("together", "apart"),
    )
    train: tuple[str, ...] = key(
        (),
        "training data, as templates with {language}: TSV, CSV, JSONL, Parquet, CoNLL or SQuAD "
        "JSON files, tfds:NAME#SPLIT, or phrasebook:TASK/{language}#SPLIT (the embedded corpus)",
    )
    dev: tuple[str, ...] = key((), "dev data that selects a checkpoint, in the formats of train")
    test: tuple[str, ...] = key(
        (), "test data for the scores, in the formats of train; labels may be missing"
    )
    languages: tuple[str, ...] = key(
        ("en",),
        "training languages: en for zero-shot transfer; the list of all languages for "
        "translate-train-all",
    )
    test_languages: tuple[str, ...] = key(
        (), "languages of the test sets; empty: the training languages", used_when=_for_test
    )
    dev_languages: tuple[str, ...] = key(
        (), "languages of the dev sets; empty: the languages of the test sets", used_when=_for_dev
    )
    per_language: bool = key(
        False, "train one model per language on the data of that language, not one model for all"
    )
    columns: tuple[str, ...] = _kind_key(
        (),
        "columns to read, texts first and the label last. A column is a name in the header or a "
        "JSON key, or a one-based number for files without a header. premise|sentence1 means "
        "the one of the two columns that a file has. Empty: all columns of a table without a "
        "header; for tagging, see docs/finetune.md",
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
        "Hugging Face datasets do",
    )
    metric: str = key(
        "",
        "accuracy; for tagging, chunk_f1 (entities), word_class_f1 (XTREME's F1 of parts of "
        "speech) or tag_accuracy; for questions, squad or mlqa (F1 and exact match); for "
        "regression, spearman or pearson (correlations). Empty: the default of the kind",
    )
    select: str = key(
        "all",
        "which checkpoint is scored. all: the checkpoint with the best mean score over all dev "
        "languages; trained: the checkpoint with the best mean score over the dev sets of the "
        "training languages; last: the last checkpoint",
        choices=("all", "trained", "last"),
    )
    length: int = key(128, "number of tokens in a row", low=16)
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
    alpha: float = key(
        1.0,
        "exponent a of language sampling: p_j = n_j^a / sum n_k^a for n_j rows of language j",
        low=0,
        high=1,
    )

    @property
    def effective_kind(self) -> str:
        """The kind for `tasks.load`: `pair_classification` for pairs that are encoded apart."""
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


_FEWEST_EPOCHS = 0.001


@dataclasses.dataclass(frozen=True)
class TaskModel(Section, path="model"):
    """Keys of the model that may differ from `init_from`."""

    dropout: float = key(
        0.1,
        "dropout of embeddings, of the output of every sub-layer, and of the head",
        low=0,
        high=0.9,
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
        0.1, "share of the steps for the linear warm-up, if warmup_steps is 0", low=0, high=1
    )
    warmup_steps: int = key(
        0, "steps of the linear warm-up; 0: warmup_share of the steps", low=0, high=MOST_STEPS
    )
    decay_steps: int = key(
        0,
        "steps of the final decay",
        low=0,
        used_when=only_with("optimizer.schedule", "wsd"),
    )
    weight_decay: float = like(Optimizer, "weight_decay", 0.0)
    clip_norm: float = like(Optimizer, "clip_norm", 1.0)


@dataclasses.dataclass(frozen=True)
class TaskTrain(Section, path="train"):
    epochs: float = key(
        10.0, "passes over the training data; 0: no training, score the head of init_from", low=0
    )
    batch_size: int = key(32, "rows per step: examples, or windows of long examples", low=1)
    evaluations: int = key(10, "maximum number of dev evaluations, evenly spaced in a run", low=1)
    seed: int = key(0, "seed of the initial head, batches and dropout", low=0, high=2**32 - 1)
    seeds: int = key(
        1,
        "number of runs, with the seeds seed, seed + 1, ...; results are the mean and the standard "
        "deviation of the runs",
        low=1,
    )
    log_every: int = key(50, "steps between lines of training metrics", low=1)
    accumulation: int = like(Train, "accumulation")
    max_skipped_steps: int = like(Train, "max_skipped_steps")
    damaged_checkpoint: str = like(Train, "damaged_checkpoint")
    metrics_hook: str = like(Train, "metrics_hook")


@dataclasses.dataclass(frozen=True)
class FinetuningConfig(Section):
    """The config of a fine-tuning run."""

    init_from: str = key(
        "", "workdir, checkpoint or Hugging Face folder of the encoder to fine-tune"
    )
    fresh: bool = key(
        False,
        "baseline without pretraining: initialise all weights randomly, and use only the sizes and "
        "the vocabulary of init_from",
    )
    cache: str = key("runs/rows", "local folder for rows")
    task: Task = Task()
    model: TaskModel = TaskModel()
    optimizer: TaskOptimizer = TaskOptimizer()
    train: TaskTrain = TaskTrain()
    mesh: Mesh = Mesh()


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
      kind: the kind of task: a name in `tasks.KINDS` or `tasks.VARIANTS`, or `module:function`.
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


def default() -> ml_collections.ConfigDict:
    """Returns a ConfigDict with every key of the schema at its default. Setting an unknown key is
    an error."""
    return fields.default_of(FinetuningConfig)


def keys() -> Iterator[tuple[str, dataclasses.Field]]:
    """Yields (full path, field) of every key of the schema, in order."""
    return fields.keys_of(FinetuningConfig)


def parse(config: ml_collections.ConfigDict, explicit: Collection[str] = ()) -> FinetuningConfig:
    """Returns the frozen `FinetuningConfig` of a ConfigDict.

    Args:
      explicit: paths of the keys that the user set on the command line; each must have an effect.

    Raises:
      ConfigError: if a key is unknown, has a wrong type or an impossible value, or has no effect,
        or if keys contradict each other.
    """
    tree = config.to_dict()
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
        raise ConfigError(
            "train.epochs=0 scores the head of init_from, but fresh=True discards that head; set "
            "train.epochs above 0, or fresh=False"
        )
    if train.epochs and train.epochs < _FEWEST_EPOCHS:
        raise ConfigError(
            f"train.epochs={train.epochs:g}: it must be at least {_FEWEST_EPOCHS:g}, or 0 to score "
            "the head of init_from"
        )
    if parsed.fresh and optimizer.frozen:
        raise ConfigError(
            f"fresh=True initialises all weights randomly, but optimizer.frozen="
            f"{','.join(optimizer.frozen)} would not train some of them; add "
            "--config.optimizer.frozen="
        )
    if train.epochs and not task.train or not task.languages:
        raise ConfigError("task.train or task.languages is empty; name training data and languages")
    if train.epochs and not task.dev and task.select != "last":
        raise ConfigError(
            f"task.select={task.select} selects a checkpoint on dev, but task.dev is empty; name "
            "dev data, or set task.select=last"
        )
    for split, names in languages_of(task).items():
        if task.per_language and getattr(task, split) and set(names) != set(task.languages):
            raise ConfigError(
                f"task.per_language scores each model in its own language, but task.{split} has "
                f"the languages {', '.join(names)} and task.languages is "
                f"{', '.join(task.languages)}; set task.test_languages and task.dev_languages to "
                "the value of task.languages, or leave them empty"
            )
    if not task.dev and not task.test:
        raise ConfigError("task.dev and task.test are empty; name data to score in one of them")
    kind = load(task.effective_kind)
    if task.metric and task.metric not in kind.metrics:
        raise ConfigError(
            f"task.metric={task.metric} is not a metric of task.kind={task.kind}; the metrics are "
            f"{', '.join(kind.metrics)}"
        )
    kind.check(task)
    if train.batch_size % train.gradient_accumulation_steps:
        raise ConfigError(
            f"train.batch_size={train.batch_size} is not divisible by "
            f"train.gradient_accumulation_steps={train.gradient_accumulation_steps}"
        )
