"""The steps of an adaptation, each of which is done once: a run that was stopped continues."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.adaptation import pieces, plan
from xlj.adaptation.pieces import Choice
from xlj.api import runs
from xlj.checkpoints import stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.workdir import only_run
from xlj.config import Config, ConfigError
from xlj.conversion.exporting import export
from xlj.conversion.extending import store_extended
from xlj.data.rows import building
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import align, report
from xlj.data.rows.request import request_of
from xlj.data.rows.store import RowStore
from xlj.data.rows.text_samples import TextSample
from xlj.data.tokenizer import fertility
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation import adaptation_record, probe_files, text_measures
from xlj.evaluation.adaptation_record import FILE
from xlj.evaluation.text_measures import TestText
from xlj.inference import pretrained
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.io.processes import in_child
from xlj.models.embeddings import FIRST_POSITION
from xlj.reporting import runs as reported_runs
from xlj.reporting.page import page
from xlj.training import durations, start
from xlj.training.amounts import StepAmounts

_CHARACTERS = 5_000_000  # of each language, from which pieces are chosen
_HELD_OUT = 500  # lines of each language, and pairs, that the measures read


class Request(NamedTuple):
    """What to adapt a model to.

    Attributes:
      languages: the new ones.
      replay: old languages whose text is trained on too, so that the model does not forget them.
      replay_share: of the text that is drawn, above 0 and below 1.
      pieces: for each new language; None to choose them (`pieces.choose`).
      steps: of training; None to choose them (`plan.enough_steps`).
    """

    languages: tuple[str, ...]
    replay: tuple[str, ...]
    replay_share: float
    pieces: int | None
    steps: int | None

    def as_json(self, source: StoredModel) -> Record:
        """The request and the model that it starts from, to compare with another. The number of
        steps may change: the training run checks it."""
        return {
            "from": source.digest(),
            "languages": list(self.languages),
            "replay": list(self.replay),
            "replay_share": self.replay_share,
            "pieces": self.pieces,
        }


class Folders(NamedTuple):
    """The parts of the output folder."""

    output: Path

    @property
    def record(self) -> Path:
        return self.output / FILE

    @property
    def extended(self) -> Path:
        """The model with more pieces, before training."""
        return self.output / "extended"

    @property
    def run(self) -> Path:
        """The workdir of the training run."""
        return self.output / "run"

    @property
    def report(self) -> Path:
        return self.output / "report.html"

    @property
    def model(self) -> Path:
        """The exported Hugging Face folder."""
        return self.output / "model"


def adapt(
    request: Request,
    config: Config,
    output: Path,
    explicit: Collection[str] = (),
    dry_run: bool = False,
) -> bool:
    """Adapts the model that `config.init_from` names; prints the plan and the results.

    Args:
      config: names the text of all languages; `transfer.model` is `init_from`.
      output: a new folder, or that of the same adaptation, which continues.
      explicit: paths of the keys that the user set: these are not changed.
      dry_run: whether to stop before training; pieces are chosen and rows are built.

    Returns:
      Whether it is finished; it is not if the run was asked to stop, or with `dry_run`.

    Raises:
      ConfigError: if the model, the text or the config cannot be used, before any training.
    """
    folders = Folders(output)
    source = stored_models.find(config.init_from, "--from")
    with only_run(output):
        record = _record(folders, request, source)
        if "data.length" not in explicit:  # the recipe's may be too long for a small model
            length = min(config.data.length, source.model.positions - FIRST_POSITION)
            config = dataclasses.replace(
                config, data=dataclasses.replace(config.data, length=length)
            )
        config = start.adopt_model(config)
        files = probe_files.read(config)
        samples = _sample(config, source.vocabulary())
        text = _test_text(config, request, samples, files)
        adapted_from, choices = _with_pieces(request, source, samples, folders, record)
        config = dataclasses.replace(config, init_from=str(adapted_from.folder))
        config, _ = start.adopt_vocabulary(config, adapted_from, None)
        store = prepare_rows(config, vocabulary=adapted_from.vocabulary())
        config = _planned(config, store, request, explicit)
        if dry_run:  # else the training run prints it
            print(report(store, config.data.alpha), end="\n\n")
        _print_plan(request, source, adapted_from, choices, samples, config, store)
        if dry_run:
            return False
        if "before" not in record:
            print("measuring the model before training", flush=True)
            record["before"] = text_measures.measure(pretrained.of(source), text)
            json_file.write(folders.record, record)
        outcome = runs.pretrain(config, folders.run)
        if not outcome.finished:
            print(f"\nstopped at step {outcome.step}; the same command continues from there")
            return False
        if "after" not in record:
            trained = stored_models.find(folders.run, "")
            record["after"] = text_measures.measure(pretrained.of(trained), text)
            json_file.write(folders.record, record)
        _write_results(folders, record, request)
    return True


def _record(folders: Folders, request: Request, source: StoredModel) -> Record:
    """The record of this adaptation, as far as it is done.

    Raises:
      ConfigError: if the folder has another one.
    """
    asked = request.as_json(source)
    if not folders.record.is_file():
        return {"source": str(source.folder), "request": asked}
    record = json_file.read_object(folders.record)
    before = record.get("request", {})
    differing = [name for name in asked if asked[name] != before.get(name)]
    if differing:
        name = differing[0]
        raise ConfigError(
            f"--output={folders.output} has an adaptation with other options ({name}: "
            f"{before.get(name)!r}, now {asked[name]!r}); name a new folder"
        )
    return record


def _sample(config: Config, vocabulary: Vocabulary) -> dict[str, TextSample]:
    """Text of each language and pair, by the name of its task."""
    request = request_of(config, vocabulary)
    samples: dict[str, TextSample] = in_child(
        "reading text", building.sample_text, request, _CHARACTERS, _HELD_OUT
    )
    empty = [name for name, sample in samples.items() if not sample.train[0]]
    if empty:
        raise ConfigError(f"{empty[0].partition('.')[2]} has no text to train on")
    return samples


def _test_text(
    config: Config,
    request: Request,
    samples: Mapping[str, TextSample],
    files: probe_files.Files,
) -> TestText:
    """What the measures read: held-out lines, and the pairs of files or else held-out ones."""
    lines = {
        name: samples[f"text.{name}"].held_out[0]
        for name in (*request.languages, *request.replay)
        if samples[f"text.{name}"].held_out[0]
    }
    pairs = dict(files.parallel) or {
        name.partition(".")[2]: _distinct(sample.held_out)
        for name, sample in samples.items()
        if len(sample.held_out) == 2
    }
    pairs = {name: sides for name, sides in pairs.items() if len(sides[0]) > 1}
    return TestText(lines, pairs, config.evaluation.retrieval.layer)


def _distinct(columns: tuple[list[str], ...]) -> tuple[list[str], list[str]]:
    """Pairs of which no other has the same sentence on either side."""
    first, second = columns
    counts = [dict(zip(*np.unique(side, return_counts=True), strict=True)) for side in columns]
    kept = [pair for pair in zip(first, second, strict=True)
            if all(count[side] == 1 for count, side in zip(counts, pair, strict=True))]  # fmt: skip
    return [pair[0] for pair in kept], [pair[1] for pair in kept]


def _with_pieces(
    request: Request,
    source: StoredModel,
    samples: Mapping[str, TextSample],
    folders: Folders,
    record: Record,
) -> tuple[StoredModel, list[Choice]]:
    """The model that training starts from, and the pieces that each language got."""
    if "pieces" not in record:
        old = source.vocabulary()
        new_text, old_text = (
            {name: samples[f"text.{name}"].train[0] for name in names}
            for names in (request.languages, request.replay)
        )
        vocabulary, choices = pieces.choose(old, new_text, old_text, request.pieces)
        if vocabulary is not old and not folders.extended.exists():
            store_extended(source, vocabulary, folders.extended)
        record["pieces"] = [choice._asdict() for choice in choices]
        json_file.write(folders.record, record)
    choices = [Choice(**choice) for choice in record["pieces"]]
    if not any(choice.pieces for choice in choices):
        return source, choices
    return stored_models.find(folders.extended, "--output"), choices


def _planned(
    config: Config, store: RowStore, request: Request, explicit: Collection[str]
) -> Config:
    """The config with the languages' shares and the number of steps, unless the user set them."""
    if "data.sampled" not in explicit:
        names = plan.sampled(store, config, request.languages, request.replay, request.replay_share)
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, sampled=names))
    config, _ = durations.resolve(config, StepAmounts(store))
    if request.steps is None and "train.steps" in explicit:
        return config
    steps = request.steps or plan.enough_steps(config, store, request.languages)
    return plan.with_steps(config, steps)


