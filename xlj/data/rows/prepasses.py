"""What must be known of other text before a unit is made into rows.

That is lines to exclude, duplicates, companions of held-out pairs, and the vocabulary. Jobs find
it, and leave what they found on disk."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.config import ConfigError
from xlj.config.user_code import function_of
from xlj.data.rows.request import SAMPLED_UNITS, Request, hash_of
from xlj.data.rows.units import OfUnit
from xlj.data.rows.workers import Run
from xlj.data.text import hash_sets, held_out, reading
from xlj.data.text.cleaning import BLANK, line_hashes, text_hashes
from xlj.data.text.held_out import Rule
from xlj.data.text.reading import Reading, UnitReader
from xlj.data.text.text_tasks import TextTask, Unit
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file, storage
from xlj.io.hashing import hash64, name_hash
from xlj.io.storage import AnyPath

_SAMPLE_KEY = name_hash("lines that a vocabulary is trained on")
_MOST_OF_UNIT = 1 << 20  # lines that a vocabulary takes of a unit
_BUCKET_BYTES = 1 << 30  # of text, of which duplicates are looked for at a time


@dataclasses.dataclass(frozen=True)
class Text:
    """A task, its units, and how they are read."""

    task: TextTask
    units: Sequence[Unit]
    reading: Reading


def texts_of(request: Request) -> list[Text]:
    """The text of a request in units; a `ConfigError` if its files cannot be read."""
    read = Reading.of(request.data)
    if read.filter:
        function_of(read.filter, "data.filter")  # an error in it is told before any work
    units = [task.units(request.data.unit_bytes) for task in request.tasks]
    if request.data.exclude:
        columns = list(reading.excluded_lines(request.data))
        folder = _folder(request, "excluded")
        read = dataclasses.replace(
            read, excluded=hash_sets.write(folder, map(line_hashes, columns))
        )
    return [Text(task, of, read) for task, of in zip(request.tasks, units, strict=True)]


def find_duplicates(request: Request, texts: Sequence[Text], run: Run) -> list[Text]:
    """The same text, but that a line or pair of a task is read only where it stands first, if
    `data.duplicates` says so."""
    if request.data.duplicates == "keep":
        return list(texts)
    found: list[Text] = []
    hashing: list[_HashUnit] = []
    looking: list[_FindRepeated] = []
    done: list[AnyPath] = []
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
            looking += [
                _FindRepeated(hashed, bucket, buckets, file) for bucket, file in enumerate(files)
            ]
            done += hashed
        found.append(
            dataclasses.replace(text, reading=dataclasses.replace(text.reading, repeated=files))
        )
    run("hashing lines", hashing)
    run("finding duplicates", looking)
    for file in done:
        file.unlink(missing_ok=True)
    return found


def hold_out(request: Request, texts: Sequence[Text], run: Run) -> dict[str, Rule]:
    """The rule of each language. Pairs are read once to find the companions, so that what is held
    out with one pair is not trained on in another, nor in text."""
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
        found = hash_sets.write(folder, map(_loaded, storage.below(parts, "*.npy")))
        atomic.write(note, json.dumps({"file": found.name}).encode())
        storage.remove_folder(parts)
    files: dict[str, list[AnyPath]] = defaultdict(list)
    for text, note in zip(pairs, notes, strict=True):
        other = text.task.languages[1 - held_out.decider(text.task.languages)]
        files[other].append(folder / json_file.read_object(note)["file"])
    for name, several in files.items():
        rules[name] = Rule(share, hash_sets.write(folder, map(hash_sets.opened, several)))
    return rules


def train_vocabulary(
    request: Request, texts: Sequence[Text], rules: Mapping[str, Rule], run: Run
) -> Vocabulary:
    """The vocabulary that is trained for a request: on lines that a hash chooses, of units that a
    hash chooses, but never on what is held out."""
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
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in parts}
    for job in jobs:
        for name, (lines, letters, sample) in json_file.read_object(job.file).items():
            sentences[name] += lines
            characters[name] += letters
            found[name] = sorted([*found[name], *map(tuple, sample)])[: data.vocabulary_lines]
    sentences = {name: count for name, count in sentences.items() if count}
    if not sentences:
        raise ConfigError("there is no line of text to train a vocabulary on")
    wanted, weights = vocabulary_training.balance(
        sentences, characters, data.vocabulary_alpha, data.vocabulary_lines, parts
    )
    model = vocabulary_training.train(
        {name: [line for _, line in found[name][:count]] for name, count in wanted.items()},
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
    """Columns to take by (text, unit), and which part of each language's bytes they are."""
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
        taken = sorted(units)[:SAMPLED_UNITS]
        parts[name] = sum(unit[-1] for unit in taken) / max(1, sum(unit[-1] for unit in units))
        for _, number, index, column, _ in taken:
            chosen[number, index] += (column,)
    return chosen, parts


