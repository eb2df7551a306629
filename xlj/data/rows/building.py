"""Builds the rows of a config, in parallel; resumes after an interrupted build.

Prepasses over all text come first. They collect lines to exclude, duplicates and translations of
held-out sentences, and train a vocabulary if the config names none. Then worker processes read one
unit of text each (`data.unit_bytes`), and pack it into rows.

`sample_text` samples training and held-out text of a language or pair in the same way.
"""

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from xlj.config import ConfigError
from xlj.data.rows import lengths, prepasses, workers
from xlj.data.rows.findings import malformed_records
from xlj.data.rows.prepasses import Text
from xlj.data.rows.request import RowsRequest
from xlj.data.rows.shards import SHARD_UNITS, Shards
from xlj.data.rows.store import MANIFEST, VOCABULARY, Manifest, TaskRows
from xlj.data.rows.units import BuildUnit, Plan
from xlj.data.rows.vectors import Embed, TextVectors
from xlj.data.rows.workers import RunJobs
from xlj.data.text import held_out
from xlj.data.text.cleaning import BLANK
from xlj.data.text.held_out import Rule
from xlj.data.text.sources import FileSource
from xlj.data.text.text_units import Chunk, UnitReader
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, hashing, storage
from xlj.io.hashing import name_hash
from xlj.io.storage import AnyPath, Url

Columns = tuple[list[str], ...]
"""Clean lines of one language, or of the two sides of pairs."""


class TextSample(NamedTuple):
    """Sampled lines of a language, or sampled pairs of two languages.

    Attributes:
      train: training lines or pairs.
      held_out: held-out lines or pairs.
      is_whole: whether all units of the text were read, so `train` has all training lines.
    """

    train: Columns
    held_out: Columns
    is_whole: bool


def sample(text: Text, rules: Mapping[str, Rule], characters: int, max_held_out: int) -> TextSample:
    """Samples lines of a text.

    Whole units of the text (the parts that one process reads) are read in the order of a hash,
    until the training lines have enough characters.

    Args:
      text: the text.
      rules: the held-out rule of each language.
      characters: the number of characters of training lines at which reading stops. For pairs, it
        counts only the characters of the first sentences.
      max_held_out: maximum number of held-out lines or pairs to return.
    """
    languages = text.task.languages
    rules_of_columns = [rules[language] for language in languages]
    train: list[list[str]] = [[] for _ in languages]
    held: list[list[str]] = [[] for _ in languages]
    order = sorted(range(len(text.units)), key=lambda unit: name_hash(f"{text.task.name}/{unit}"))
    sampled_characters, is_whole = 0, True
    for index in order:
        if sampled_characters >= characters:
            is_whole = False
            break
        for chunk in UnitReader(text.units[index], index, text.reading).chunks():
            is_held_out, is_dropped = held_out.split(languages, chunk.hashes, rules_of_columns)
            has_text = np.all([hashes != BLANK for hashes in chunk.hashes], axis=0)
            for index_in_chunk in np.flatnonzero(has_text & ~is_dropped).tolist():
                target = held if is_held_out[index_in_chunk] else train
                for lines, column in zip(target, chunk.columns[: len(target)], strict=True):
                    lines.append(column[index_in_chunk])
                if not is_held_out[index_in_chunk]:
                    sampled_characters += len(chunk.columns[0][index_in_chunk])
    chosen = sorted(hashing.sample(max_held_out, len(held[0])))
    return TextSample(
        tuple(train), tuple([lines[index] for index in chosen] for lines in held), is_whole
    )


_TASK = "task.json"
_MAX_PRINTED_FILES = 10
_MIN_RECORDS = 10_000  # fewer records are not checked against data.malformed_share
_SECONDS_IN_FILES = 10  # between two lines of the progress of a teacher, if no terminal shows it
_BYTES_PER_SECOND = 3e6
"""Speed at which one process reads and packs a compressed file; 3 MB contain about 10 MB of text.
Line-aligned plain files are faster, so estimates for them are upper bounds."""


def build_rows(request: RowsRequest, runner: str = "", arguments: Sequence[str] = ()) -> AnyPath:
    """Builds the row store of a request and returns its folder; reuses finished shards.

    Args:
      runner: an Apache Beam runner that processes the units; empty for processes of this machine.
      arguments: options of the Beam pipeline, such as `--region=...`.

    Raises:
      ConfigError: if the text cannot be read, if it is not suitable to train a vocabulary, if too
        many records are malformed, or if no language or pair has training rows of some kind.
    """
    data = request.data
    with _lock_cache(request), _job_runner(request, runner, arguments) as run:
        texts, rules, vocabulary = _run_prepasses(request, run)
        shards = _build(request, texts, rules, vocabulary, run)
        tasks = tuple(
            _record_task(request, text, kind, task_shards) for text, kind, task_shards in shards
        )
        _check_malformed(tasks, data.malformed_share)
        _check_rows(tasks)
        content = request.listing(request.tasks)
        manifest = Manifest(vocabulary.size, vocabulary.digest, content, tasks)
        atomic.write(request.folder / MANIFEST, manifest.to_json())
    return request.folder


