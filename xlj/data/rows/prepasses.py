"""Prepasses over the text: what must be known of all text before a unit is packed into rows.

They collect lines to exclude, duplicates, companions of held-out pairs, and the vocabulary. Jobs
write their results to disk."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.config.user_code import function_of
from xlj.data.rows.request import SAMPLED_UNITS, Request, hash_of
from xlj.data.rows.units import UnitJob
from xlj.data.rows.workers import RunJobs
from xlj.data.text import hash_sets, held_out, reading
from xlj.data.text.cleaning import BLANK, line_hashes, text_hashes
from xlj.data.text.held_out import Rule
from xlj.data.text.reading import ReadOptions, UnitReader
from xlj.data.text.text_tasks import TextTask, Unit
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file, storage
from xlj.io.hashing import hash64, name_hash
from xlj.io.storage import AnyPath

_SAMPLE_KEY = name_hash("lines that a vocabulary is trained on")
_MOST_OF_UNIT = 1 << 20  # lines of a unit that a vocabulary is trained on
_BUCKET_BYTES = 1 << 30  # of text; duplicates are searched in one bucket at a time


@dataclasses.dataclass(frozen=True)
class Text:
    """A task, its units, and the options for reading them."""

    task: TextTask
    units: Sequence[Unit]
    reading: ReadOptions


def texts_of(request: Request) -> list[Text]:
    """Divides the text of a request into units.

    Raises:
      ConfigError: if its files or those of `data.exclude` cannot be read, or `data.filter` cannot
        be imported.
    """
    read_options = ReadOptions.of(request.data)
    if read_options.filter:
        function_of(read_options.filter, "data.filter")  # reports its errors before any work
    units = [task.units(request.data.unit_bytes) for task in request.tasks]
    if request.data.exclude:
        columns = list(reading.read_excluded_lines(request.data))
        folder = _folder(request, "excluded")
        read_options = dataclasses.replace(
            read_options, excluded=hash_sets.write(folder, map(line_hashes, columns))
        )
    return [
        Text(task, task_units, read_options)
        for task, task_units in zip(request.tasks, units, strict=True)
    ]


def find_duplicates(request: Request, texts: Sequence[Text], run: RunJobs) -> list[Text]:
    """Finds repeated lines or pairs of each task, and returns the texts with their positions.

    Readers then skip all but the first occurrence. With `data.duplicates=keep`, nothing is
    searched and the texts are returned as they are.
    """
    if request.data.duplicates == "keep":
        return list(texts)
    marked: list[Text] = []
    hashing: list[_HashUnit] = []
    searching: list[_FindRepeated] = []
    hash_files: list[AnyPath] = []
    for text in texts:
        size = sum(part.size for unit in text.units for part in unit)
        buckets = 1 + size // _BUCKET_BYTES
        folder = _folder(request, "duplicates") / hash_of(request.listing([text.task]))
        files = tuple(folder / f"{bucket}.repeated" for bucket in range(buckets))
        if not all(file.is_file() for file in files):
            folder.mkdir(exist_ok=True)
            hashed = tuple(folder / f"{index}.hashes" for index in range(len(text.units)))
            hashing += [
                _HashUnit(unit, text.reading, file)
                for unit, file in zip(text.units, hashed, strict=True)
            ]
            searching += [
                _FindRepeated(hashed, bucket, buckets, file) for bucket, file in enumerate(files)
            ]
            hash_files += hashed
        marked.append(
            dataclasses.replace(text, reading=dataclasses.replace(text.reading, repeated=files))
        )
    run("hashing lines", hashing)
    run("finding duplicates", searching)
    for file in hash_files:
        file.unlink(missing_ok=True)
    return marked


def hold_out(request: Request, texts: Sequence[Text], run: RunJobs) -> dict[str, Rule]:
    """Returns the held-out rule of each language.

    Reads the pairs once to find companions, so that a sentence that is held out with one pair is
    not trained on in another pair, nor in monolingual text.
    """
    share = request.data.held_out_share
    rule, folder = Rule(share), _folder(request, "companions")
    rules = {name: rule for text in texts for name in text.task.languages}
    pairs = [text for text in texts if len(text.task.languages) == 2 and share]
    notes = [folder / f"{hash_of(request.listing([text.task]))}.json" for text in pairs]
    work, jobs = {}, []
    for text, note in zip(pairs, notes, strict=True):
        if not note.is_file():
            work[note] = folder / note.stem
            work[note].mkdir(exist_ok=True)
            jobs += [
                _FindCompanions(text.task.languages, index, unit, text.reading, rule, work[note])
                for index, unit in enumerate(text.units)
            ]
    run("holding out", jobs)
    for note, parts in work.items():
        companions = hash_sets.write(folder, map(_load, storage.find_files_below(parts, "*.npy")))
        atomic.write(note, json.dumps({"file": companions.name}).encode())
        storage.remove_folder(parts)
    files: dict[str, list[AnyPath]] = defaultdict(list)
    for text, note in zip(pairs, notes, strict=True):
        other = text.task.languages[1 - held_out.deciding_column(text.task.languages)]
        files[other].append(folder / json_file.read_object(note)["file"])
    for name, several in files.items():
        rules[name] = Rule(share, hash_sets.write(folder, map(hash_sets.open_set, several)))
    return rules


def train_vocabulary(
    request: Request, texts: Sequence[Text], rules: Mapping[str, Rule], run: RunJobs
) -> Vocabulary:
    """Trains the vocabulary of a request, or loads it if it exists.

    Hashes choose the units, and the lines of these units. Held-out lines are never used.
    """
    data, file = request.data, request.vocabulary_file
    if file.is_file():
        return Vocabulary.load(file)
    file.parent.mkdir(exist_ok=True)
    work = file.with_suffix(".sample")
    work.mkdir(exist_ok=True)
    chosen, parts = _chosen_units(texts)
    jobs = [
        _SampleUnit(
            columns,
            unit,
            texts[text].units[unit],
            texts[text].reading,
            texts[text].task.languages,
            tuple(rules[name] for name in texts[text].task.languages),
            min(data.vocabulary_lines, _MOST_OF_UNIT),
            work / f"{texts[text].task.name}.{unit}.json",
        )
        for (text, unit), columns in sorted(chosen.items())
    ]
    run("sampling text", jobs)
    sentences, characters = dict.fromkeys(parts, 0), dict.fromkeys(parts, 0)
    samples: dict[str, list[tuple[int, str]]] = {name: [] for name in parts}
    for job in jobs:
        for name, (lines, letters, sample) in json_file.read_object(job.file).items():
            sentences[name] += lines
            characters[name] += letters
            samples[name] = sorted([*samples[name], *map(tuple, sample)])[: data.vocabulary_lines]
    sentences = {name: count for name, count in sentences.items() if count}
    if not sentences:
        raise ConfigError(
            "data.mono and data.parallel contain no line to train a vocabulary on; add text"
        )
    line_counts, weights = vocabulary_training.balance(
        sentences, characters, data.vocabulary_alpha, data.vocabulary_lines, parts
    )
    model = vocabulary_training.train(
        {name: [line for _, line in samples[name][:count]] for name, count in line_counts.items()},
        weights,
        vocabulary_training.ids(data),
        data.vocabulary_coverage,
        data.vocabulary_type,
        data.vocabulary_lowercase,
        or_fewer=not data.vocabulary_size,
    )
    atomic.write(file, model)
    storage.remove_folder(work)
    return Vocabulary.load(file)


def _chosen_units(
    texts: Sequence[Text],
) -> tuple[dict[tuple[int, int], tuple[int, ...]], dict[str, float]]:
    """Returns the columns to read by (text, unit), and their share of each language's bytes."""
    every: dict[str, list[tuple[int, int, int, int, int]]] = defaultdict(list)
    for number, text in enumerate(texts):
        for index, unit in enumerate(text.units):
            order = name_hash(f"{text.task.name}/{index}")
            size = sum(part.size for part in unit) // len(text.task.languages)
            for column, name in enumerate(text.task.languages):
                every[name].append((order, number, index, column, size))
    chosen: dict[tuple[int, int], tuple[int, ...]] = defaultdict(tuple)
    parts = {}
    for name, units in every.items():
        units_taken = sorted(units)[:SAMPLED_UNITS]
        parts[name] = sum(unit[-1] for unit in units_taken) / max(
            1, sum(unit[-1] for unit in units)
        )
        for _, number, index, column, _ in units_taken:
            chosen[number, index] += (column,)
    return chosen, parts