@dataclasses.dataclass(frozen=True)
class _FindCompanions(OfUnit):
    """Writes the hashes of the companions among the pairs of a unit."""

    languages: tuple[str, ...]
    index: int
    unit: Unit
    reading: Reading
    rule: Rule
    folder: AnyPath

    def __call__(self) -> int:
        file = self.folder / f"{self.index:08d}.npy"
        if file.is_file():
            return 0
        reader = UnitReader(self.unit, self.index, self.reading)
        found = [
            held_out.companions(self.languages, chunk.hashes, self.rule)
            for chunk in reader.chunks()
        ]
        with atomic.writing(file) as out:
            np.save(out, np.unique(np.concatenate([np.empty(0, np.uint64), *found])))
        return reader.lines


@dataclasses.dataclass(frozen=True)
class _SampleUnit(OfUnit):
    """Writes, of some columns of a unit, how many lines and characters there are that are not held
    out, and the lines of the lowest hashes with these."""

    columns: tuple[int, ...]
    index: int
    unit: Unit
    reading: Reading
    languages: tuple[str, ...]
    rules: tuple[Rule, ...]
    most: int
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        reader = UnitReader(self.unit, self.index, self.reading)
        lines, letters = [0] * len(self.languages), [0] * len(self.languages)
        found: list[list[tuple[int, str]]] = [[] for _ in self.languages]
        for chunk in reader.chunks():
            out, sharing = held_out.split(self.languages, chunk.hashes, self.rules)
            for column in self.columns:
                numbers = hash64(chunk.hashes[column], _SAMPLE_KEY).tolist()
                keep = ~out & ~sharing & (chunk.hashes[column] != BLANK)
                kept = [(numbers[i], chunk.columns[column][i]) for i in np.flatnonzero(keep)]
                lines[column] += len(kept)
                letters[column] += sum(len(line) for _, line in kept)
                found[column] += kept
                if len(found[column]) > 2 * _MOST_OF_UNIT:
                    found[column] = sorted(found[column])[:_MOST_OF_UNIT]
        content = {
            self.languages[i]: (lines[i], letters[i], sorted(found[i])[: self.most])
            for i in self.columns
        }
        atomic.write(self.file, json.dumps(content, ensure_ascii=False).encode())
        return reader.lines


_HASHED = np.dtype([("hash", "<u8"), ("place", "<u4")])


@dataclasses.dataclass(frozen=True)
class _HashUnit(OfUnit):
    """Writes the hash and place of each line or pair of a unit, ordered by hash."""

    unit: Unit
    reading: Reading
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        reader = UnitReader(self.unit, 0, self.reading)
        found = [np.empty(0, _HASHED)]
        for chunk in reader.chunks():
            whole = ["\t".join(row) for row in zip(*chunk.columns, strict=True)]
            part = np.empty(len(whole), _HASHED)
            part["hash"], part["place"] = text_hashes(whole), chunk.places
            found.append(part[[bool(line) for line in whole]])
        every = np.concatenate(found)
        atomic.write(self.file, every[np.argsort(every["hash"], kind="stable")].tobytes())
        return reader.lines


@dataclasses.dataclass(frozen=True)
class _FindRepeated:
    """Writes where lines stand again that stand before, of all whose hashes are in a range: units
    and places, in order."""

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
            here = storage.mapped(file, _HASHED)
            start = int(np.searchsorted(here["hash"], np.uint64(low)))
            stop = len(here)
            if high <= BLANK:
                stop = int(np.searchsorted(here["hash"], np.uint64(high)))
            hashes.append(here["hash"][start:stop])
            places.append(here["place"][start:stop])
            units.append(np.full(stop - start, unit, np.uint32))
        every = np.concatenate([np.empty(0, np.uint64), *hashes])
        order = np.argsort(every, kind="stable")
        again = order[1:][every[order[1:]] == every[order[:-1]]]
        found = np.empty(len(again), reading.REPEATED)
        found["unit"] = np.concatenate([np.empty(0, np.uint32), *units])[again]
        found["place"] = np.concatenate([np.empty(0, np.uint32), *places])[again]
        atomic.write(self.file, np.sort(found).tobytes())
        return 0


def _loaded(file: AnyPath) -> np.ndarray:
    with file.open("rb") as content:
        return np.load(content, allow_pickle=False)


def _folder(request: Request, name: str) -> AnyPath:
    folder = request.cache / name
    folder.mkdir(exist_ok=True)
    return folder
