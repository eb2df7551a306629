"""Runs the steps of an adaptation. Each step is done once, so a stopped adaptation resumes."""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from xlj.adaptation import pieces, plan, sentences
from xlj.adaptation.pieces import Choice
from xlj.api import runs
from xlj.checkpoints import reading, stored_models
from xlj.checkpoints.compatibility import check_resumable
from xlj.checkpoints.reading import CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.workdir import LOCK, only_run
from xlj.config import Config, ConfigError, record
from xlj.config.checks import check_phases
from xlj.config.fields import flat
from xlj.config.languages import matching
from xlj.conversion import merging
from xlj.conversion.exporting import export
from xlj.conversion.extending import store_extended
from xlj.data.rows import building
from xlj.data.rows.building import TextSample
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import align_columns, report
from xlj.data.rows.request import request_of
from xlj.data.rows.store import RowStore
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility
from xlj.evaluation import adaptation_record, probes, word_loss
from xlj.evaluation.adaptation_record import FILE
from xlj.evaluation.word_loss import TestText
from xlj.inference import pretrained
from xlj.inference.pretrained import Pretrained
from xlj.interop.sentence_modules import SENTENCE
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.io.processes import in_child
from xlj.models.embeddings import FIRST_POSITION
from xlj.retrieval.teaching import teachers_of
from xlj.sharding import meshes
from xlj.sharding.trees import nested
from xlj.tools.reporting import runs as reported_runs
from xlj.tools.reporting.page import page
from xlj.training import duration_steps, revisions, start

_CHARACTERS = 5_000_000  # characters of each language's text from which pieces are chosen
_HELD_OUT = 200  # maximum number of held-out lines per language or pair that the measures read
_TEXT_KEYS = (
    *("data.mono", "data.parallel", "data.pairs", "data.exclude", "data.filter"),
    *("data.duplicates", "data.held_out_share", "evaluation.retrieval."),
)
"""Prefixes of the config keys that determine which text the measures read."""


class AdaptRequest(NamedTuple):
    """The options of an adaptation.

    Attributes:
      languages: the new languages.
      replay: the old languages whose text is trained on too, so that the model does not forget
        these languages.
      replay_share: the share of `replay` in the text that is drawn, above 0 and below 1.
      pieces: the number of pieces for each new language; None for `pieces.choose` to choose it.
      steps: the number of training steps; None for `plan.choose_steps` to choose it.
      prompt: text that begins each sentence of a sentence encoder that keeps its vectors; empty for
        its default prompt. None to adapt by masked language modelling.
      before_weight: the weight of the parameters before the training in those of the adapted model
        (`merging.towards`), from 0 to below 1. It may change after the training.
    """

    languages: tuple[str, ...]
    replay: tuple[str, ...]
    replay_share: float
    pieces: int | None
    steps: int | None
    prompt: str | None = None
    before_weight: float = 0.0

    @property
    def keeps_vectors(self) -> bool:
        """Whether the model is a sentence encoder that keeps its vectors."""
        return self.prompt is not None

    def as_json(self, source: StoredModel, config: Config) -> Record:
        """Returns the options that determine the new pieces and the measures before and after.

        An adaptation resumes only if these options equal those of the command that started it. The
        training run compares the other keys of the config, and the number of steps.
        """
        keys = flat(record(config))
        return {name: keys[name] for name in keys if name.startswith(_TEXT_KEYS)} | {
            "from": source.digest(),
            "languages": list(self.languages),
            "replay": list(self.replay),
            "replay_share": self.replay_share,
            "pieces": self.pieces,
            "prompt": self.prompt,
        }


class Folders(NamedTuple):
    """The parts of the output folder."""

    output: Path

    @property
    def progress(self) -> Path:
        """The file with the request, and with the results of the finished steps: the pieces, and
        the measures before and after the training."""
        return self.output / FILE

    @property
    def extended(self) -> Path:
        """The model with the extended vocabulary, before the training."""
        return self.output / "extended"

    @property
    def run(self) -> Path:
        """The workdir of the training run."""
        return self.output / "run"

    @property
    def report(self) -> Path:
        """The HTML page with the results."""
        return self.output / "report.html"

    @property
    def model(self) -> Path:
        """The exported Hugging Face folder."""
        return self.output / "model"


