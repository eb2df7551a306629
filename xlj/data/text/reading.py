"""Reads units of text: cleans and hashes each line, and drops lines that the config excludes."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from xlj.config import ConfigError, Data
from xlj.config.user_code import function_of
from xlj.data.text import hash_sets
from xlj.data.text.cleaning import clean, clean_all, line_hashes
from xlj.data.text.sources import RawBlock, TextSource, module_digest, open_sources
from xlj.data.text.text_tasks import Unit
from xlj.io import storage
from xlj.io.json_file import Record
from xlj.io.malformed import Malformed, Marked
from xlj.io.storage import AnyPath

CHUNK_LINES = 16_384
CHUNK_CHARACTERS = 1 << 22
"""A chunk ends when it reaches this number of lines or characters, even within a document."""

MARKS = "byte order marks at the starts of lines"
"""The name of their count; the marks are removed, and their lines are read."""
REPEATED = np.dtype([("unit", "<u4"), ("place", "<u4")])
"""A line of a unit, numbered by the readable lines before it; sorted in files."""


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """How text is read; small enough to send to workers.

    Attributes:
      malformed: `error` or `skip`, as in `Data`.
      filter: `module:function`, or empty.
      excluded: a file with hashes of lines to drop, or None.
      repeated: files with the positions (`REPEATED`) of lines that repeat an earlier line; they are
        dropped.
    """

    malformed: str
    filter: str
    excluded: AnyPath | None = None
    repeated: tuple[AnyPath, ...] = ()

    def identity(self) -> Record:
        """Returns what determines the dropped lines, as JSON values, without `excluded` and
        `repeated`."""
        module = self.filter.partition(":")[0]
        digest = module_digest(module, "data.filter") if module else ""
        # Older rows used this key, when invalid UTF-8 was all that could be skipped.
        key = "invalid_utf8" if self.malformed == "error" else "malformed"
        return {key: self.malformed, "filter": [self.filter, digest]}

    @classmethod
    def of(cls, data: Data) -> "ReadOptions":
        """Returns the options of a config, with nothing excluded yet."""
        return cls(data.malformed, data.filter)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some lines of text, where an empty line ends a document, or some pairs.

    Attributes:
      columns: clean lines of each column.
      hashes: hash of each line (`line_hashes`), uint64 [lines] per column.
      places: position of each line in its unit, int64 [lines].
    """

    columns: tuple[list[str], ...]
    hashes: tuple[np.ndarray, ...]
    places: np.ndarray


