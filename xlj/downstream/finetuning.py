"""Fine-tuning: an encoder is trained on a task, chosen on dev, scored on test, over seeds.

The training is the loop of pretraining, with one supervised objective.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import Config, ConfigError, Data, Optimizer, Supervised, Train
from xlj.data import atomic
from xlj.data.labelled import reading, row_store
from xlj.data.labelled.features import Features
from xlj.data.labelled.labels import check, label_set
from xlj.data.store import RowStore
from xlj.downstream import classification, question_answering, tagging
from xlj.downstream.language_report import average
from xlj.downstream.predicting import Predictor
from xlj.finetuning_config import METRICS, FinetuningConfig
from xlj.models import encoder
from xlj.models.encoder import Params
from xlj.training import loop, metrics, partitioning, sources
from xlj.training.sources import Source
from xlj.training.state import State

KINDS: dict[str, ModuleType] = {
    "classification": classification,
    "tagging": tagging,
    "question_answering": question_answering,
}
"""What each kind of task makes of examples and of outputs; each module has the same functions."""

RUN = "run.json"
"""A finished run's scores, in its folder."""
SCORE = "eval/dev/score"
"""The metric that a checkpoint is chosen by."""

Examples = dict[str, list[Any]]
"""Examples by language."""

Scores = dict[str, dict[str, float]]
"""Percent by metric and language; the first metric is the task's."""


@dataclasses.dataclass(frozen=True)
class Set:
    """Examples of one language, ready to be predicted."""

    examples: Sequence[Any]
    made: Features


@dataclasses.dataclass(frozen=True)
class Run:
    """One model: trained on some languages from one seed, and what it scored.

    Attributes:
      languages: that it was trained on.
      step: of the checkpoint that was chosen.
      dev, test: scores; empty where there is nothing to score.
      folder: where the run is; predictions are in `predictions/`.
    """

    languages: tuple[str, ...]
    seed: int
    step: int
    dev: Scores
    test: Scores
    folder: Path


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What fine-tuning came to.

    Attributes:
      runs: all that are finished.
      baseline: scores of the most frequent labels, where the kind of task has such.
      finished: False if it was asked to stop.
    """

    runs: tuple[Run, ...]
    baseline: Scores
    finished: bool


def metric_of(config: FinetuningConfig) -> str:
    """The metric of a task: as configured, or its kind's usual one."""
    return config.task.metric or METRICS[config.task.kind][0]


def run(config: FinetuningConfig, workdir: Path) -> Outcome:
    """Fine-tunes, one seed after the other; what is finished already is taken from its folder.

    Args:
      config: as `finetuning_config.parse` returned it.
      workdir: has a folder a run, `seed-0` and so on.

    Raises:
      ConfigError: before any training, if data, labels, model or mesh do not fit the config.
      FloatingPointError: as `loop.train` does.
    """
    source = sources.find(config.init_from, "init_from")
    _check_length(config, source)
    data = _read(config)
    vocabulary, kind = source.vocabulary(), KINDS[config.task.kind]
    labels = _labels(config, data)
    made = {
        split: {
            language: Set(examples, kind.rows(examples, vocabulary, labels, config.task))
            for language, examples in by_language.items()
        }
        for split, by_language in data.items()
    }
    print(_counts(made), flush=True)
    groups = [config.task.languages]
    if config.task.per_language:
        groups = [(language,) for language in config.task.languages]
    runs: list[Run] = []
    for group in groups:
        scored = group if config.task.per_language else tuple(data["dev"] | data["test"])
        store = row_store.write(
            Path(config.cache).expanduser(),
            config.task.kind,
            {language: made["train"][language].made for language in group},
            vocabulary,
        )
        of_group = {
            split: {name: made[split][name] for name in scored if name in made[split]}
            for split in ("dev", "test")
        }
        for seed in range(config.train.seed, config.train.seed + config.train.seeds):
            name = f"seed-{seed}" if len(groups) == 1 else f"{group[0]}-seed-{seed}"
            found = _one(config, group, seed, labels, of_group, store, source, workdir / name)
            if found is None:
                return Outcome(tuple(runs), {}, False)
            runs.append(found)
    return Outcome(tuple(runs), _baseline(config, data), True)


