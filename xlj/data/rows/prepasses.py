"""Prepasses: passes over all text that come before rows are packed, for example to find duplicates.

The prepasses collect the lines to exclude, duplicates and companions (`text.held_out`), and train
the vocabulary. Most prepasses divide their work into jobs, which write their results to the cache.
A unit is the part of the text of a task that one process reads (`text_tasks.Unit`).
"""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.config.languages import language_of
from xlj.config.user_code import function_of
from xlj.data.rows.request import SAMPLED_UNITS, RowsRequest, hash_json
from xlj.data.rows.units import UnitJob
from xlj.data.rows.workers import RunJobs
from xlj.data.text import held_out, text_units
from xlj.data.text.cleaning import BLANK, line_hashes, text_hashes
from xlj.data.text.examples import SCORES
from xlj.data.text.held_out import Rule
from xlj.data.text.text_tasks import TextTask, Unit
from xlj.data.text.text_units import Chunk, ReadOptions, UnitReader
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file, storage
from xlj.io.hashing import hash64, name_hash
from xlj.io.storage import AnyPath

_SAMPLE_KEY = name_hash("lines that a vocabulary is trained on")
_MAX_UNIT_LINES = 1 << 20  # maximum lines of a unit that a vocabulary is trained on
_BUCKET_BYTES = 1 << 30
"""Bytes of text per bucket. A bucket is a range of hashes of lines; one job finds the duplicates of
one bucket."""


@dataclasses.dataclass(frozen=True)
class Text:
    """The text of a task: its units, and the options for reading them."""

    task: TextTask
    units: Sequence[Unit]
    reading: ReadOptions


def texts_of(request: RowsRequest) -> list[Text]:
    """Divides the text of a request into units, and collects the lines to exclude.

    Raises:
      ConfigError: if a file of the text or of `data.exclude` cannot be read, or `data.filter`
        cannot be imported.
    """
    read_options = ReadOptions.of(request.data)
    if read_options.filter:
        function_of(read_options.filter, "data.filter")  # raises errors of the import early
    units = [task.units(request.data.unit_bytes) for task in request.tasks]
    if request.data.exclude:
        columns = list(text_units.read_excluded_lines(request.data))
        folder = _folder(request, "excluded")
        read_options = dataclasses.replace(
            read_options, excluded=held_out.write_hashes(folder, map(line_hashes, columns))
        )
    return [
        Text(task, task_units, dataclasses.replace(read_options, languages=task.languages))
        for task, task_units in zip(request.tasks, units, strict=True)
    ]


def find_duplicates(request: RowsRequest, texts: Sequence[Text], run: RunJobs) -> list[Text]:
    """Finds repeated lines or pairs within each task.

    Returns:
      The texts, in which `text_units.repeated` names the files with the positions of repeated
      lines. Readers drop these lines, which are all occurrences except the first. With
      `data.duplicates=keep`, the unchanged texts.
    """
    if request.data.duplicates == "keep":
        return list(texts)
    texts_with_positions: list[Text] = []
    hash_jobs: list[_HashUnit] = []
    search_jobs: list[_FindRepeated] = []
    hash_files: list[AnyPath] = []
    for text in texts:
        size = sum(part.size for unit in text.units for part in unit)
        buckets = 1 + size // _BUCKET_BYTES
        folder = _folder(request, "duplicates") / hash_json(request.listing([text.task]))
        files = tuple(folder / f"{bucket}.repeated" for bucket in range(buckets))
        if not all(file.is_file() for file in files):
            folder.mkdir(exist_ok=True)
            files_of_text = tuple(folder / f"{index}.hashes" for index in range(len(text.units)))
            hash_jobs += [
                _HashUnit(unit, text.reading, file)
                for unit, file in zip(text.units, files_of_text, strict=True)
            ]
            search_jobs += [
                _FindRepeated(files_of_text, bucket, buckets, file)
                for bucket, file in enumerate(files)
            ]
            hash_files += files_of_text
        texts_with_positions.append(
            dataclasses.replace(text, reading=dataclasses.replace(text.reading, repeated=files))
        )
    run("hashing lines", hash_jobs)
    run("finding duplicates", search_jobs)
    for file in hash_files:
        file.unlink(missing_ok=True)
    return texts_with_positions


