"""Fine-tunes an encoder on a task with several seeds: trains, chooses checkpoints on dev, scores
test.

Training uses the loop of pretraining, with one supervised objective.
"""

import dataclasses
import functools
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import jax

from xlj import config as schema
from xlj.checkpoints import metrics, reading, stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.workdir import RUN, finished_run
from xlj.config import Config, ConfigError, durations
from xlj.config.finetuning import KEYS_OF_MODEL
from xlj.config.sections import MOST_STEPS
from xlj.config.task import TASK, Task, is_own, labelling_options, load
from xlj.data.rows.store import RowStore
from xlj.distributed import hosts
from xlj.finetuning import task_data, task_scores
from xlj.finetuning.task_data import TaskData
from xlj.finetuning.task_scores import SCORE, Evaluator, Scores
from xlj.io import atomic, json_file
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.supervised.head import head_of
from xlj.objectives.supervised.options import supervised
from xlj.sharding import meshes
from xlj.training import loop
from xlj.training.duration_steps import resolve_percentages
from xlj.training.evaluation import Check
from xlj.training.schedule import count_layers, describe_lowest_rates, rate_for_size
from xlj.training.start import Start, prepare
from xlj.training.state import State

IDENTITY = "identity"
"""The file in a run's folder that contains a hash of everything that determines the run."""


@dataclasses.dataclass(frozen=True)
class TaskRun:
    """A finished run: one model, trained on some languages from one seed.

    Attributes:
      step: the step of the chosen checkpoint.
      dev, test: the scores; empty without labelled data.
    """

    languages: tuple[str, ...]
    seed: int
    step: int
    dev: Scores
    test: Scores
    folder: Path


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of fine-tuning.

    Attributes:
      runs: the finished runs.
      baseline: scores of always predicting the most frequent label (`task_scores.baseline`).
      finished: whether all runs are finished; False if a signal stopped the process.
      learning_rate: the peak learning rate of the runs; 0 without training.
    """

    runs: tuple[TaskRun, ...]
    baseline: Scores
    finished: bool
    learning_rate: float


def run(config: Config, workdir: Path) -> Outcome:
    """Fine-tunes one model for each seed; with `task.per_language`, for each seed and language.

    Each run has a folder in the workdir: `seed-0`, or `de-seed-0` with `task.per_language` and
    several languages. Finished runs are not repeated; their results are read from their folders.
    With `train.steps=0` the function scores the model without training, in the folder `untrained`.

    Raises:
      ConfigError: before any training, if data, labels, model or mesh do not fit the config; later,
        for the reasons that `loop.train` documents.
    """
    source = stored_models.find(config.init_from, "init_from")
    config = _with_tagged_piece(config, source)
    task = config.task
    limit = source.model.positions - FIRST_POSITION
    if task.length > limit:
        raise ConfigError(
            f"task.length={task.length} exceeds the model's positions: {source.folder} allows "
            f"{limit} tokens per row; lower task.length"
        )
    if not durations.read(config.train.steps).amount:
        config = _with_labels(config, source)
        task = dataclasses.replace(config.task, length=task.length + 1 - source.separators)
    data = task_data.load(task, source.vocabulary())
    if jax.process_index() == 0:
        print(data.counts(), flush=True)
    if not durations.read(config.train.steps).amount:
        return _score_untrained(config, data, source, workdir)
    config = _with_rate(config, source)
    rate = config.optimizer.learning_rate
    runs: list[TaskRun] = []
    for plan in _prepare_runs(config, data, source, workdir):
        run = _train(plan, task)
        if run is None:
            return Outcome(tuple(runs), {}, False, rate)
        runs.append(run)
    return Outcome(tuple(runs), task_scores.baseline(data, task), True, rate)


def _with_rate(config: Config, source: StoredModel) -> Config:
    """Returns the config with the learning rate for the size of the model. Process 0 prints a rate
    that differs from the config's."""
    if not config.task.rate_by_size:
        return config
    rate, parameters = config.optimizer.learning_rate, count_layers(source.leaves)
    chosen = rate_for_size(rate, parameters)
    if jax.process_index() == 0 and chosen != rate:
        print(
            f"learning rate {chosen:g}: the layers of the model have {parameters:,} parameters, "
            f"and the config has {rate:g} ({describe_lowest_rates()}; "
            "--config.optimizer.learning_rate sets another rate)",
            flush=True,
        )
    optimizer = dataclasses.replace(config.optimizer, learning_rate=chosen)
    return dataclasses.replace(config, optimizer=optimizer)