def embed_text(request: RowsRequest, teach: Callable[[str], Embed]) -> None:
    """Computes the teachers' vectors of the text of a request, unless they exist.

    Args:
      teach: loads the teacher of a kind of rows. It is called only if vectors are missing.

    Raises:
      ConfigError: if the text cannot be read or is not in the language of a teacher, or a teacher
        cannot be loaded.
    """
    missing = [
        (task, kind, vectors)
        for task in request.tasks
        for kind, vectors in request.vectors(task).items()
        if not vectors.is_finished
    ]
    if not missing:
        return
    with _lock_cache(request):
        texts = {text.task.name: text for text in prepasses.texts_of(request)}
        loaded = functools.cache(teach)
        for task, kind, vectors in missing:
            vectors.folder.mkdir(parents=True, exist_ok=True)
            vectors.finish(_embed_task(texts[task.name], vectors, loaded(kind)))


def _embed_task(text: Text, vectors: TextVectors, embed: Embed) -> int:
    """Computes the missing vectors of a text, with a progress bar; returns their number.

    A first pass over the text counts its sentences, which takes little time beside the teacher.
    """
    total, done, name = 0, 0, text.task.name.partition(".")[2]
    print(f"counting the sentences of {name} for the teacher", file=sys.stderr, flush=True)
    for unit, number, chunk in _chunks(text):
        total += vectors.count(chunk)
        done += vectors.count(chunk) if vectors.has(unit, number, chunk) else 0
    with tqdm(
        total=total,
        initial=done,
        desc=f"embedding {name} with the teacher",
        unit=" sentences",
        smoothing=0,  # batches are sorted by length
        mininterval=0.1 if sys.stderr.isatty() else _SECONDS_IN_FILES,
    ) as bar:
        for unit, number, chunk in _chunks(text):
            if not vectors.has(unit, number, chunk):
                vectors.embed(unit, number, chunk, embed, bar.update)
    return total


def _chunks(text: Text) -> Iterator[tuple[int, int, Chunk]]:
    """Yields (index of the unit, number in the unit, chunk) of a text."""
    for index, unit in enumerate(text.units):
        for number, chunk in enumerate(UnitReader(unit, index, text.reading).chunks()):
            yield index, number, chunk


def measure_pairs(request: RowsRequest, runner: str = "", arguments: Sequence[str] = ()) -> None:
    """Counts how many sentence pairs have each length in tokens; writes `request.lengths_file`.

    Args:
      runner: an Apache Beam runner that processes the units; empty for processes of this machine.
      arguments: options of the Beam pipeline.

    Raises:
      ConfigError: if the text cannot be read, or is not suitable to train a vocabulary.
    """
    with _lock_cache(request), _job_runner(request, runner, arguments) as run:
        texts, _, vocabulary = _run_prepasses(request, run)
        lengths.measure(request, texts, vocabulary, run)


def sample_text(request: RowsRequest, characters: int, max_held_out: int) -> dict[str, TextSample]:
    """Returns a sample of the text of each language and pair; keys are names of tasks.

    `request.vocabulary` should be set; otherwise this function trains a vocabulary.

    Args:
      characters: the approximate number of characters of training text in each sample.
      max_held_out: the largest number of held-out lines or pairs in each sample.

    Raises:
      ConfigError: if the text cannot be read.
    """
    with _lock_cache(request), _job_runner(request, "", ()) as run:
        texts, rules, _ = _run_prepasses(request, run)
    return {text.task.name: sample(text, rules, characters, max_held_out) for text in texts}


def _job_runner(
    request: RowsRequest, runner: str, arguments: Sequence[str]
) -> AbstractContextManager[RunJobs]:
    if runner:
        return workers.in_beam(runner, arguments, request.data.workers)
    return workers.in_processes(request.data.workers)