def hold_out(request: RowsRequest, texts: Sequence[Text], run: RunJobs) -> dict[str, Rule]:
    """Returns the held-out rule of each language, with its companions.

    One sentence of a pair decides whether the pair is held out. If it is, the other sentence is a
    companion (`text.held_out`). Training must not see companions in other pairs or in monolingual
    text. To find the companions, jobs read all pairs once.
    """
    share = request.data.held_out_share
    rule, folder = Rule(share), _folder(request, "companions")
    rules = {name: rule for text in texts for name in text.task.languages}
    pairs = [text for text in texts if len(text.task.languages) > 1 and share]
    # The record of a task is a JSON file that names the file with its companions.
    records = [folder / f"{hash_json(request.listing([text.task]))}.json" for text in pairs]
    hash_folders, jobs = {}, []
    for text, record in zip(pairs, records, strict=True):
        if not record.is_file():
            hash_folder = hash_folders[record] = folder / record.stem
            hash_folder.mkdir(exist_ok=True)
            jobs += [
                _FindCompanions(text.task.languages, index, unit, text.reading, rule, hash_folder)
                for index, unit in enumerate(text.units)
            ]
    run("holding out", jobs)
    for record, hash_folder in hash_folders.items():
        file = held_out.write_hashes(
            folder, map(_load, storage.find_files_below(hash_folder, "*.npy"))
        )
        atomic.write(record, json.dumps({"file": file.name}).encode())
        storage.remove_folder(hash_folder)
    files: dict[str, list[AnyPath]] = defaultdict(list)
    for text, record in zip(pairs, records, strict=True):
        deciding = held_out.deciding_column(text.task.languages)
        others = [name for i, name in enumerate(text.task.languages) if i != deciding]
        for language in dict.fromkeys(map(language_of, others)):
            files[language].append(folder / json_file.read_object(record)["file"])
    companions = {
        language: held_out.write_hashes(folder, map(held_out.open_hashes, files_of_language))
        for language, files_of_language in files.items()
    }
    for name in rules:
        rules[name] = Rule(share, companions.get(language_of(name)))
    return rules


def train_vocabulary(
    request: RowsRequest, texts: Sequence[Text], rules: Mapping[str, Rule], run: RunJobs
) -> Vocabulary:
    """Trains the vocabulary of a request; if it exists already, loads it.

    It is trained on some lines of some units of each language. Hashes choose the units and the
    lines. Held-out lines are never used.

    Raises:
      ConfigError: if the text has no line to train on, is too small for the size of the vocabulary,
        or has too many different characters.
    """
    data, file = request.data, request.vocabulary_file
    if file.is_file():
        return Vocabulary.load(file)
    file.parent.mkdir(exist_ok=True)
    sample_folder = file.with_suffix(".sample")
    sample_folder.mkdir(exist_ok=True)
    columns_of_units, shares = _choose_units(texts)
    jobs = [
        _SampleUnit(
            columns,
            unit,
            texts[text].units[unit],
            texts[text].reading,
            texts[text].task.languages,
            tuple(rules[name] for name in texts[text].task.languages),
            min(data.vocabulary_lines, _MAX_UNIT_LINES),
            sample_folder / f"{texts[text].task.name}.{unit}.json",
        )
        for (text, unit), columns in sorted(columns_of_units.items())
    ]
    run("sampling text", jobs)
    sentences, characters = dict.fromkeys(shares, 0), dict.fromkeys(shares, 0)
    samples: dict[str, list[tuple[int, str]]] = {name: [] for name in shares}
    for job in jobs:
        for name, (lines, letters, sample) in json_file.read_object(job.file).items():
            sentences[name] += lines
            characters[name] += letters
            samples[name] = sorted([*samples[name], *map(tuple, sample)])[: data.vocabulary_lines]
    sentences = {name: count for name, count in sentences.items() if count}
    if not sentences:
        raise ConfigError(
            f"{' and '.join(dict.fromkeys(text.task.source for text in texts))} contain no text to "
            f"train a vocabulary on: {', '.join(text.task.name for text in texts)} have none; add "
            "text, or correct the field of [FIELD=VALUE]"
        )
    line_counts, weights = vocabulary_training.balance(
        sentences, characters, data.vocabulary_alpha, data.vocabulary_lines, shares
    )
    model = vocabulary_training.train(
        {name: [line for _, line in samples[name][:count]] for name, count in line_counts.items()},
        weights,
        vocabulary_training.requested_size(data),
        data.vocabulary_coverage,
        data.vocabulary_type,
        data.vocabulary_lowercase,
        or_fewer=not data.vocabulary_size,
    )
    atomic.write(file, model)
    storage.remove_folder(sample_folder)
    return Vocabulary.load(file)


