"""Builds the rows of a recipe: once, by all cores, going on where a killed run stopped."""

import dataclasses
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.data.rows import whole_text
from xlj.data.rows.joining import join
from xlj.data.rows.recipe import Recipe
from xlj.data.rows.shards import Shards
from xlj.data.rows.store import MANIFEST, VOCABULARY, Manifest, task_rows_from_json
from xlj.data.rows.units import UNIT_LINES, Plan, build_unit, missing_units
from xlj.data.rows.whole_text import Sizes
from xlj.data.text.held_out import Rule
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file
from xlj.io.processes import SPAWN, stop_with_parent


def build_rows(recipe: Recipe, runner: str = "", arguments: Sequence[str] = ()) -> Path:
    """Builds the rows of a recipe, reading text in this process and packing it in a pool of spawned
    ones; returns their folder. Finished rows are left as they are.

    Args:
      runner, arguments: as `preparing.prepare_rows` takes them.

    Raises:
      ConfigError: if the text cannot be read, or yields no vocabulary or no rows.
    """
    with _only_builder(recipe.text_folder):
        sizes = whole_text.measure(recipe)
        rules = whole_text.hold_out(recipe, sizes)
        vocabulary = whole_text.vocabulary_of(recipe, sizes, rules)
    recipe = dataclasses.replace(recipe, vocabulary=vocabulary)
    with _only_builder(recipe.folder):
        if not recipe.finished:
            plans = _plans(recipe, vocabulary, rules)
            unjoined = [plan for plan in plans if not _joined_file(recipe, plan).is_file()]
            if runner:
                _build_with_beam(unjoined, runner, arguments)
            else:
                _build_units(unjoined, sizes, recipe.data.workers)
            _join(recipe, unjoined, plans, vocabulary)
    return recipe.folder


def _plans(recipe: Recipe, vocabulary: Vocabulary, rules: Mapping[str, Rule]) -> list[Plan]:
    atomic.write(recipe.folder / VOCABULARY, vocabulary.model)
    return [
        Plan(
            task,
            Shards(_work(recipe) / task.name, recipe.length(task.kind), vocabulary.dtype.str),
            tuple(rules[name] for name in task.languages),
            recipe.folder / VOCABULARY,
        )
        for task in recipe.row_tasks
    ]


def _build_units(plans: Sequence[Plan], sizes: Sizes, workers: int) -> None:
    # Text brings blank lines besides its sentences, so the total is a little low.
    total = sum(max(sizes[plan.task.text_name][0]) for plan in plans)
    workers = min(workers or len(os.sched_getaffinity(0)), total // UNIT_LINES + len(plans) + 1)
    pending: set[Future[int]] = set()
    bar = tqdm(total=total, desc="building rows", unit="line", unit_scale=True)
    with bar, ProcessPoolExecutor(workers, SPAWN, stop_with_parent) as pool:

        def finish(done: set[Future[int]]) -> None:
            bar.update(sum(future.result() for future in done))

        try:
            for plan in plans:
                for unit in missing_units(plan):
                    pending.add(pool.submit(build_unit, *unit))
                    if len(pending) > 2 * workers:  # bounds the text that waits in memory
                        done, pending = wait(pending, return_when=FIRST_COMPLETED)
                        finish(done)
            finish(pending)
        except BrokenProcessPool:
            raise RuntimeError(
                "a process that builds rows was killed, perhaps for memory; start again to go on, "
                f"with fewer than data.workers={workers}"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _build_with_beam(plans: Sequence[Plan], runner: str, arguments: Sequence[str]) -> None:
    """The same units, by a pipeline on this machine or on a cluster, of which every worker must see
    the inputs and the store at the paths of the config (a shared file system)."""
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ConfigError(f"--runner={runner} needs apache-beam ({error})") from error
    with beam.Pipeline(options=PipelineOptions([f"--runner={runner}", *arguments])) as pipeline:
        _ = (
            pipeline
            | "tasks" >> beam.Create(plans)
            | "read" >> beam.FlatMap(missing_units)
            | "spread" >> beam.Reshuffle()
            | "build" >> beam.MapTuple(build_unit)
        )


def _join(
    recipe: Recipe, unjoined: Sequence[Plan], plans: Sequence[Plan], vocabulary: Vocabulary
) -> None:
    for plan in tqdm(unjoined, desc="joining shards", unit="task", disable=len(unjoined) < 2):
        rows = join(plan, recipe.folder / plan.task.name)
        atomic.write(_joined_file(recipe, plan), json.dumps(dataclasses.asdict(rows)).encode())
        shutil.rmtree(plan.shards.folder)
    joined = [json_file.read_object(_joined_file(recipe, plan)) for plan in plans]
    tasks = tuple(map(task_rows_from_json, joined))
    manifest = Manifest(
        vocabulary.size, vocabulary.digest, vocabulary.dtype.str, recipe.content, tasks
    )
    atomic.write(recipe.folder / MANIFEST, manifest.to_json())
    shutil.rmtree(_work(recipe))


def _work(recipe: Recipe) -> Path:
    """Folder of what is gone once the rows are finished."""
    return recipe.folder / "shards"


def _joined_file(recipe: Recipe, plan: Plan) -> Path:
    return _work(recipe) / f"{plan.task.name}.joined.json"


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Makes the folder if need be; no other process builds anything in it meanwhile."""
    with atomic.mendable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is at work in {folder}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        for left in folder.rglob(f"*{atomic.PART}"):  # by a run that was killed
            left.unlink()
        yield  # the lock ends with the file