def _one(
    config: FinetuningConfig,
    group: tuple[str, ...],
    seed: int,
    labels: tuple[str, ...],
    sets: Mapping[str, Mapping[str, Set]],
    store: RowStore,
    source: Source,
    folder: Path,
) -> Run | None:
    """One run, unless it is finished already; None if it was asked to stop."""
    inner = _training_config(config, seed, labels, store, source)
    mesh = partitioning.make_mesh(inner)
    identity = _identity(inner, store, sets)
    if (folder / RUN).is_file():
        content = json.loads((folder / RUN).read_bytes())
        if content.pop("identity") != identity:
            raise ConfigError(
                f"{folder} holds a finished run of another config, or of other data; take another "
                "--workdir"
            )
        print(f"{folder} is finished")
        return Run(**{**content, "languages": tuple(content["languages"])}, folder=folder)
    evaluator = Evaluator(config, inner, labels, mesh)

    def probe(state: State) -> dict[str, float]:
        return _metrics(evaluator.scores(state.params, sets["dev"], "dev")[1], config, group)

    probes, best = ([probe], SCORE) if sets["dev"] else ([], "")
    outcome = loop.train(inner, folder, store, probes, best)
    if not outcome.finished:
        return None
    step = outcome.step
    if config.task.select != "last":
        lines = [line for line in metrics.read(folder) if line["step"] and SCORE in line]
        step = max(lines, key=lambda line: (line[SCORE], line["step"]))["step"]
    chosen = sources.find(folder / "checkpoints" / str(step)).params(mesh)
    found: dict[str, Scores] = {}
    for split in ("dev", "test"):
        predicted, found[split] = evaluator.scores(chosen, sets[split], split)
        _save(evaluator.kind, predicted, folder / "predictions", split)
    content = {"languages": group, "seed": seed, "step": step, **found}
    if jax.process_index() == 0:
        text = json.dumps({**content, "identity": identity}, indent=1) + "\n"
        atomic.write(folder / RUN, text.encode())
    return Run(group, seed, step, found["dev"], found["test"], folder)


class Evaluator:
    """Predicts and scores sets of examples.

    Args:
      inner: the config of the training.
      labels: of classes or tags, in the order of the head.
      mesh: where parameters are.

    Attributes:
      kind: the module of the kind of task.
    """

    def __init__(
        self, config: FinetuningConfig, inner: Config, labels: tuple[str, ...], mesh: Mesh
    ):
        self.kind = KINDS[config.task.kind]
        self._task, self._metric, self._labels = config.task, metric_of(config), labels
        self._predict = Predictor(config.task.kind, inner.model, mesh)

    def scores(
        self, params: Params, sets: Mapping[str, Set], split: str
    ) -> tuple[dict[str, Any], Scores]:
        """Predictions by language, and their scores where labels are known."""
        predictions: dict[str, Any] = {}
        found: Scores = {}
        for language, entry in sets.items():
            made, examples = entry.made, entry.examples
            outputs = self._predict(params, made.tokens, f"{split} {language}")
            predicted = self.kind.decode(outputs, made, examples, self._labels, self._task)
            predictions[language] = predicted
            if self.kind.labelled(examples):
                shares = self.kind.scores(predicted, examples, self._metric, language)
                for name, share in shares.items():
                    found.setdefault(name, {})[language] = 100 * share
        return predictions, found


def _metrics(scores: Scores, config: FinetuningConfig, trained: Iterable[str]) -> dict[str, float]:
    """A line of metrics: of each language, their means, and what a checkpoint is chosen by."""
    line: dict[str, float] = {}
    for name, by_language in scores.items():
        line |= {f"eval/dev/{language}/{name}": value for language, value in by_language.items()}
        line[f"eval/dev/{name}"] = average(by_language)
    first = next(iter(scores.values()))
    if config.task.select == "trained":
        first = {language: value for language, value in first.items() if language in set(trained)}
    return line | {SCORE: average(first)}


def _check_length(config: FinetuningConfig, source: Source) -> None:
    limit = source.model.positions - encoder.FIRST_POSITION
    if config.task.length > limit:
        raise ConfigError(
            f"task.length={config.task.length} is beyond the model's positions: {source.folder} "
            f"allows {limit} tokens a row"
        )