def _choose_units(
    texts: Sequence[Text],
) -> tuple[dict[tuple[int, int], tuple[int, ...]], dict[str, float]]:
    """Chooses the units of each language that a vocabulary is trained on.

    Returns:
      The columns to read, by (index of the text, index of the unit); and, for each language, these
      columns' share of its bytes.
    """
    units_of: dict[str, list[tuple[int, int, int, int, int]]] = defaultdict(list)
    for number, text in enumerate(texts):
        for index, unit in enumerate(text.units):
            order = name_hash(f"{text.task.name}/{index}")
            size = sum(part.size for part in unit) // len(text.task.languages)
            for column, name in enumerate(text.task.languages):
                units_of[name].append((order, number, index, column, size))
    columns_of_units: dict[tuple[int, int], tuple[int, ...]] = defaultdict(tuple)
    shares = {}
    for name, units in units_of.items():
        sampled_units = sorted(units)[:SAMPLED_UNITS]
        total = sum(unit[-1] for unit in units)
        shares[name] = sum(unit[-1] for unit in sampled_units) / max(1, total)
        for _, number, index, column, _ in sampled_units:
            columns_of_units[number, index] += (column,)
    return columns_of_units, shares


@dataclasses.dataclass(frozen=True)
class _FindCompanions(UnitJob):
    """A job that writes the hashes of the companions in the pairs of a unit."""

    languages: tuple[str, ...]
    index: int
    unit: Unit
    reading: ReadOptions
    rule: Rule
    folder: AnyPath

    def __call__(self) -> int:
        file = self.folder / f"{self.index:08d}.npy"
        if file.is_file():
            return 0
        reader = UnitReader(self.unit, self.index, self.reading)
        companions = [
            held_out.find_companions(self.languages, chunk.hashes, self.rule)
            for chunk in reader.chunks()
        ]
        with atomic.writing(file) as out:
            np.save(out, np.unique(np.concatenate([np.empty(0, np.uint64), *companions])))
        return reader.lines


@dataclasses.dataclass(frozen=True)
class _SampleUnit(UnitJob):
    """A job that samples lines of some columns of a unit, without held-out lines.

    For each language, it writes the number of lines, the number of characters, and the lines with
    the lowest hashes, at most `max_lines`. The lines of the first column include the texts that do
    not decide what is held out: positives and negatives of examples, each once in a chunk.
    """

    columns: tuple[int, ...]
    index: int
    unit: Unit
    reading: ReadOptions
    languages: tuple[str, ...]
    rules: tuple[Rule, ...]
    max_lines: int
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        reader = UnitReader(self.unit, self.index, self.reading)
        names = [self.languages[column] for column in self.columns]
        lines, letters = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        samples: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
        for chunk in reader.chunks():
            is_held_out, is_dropped = held_out.split(self.languages, chunk.hashes, self.rules)
            is_free = ~is_held_out & ~is_dropped
            for column, name in zip(self.columns, names, strict=True):
                candidates = _candidates(chunk.columns[column], chunk.hashes[column], is_free)
                if column == self.columns[0]:
                    candidates += self._other_texts(chunk, is_free, column)
                lines[name] += len(candidates)
                letters[name] += sum(len(line) for _, line in candidates)
                samples[name] += candidates
                if len(samples[name]) > 2 * _MAX_UNIT_LINES:
                    samples[name] = sorted(samples[name])[:_MAX_UNIT_LINES]
        content = {
            name: (lines[name], letters[name], sorted(samples[name])[: self.max_lines])
            for name in samples
        }
        atomic.write(self.file, json.dumps(content, ensure_ascii=False).encode())
        return reader.lines

    def _other_texts(self, chunk: Chunk, is_free: np.ndarray, column: int) -> list[tuple[int, str]]:
        """Returns the texts of a chunk that do not decide what is held out, without held-out lines
        of the language of a column."""
        found: set[tuple[int, str]] = set()
        for number, name in enumerate(self.unit[0].source.columns):
            if number >= len(self.languages) and name != SCORES:
                hashes = line_hashes(chunk.columns[number])
                held, _ = held_out.split([self.languages[column]], [hashes], [self.rules[column]])
                found.update(_candidates(chunk.columns[number], hashes, is_free & ~held))
        return sorted(found)


