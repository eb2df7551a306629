"""Pretraining and fine-tuning runs from a config."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import ml_collections

from xlj.api.results import Drawing, frame
from xlj.checkpoints.workdir import only_run, resolve
from xlj.config import Config, ConfigError, finetuning, parse
from xlj.config.paths import local_path
from xlj.data.rows.preparing import open_rows
from xlj.data.rows.report import align_columns, report
from xlj.distributed import hosts
from xlj.evaluation import probes
from xlj.finetuning import task_runs
from xlj.io import atomic, own_process
from xlj.io.storage import AnyPath
from xlj.retrieval.teaching import teachers_of
from xlj.sharding import devices
from xlj.tools.reporting import runs as reported_runs
from xlj.tools.reporting.page import page
from xlj.tools.reporting.page import schedule as drawn_schedule
from xlj.training import loop, revisions, schedule
from xlj.training.start import adopt_model, prepare

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class PretrainingRun(loop.Outcome):
    """The result of `pretrain`."""

    def plot(self) -> Drawing:
        """Draws the losses and all other metrics by step, on the page that `xlj.report` writes."""
        return _report(self.workdir)

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per line of metrics."""
        return frame(self.metrics)


@dataclasses.dataclass(frozen=True)
class FinetuningRun(task_runs.Outcome):
    """The result of `fine_tune`: the runs of all seeds, in one workdir."""

    workdir: Path

    def plot(self) -> Drawing:
        """Draws losses and scores of all seeds by step, on the page that `xlj.report` writes."""
        return _report(self.workdir)

    def to_pandas(self) -> "pandas.DataFrame":
        """Returns a table with one row per score: training languages, seed, split, language,
        measure and value."""
        rows = [
            ("+".join(run.languages), run.seed, split, language, measure, value)
            for run in self.runs
            for split, scores in (("dev", run.dev), ("test", run.test))
            for measure, by_language in scores.items()
            for language, value in by_language.items()
        ]
        return frame(rows, "trained", "seed", "split", "language", "measure", "value")


def _report(workdir: AnyPath) -> Drawing:
    if not isinstance(workdir, Path):
        raise ConfigError(
            f"{workdir} is not a local folder; to draw the run, copy the workdir to this machine"
        )
    return Drawing(page(reported_runs.find([str(workdir)]), workdir.name))


def pretrain(config: ml_collections.ConfigDict | Config, workdir: str | AnyPath) -> PretrainingRun:
    """Pretrains an encoder, as `python -m xlj.train` does.

    The function builds missing rows, trains, evaluates and saves checkpoints. If the workdir has a
    checkpoint, the run resumes from the latest one.

    Args:
      config: the config of the run, such as `xlj.recipe("quickstart")`.
      workdir: folder for checkpoints and metrics: a local folder, or gs://BUCKET/FOLDER.

    Returns:
      The result. `step` is the last finished step, `checkpoint` the folder of its checkpoint, and
      `metrics` has all lines of metrics. `finished` is False if a signal stopped the run earlier.

    Raises:
      ConfigError: before training, if the config is wrong, or does not fit the text, the mesh, the
        memory or the checkpoint in the workdir. During training, if too many consecutive steps have
        a loss or gradient that is not finite.
      KeyboardInterrupt: after Ctrl-C (`loop.train`).
    """
    devices.compute_in_the_calling_thread()
    own_process.enable_cache()
    config = parse(config) if isinstance(config, ml_collections.ConfigDict) else config
    workdir = resolve("workdir", workdir)
    config = revisions.pin(config, workdir)
    config, store = open_rows(adopt_model(config, workdir))
    files = probes.read_files(config)
    with _lock(workdir):
        hosts.check_shared(workdir, "workdir")
        start = prepare(config, workdir, store, teach=teachers_of(config))
        if jax.process_index() == 0:
            warnings = schedule.make_warnings(start.schedule, start.store)
            print(report(start.store, config.data), *warnings, "", sep="\n", flush=True)
        made = probes.make(
            start.config, files, start.store, start.vocabulary, start.trained_on_pairs
        )
        outcome = loop.train(start, made)
    return PretrainingRun(**vars(outcome))


def dry_run(config: ml_collections.ConfigDict | Config, workdir: str | AnyPath) -> None:
    """Prints the schedule of a run without training, as `xlj train --dry_run` does.

    The function makes the checks of `pretrain`, builds missing rows, and prints what the run will
    do in each phase. It also draws the schedule to `workdir/schedule.html`.

    Args:
      config: the config of the run.
      workdir: the workdir that the run would use.

    Raises:
      ConfigError: if the config is wrong, or does not fit the text, the mesh, the memory or the
        checkpoint in the workdir.
    """
    config = parse(config) if isinstance(config, ml_collections.ConfigDict) else config
    workdir = resolve("workdir", workdir)
    config = adopt_model(revisions.pin(config, workdir), workdir)
    with _lock(workdir):
        start = prepare(config, workdir, teach=teachers_of(config))
        if jax.process_index():
            return
        warnings = schedule.make_warnings(start.schedule, start.store)
        print(report(start.store, start.config.data), *warnings, "", sep="\n")
        rows = schedule.make_table(start.schedule, start.store)
        table = align_columns(rows, left=(0, 3, 6))
        print(*(line.rstrip() for line in table), sep="\n")
        path = workdir / "schedule.html"
        lines = schedule.make_lines(start.schedule, start.store)
        with atomic.as_config_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(path, drawn_schedule(lines, str(workdir)).encode())
        print(f"\nschedule: {path}", flush=True)


def fine_tune(config: ml_collections.ConfigDict | Config, workdir: str | Path) -> FinetuningRun:
    """Fine-tunes an encoder on a task, as `python -m xlj.finetune` does.

    The function trains one model after another, for each seed and with `task.per_language` for each
    language, and scores each model in all languages. Finished models in the workdir are reused, and
    an interrupted one is resumed.

    Args:
      config: the config of the run, such as `xlj.recipe("finetune/udpos")`, with `init_from` set.
      workdir: local folder, in which each run gets a folder.

    Returns:
      The result. `runs` has the finished runs, each with `dev` and `test`, the scores in percent by
      metric and then by language. `baseline` has the scores of always predicting the most frequent
      label. `finished` is False if a signal stopped the process.

    Raises:
      ConfigError: before any training, if the config is wrong, or does not fit the data, the
        labels, the model or the mesh. During training, if too many consecutive steps have a loss or
        gradient that is not finite.
    """
    devices.compute_in_the_calling_thread()
    own_process.enable_cache()
    config = finetuning.parse(config) if isinstance(config, ml_collections.ConfigDict) else config
    workdir = local_path("workdir", workdir)
    with _lock(workdir):
        hosts.check_shared(workdir, "workdir")
        run = task_runs.run(revisions.pin(config), workdir)
        return FinetuningRun(**vars(run), workdir=workdir)


def _lock(workdir: AnyPath) -> contextlib.AbstractContextManager:
    """Locks a workdir against other runs. Process 0 holds the lock for all processes of a run."""
    return only_run(workdir) if jax.process_index() == 0 else contextlib.nullcontext()