def _with_tagged_piece(config: Config, source: StoredModel) -> Config:
    """Returns the config with the rule for the piece of a word that has its tag."""
    task = config.task
    if task.tagged_piece or "tagged_piece" not in load(task.effective_kind).reads:
        return config
    rule = (source.task.tagged_piece if source.task else "") or "text"
    return dataclasses.replace(config, task=dataclasses.replace(task, tagged_piece=rule))


def _with_labels(config: Config, source: StoredModel) -> Config:
    """Returns the config with the labels of the head in `init_from`.

    Raises:
      ConfigError: if the model has no head for the task, or the config has other labels.
    """
    task, head = config.task, head_of(config.task.effective_kind)
    if not any(name.startswith(f"{head}/") for name in source.leaves):
        raise ConfigError(
            f"train.steps=0 scores the head of init_from, but {source.folder} has no {head}; "
            "name a fine-tuned model in init_from. For a Hugging Face folder, `python -m "
            "xlj.convert import` lists the unused tensors and the reasons"
        )
    if task.labels and {*task.labels} != {*source.labels}:
        raise ConfigError(
            f"task.labels is {','.join(task.labels)}, but the head of {source.folder} has "
            f"{','.join(source.labels)}; remove task.labels"
        )
    return dataclasses.replace(config, task=dataclasses.replace(task, labels=source.labels))


def _score_untrained(config: Config, data: TaskData, source: StoredModel, workdir: Path) -> Outcome:
    """Scores the model without training, on one device, and saves the predictions."""
    task = config.task
    model = _model_of(config, source)
    mesh = meshes.one_device()
    if "threshold" in load(task.effective_kind).reads and not task.threshold and source.task:
        task = dataclasses.replace(task, threshold=source.task.threshold)
    evaluator = Evaluator(task, model, data.labels, mesh, source.vocabulary(), source.separators)
    params = source.params(mesh)
    folder = workdir / "untrained"
    if jax.process_index() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    scores: dict[str, Scores] = {}
    for split, sets in (("dev", data.dev), ("test", data.test)):
        predicted, scores[split] = evaluator.scores(params, sets, split)
        task_scores.save(task, predicted, folder / "predictions", split)
    run = TaskRun(task.languages, config.train.seed, 0, scores["dev"], scores["test"], folder)
    return Outcome((run,), task_scores.baseline(data, task), True, 0.0)


@dataclasses.dataclass(frozen=True)
class _PlannedRun:
    """A run to train; it may already be finished."""

    languages: tuple[str, ...]
    start: Start
    data: TaskData
    folder: Path
    identity: str


def _prepare_runs(
    config: Config, data: TaskData, source: StoredModel, workdir: Path
) -> list[_PlannedRun]:
    """Prepares all runs, in order, before any of them is trained.

    Raises:
      ConfigError: if a run is not valid.
    """
    task, plans = config.task, list[_PlannedRun]()
    encoder_digest = source.digest() if config.transfer.parts else ""
    groups = [(language,) for language in task.languages] if task.per_language else [task.languages]
    for group in groups:
        group_data = data.of(group) if task.per_language else data
        rows = {language: examples.rows for language, examples in group_data.train.items()}
        cache = Path(config.data.cache).expanduser()
        store = task_data.write_rows(cache, task.objective, rows, source.vocabulary())
        first_config = _training_config(config, group_data, store, source)
        for seed in range(config.train.seed, config.train.seed + task.seeds):
            train = dataclasses.replace(first_config.train, seed=seed)
            run_config = dataclasses.replace(first_config, train=train)
            name = f"seed-{seed}" if len(groups) == 1 else f"{group[0]}-seed-{seed}"
            identity = _compute_identity(run_config, task, store, group_data, encoder_digest)
            folder = workdir / name
            is_claimed = hosts.broadcast(functools.partial(_check_claim, folder, identity))
            start = prepare(run_config, folder, store, source, is_claimed)
            plans.append(_PlannedRun(group, start, group_data, folder, identity))
    return plans