def _run_prepasses(
    request: RowsRequest, run: RunJobs
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
    request: RowsRequest,
    texts: Sequence[Text],
    rules: Mapping[str, Rule],
    vocabulary: Vocabulary,
    run: RunJobs,
) -> list[tuple[Text, str, Shards]]:
    """Builds the rows; returns (text, kind, shards) for each text, kind of rows and row length."""
    request.folder.mkdir(exist_ok=True)
    atomic.write(request.folder / VOCABULARY, vocabulary.model)
    outputs, jobs = [], []
    for text in texts:
        companions = [rules[name].companions for name in text.task.languages]
        depends_on = [vocabulary.digest, [file.stem if file else "" for file in companions]]
        shards_of_text = [
            request.shards(
                text.task, kind, length, len(text.units), depends_on, vocabulary.dtype.str
            )
            for kind in request.row_kinds(text.task)
            for length in request.lengths[kind]
        ]
        outputs += [(text, shards.kind, shards) for shards in shards_of_text]
        plan = Plan(
            text.task.languages,
            text.reading,
            tuple(rules[name] for name in text.task.languages),
            request.folder / VOCABULARY,
            request.vectors(text.task),
        )
        missing = [
            [not shards.has_shard(shard) for shard in range(shards.count)]
            for shards in shards_of_text
        ]
        for index, unit in enumerate(text.units):
            unfinished = tuple(
                shards
                for shards, is_missing in zip(shards_of_text, missing, strict=True)
                if is_missing[index // SHARD_UNITS]
            )
            if unfinished:
                jobs.append(BuildUnit(plan, index, unit, unfinished))
    run("building rows", jobs)
    return outputs


def _record_task(request: RowsRequest, text: Text, kind: str, shards: Shards) -> TaskRows:
    """Writes `task.json` for rows of one kind and length, deletes their temporary files of units,
    and returns the description of the rows.
    """
    task = text.task.of_kind(shards.row_kind)
    name = request.row_name(text.task, kind, shards.length)

    def describe_place(unit: int, part: int, lines_before: int) -> str:
        part_of_text = text.units[unit][part]
        return part_of_text.source.place(part_of_text.start, lines_before)

    folder = f"../{task.name}/{shards.folder.name}"
    rows = shards.task_rows(name, folder, task.languages, describe_place)
    task_file, content = shards.folder / _TASK, json.dumps(rows.as_json()).encode()
    if not task_file.is_file() or task_file.read_bytes() != content:
        atomic.write(task_file, content)
    storage.remove_folder(shards.folder / "units")
    return rows


def _check_malformed(tasks: Sequence[TaskRows], max_share: float) -> None:
    """Raises a `ConfigError` if the share of malformed records of a task exceeds `max_share`.

    The files then probably have another format than the config says. Tasks with fewer than
    `_MIN_RECORDS` records are not checked.
    """
    for task in tasks:
        text = task.text
        assert text is not None
        bad = sum(text.dropped.get(why, 0) for why in text.malformed)
        if text.sentences >= _MIN_RECORDS and bad > max_share * text.sentences:
            raise ConfigError(
                f"{task.name}: {bad:,} of {text.sentences:,} records are malformed, more than "
                f"data.malformed_share={max_share:g}; check the format of the files, or raise the "
                f"limit; {malformed_records([task])}"
            )


def _check_rows(tasks: Sequence[TaskRows]) -> None:
    """Raises a `ConfigError` if no language or pair has training rows of some kind.

    The report lists the others that have none.
    """
    for kind in dict.fromkeys(task.kind for task in tasks):
        of_kind = [task for task in tasks if task.kind == kind]
        if any(task.train.rows for task in of_kind):
            continue
        first = of_kind[0]
        assert first.text is not None
        reasons = ", ".join(f"{n:,} {why}" for why, n in first.text.dropped.items() if n) or "none"
        more = f", and so have {len(of_kind) - 1:,} others" if len(of_kind) > 1 else ""
        raise ConfigError(
            f"{first.name} has no training rows{more}: of {first.text.sentences:,} sentences, "
            f"{first.held_out.sentences:,} are held out; dropped: {reasons}; add text, or remove "
            "the language or pair from the config"
        )


def _print_unsplittable(texts: Sequence[Text], size: int) -> None:
    """Prints the files that cannot be split, and an estimate of the time for the largest of them.

    Args:
      texts: the texts.
      size: the size of a unit in bytes; smaller files are not printed.
    """
    sources = [s for text in texts for s in text.task.sources if isinstance(s, FileSource)]
    unsplittable = sorted(((s.unsplittable(size), s.paths) for s in sources), reverse=True)
    unsplittable = [(total, paths) for total, paths in unsplittable if total]
    if unsplittable:
        names = [" with ".join(map(str, paths)) for _, paths in unsplittable]
        printed, hidden = names[:_MAX_PRINTED_FILES], len(names) - _MAX_PRINTED_FILES
        more = f" and {hidden:,} more" * (hidden > 0)
        largest = unsplittable[0][0]
        print(
            f"these files cannot be split (compressed, line-aligned, or TMX), so a "
            f"single process reads each: {', '.join(printed)}{more}. The largest has "
            f"{largest / 1e6:,.0f} MB and takes up to "
            f"{largest / _BYTES_PER_SECOND / 60:,.0f} minutes. To use more processes, decompress "
            "files, split them, or join the sides of a pair with paste",
            file=sys.stderr,
        )


@contextmanager
def _lock_cache(request: RowsRequest) -> Iterator[None]:
    """Locks the cache, and removes partial files that a killed build left in it."""
    with storage.lock(request.cache):
        for folder in request.folders:
            if not isinstance(folder, Url):  # buckets contain no partial files
                for partial_file in folder.rglob(f"*{atomic.PART}"):
                    partial_file.unlink()
        yield
