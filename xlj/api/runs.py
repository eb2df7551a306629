"""Runs from a config: pretraining and fine-tuning, to the end or until they are asked to stop."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import ml_collections

from xlj.api.results import Drawing, frame
from xlj.checkpoints.workdir import only_run, resolve
from xlj.config import Config, ConfigError, finetuning, parse
from xlj.config.finetuning import FinetuningConfig
from xlj.config.paths import local_path
from xlj.data.rows.preparing import open_rows
from xlj.data.rows.report import align, report
from xlj.distributed import hosts
from xlj.evaluation import probe_files, probes
from xlj.finetuning import running
from xlj.io import atomic, compiled
from xlj.io.storage import AnyPath
from xlj.reporting import runs as found_runs
from xlj.reporting.page import page
from xlj.reporting.page import schedule as drawn_schedule
from xlj.training import amounts, loop, schedule, step_memory
from xlj.training.start import adopt_model, prepare

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class PretrainingRun(loop.Outcome):
    """A run of `pretrain`."""

    def plot(self) -> Drawing:
        """Draws the losses and all else that was measured, by step: the page of `xlj.report`."""
        return _report(self.workdir)

    def to_pandas(self) -> "pandas.DataFrame":
        """A row a line of metrics."""
        return frame(self.metrics)


@dataclasses.dataclass(frozen=True)
class FinetuningRun(running.Outcome):
    """A run of `fine_tune`, in its workdir."""

    workdir: Path

    def plot(self) -> Drawing:
        """Draws the losses and scores of all seeds, by step: the page of `xlj.report`."""
        return _report(self.workdir)

    def to_pandas(self) -> "pandas.DataFrame":
        """A row a score: the run's languages and seed, the split, the language and the measure."""
        rows = [
            ("+".join(run.languages), run.seed, split, language, measure, value)
            for run in self.runs
            for split, scores in (("dev", run.dev), ("test", run.test))
            for language, measures in scores.items()
            for measure, value in measures.items()
        ]
        return frame(rows, "trained", "seed", "split", "language", "measure", "value")


def _report(workdir: AnyPath) -> Drawing:
    if not isinstance(workdir, Path):
        raise ConfigError(f"{workdir} is no folder of this machine; copy it to draw it")
    return Drawing(page(found_runs.find([str(workdir)]), workdir.name))


def pretrain(config: ml_collections.ConfigDict | Config, workdir: str | AnyPath) -> PretrainingRun:
    """Builds the rows if need be, trains, evaluates, checkpoints; goes on from the workdir's latest
    checkpoint if there is one. What `python -m xlj.train` does.

    Args:
      config: such as `xlj.recipe("quickstart")`.
      workdir: gets checkpoints and metrics; a folder of this machine, or gs://BUCKET/FOLDER.

    Returns:
      The last step, its checkpoint, and `metrics`, all that was measured; `plot()` draws them.

    Raises:
      ConfigError: before any work, if the config is wrong, or text, mesh, memory or the workdir's
        checkpoint do not fit it; later, if too many steps were not finite.
      KeyboardInterrupt: after Ctrl-C (`loop.train`).
    """
    step_memory.compute_in_the_calling_thread()
    compiled.keep()
    config = parse(config) if isinstance(config, ml_collections.ConfigDict) else config
    workdir = resolve("workdir", workdir)
    config, store = open_rows(adopt_model(config, workdir))
    files = probe_files.read(config)
    with _alone(workdir):
        hosts.check_shared(workdir, "workdir")
        start = prepare(config, workdir, store)
        if jax.process_index() == 0:
            alarms = amounts.warnings(start.config, start.store)
            print(report(start.store, config.data.alpha), *alarms, "", sep="\n", flush=True)
        made = probes.make(start.config, files, start.store, start.vocabulary)
        outcome = loop.train(start, made)
    return PretrainingRun(**vars(outcome))


def dry_run(config: ml_collections.ConfigDict | Config, workdir: str | AnyPath) -> None:
    """Checks what `pretrain` checks, builds the rows if need be, prints what the run will do in
    each phase, and draws it into `workdir/schedule.html`. What `xlj train --dry_run` does.

    Args, errors: as of `pretrain`.
    """
    config = parse(config) if isinstance(config, ml_collections.ConfigDict) else config
    workdir = resolve("workdir", workdir)
    with _alone(workdir):
        start = prepare(config, workdir)
        if jax.process_index():
            return
        alarms = amounts.warnings(start.config, start.store)
        print(report(start.store, start.config.data.alpha), *alarms, "", sep="\n")
        table = align(schedule.table(start.config, start.store), left=(0, 3, 6))
        print(*(line.rstrip() for line in table), sep="\n")
        path = workdir / "schedule.html"
        lines = schedule.lines(start.config, start.store)
        with atomic.as_config_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(path, drawn_schedule(lines, str(workdir)).encode())
        print(f"\nschedule: {path}", flush=True)


def fine_tune(
    config: ml_collections.ConfigDict | FinetuningConfig, workdir: str | Path
) -> FinetuningRun:
    """Fine-tunes an encoder on a task, one seed after the other, and scores it in all languages;
    what the workdir has already is taken from there. What `python -m xlj.finetune` does.

    Args:
      config: such as `xlj.recipe("finetune/udpos")`, with `init_from` set.
      workdir: gets a folder a seed.

    Returns:
      The runs, each with its scores on dev and test by language, and those of the baseline;
      `plot()` draws the curves.

    Raises:
      ConfigError: before any training, if the config is wrong, or data, labels, model or mesh do
        not fit it; later, as `pretrain`.
    """
    step_memory.compute_in_the_calling_thread()
    compiled.keep()
    config = finetuning.parse(config) if isinstance(config, ml_collections.ConfigDict) else config
    workdir = local_path("workdir", workdir)
    with _alone(workdir):
        hosts.check_shared(workdir, "workdir")
        return FinetuningRun(**vars(running.run(config, workdir)), workdir=workdir)


def _alone(workdir: AnyPath) -> contextlib.AbstractContextManager:
    """Keeps a workdir from other runs; one process of a run sees to it."""
    return only_run(workdir) if jax.process_index() == 0 else contextlib.nullcontext()
