"""Chooses the row length of sentence pairs from the text, for `data.pair_length=auto`."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from xlj.config import row_kinds
from xlj.data.rows import packing
from xlj.data.rows.prepasses import Text
from xlj.data.rows.request import SAMPLED_UNITS, RowsRequest
from xlj.data.rows.units import UnitJob, encode_columns
from xlj.data.rows.workers import RunJobs
from xlj.data.text.text_tasks import Unit
from xlj.data.text.text_units import ReadOptions, UnitReader
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io import atomic, json_file, storage
from xlj.io.hashing import name_hash
from xlj.io.storage import AnyPath

KEPT_SHARE = 0.99
"""Minimum share of the pairs of each language pair that fit in rows of the chosen length."""

_MIN_LENGTH = 16
_MAX_UNIT_PAIRS = 1 << 16  # approximate maximum number of pairs that are read from a unit


def auto_length(request: RowsRequest, max_length: int) -> int:
    """Returns the shortest row length, in tokens, in which most pairs of each language pair fit.

    The share of pairs that fit is at least `KEPT_SHARE`, for each kind of rows. The length is at
    least 16 tokens.

    Args:
      request: the request; `measure` must have written `request.lengths_file`.
      max_length: maximum number of tokens of a row; the result is at most this number.
    """
    counts = json_file.read_object(request.lengths_file)
    lengths = [packing.shortest_length(count, KEPT_SHARE) for count in counts.values()]
    return min(max_length, max([_MIN_LENGTH, *lengths]))


def measure(
    request: RowsRequest, texts: Sequence[Text], vocabulary: Vocabulary, run: RunJobs
) -> None:
    """Counts sentence pairs by the row length that they need, and writes `request.lengths_file`.

    Each language pair and kind of rows has its own counts. Jobs read only the first pairs of some
    units. A unit is the part of a text that one process reads; a hash chooses the units.
    """
    file = request.lengths_file
    file.parent.mkdir(exist_ok=True)
    part_folder = file.with_suffix(".parts")
    part_folder.mkdir(exist_ok=True)
    model = part_folder / "vocabulary.model"
    atomic.write(model, vocabulary.model)
    jobs = []
    for text in texts:
        kinds = tuple(
            kind
            for kind in request.row_kinds(text.task)
            if row_kinds.load(kind).length == "data.pair_length"
        )
        if kinds:
            name = text.task.name
            order = sorted(range(len(text.units)), key=lambda i: name_hash(f"{name}/{i}"))
            jobs += [
                _MeasureUnit(
                    text.units[i], i, text.reading, model, kinds, part_folder / f"{name}.{i}.json"
                )
                for i in order[:SAMPLED_UNITS]
            ]
    run("measuring pairs", jobs)
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        task_name = job.file.name.rpartition(".")[0].rpartition(".")[0]
        for kind, unit_counts in json_file.read_object(job.file).items():
            counts.setdefault(f"{task_name} {kind}", Counter()).update(unit_counts)
    atomic.write(file, json.dumps(counts).encode())
    storage.remove_folder(part_folder)


@dataclasses.dataclass(frozen=True)
class _MeasureUnit(UnitJob):
    """A job that counts the pairs of a unit by the row length that they need, per kind of rows."""

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
            for name, count in counts.items():
                kind = row_kinds.load(name)
                columns = encode_columns(kind, chunk.columns, vocabulary.encode)
                has_tokens = np.all([column.lengths > 0 for column in columns], axis=0)
                count.update(packing.histogram(kind.row_tokens(columns)[has_tokens]))
            pairs += len(chunk.columns[0])
            if pairs >= _MAX_UNIT_PAIRS:
                break
        atomic.write(self.file, json.dumps(counts).encode())
        return pairs