def adapt(
    request: AdaptRequest,
    config: Config,
    output: Path,
    explicit: Collection[str] = (),
    dry_run: bool = False,
) -> bool:
    """Adapts the model that `config.init_from` names, and prints the plan and the results.

    Args:
      config: the config of the training run. It names the text of all languages, and has
        `transfer.model=init_from`.
      output: a new folder, or the folder of an adaptation with the same options, which then
        resumes.
      explicit: paths of the config keys that the user set, such as `data.length`. The adaptation
        keeps their values, except for the starts of phases, which depend on the number of steps.
      dry_run: whether to stop before the training. Even then, pieces are chosen and rows are built.

    Returns:
      True if the adaptation is finished; False with `dry_run`, or if the training was interrupted.

    Raises:
      ConfigError: before any training, if the model, the text or the config cannot be used.
    """
    folders = Folders(output.resolve())  # the run records paths, which must not change
    config = revisions.pin(config, output / "run")
    source = stored_models.find(config.init_from, "--from")
    _check_output(output, source)
    with only_run(output, "--output"):
        progress = _read_progress(folders, request.as_json(source, config), source)
        if "data.length" not in explicit:
            config = _with_length_of(source, config)
        if request.keeps_vectors:
            config = sentences.configure(config, source, request, explicit)
        config = start.adopt_model(config)
        files = probes.read_files(config)
        samples = _sample(config, source.vocabulary())
        text = _test_text(config, request, samples, files)
        config = _with_vectors_of_modules(source, config, explicit)
        if request.keeps_vectors:
            config = sentences.with_old_text(config, request)
        adapted_from, choices = _with_pieces(request, source, samples, folders, progress)
        config = dataclasses.replace(config, init_from=str(adapted_from.folder))
        config, _ = start.adopt_vocabulary(config, adapted_from, None)
        vocabulary = adapted_from.vocabulary()
        store = prepare_rows(config, vocabulary=vocabulary, teach=teachers_of(config))
        config = _planned(config, store, request, explicit)
        _check_run(folders, config)
        if dry_run:  # without dry_run, the training run prints the report
            print(report(store, config.data), end="\n\n")
        _print_plan(request, source, adapted_from, choices, samples, config, store)
        if dry_run:
            return False
        if "before" not in progress:
            print("measuring the model before training", flush=True)
            progress["before"] = word_loss.measure_text(pretrained.of(source), text)
            json_file.write(folders.progress, progress)
        outcome = runs.pretrain(config, folders.run)
        if not outcome.finished:
            print(f"\nstopped at step {outcome.step}; the same command resumes from there")
            return False
        adapted = merging.towards(
            adapted_from, stored_models.find(folders.run), request.before_weight
        )
        made = {"step": outcome.step, "before_weight": request.before_weight}
        _measure_adapted(folders, progress, made, adapted, source, text)
        _write_results(folders, progress, request, source, adapted)
    return True


def _check_output(output: Path, source: StoredModel) -> None:
    """Raises a `ConfigError` if the output folder has files of another kind, such as a model."""
    if isinstance(source.folder, Path) and output.resolve() == source.folder.resolve():
        raise ConfigError(f"--output={output} is the folder of --from; name another folder")
    files = {path.name for path in output.iterdir()} if output.is_dir() else set()
    if files - {LOCK} and FILE not in files:
        raise ConfigError(
            f"--output={output} contains other files, but no adaptation ({FILE}); name a new or "
            "empty folder"
        )


def _check_run(folders: Folders, config: Config) -> None:
    """Raises a `ConfigError` if the training run in the output folder cannot resume with the
    config."""
    try:
        latest = reading.latest(folders.run)
    except CheckpointError:  # damaged: the run reports it, or resumes from an earlier checkpoint
        return
    if latest is None:
        return
    try:
        check_resumable(latest, start.with_dtype(config, latest, meshes.make_mesh(config)))
    except CheckpointError as error:
        raise ConfigError(
            f"--output={folders.output} has a training run with other options ({error}). To adapt "
            "with these options, name a new --output"
        ) from error


def _read_progress(folders: Folders, request: Record, source: StoredModel) -> Record:
    """Reads the progress of the adaptation in the folder.

    If the options have changed before the first checkpoint, the adaptation starts over.

    Args:
      request: the options of this command (`AdaptRequest.as_json`).

    Raises:
      ConfigError: if the folder has a training run with other options.
    """
    if not folders.progress.is_file():
        return {"source": str(source.folder), "request": request}
    progress = json_file.read_object(folders.progress)
    stored = progress.get("request", {})
    differing = [name for name in request if request[name] != stored.get(name)]
    if differing and not reading.steps(folders.run):
        return {"source": str(source.folder), "request": request}
    if differing:
        name = differing[0]
        raise ConfigError(
            f"--output={folders.output} has an adaptation with other options ({name}: "
            f"{stored.get(name)!r}, now {request[name]!r}); name a new folder"
        )
    return progress


def _with_length_of(source: StoredModel, config: Config) -> Config:
    """Returns the config with `data.length` reduced to the positions of the model, if necessary."""
    length = min(config.data.length, source.model.positions - FIRST_POSITION)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, length=length))