@dataclasses.dataclass(frozen=True)
class _FindCompanions(UnitJob):
    """Writes the hashes of the companions in the pairs of a unit."""

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
    """Writes statistics and a sample of some columns of a unit, without held-out lines.

    These are the number of lines and of characters, and the lines with the lowest hashes.
    """

    columns: tuple[int, ...]
    index: int
    unit: Unit
    reading: ReadOptions
    languages: tuple[str, ...]
    rules: tuple[Rule, ...]
    most: int
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        reader = UnitReader(self.unit, self.index, self.reading)
        lines, letters = [0] * len(self.languages), [0] * len(self.languages)
        samples: list[list[tuple[int, str]]] = [[] for _ in self.languages]
        for chunk in reader.chunks():
            out, sharing = held_out.split(self.languages, chunk.hashes, self.rules)
            for column in self.columns:
                numbers = hash64(chunk.hashes[column], _SAMPLE_KEY).tolist()
                keep = ~out & ~sharing & (chunk.hashes[column] != BLANK)
                chosen = [(numbers[i], chunk.columns[column][i]) for i in np.flatnonzero(keep)]
                lines[column] += len(chosen)
                letters[column] += sum(len(line) for _, line in chosen)
                samples[column] += chosen
                if len(samples[column]) > 2 * _MOST_OF_UNIT:
                    samples[column] = sorted(samples[column])[:_MOST_OF_UNIT]
        content = {
            self.languages[i]: (lines[i], letters[i], sorted(samples[i])[: self.most])
            for i in self.columns
        }
        atomic.write(self.file, json.dumps(content, ensure_ascii=False).encode())
        return reader.lines