def _train(plan: _PlannedRun, task: Task) -> TaskRun | None:
    """Trains and scores a run, unless it is already finished.

    Returns:
      The finished run; None if a signal stopped the process.
    """
    start, folder, data = plan.start, plan.folder, plan.data
    seed = start.config.train.seed
    if content := hosts.broadcast(lambda: finished_run(folder)):
        return TaskRun(**{**content, "languages": tuple(content["languages"])}, folder=folder)
    if jax.process_index() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        json_file.write(folder / TASK, labelling_options(task))
        atomic.write(folder / IDENTITY, plan.identity.encode())
    evaluator = Evaluator(task, start.config.model, data.labels, start.mesh, start.vocabulary)

    def probe(state: State, check: Check) -> dict[str, float]:
        _, dev_scores = evaluator.scores(state.params, data.dev, "dev", check)
        return task_scores.metrics_of(dev_scores, task, plan.languages)

    if not loop.train(start, [probe] if data.dev else []).finished:
        return None
    step = hosts.broadcast(lambda: _chosen_step(folder, start.config.train.best_metric))
    chosen = stored_models.find(folder / "checkpoints" / str(step)).params(start.mesh)
    scores: dict[str, Scores] = {}
    for split, sets in (("dev", data.dev), ("test", data.test)):
        predicted, scores[split] = evaluator.scores(chosen, sets, split)
        task_scores.save(task, predicted, folder / "predictions", split)
    content = {"languages": plan.languages, "seed": seed, "step": step, **scores}
    if jax.process_index() == 0:
        json_file.write(folder / TASK, labelling_options(evaluator.task))  # with tuned options
        json_file.write(folder / RUN, content)
    return TaskRun(plan.languages, seed, step, scores["dev"], scores["test"], folder)


def _chosen_step(folder: Path, metric: str) -> int:
    """Returns the step with the highest score on dev, and among equal scores the latest step;
    without a metric, the last step.

    Raises:
      ConfigError: if no line of metrics has the score of a checkpoint.
    """
    if not metric:
        return reading.find(folder).step
    ranked = metrics.rank(metrics.scores(metrics.read(folder), metric), reading.steps(folder))
    if not ranked:
        raise ConfigError(
            f"{folder / metrics.FILE} has no {metric} of a checkpoint; delete {folder} and run the "
            "command again"
        )
    return ranked[0]


def _training_config(
    config: Config, data: TaskData, store: RowStore, source: StoredModel
) -> Config:
    """Returns the config of the training loop for the first seed.

    Args:
      data: the data of the run.
    """
    task = config.task
    kind_option: dict[str, Any] = {"kind": task.kind} if is_own(task.kind) else {}
    options = supervised(task.effective_kind)(
        batch_size=task.batch_size,
        length=task.length,
        labels=data.labels,
        loss=task.loss,
        **kind_option,
    )
    steps = _steps(config, sum(task.train.rows for task in store.manifest.tasks))
    best = SCORE if data.dev and task.select != "last" else ""
    train = dataclasses.replace(config.train, steps=steps, keep_checkpoints=1, best_metric=best)
    changed, _ = resolve_percentages(dataclasses.replace(config, train=train))
    train = dataclasses.replace(changed.train, checkpoint_every=changed.train.eval_every)
    return dataclasses.replace(
        Config(),
        # Names a checkpoint folder, not a workdir, since the workdir may get a later checkpoint
        # before the next seed starts.
        init_from=str(source.folder) if config.transfer.parts else "",
        data=schema.Data(alpha=config.data.alpha),
        model=_model_of(config, source),
        objectives=schema.Objectives(options={task.objective: options}),
        optimizer=_with_warmup(changed.optimizer, steps, config.train.steps),
        train=train,
        mesh=config.mesh,
    )


