"""Rows are made here: once a recipe, by all cores, going on where a killed run stopped."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from xlj.config import Config, ConfigError
from xlj.data.rows import packing, store, units
from xlj.data.rows.recipe import UNIT_LINES, Recipe, resolve
from xlj.data.rows.store import MANIFEST, VOCABULARY, Manifest, RowStore, Split
from xlj.data.rows.units import Settings
from xlj.data.text import held_out
from xlj.data.text.held_out import Rule
from xlj.data.text.sources import FileSource
from xlj.data.text.text_tasks import Block, TextTask
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file
from xlj.io.processes import SPAWN, in_child, stop_with_parent

Sizes = dict[str, tuple[list[int], list[int]]]
"""Sentences and characters in each column of each task."""


def ensure_rows(config: Config, runner: str = "", arguments: Sequence[str] = ()) -> RowStore:
    """The row store of a config; if there is none yet, it is made in a process of its own, so that
    TensorFlow never shares this one's memory or accelerator. It stops when this one does.

    Args:
      runner: an Apache Beam runner that makes the rows; empty for processes on this machine.
      arguments: further pipeline options for Beam.

    Raises:
      ConfigError: if the config or its text cannot be used.
      RowStoreError: if the rows are there but damaged.
    """
    recipe = resolve(config)
    if recipe.finished:
        return RowStore(recipe.folder)
    return RowStore(in_child("making rows", make, config, runner, tuple(arguments)))


def finished_rows(config: Config) -> RowStore:
    """The row store of a config, for one of several processes: none of them makes rows.

    Raises:
      ConfigError: if the rows are not there, or the config cannot be used.
      RowStoreError: if they are damaged.
    """
    recipe = resolve(config)
    if not recipe.finished:
        raise ConfigError(
            f"several processes train, and data.cache={recipe.data.cache} holds no finished rows "
            "of this config; make them once with python -m xlj.prepare and the same config, in a "
            "folder that every host sees"
        )
    return RowStore(recipe.folder)


def make(config: Config, runner: str = "", arguments: Sequence[str] = ()) -> Path:
    """Makes the rows of a config, reading text in this process and packing it in a pool of spawned
    ones; returns their folder. Finished rows are left as they are.

    Raises:
      ConfigError: if the config or its text cannot be used.
    """
    recipe = resolve(config)
    with _only_maker(recipe.text_folder) as text:
        sizes = _sizes(recipe, text)
        rules = _rules(recipe, sizes, text)
        vocabulary = _vocabulary(recipe, sizes, rules)
    recipe = dataclasses.replace(recipe, vocabulary=vocabulary)
    with _only_maker(recipe.folder) as folder:
        if not recipe.finished:
            _make(recipe, vocabulary, sizes, rules, runner, arguments)
    return folder


def _make(
    recipe: Recipe,
    vocabulary: Vocabulary,
    sizes: Sizes,
    rules: Mapping[str, Rule],
    runner: str,
    arguments: Sequence[str],
) -> None:
    folder, work = recipe.folder, recipe.folder / "making"
    work.mkdir(exist_ok=True)
    atomic.write(folder / VOCABULARY, vocabulary.model)
    settings = {
        task.name: Settings(
            work,
            task.kind,
            recipe.length(task.kind),
            vocabulary.dtype.str,
            tuple(rules[name] for name in task.languages),
            folder / VOCABULARY,
        )
        for task in recipe.row_tasks
    }
    open_tasks = [task for task in recipe.row_tasks if not _joined_file(work, task).is_file()]
    if runner:
        from xlj.data.rows import beam

        beam.make_units(open_tasks, settings, runner, arguments)
    else:
        _make_units(open_tasks, settings, sizes, recipe.data.workers)
    for task in tqdm(open_tasks, desc="joining shards", unit="task", disable=len(open_tasks) < 2):
        joined = _join(folder / task.name, task, settings[task.name])
        content = json.dumps(dataclasses.asdict(joined)).encode()
        atomic.write(_joined_file(work, task), content)
        shutil.rmtree(work / task.name)
    manifest = Manifest(
        vocabulary_size=vocabulary.size,
        vocabulary_digest=vocabulary.digest,
        dtype=vocabulary.dtype.str,
        recipe=recipe.content,
        tasks=tuple(
            store.task_from_json(json_file.read_object(_joined_file(work, task)))
            for task in recipe.row_tasks
        ),
    )
    atomic.write(folder / MANIFEST, manifest.to_json())
    shutil.rmtree(work)


def _sizes(recipe: Recipe, folder: Path) -> Sizes:
    """Sentences and characters of each task: of files they are known, other sources are counted."""
    file = folder / "sizes.json"
    counted: dict[str, Any] = json_file.read_object(file) if file.is_file() else {}
    sizes: Sizes = {}
    for task in recipe.tasks:
        sentences, characters = [0] * len(task.languages), [0] * len(task.languages)
        if all(isinstance(source, FileSource) for source in task.sources):
            for source in task.sources:
                scans = [recipe.scans[item] for item in source.inputs()]
                for column, number in enumerate(n for scan in scans for n in scan.sentences):
                    sentences[column] += number
                for column, number in enumerate(n for scan in scans for n in scan.characters):
                    characters[column] += number
        elif task.name in counted:
            sentences, characters = counted[task.name]
        else:
            for block in _counted(task, "counting"):
                for column, lines in enumerate(block):
                    sentences[column] += sum(map(bool, lines))
                    characters[column] += sum(map(len, lines))
            counted[task.name] = sentences, characters
            atomic.write(file, json.dumps(counted).encode())
        if not sum(sentences):
            where = ", ".join(source.text for source in task.sources)
            raise ConfigError(f"{task.name} is empty: no line of text in {where}")
        sizes[task.name] = sentences, characters
    return sizes


def _by_language(recipe: Recipe, sizes: Sizes, what: int) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for task in recipe.tasks:
        totals.update(dict.fromkeys(task.languages, 0))
        for name, number in zip(task.languages, sizes[task.name][what], strict=True):
            totals[name] += number
    return dict(totals)


def _rules(recipe: Recipe, sizes: Sizes, folder: Path) -> dict[str, Rule]:
    """What is held out of each language. Pairs are read once to find the companions, so that what
    is held out with one pair is not trained on in another, nor in text."""
    lines = _by_language(recipe, sizes, 0)
    wanted = recipe.data.held_out_lines
    rules = {name: Rule(n, held_out.threshold(wanted, n)) for name, n in lines.items()}
    files: dict[str, list[Path]] = {name: [] for name in rules}
    for task in recipe.tasks:
        if task.kind == "pairs" and wanted:
            written = [folder / f"{task.name}.{name}.companions" for name in task.languages]
            if not all(file.is_file() for file in written):
                blocks = _counted(task, "holding out", max(sizes[task.name][0]))
                found = held_out.find_companions(blocks, [rules[name] for name in task.languages])
                for file, companions in zip(written, found, strict=True):
                    held_out.write_companions(file, companions)
            for name, file in zip(task.languages, written, strict=True):
                files[name].append(file)
    return {name: dataclasses.replace(rules[name], files=tuple(files[name])) for name in rules}


def _counted(task: TextTask, doing: str, total: int | None = None) -> Iterator[Block]:
    """The blocks of a task, with a bar that counts their lines."""
    with tqdm(desc=f"{doing} {task.name}", total=total, unit="line", unit_scale=True) as bar:
        for block in task.blocks():
            yield block
            bar.update(len(block[0]))


def _vocabulary(recipe: Recipe, sizes: Sizes, rules: Mapping[str, Rule]) -> Vocabulary:
    """The vocabulary, given or trained; a trained one serves all recipes with the same text."""
    if recipe.vocabulary is not None:
        return recipe.vocabulary
    data, file = recipe.data, recipe.vocabulary_file
    if not file.is_file():
        sentences, characters = (_by_language(recipe, sizes, what) for what in (0, 1))
        sentences = {name: number for name, number in sentences.items() if number}
        wanted, weights = vocabulary_training.balance(
            sentences, characters, data.vocabulary_alpha, data.vocabulary_lines
        )
        blocks = (
            (task.languages, block)
            for task in tqdm(recipe.tasks, desc="sampling text", unit="task")
            for block in task.blocks()
        )
        sampled = vocabulary_training.sample(blocks, rules, wanted, sentences)
        model = vocabulary_training.train(
            sampled,
            weights,
            data.vocabulary_size,
            data.vocabulary_coverage,
            data.vocabulary_type,
        )
        file.parent.mkdir(exist_ok=True)
        atomic.write(file, model)
    return Vocabulary.load(file)


def _make_units(
    tasks: Sequence[TextTask], settings: Mapping[str, Settings], sizes: Sizes, workers: int
) -> None:
    from xlj.data.text.seqio_tasks import missing_units

    # Text brings blank lines besides its sentences, so the total is a little low.
    total = sum(max(sizes[task.text_name][0]) for task in tasks)
    workers = min(workers or len(os.sched_getaffinity(0)), total // UNIT_LINES + len(tasks) + 1)
    pending: set[Future[int]] = set()
    bar = tqdm(total=total, desc="making rows", unit="line", unit_scale=True)
    with bar, ProcessPoolExecutor(workers, SPAWN, stop_with_parent) as pool:

        def finish(done: set[Future[int]]) -> None:
            bar.update(sum(future.result() for future in done))

        try:
            for task in tasks:
                for unit in missing_units(task, settings[task.name]):
                    pending.add(pool.submit(units.make, unit, settings[task.name]))
                    if len(pending) > 2 * workers:  # bounds the text that waits in memory
                        done, pending = wait(pending, return_when=FIRST_COMPLETED)
                        finish(done)
            finish(pending)
        except BrokenProcessPool:
            raise RuntimeError(
                "a process that makes rows was killed, perhaps for memory; start again to go on, "
                f"with fewer than data.workers={workers}"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _join(folder: Path, task: TextTask, settings: Settings) -> store.Task:
    """One file of rows and one of CRC32s from a task's shards; held-out rows are packed anew."""
    folder.mkdir(exist_ok=True)
    end = units.read_end(settings, task.name)
    assert end is not None, f"{task.name} was not read to its end"
    train, aside = Counter[str](), Counter[str]()
    cut, sentences, dropped = 0, 0, Counter(end.skipped)
    held: list[np.ndarray] = [np.empty((0, settings.length), settings.dtype)]
    with (
        atomic.writing(folder / "train.rows") as row_file,
        atomic.writing(folder / "train.crc") as crc_file,
    ):
        digest = hashlib.sha256()
        for index in range(end.units):
            found = units.read_shard(settings, task.name, index)
            if found is None:
                raise RuntimeError(
                    f"{units.shard_file(settings.folder, task.name, index)} is damaged; start "
                    "again to make it anew"
                )
            shard, rows, crcs, held_rows = found
            body = rows.tobytes()
            digest.update(body)
            row_file.write(body)
            crc_file.write(crcs.tobytes())
            held.append(held_rows)
            train.update(dataclasses.asdict(shard.train), tokens=packing.count_tokens(rows))
            aside.update(dataclasses.asdict(shard.held_out))
            cut += shard.cut
            sentences += shard.sentences
            dropped.update(shard.dropped)
    if not train["rows"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "none"
        raise ConfigError(
            f"{task.name} yields no training rows: of {sentences} sentences, "
            f"{aside['sentences']} are held out; dropped: {reasons}"
        )
    held_rows = np.concatenate(held)
    if task.kind != "bitext":  # whose rows cannot be any fuller
        held_rows = packing.repack(held_rows)
    held_body = held_rows.tobytes()
    atomic.write(folder / "held_out.rows", held_body)
    atomic.write(folder / "held_out.crc", store.row_crcs(held_rows).tobytes())
    aside.update(tokens=packing.count_tokens(held_rows))
    aside["rows"] = len(held_rows)
    return store.Task(
        name=task.name,
        kind=task.kind,
        languages=task.languages,
        length=settings.length,
        sentences=sentences,
        cut=cut,
        dropped=dict(sorted(dropped.items())),
        train=Split(sha256=digest.hexdigest(), **train),
        held_out=Split(sha256=hashlib.sha256(held_body).hexdigest(), **aside),
    )


def _joined_file(work: Path, task: TextTask) -> Path:
    return work / f"{task.name}.joined.json"


@contextmanager
def _only_maker(folder: Path) -> Iterator[Path]:
    """The folder, made if need be, while no other process makes anything in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process is at work in {folder}; waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        for left in folder.rglob(f"*{atomic.PART}"):  # by a run that was killed
            left.unlink()
        yield folder  # the lock ends with the file
