"""Builds what a config asks for: once, by every core, going on where a killed run stopped.

What all units must know comes first: lines to exclude, duplicates, companions of held-out pairs, a
vocabulary if none is given. Then units are read, each by one process, and become rows.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from xlj.config import ConfigError
from xlj.data.rows import lengths, prepasses, workers
from xlj.data.rows.prepasses import Text
from xlj.data.rows.report import malformed_records
from xlj.data.rows.request import Request
from xlj.data.rows.shards import SHARD_UNITS, Shards
from xlj.data.rows.store import MANIFEST, VOCABULARY, Manifest, TaskRows
from xlj.data.rows.units import BuildUnit, Plan
from xlj.data.rows.workers import Run
from xlj.data.text.held_out import Rule
from xlj.data.text.sources import FileSource
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, storage
from xlj.io.storage import AnyPath, Url

_TASK = "task.json"
_NAMED = 10  # files, at most
_JUDGED = 10_000  # records, of which so many may be malformed
_UNCUT_RATE = 3e6  # bytes a second of a compressed file: 10 MB of text, of which it holds a third


def build_rows(request: Request, runner: str = "", arguments: Sequence[str] = ()) -> AnyPath:
    """Builds the store of a request; returns its folder. Whatever is there is left as it is.

    Args:
      runner, arguments: as `preparing.prepare_rows` takes them.

    Raises:
      ConfigError: if the text cannot be read, or yields no vocabulary or no rows.
    """
    data = request.data
    with _only_builder(request), _running(request, runner, arguments) as run:
        texts, rules, vocabulary = _run_prepasses(request, run)
        shards = _build(request, texts, rules, vocabulary, run)
        tasks = tuple(_finished(request, text, kind, of) for text, kind, of in shards)
        _check_malformed(tasks, data.malformed_share)
        content = request.listing(request.tasks)
        manifest = Manifest(
            vocabulary.size, vocabulary.digest, vocabulary.dtype.str, content, tasks
        )
        atomic.write(request.folder / MANIFEST, manifest.to_json())
    return request.folder


def measure_pairs(request: Request, runner: str = "", arguments: Sequence[str] = ()) -> None:
    """Counts the lengths of the pairs of a request, into `request.lengths_file`; arguments and
    errors are those of `build_rows`."""
    with _only_builder(request), _running(request, runner, arguments) as run:
        texts, _, vocabulary = _run_prepasses(request, run)
        lengths.measure(request, texts, vocabulary, run)


def _running(
    request: Request, runner: str, arguments: Sequence[str]
) -> AbstractContextManager[Run]:
    if runner:
        return workers.in_beam(runner, arguments, request.data.workers)
    return workers.in_processes(request.data.workers)


def _run_prepasses(request: Request, run: Run) -> tuple[list[Text], dict[str, Rule], Vocabulary]:
    """The text, what is held out of each language, and the vocabulary."""
    texts = prepasses.texts_of(request)
    _print_uncut(texts, request.data.unit_bytes)
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
    run: Run,
) -> list[tuple[Text, str, Shards]]:
    """The shards of each text and kind of rows, finished."""
    request.folder.mkdir(exist_ok=True)
    atomic.write(request.folder / VOCABULARY, vocabulary.model)
    found, jobs = [], []
    for text in texts:
        companions = [rules[name].companions for name in text.task.languages]
        hangs_on = [vocabulary.digest, [file.stem if file else "" for file in companions]]
        targets = [
            request.shards(text.task, kind, length, len(text.units), hangs_on, vocabulary.dtype.str)
            for kind in request.row_kinds(text.task)
            for length in request.lengths[kind]
        ]
        found += [(text, target.kind, target) for target in targets]
        plan = Plan(
            text.task.languages,
            text.reading,
            tuple(rules[name] for name in text.task.languages),
            request.folder / VOCABULARY,
        )
        missing = [[not of.has_shard(shard) for shard in range(of.count)] for of in targets]
        for index, unit in enumerate(text.units):
            wanted = zip(targets, missing, strict=True)
            todo = tuple(target for target, lacks in wanted if lacks[index // SHARD_UNITS])
            if todo:
                jobs.append(BuildUnit(plan, index, unit, todo))
    run("building rows", jobs)
    return found


def _finished(request: Request, text: Text, kind: str, shards: Shards) -> TaskRows:
    """The rows of a task, which are noted in their folder. Those of the first length of their kind
    have its name, others have theirs in it: `text.en`, `text@8192.en`."""
    task = text.task.of_kind(kind)
    others = request.lengths[kind][1:]
    name = task.name.replace(kind, f"{kind}@{shards.length}", 1) if shards.length in others else ""

    def place(unit: int, part: int, before: int) -> str:
        of = text.units[unit][part]
        return of.source.place(of.start, before)

    folder = f"../{task.name}/{shards.folder.name}"
    rows = shards.task_rows(name or task.name, folder, task.languages, place)
    note, content = shards.folder / _TASK, json.dumps(rows.as_json()).encode()
    if not note.is_file() or note.read_bytes() != content:
        atomic.write(note, content)
    storage.remove_folder(shards.folder / "units")
    return rows


def _check_malformed(tasks: Sequence[TaskRows], most: float) -> None:
    """Refuses a language or pair of which a larger share of records than `most` is malformed: its
    files are not what they are taken for. A few records tell nothing."""
    for task in tasks:
        bad = sum(task.dropped.get(why, 0) for why in task.malformed)
        if task.sentences >= _JUDGED and bad > most * task.sentences:
            raise ConfigError(
                f"{task.name}: {bad:,} of {task.sentences:,} records are malformed, more than "
                f"data.malformed_share={most:g}; {malformed_records([task])}"
            )


def _print_uncut(texts: Sequence[Text], size: int) -> None:
    """Names the files that one process must read from end to end, and the time that they set."""
    sources = [s for text in texts for s in text.task.sources if isinstance(s, FileSource)]
    uncut = sorted(((s.uncut(size), s.paths) for s in sources), reverse=True)
    uncut = [(total, paths) for total, paths in uncut if total]
    if uncut:
        named = [" with ".join(map(str, paths)) for _, paths in uncut[:_NAMED]]
        more = f" and {len(uncut) - _NAMED:,} more" * (len(uncut) > _NAMED)
        most = uncut[0][0]
        print(
            f"one process reads each of what cannot be cut (compressed in one piece, or line-"
            f"aligned): {', '.join(named)}{more}. The largest has {most / 1e6:,.0f} MB: about "
            f"{most / _UNCUT_RATE / 60:,.0f} minutes, however many processes there are",
            file=sys.stderr,
        )


@contextmanager
def _only_builder(request: Request) -> Iterator[None]:
    """No other process builds anything in the cache meanwhile."""
    with storage.lock(request.cache):
        for own in request.folders:
            if not isinstance(own, Url):  # what is in a bucket is whole
                for left in own.rglob(f"*{atomic.PART}"):  # by a run that was killed
                    left.unlink()
        yield