def _with_vectors_of_modules(
    source: StoredModel, config: Config, explicit: Collection[str] = ()
) -> Config:
    """Returns the config that ranks the vectors that the model's sentence modules pool, if it has
    such modules: those of the last layer. Layers that the recipe or the user chose, and the pooling
    that the user chose, are kept."""
    if source.sentence is None:
        return config
    replace, layer = dataclasses.replace, source.model.layers
    objectives, evaluation = config.objectives, config.evaluation
    ranking = objectives.retrieval
    if ranking.layer == -1:
        ranking = replace(ranking, layer=layer)
    if "objectives.retrieval.pooling" not in explicit:
        pooling = sentences.pooling_of(source.sentence) or ranking.pooling
        ranking = replace(ranking, pooling=pooling)
    objectives = replace(objectives, options={**objectives.options, "retrieval": ranking})
    for name in ("retrieval", "sts", "search"):
        section = getattr(evaluation, name)
        if section.layer == -1:
            evaluation = replace(evaluation, **{name: replace(section, layer=layer)})
    return replace(config, objectives=objectives, evaluation=evaluation)


def _measure_adapted(
    folders: Folders,
    progress: Record,
    made: Record,
    adapted: StoredModel,
    source: StoredModel,
    text: TestText,
) -> None:
    """Measures the adapted model, and removes the export of an earlier one.

    It does nothing if the model of `made` is measured already: of this step, and with this weight
    of the model before.
    """
    if made == {name: progress.get(name) for name in made}:
        return
    print("measuring the model after training", flush=True)
    after = word_loss.measure_text(_with_modules(pretrained.of(adapted), source), text)
    progress |= made | {"after": after}
    if folders.model.exists():
        shutil.rmtree(folders.model)
    json_file.write(folders.progress, progress)


def _with_modules(trained: Pretrained, source: StoredModel) -> Pretrained:
    """Returns the trained encoder with the sentence modules of the model that it comes from."""
    dense = {name: leaf.read() for name, leaf in source.leaves.items() if name.startswith(SENTENCE)}
    return trained._replace(params=trained.params | nested(dense), sentence=source.sentence)


def _sample(config: Config, vocabulary: Vocabulary) -> dict[str, TextSample]:
    """Samples the text of each language and pair, by the name of its task, such as `text.en`."""
    request = request_of(config, vocabulary)
    samples: dict[str, TextSample] = in_child(
        "reading text", building.sample_text, request, _CHARACTERS, _HELD_OUT
    )
    empty = [name for name, sample in samples.items() if not sample.train[0]]
    if empty:
        raise ConfigError(
            f"{empty[0].partition('.')[2]} has no text to train on; check the files of --mono and "
            "--parallel"
        )
    return samples


def _test_text(
    config: Config,
    request: AdaptRequest,
    samples: Mapping[str, TextSample],
    files: probes.Files,
) -> TestText:
    """Collects the text that the measures read: held-out lines, and the pairs of --test or, without
    --test, held-out pairs."""
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
    return TestText(lines, pairs, config.evaluation.retrieval.layer, request.prompt or None)


def _distinct(columns: tuple[list[str], ...]) -> tuple[list[str], list[str]]:
    """Removes the pairs that share a sentence with another pair on the same side, since such a
    sentence has several correct translations."""
    counts = tuple(map(Counter, columns))
    pairs = [
        (source, target)
        for source, target in zip(*columns, strict=True)
        if counts[0][source] == counts[1][target] == 1
    ]
    return [source for source, _ in pairs], [target for _, target in pairs]


def _with_pieces(
    request: AdaptRequest,
    source: StoredModel,
    samples: Mapping[str, TextSample],
    folders: Folders,
    progress: Record,
) -> tuple[StoredModel, list[Choice]]:
    """Returns the model that training starts from, and the pieces that each language got."""
    if "pieces" not in progress:
        old = source.vocabulary()
        new_text, old_text = (
            {name: samples[f"text.{name}"].train[0] for name in names}
            for names in (request.languages, request.replay)
        )
        vocabulary, choices = pieces.choose(old, new_text, old_text, request.pieces)
        json_file.write(folders.progress, progress)  # marks the folder as that of an adaptation
        if folders.extended.exists():
            shutil.rmtree(folders.extended)  # of other options, or of an interrupted command
        if vocabulary is not old:
            store_extended(source, vocabulary, folders.extended)
        progress["pieces"] = [choice._asdict() for choice in choices]
        json_file.write(folders.progress, progress)
    choices = [Choice(**choice) for choice in progress["pieces"]]
    if not any(choice.pieces for choice in choices):
        return source, choices
    return stored_models.find(folders.extended, "--output"), choices