_HASHED = np.dtype([("hash", "<u8"), ("place", "<u4")])


@dataclasses.dataclass(frozen=True)
class _HashUnit(UnitJob):
    """Writes the hash and position of each line or pair of a unit, sorted by hash."""

    unit: Unit
    reading: ReadOptions
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        reader = UnitReader(self.unit, 0, self.reading)
        parts = [np.empty(0, _HASHED)]
        for chunk in reader.chunks():
            whole = ["\t".join(row) for row in zip(*chunk.columns, strict=True)]
            part = np.empty(len(whole), _HASHED)
            part["hash"], part["place"] = text_hashes(whole), chunk.places
            parts.append(part[[bool(line) for line in whole]])
        every = np.concatenate(parts)
        atomic.write(self.file, every[np.argsort(every["hash"], kind="stable")].tobytes())
        return reader.lines


@dataclasses.dataclass(frozen=True)
class _FindRepeated:
    """Writes the units and positions of lines that repeat an earlier line, in order.

    Searches only hashes in the range of its bucket.
    """

    hashed: tuple[AnyPath, ...]
    bucket: int
    buckets: int
    file: AnyPath
    size: int = 1

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        low, high = ((self.bucket + i) * (BLANK // self.buckets + 1) for i in (0, 1))
        hashes, units, places = [], [], []
        for unit, file in enumerate(self.hashed):
            unit_hashes = storage.memory_map(file, _HASHED)
            start = int(np.searchsorted(unit_hashes["hash"], np.uint64(low)))
            stop = len(unit_hashes)
            if high <= BLANK:
                stop = int(np.searchsorted(unit_hashes["hash"], np.uint64(high)))
            hashes.append(unit_hashes["hash"][start:stop])
            places.append(unit_hashes["place"][start:stop])
            units.append(np.full(stop - start, unit, np.uint32))
        every = np.concatenate([np.empty(0, np.uint64), *hashes])
        order = np.argsort(every, kind="stable")
        again = order[1:][every[order[1:]] == every[order[:-1]]]
        repeated = np.empty(len(again), reading.REPEATED)
        repeated["unit"] = np.concatenate([np.empty(0, np.uint32), *units])[again]
        repeated["place"] = np.concatenate([np.empty(0, np.uint32), *places])[again]
        atomic.write(self.file, np.sort(repeated).tobytes())
        return 0


def _load(file: AnyPath) -> np.ndarray:
    with file.open("rb") as content:
        return np.load(content, allow_pickle=False)


def _folder(request: Request, name: str) -> AnyPath:
    folder = request.cache / name
    folder.mkdir(exist_ok=True)
    return folder