def _read(config: FinetuningConfig) -> dict[str, Examples]:
    """The examples of each split, by language."""
    task = config.task
    tested = task.test_languages or task.languages
    languages = {"train": task.languages, "dev": task.dev_languages or tested, "test": tested}
    wanted = [
        (split, language, source)
        for split, names in languages.items()
        for language, sources in reading.resolve(task, split, names).items()
        for source in sources
    ]
    found: dict[str, Examples] = {split: {} for split in languages}
    with tqdm(wanted, desc="reading", unit="source", disable=None, leave=False) as bar:
        for split, language, source in bar:
            examples = reading.read(source, language, task)
            found[split].setdefault(language, []).extend(examples)
    return found


def _labels(config: FinetuningConfig, data: Mapping[str, Examples]) -> tuple[str, ...]:
    """The labels of the task; those of dev and test are among them."""
    training, *rest = (
        [example for examples in data[split].values() for example in examples]
        for split in ("train", "dev", "test")
    )
    known = label_set(training, config.task.labels)
    for examples in rest:
        check(examples, known)
    return known


def _counts(made: Mapping[str, Mapping[str, Set]]) -> str:
    """A line a split and language: examples, rows, and what was cut."""
    lines = []
    for split, by_language in made.items():
        for language, entry in by_language.items():
            cut = [f"{n} {what} cut" for what, n in entry.made.cut.items() if n]
            counts = [f"{len(entry.examples):,} examples", f"{len(entry.made.tokens):,} rows", *cut]
            lines.append(f"{split:5} {language:8} {', '.join(counts)}")
    return "\n".join(lines)


def _training_config(
    config: FinetuningConfig,
    seed: int,
    labels: tuple[str, ...],
    store: RowStore,
    source: Source,
) -> Config:
    """The config of a run of the loop."""
    given, options = config.train, dataclasses.asdict(config.optimizer)
    rows = sum(task.train.rows for task in store.manifest.tasks)
    steps = max(1, math.ceil(given.epochs * rows / given.batch_rows))
    share = options.pop("warmup_share")
    options["warmup_steps"] = min(options["warmup_steps"] or round(share * steps), steps)
    every = math.ceil(steps / given.evaluations)
    model = dataclasses.replace(
        source.model, language_embeddings="none", **dataclasses.asdict(config.model)
    )
    task = config.task
    return Config(
        init_from="" if config.fresh else config.init_from,
        data=Data(alpha=task.alpha),
        model=model,
        objectives=Supervised(task.kind, given.batch_rows, task.length, labels),
        optimizer=Optimizer(**options),
        train=Train(
            steps=steps,
            seed=seed,
            log_every=given.log_every,
            eval_every=every,
            checkpoint_every=every,
            keep_checkpoints=1,
            accumulation=given.accumulation,
            max_skipped_steps=given.max_skipped_steps,
        ),
        mesh=config.mesh,
    )


def _identity(inner: Config, store: RowStore, sets: Mapping[str, Mapping[str, Set]]) -> str:
    """What tells a run from others: its config, its rows, and what it is scored on."""
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(inner), sort_keys=True).encode())
    digest.update(store.manifest.content_hash.encode())
    for split, by_language in sets.items():
        for language, entry in by_language.items():
            examples = [dataclasses.astuple(example)[:-1] for example in entry.examples]
            digest.update(json.dumps([split, language, examples]).encode())
    return digest.hexdigest()


def _save(kind: ModuleType, predictions: Mapping[str, Any], folder: Path, split: str) -> None:
    """Writes a file of predictions a language, in XTREME's form."""
    if jax.process_index() or not predictions:
        return
    folder.mkdir(exist_ok=True)
    for language, predicted in predictions.items():
        text = kind.to_text(predicted)
        atomic.write(folder / f"{split}-{language}.{kind.ENDING}", text.encode())


def _baseline(config: FinetuningConfig, data: Mapping[str, Examples]) -> Scores:
    """Test scores (or dev's) of the most frequent labels of the training data."""
    kind, found = KINDS[config.task.kind], Scores()
    if not hasattr(kind, "majority"):
        return found
    for language, examples in (data["test"] or data["dev"]).items():
        if not kind.labelled(examples):
            continue
        names = [language] if config.task.per_language else config.task.languages
        training = [example for name in names for example in data["train"][name]]
        predicted = kind.majority(training, examples)
        for name, share in kind.scores(predicted, examples, metric_of(config), language).items():
            found.setdefault(name, {})[language] = 100 * share
    return found
