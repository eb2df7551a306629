"""Chooses the row length of sentence pairs for `data.pair_length=auto`, from the text."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from xlj.data.rows import packing
from xlj.data.rows.prepasses import Text
from xlj.data.rows.request import SAMPLED_UNITS, Request
from xlj.data.rows.units import UnitJob
from xlj.data.rows.workers import RunJobs
from xlj.data.text.reading import ReadOptions, UnitReader
from xlj.data.text.text_tasks import Unit
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file, storage
from xlj.io.hashing import name_hash
from xlj.io.storage import AnyPath

KEPT_SHARE = 0.99
"""Share of the pairs of each source that fit in rows of the `auto` length."""

_SHORTEST = 16
_MOST_OF_UNIT = 1 << 16  # pairs


def auto_length(request: Request, most: int) -> int:
    """Returns the shortest row length that keeps `KEPT_SHARE` of the pairs of each source.

    Uses the counts of `measure`; returns at most `most` tokens.
    """
    counts = json_file.read_object(request.lengths_file)
    lengths = [packing.shortest_length(count, KEPT_SHARE) for count in counts.values()]
    return min(most, max([_SHORTEST, *lengths]))


def measure(request: Request, texts: Sequence[Text], vocabulary: Vocabulary, run: RunJobs) -> None:
    """Counts how many pairs need rows of each length, and writes `request.lengths_file`.

    Pairs are counted for each source and kind of rows. Only the first pairs of some units are read;
    a hash chooses the units.
    """
    file = request.lengths_file
    file.parent.mkdir(exist_ok=True)
    work = file.with_suffix(".parts")
    work.mkdir(exist_ok=True)
    model = work / "vocabulary.model"
    atomic.write(model, vocabulary.model)
    jobs = []
    for text in texts:
        if len(text.task.languages) == 2:
            name, kinds = text.task.name, tuple(request.row_kinds(text.task))
            order = sorted(range(len(text.units)), key=lambda i: name_hash(f"{name}/{i}"))
            jobs += [
                _MeasureUnit(
                    text.units[i], i, text.reading, model, kinds, work / f"{name}.{i}.json"
                )
                for i in order[:SAMPLED_UNITS]
            ]
    run("measuring pairs", jobs)
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        source = job.file.name.rpartition(".")[0].rpartition(".")[0]
        for kind, unit_counts in json_file.read_object(job.file).items():
            counts.setdefault(f"{source} {kind}", Counter()).update(unit_counts)
    atomic.write(file, json.dumps(counts).encode())
    storage.remove_folder(work)


@dataclasses.dataclass(frozen=True)
class _MeasureUnit(UnitJob):
    """Counts how many pairs of a unit need rows of each length, for each kind of rows."""

    unit: Unit
    index: int
    reading: ReadOptions
    vocabulary: AnyPath
    kinds: tuple[str, ...]
    file: AnyPath

    def __call__(self) -> int:
        if self.file.is_file():
            return 0
        vocabulary, pairs = Vocabulary.load(self.vocabulary), 0
        counts: dict[str, Counter[str]] = {kind: Counter() for kind in self.kinds}
        for chunk in UnitReader(self.unit, self.index, self.reading).chunks():
            first, second = (vocabulary.encode(column) for column in chunk.columns)
            whole = np.flatnonzero((first.lengths > 0) & (second.lengths > 0))
            for kind, count in counts.items():
                count.update(packing.histogram(packing.row_tokens(kind, first, second)[whole]))
            pairs += len(first.lengths)
            if pairs >= _MOST_OF_UNIT:
                break
        atomic.write(self.file, json.dumps(counts).encode())
        return pairs