class UnitReader:
    """Reads a unit once.

    Attributes:
      dropped: lines with text, or pairs, that were dropped, by reason; complete after `chunks`.
      malformed: counts of malformed records and byte order marks, by reason, and the place of the
        first: the index of its part, and the number of lines before it in the part.
      lines: number of lines read, including dropped lines.
      digest: sha256 of their text before cleaning.
    """

    def __init__(self, unit: Unit, index: int, reading: ReadOptions):
        self.dropped: Counter[str] = Counter()
        self.malformed: dict[str, tuple[int, ...]] = {}
        self.lines = 0
        self.digest = hashlib.sha256()
        self._unit, self._reading = unit, reading
        self._repeated = [_places(file, index) for file in reading.repeated]

    def chunks(self) -> Iterator[Chunk]:
        """Yields the text in chunks; raises a `ConfigError` if it cannot be read."""
        blocks: list[list[list[str]]] = []
        lines = size = first = 0
        for block in self._blocks():
            blocks.append(block)
            lines += len(block[0])
            size += sum(sum(map(len, column)) for column in block)
            if lines >= CHUNK_LINES or size >= CHUNK_CHARACTERS:
                yield self._chunk(blocks, first)
                first += lines
                blocks, lines, size = [], 0, 0
        if blocks:
            yield self._chunk(blocks, first)

    def _blocks(self) -> Iterator[list[list[str]]]:
        """Yields clean columns of equal length."""
        for number, part in enumerate(self._unit):
            count = 0
            for raw in part.blocks():
                self._add_to_digest(raw)
                rows = self._without_malformed(raw, number, count)
                count += len(raw[0])
                if rows and rows[0]:
                    yield [clean_all(column) for column in rows]
            self.lines += count
            if part.source.columns == 1:
                yield [[""]]  # the end of a file ends a document

    def _without_malformed(self, raw: RawBlock, part: int, before: int) -> list[Sequence[str]]:
        """Removes malformed records from a block, and counts them."""
        if set().union(*(map(type, column) for column in raw)) <= {str}:
            return list(cast(Sequence[Sequence[str]], raw))
        removed = set()
        for i, row in enumerate(zip(*raw, strict=True)):
            for line in row:
                if isinstance(line, Marked):
                    self._note(MARKS, part, before + i)
            if isinstance(bad := row[0], Malformed):
                place = bad.before if bad.before >= 0 else before + i
                if self._reading.malformed == "error":
                    bad_part = self._unit[part]
                    raise ConfigError(
                        f"{bad_part.source.place(bad_part.start, place)}{bad.problem}; fix it, or "
                        "set data.malformed=skip"
                    )
                self._note(bad.reason, part, place)
                self.dropped[bad.reason] += 1
                removed.add(i)
        rows = cast(Sequence[Sequence[str]], raw)  # without the removed records
        return [[line for i, line in enumerate(column) if i not in removed] for column in rows]

    def _note(self, reason: str, part: int, before: int) -> None:
        count, *first = self.malformed.get(reason, (0, part, before))
        self.malformed[reason] = (count + 1, *first)

    def _add_to_digest(self, raw: RawBlock) -> None:
        for column in raw:
            text = "\n".join(["\0" if isinstance(x, Malformed) else x for x in column])
            self.digest.update(text.encode("utf-8", "surrogatepass"))

    def _chunk(self, blocks: list[list[list[str]]], first: int) -> Chunk:
        columns = [[line for block in blocks for line in block[i]] for i in range(len(blocks[0]))]
        hashes = [line_hashes(column) for column in columns]
        drop = np.zeros(len(columns[0]), bool)
        if self._reading.filter:
            keeps = function_of(self._reading.filter, "data.filter")
            fails = [
                not all(not line or keeps(line) for line in row)
                for row in zip(*columns, strict=True)
            ]
            drop |= np.array(fails, bool)
            self.dropped["data.filter"] += int(drop.sum())
        if self._reading.excluded is not None:
            excluded = hash_sets.open_set(self._reading.excluded)
            more = np.any([hash_sets.has(excluded, column) for column in hashes], axis=0) & ~drop
            self.dropped["stands in data.exclude"] += int(more.sum())
            drop |= more
        places = np.arange(first, first + len(drop))
        if self._repeated:
            more = np.isin(places, np.concatenate(self._repeated)) & ~drop
            self.dropped["stands before"] += int(more.sum())
            drop |= more
        if drop.any():
            keep = ~drop
            columns = [[x for x, keeps in zip(c, keep, strict=True) if keeps] for c in columns]
            hashes = [column[keep] for column in hashes]
            places = places[keep]
        return Chunk(tuple(columns), tuple(hashes), places)


def excluded_lines(data: Data) -> Iterator[list[str]]:
    """Yields the clean lines of `data.exclude`, and the tab-separated fields of each line.

    Raises:
      ConfigError: if a file cannot be read.
    """
    for source in excluded_sources(data):
        for part in source.parts(data.unit_bytes):
            before = 0
            for (column,) in part.blocks():
                for number, line in enumerate(column, before):
                    if isinstance(line, Malformed):
                        place = part.source.place(part.start, max(number, line.before))
                        raise ConfigError(f"data.exclude: {place}{line.problem}")
                    yield [clean(text) for text in {line, *line.split("\t")}]
                before += len(column)


def excluded_sources(data: Data) -> list[TextSource]:
    """Returns the files of `data.exclude`; each field of JSON lines or Parquet is one source.

    Raises:
      ConfigError: if a file does not exist.
    """
    excluded: list[TextSource] = []
    for text in data.exclude:
        name, sign, fields = text.partition("#")
        for field in fields.split("|"):
            sources = open_sources(f"{name}{sign}{field}", 1, data, "data.exclude")
            if not sources:
                raise ConfigError(f"data.exclude={text}: no such file")
            excluded += sources
    return excluded


def _places(file: AnyPath, unit: int) -> np.ndarray:
    """Returns the positions of a unit's lines in a file of `REPEATED`, uint32."""
    every = storage.memory_map(file, REPEATED)
    start, stop = np.searchsorted(every["unit"], np.array([unit, unit + 1], np.uint32))
    return np.array(every["place"][start:stop])
