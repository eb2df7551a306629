"""Builds the rows of a config, in parallel; resumes after an interrupted build.

Prepasses first collect what all units need: lines to exclude, duplicates, companions of held-out
pairs, and a vocabulary if the config names none. Then each unit is read by one process, which packs
it into rows.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from xlj.config import ConfigError
from xlj.data.rows import lengths, prepasses, text_samples, workers
from xlj.data.rows.prepasses import Text
from xlj.data.rows.report import malformed_records
from xlj.data.rows.request import Request
from xlj.data.rows.shards import SHARD_UNITS, Shards
from xlj.data.rows.store import MANIFEST, VOCABULARY, Manifest, TaskRows
from xlj.data.rows.text_samples import TextSample
from xlj.data.rows.units import BuildUnit, Plan
from xlj.data.rows.workers import RunJobs
from xlj.data.text.held_out import Rule
from xlj.data.text.sources import FileSource
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath, Url

_TASK = "task.json"
_NAMED_FILES = 10  # at most
_MIN_RECORDS = 10_000  # fewer records are not checked against data.malformed_share
_COMPRESSED_RATE = 3e6  # bytes per second of a compressed file, about 10 MB of text


def build_rows(request: Request, runner: str = "", arguments: Sequence[str] = ()) -> AnyPath:
    """Builds the row store of a request and returns its folder; keeps parts that already exist.

    Args:
      runner, arguments: as in `preparing.prepare_rows`.

    Raises:
      ConfigError: if the text cannot be read, or gives no vocabulary or no rows.
    """
    data = request.data
    with _only_builder(request), _job_runner(request, runner, arguments) as run:
        texts, rules, vocabulary = _run_prepasses(request, run)
        shards = _build(request, texts, rules, vocabulary, run)
        tasks = tuple(
            _finish_task(request, text, kind, task_shards) for text, kind, task_shards in shards
        )
        _check_malformed(tasks, data.malformed_share)
        content = request.listing(request.tasks)
        manifest = Manifest(
            vocabulary.size, vocabulary.digest, vocabulary.dtype.str, content, tasks
        )
        atomic.write(request.folder / MANIFEST, manifest.to_json())
    return request.folder


def measure_pairs(request: Request, runner: str = "", arguments: Sequence[str] = ()) -> None:
    """Counts the lengths of the pairs of a request and writes them to `request.lengths_file`.

    Arguments and errors are those of `build_rows`.
    """
    with _only_builder(request), _job_runner(request, runner, arguments) as run:
        texts, _, vocabulary = _run_prepasses(request, run)
        lengths.measure(request, texts, vocabulary, run)


def sample_text(request: Request, characters: int, most_held_out: int) -> dict[str, TextSample]:
    """Samples the text of each language and pair of a request, by the name of its task.

    The vocabulary of the request must be known. Samples and errors are those of
    `text_samples.sample` and `build_rows`.
    """
    with _only_builder(request), _job_runner(request, "", ()) as run:
        texts, rules, _ = _run_prepasses(request, run)
    return {
        text.task.name: text_samples.sample(text, rules, characters, most_held_out)
        for text in texts
    }


def _job_runner(
    request: Request, runner: str, arguments: Sequence[str]
) -> AbstractContextManager[RunJobs]:
    if runner:
        return workers.in_beam(runner, arguments, request.data.workers)
    return workers.in_processes(request.data.workers)


def _run_prepasses(
    request: Request, run: RunJobs
) -> tuple[list[Text], dict[str, Rule], Vocabulary]:
    """Returns the text, the held-out rule of each language, and the vocabulary."""
    texts = prepasses.texts_of(request)
    _print_unsplittable(texts, request.data.unit_bytes)
    texts = prepasses.find_duplicates(request, texts, run)
    rules = prepasses.hold_out(request, texts, run)
    return (
        texts,
        rules,
        request.vocabulary or prepasses.train_vocabulary(request, texts, rules, run),
    )


def _build(
    request: Request,
    texts: Sequence[Text],
    rules: Mapping[str, Rule],
    vocabulary: Vocabulary,
    run: RunJobs,
) -> list[tuple[Text, str, Shards]]:
    """Builds the rows; returns the finished shards of each text and kind of rows."""
    request.folder.mkdir(exist_ok=True)
    atomic.write(request.folder / VOCABULARY, vocabulary.model)
    shards, jobs = [], []
    for text in texts:
        companions = [rules[name].companions for name in text.task.languages]
        depends_on = [vocabulary.digest, [file.stem if file else "" for file in companions]]
        targets = [
            request.shards(
                text.task, kind, length, len(text.units), depends_on, vocabulary.dtype.str
            )
            for kind in request.row_kinds(text.task)
            for length in request.lengths[kind]
        ]
        shards += [(text, target.kind, target) for target in targets]
        plan = Plan(
            text.task.languages,
            text.reading,
            tuple(rules[name] for name in text.task.languages),
            request.folder / VOCABULARY,
        )
        missing = [
            [not target.has_shard(shard) for shard in range(target.count)] for target in targets
        ]
        for index, unit in enumerate(text.units):
            todo = tuple(
                target
                for target, lacks in zip(targets, missing, strict=True)
                if lacks[index // SHARD_UNITS]
            )
            if todo:
                jobs.append(BuildUnit(plan, index, unit, todo))
    run("building rows", jobs)
    return shards


def _finish_task(request: Request, text: Text, kind: str, shards: Shards) -> TaskRows:
    """Returns the rows of a task and writes `task.json` into their folder.

    Rows of the first length of a kind are named `text.en`; rows of other lengths have the length in
    their name: `text@8192.en`.
    """
    task = text.task.of_kind(kind)
    others = request.lengths[kind][1:]
    name = task.name.replace(kind, f"{kind}@{shards.length}", 1) if shards.length in others else ""

    def place(unit: int, part: int, before: int) -> str:
        part_of_text = text.units[unit][part]
        return part_of_text.source.place(part_of_text.start, before)

    folder = f"../{task.name}/{shards.folder.name}"
    rows = shards.task_rows(name or task.name, folder, task.languages, place)
    note, content = shards.folder / _TASK, json.dumps(rows.as_json()).encode()
    if not note.is_file() or note.read_bytes() != content:
        atomic.write(note, content)
    storage.remove_folder(shards.folder / "units")
    return rows


def _check_malformed(tasks: Sequence[TaskRows], most: float) -> None:
    """Refuses a language or pair if more than the share `most` of its records is malformed.

    Its files are then probably in another format. Fewer than `_MIN_RECORDS` records are not
    checked.
    """
    for task in tasks:
        bad = sum(task.dropped.get(why, 0) for why in task.malformed)
        if task.sentences >= _MIN_RECORDS and bad > most * task.sentences:
            raise ConfigError(
                f"{task.name}: {bad:,} of {task.sentences:,} records are malformed, more than "
                f"data.malformed_share={most:g}; {malformed_records([task])}"
            )


def _print_unsplittable(texts: Sequence[Text], size: int) -> None:
    """Prints the files that one process must read as a whole, and how long the largest takes."""
    sources = [s for text in texts for s in text.task.sources if isinstance(s, FileSource)]
    unsplittable = sorted(((s.unsplittable(size), s.paths) for s in sources), reverse=True)
    unsplittable = [(total, paths) for total, paths in unsplittable if total]
    if unsplittable:
        named = [" with ".join(map(str, paths)) for _, paths in unsplittable[:_NAMED_FILES]]
        more = f" and {len(unsplittable) - _NAMED_FILES:,} more" * (
            len(unsplittable) > _NAMED_FILES
        )
        most = unsplittable[0][0]
        print(
            f"not splittable, each read by a single process (compressed in one piece, or line-"
            f"aligned): {', '.join(named)}{more}. The largest file has {most / 1e6:,.0f} MB and "
            f"takes about {most / _COMPRESSED_RATE / 60:,.0f} minutes",
            file=sys.stderr,
        )


@contextmanager
def _only_builder(request: Request) -> Iterator[None]:
    """Locks the cache, and removes partial files that a killed build left in it."""
    with storage.lock(request.cache):
        for own in request.folders:
            if not isinstance(own, Url):  # buckets contain no partial files
                for left in own.rglob(f"*{atomic.PART}"):
                    left.unlink()
        yield