def _planned(
    config: Config, store: RowStore, request: AdaptRequest, explicit: Collection[str]
) -> Config:
    """Returns the config with the shares of languages and the number of steps. Values that the user
    set are kept."""
    if "data.sampled" not in explicit and not request.keeps_vectors:
        names = plan.choose_sampled(
            store, config, request.languages, request.replay, request.replay_share
        )
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, sampled=names))
    config, _ = duration_steps.resolve(config, store)
    if request.steps is None and "train.steps" in explicit:
        return config
    steps = request.steps or plan.choose_steps(config, store, request.languages)
    config = plan.with_steps(config, steps, explicit)
    check_phases(config)
    return config


def _print_plan(
    request: AdaptRequest,
    source: StoredModel,
    adapted_from: StoredModel,
    choices: list[Choice],
    samples: Mapping[str, TextSample],
    config: Config,
    store: RowStore,
) -> None:
    vocabulary = adapted_from.vocabulary()
    counts = {
        name: measure_fertility(vocabulary, samples[f"text.{name}"].train[0])
        for name in request.languages
        if samples[f"text.{name}"].is_whole
    }
    rows = [["language", "pieces per word", "unknown pieces", "new pieces"]]
    for each in choices:
        unknown = f"{each.unknown_before:.1%} -> {each.unknown_after:.1%}"
        per_word = f"{each.before:.2f} -> {each.after:.2f}"
        rows.append([each.language, per_word, unknown, f"{each.pieces:,}"])
    print(f"vocabulary: {source.vocabulary().size:,} -> {vocabulary.size:,} ids")
    print(*align_columns(rows, left=(0,)), sep="\n")
    for each in choices:
        more = "more " if each.pieces else ""
        print(f"no {more}pieces for {each.language}: {each.reason}")
    _print_vectors(request, source, config)
    if not request.replay:
        print(
            "warning: without --replay the model forgets its old languages; name old languages "
            "that have text in --mono, for example --replay=en,de"
        )
    elif forgotten := [
        name for name in source.known if not matching(name, (*request.replay, *request.languages))
    ]:
        more = f" and {len(forgotten) - 8} more" if len(forgotten) > 8 else ""
        print(
            f"warning: without replay the model forgets more of {', '.join(forgotten[:8])}{more}, "
            "which it knows; name those that matter with --replay"
        )
    print("", *plan.format_table(config, store), sep="\n")
    if not request.keeps_vectors:
        times = plan.count_passes(config, store, request.languages)
        print(f"\npasses over the text of the new languages: {times:.1f}")
    cost = plan.estimate_cost(config, store)
    print(f"cost: {cost}")
    advice = plan.give_advice(counts, store, config, request.languages, cost.parameters)
    print(*advice, "", sep="\n", flush=True)


def _print_vectors(request: AdaptRequest, source: StoredModel, config: Config) -> None:
    """Prints what is trained: sentence vectors, and a new head for masked words."""
    if not request.keeps_vectors and not any(
        name.startswith(word_loss.HEAD) for name in source.leaves
    ):
        print("the model has no head for masked words: the training starts with a new one")
    if source.sentence is None:
        return
    modules = source.sentence.report()
    if request.keeps_vectors:
        print(f"sentence vectors: {modules}; the teacher is --from")
    elif config.data.pairs:
        ranking = config.objectives.retrieval
        print(
            f"sentence vectors: the modules of --from ({modules}); ranking trains layer "
            f"{ranking.layer}, pooling {ranking.pooling}"
        )
    else:
        print("warning: text alone destroys the sentence vectors of --from; name --pairs")


def _write_results(
    folders: Folders,
    progress: Record,
    request: AdaptRequest,
    source: StoredModel,
    adapted: StoredModel,
) -> None:
    """Writes the report and the exported folder, and prints the measures."""
    json_file.write(folders.run / FILE, progress)
    run = reported_runs.read(folders.run, "adapted")
    title = f"Adapted to {', '.join(request.languages)}"
    atomic.write(folders.report, page([run], title).encode())
    if not folders.model.exists():
        export(adapted, folders.model, name=folders.output.name, origin=source)
    if request.before_weight:
        print(f"\nadapted parameters: {adaptation_record.mean_of(request.before_weight)}")
    rows = adaptation_record.table(progress["before"], progress["after"])
    print("", *(line.rstrip() for line in align_columns(rows, left=(0, 1))), sep="\n")
    if source.sentence and not request.before_weight:
        print(
            "\nthe same command with --before_weight=0.5 exports the mean of this model and the "
            "model before, which may find more translations"
        )
    print(f"\nreport: {folders.report}\nmodel:  {folders.model}")