def _print_plan(
    request: Request,
    source: StoredModel,
    adapted_from: StoredModel,
    choices: list[Choice],
    samples: Mapping[str, TextSample],
    config: Config,
    store: RowStore,
) -> None:
    counts = {
        name: fertility.measure(adapted_from.vocabulary(), samples[f"text.{name}"].train[0])
        for name in request.languages
    }
    rows = [["language", "pieces per word", "new pieces", "then", "reason"]]
    rows += [
        [c.language, f"{c.before:.2f}", f"{c.pieces:,}", f"{c.after:.2f}", c.reason]
        for c in choices
    ]
    ids = source.vocabulary().size, adapted_from.vocabulary().size
    print(f"vocabulary: {ids[0]:,} -> {ids[1]:,} ids")
    print(*(line.rstrip() for line in align(rows, left=(0, 4))), sep="\n")
    if not request.replay:
        print(
            "warning: no old language is replayed, so the model will forget what it knows; name "
            "some with --replay=en,de, whose files --mono matches"
        )
    print("", *plan.table(config, store), sep="\n")
    times = plan.passes(config, store, request.languages)
    print(f"\npasses over the text of the new languages: {times:.1f}")
    print(f"cost: {plan.cost(config, store)}")
    print(*plan.advice(counts, store, config, request.languages), "", sep="\n", flush=True)


def _write_results(folders: Folders, record: Record, request: Request) -> None:
    """Writes the report and the exported folder, and prints the measures."""
    json_file.write(folders.run / FILE, record)
    found = reported_runs.find([f"adapted={folders.run}"])
    title = f"Adapted to {', '.join(request.languages)}"
    atomic.write(folders.report, page(found, title).encode())
    if not folders.model.exists():
        export(str(folders.run), folders.model, name=folders.output.absolute().name)
    rows = adaptation_record.table(record["before"], record["after"])
    print("", *(line.rstrip() for line in align(rows, left=(0, 1))), sep="\n")
    print(f"\nreport: {folders.report}\nmodel:  {folders.model}")