def _model_of(config: Config, source: StoredModel) -> schema.Model:
    """Returns the model of `init_from` with the values of the config's keys."""
    names = [path.removeprefix("model.") for path in KEYS_OF_MODEL]
    values: dict[str, Any] = {name: getattr(config.model, name) for name in names}
    if config.task.pooling != "auto":
        values["task_pooling"] = config.task.pooling
    return dataclasses.replace(source.model, language_embeddings="none", **values)


def _steps(config: Config, rows: int) -> int:
    """Returns the number of steps of a run on so many rows."""
    duration = durations.read(config.train.steps)
    if duration.unit == "tok":
        raise ConfigError(
            f"train.steps={config.train.steps}: fine-tuning counts steps or passes over the rows; "
            "use ep, such as 3ep"
        )
    count = duration.amount * rows / config.task.batch_size if duration.unit else duration.amount
    if (steps := max(1, math.ceil(count))) > MOST_STEPS:
        raise ConfigError(
            f"train.steps={config.train.steps} are {steps} steps, but at most {MOST_STEPS} are "
            "possible; lower train.steps"
        )
    return steps


def _with_warmup(
    optimizer: schema.Optimizer, steps: int, duration: durations.Value
) -> schema.Optimizer:
    """Returns the optimizer's options with a warm-up and a decay that fit into the run.

    Args:
      duration: `train.steps` in the config, for messages.
    """
    warmup, decay = optimizer.warmup_steps, optimizer.decay_steps
    of_run = f"the {steps} steps of train.steps={duration}"
    if decay > steps:
        raise ConfigError(
            f"optimizer.decay_steps={decay} is more than {of_run}; lower optimizer.decay_steps"
        )
    if warmup > steps:
        if jax.process_index() == 0:
            print(
                f"optimizer.warmup_steps={warmup} is more than {of_run}; warming up for 10% of "
                "them instead",
                flush=True,
            )
        warmup = round(steps / 10)
    if optimizer.schedule == "wsd" and warmup + decay > steps:
        raise ConfigError(
            f"{warmup} steps of warm-up and optimizer.decay_steps={decay} are more than "
            f"{of_run}, so optimizer.learning_rate would never be reached; lower one of them"
        )
    return dataclasses.replace(optimizer, warmup_steps=warmup)


def _check_claim(folder: Path, identity: str) -> bool:
    """Returns whether a folder contains a run with this identity (`_compute_identity`).

    Raises:
      ConfigError: if the folder contains a run with another identity.
    """
    file = folder / IDENTITY
    if not file.is_file():
        return False
    if file.read_text("utf-8") != identity:
        raise ConfigError(
            f"{folder} contains a run with another config, other data or another encoder; use "
            "another --workdir, or delete this folder"
        )
    return True


def _compute_identity(
    run_config: Config, task: Task, store: RowStore, data: TaskData, encoder_digest: str
) -> str:
    """Returns a hash of everything that determines a run and its scores.

    It covers the config, the tensors of the encoder, the rows, and the data and options of scoring.
    It does not cover the encoder's path, the mesh, the number of microbatches, or `log_every`.
    """
    train = dataclasses.replace(
        run_config.train, log_every=1, gradient_accumulation_steps=1, damaged_checkpoint="stop"
    )
    identifying = dataclasses.replace(run_config, init_from="", train=train, mesh=schema.Mesh())
    scoring: tuple[Any, ...] = (task.select, task.scored_by, task.answer_length, task.no_answer)
    scoring += ("first",) * (task.tagged_piece == "first")
    content = [schema.as_tree(identifying), scoring, encoder_digest]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    digest.update(store.manifest.content_hash.encode())
    for split, sets in (("dev", data.dev), ("test", data.test)):
        for language, entry in sets.items():
            examples = [example.content for example in entry.examples]
            digest.update(json.dumps([split, language, examples]).encode())
            digest.update(entry.rows.tokens.tobytes())  # windows depend on task.stride
    return digest.hexdigest()