def _candidates(
    lines: Sequence[str], hashes: np.ndarray, is_free: np.ndarray
) -> list[tuple[int, str]]:
    """Returns (order, line) of the lines of a column that may be sampled."""
    numbers = hash64(hashes, _SAMPLE_KEY).tolist()
    return [(numbers[i], lines[i]) for i in np.flatnonzero(is_free & (hashes != BLANK)).tolist()]


_HASHED = np.dtype([("hash", "<u8"), ("place", "<u4")])


@dataclasses.dataclass(frozen=True)
class _HashUnit(UnitJob):
    """A job that writes the hash and position of each line or pair of a unit, sorted by hash."""

    unit: Unit
    reading: ReadOptions
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        reader = UnitReader(self.unit, 0, self.reading)
        arrays = [np.empty(0, _HASHED)]
        for chunk in reader.chunks():
            records = ["\t".join(row) for row in zip(*chunk.columns, strict=True)]
            part = np.empty(len(records), _HASHED)
            part["hash"], part["place"] = text_hashes(records), chunk.indices
            arrays.append(part[[bool(record) for record in records]])
        hashed = np.concatenate(arrays)
        atomic.write(self.file, hashed[np.argsort(hashed["hash"], kind="stable")].tobytes())
        return reader.lines


@dataclasses.dataclass(frozen=True)
class _FindRepeated:
    """A job that writes the positions of lines that repeat an earlier line, in order.

    It searches only lines whose hash is in its bucket, which is one of `buckets` equal ranges.

    Attributes:
      hash_files: the files that `_HashUnit` wrote, in the order of units.
      bucket: the zero-based number of the bucket.
      buckets: number of buckets.
      file: the file to write (`text_units.REPEATED`).
      size: the value of `Job.size`; always 1, so that the progress bar counts jobs.
    """

    hash_files: tuple[AnyPath, ...]
    bucket: int
    buckets: int
    file: AnyPath
    size: int = 1

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        low, high = ((self.bucket + i) * (BLANK // self.buckets + 1) for i in (0, 1))
        hashes, units, places = [], [], []
        for unit, file in enumerate(self.hash_files):
            unit_hashes = storage.memory_map(file, _HASHED)
            start = int(np.searchsorted(unit_hashes["hash"], np.uint64(low)))
            stop = len(unit_hashes)
            if high <= BLANK:
                stop = int(np.searchsorted(unit_hashes["hash"], np.uint64(high)))
            hashes.append(unit_hashes["hash"][start:stop])
            places.append(unit_hashes["place"][start:stop])
            units.append(np.full(stop - start, unit, np.uint32))
        all_hashes = np.concatenate([np.empty(0, np.uint64), *hashes])
        order = np.argsort(all_hashes, kind="stable")
        indices = order[1:][all_hashes[order[1:]] == all_hashes[order[:-1]]]
        repeated = np.empty(len(indices), text_units.REPEATED)
        repeated["unit"] = np.concatenate([np.empty(0, np.uint32), *units])[indices]
        repeated["place"] = np.concatenate([np.empty(0, np.uint32), *places])[indices]
        atomic.write(self.file, np.sort(repeated).tobytes())
        return 0


def _load(file: AnyPath) -> np.ndarray:
    with file.open("rb") as content:
        return np.load(content, allow_pickle=False)


def _folder(request: RowsRequest, name: str) -> AnyPath:
    folder = request.cache / name
    folder.mkdir(exist_ok=True)
    return folder
