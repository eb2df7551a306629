"""Reads units of text: cleans and hashes each line once, and leaves out what the config says."""

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
"""A chunk ends when it has as many lines or characters; a document is cut there."""


MARKS = "byte order marks at the starts of lines"
"""What they are counted under: they are left out, their lines are read."""
REPEATED = np.dtype([("unit", "<u4"), ("place", "<u4")])
"""A line of a unit, by the lines before it that can be read; files have them in order."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How text is read; small, so that workers can be sent it.

    Attributes:
      malformed: `error` or `skip`, as in `Data`.
      filter: `module:function`, or empty.
      excluded: a file of hashes of lines to leave out, or None.
      repeated: files of the places (`REPEATED`) of lines to leave out because they stand before.
    """

    malformed: str
    filter: str
    excluded: AnyPath | None = None
    repeated: tuple[AnyPath, ...] = ()

    def identity(self) -> Record:
        """All that decides what is left out, as JSON values, but for what is excluded or
        repeated."""
        module = self.filter.partition(":")[0]
        digest = module_digest(module, "data.filter") if module else ""
        # Rows at the default were made before there was more to skip than invalid UTF-8.
        key = "invalid_utf8" if self.malformed == "error" else "malformed"
        return {key: self.malformed, "filter": [self.filter, digest]}

    @classmethod
    def of(cls, data: Data) -> "Reading":
        """That of a config, nothing excluded yet."""
        return cls(data.malformed, data.filter)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some lines of text, where an empty line ends a document, or pairs: clean columns, and the
    hash of each line (`line_hashes`), uint64 [lines] a column; and the place of each in its unit,
    int64 [lines]."""

    columns: tuple[list[str], ...]
    hashes: tuple[np.ndarray, ...]
    places: np.ndarray


class UnitReader:
    """A unit, read once.

    Attributes:
      dropped: lines with text, or pairs, that were left out, by reason; whole once `chunks` ended.
      malformed: of the records that were malformed, and of byte order marks, by reason: how many
        there were, and where the first stood: the number of its part, and lines before it there.
      lines, digest: what was read: lines of every kind, and a sha256 of their text as it came.
    """

    def __init__(self, unit: Unit, index: int, reading: Reading):
        self.dropped: Counter[str] = Counter()
        self.malformed: dict[str, tuple[int, ...]] = {}
        self.lines = 0
        self.digest = hashlib.sha256()
        self._unit, self._reading = unit, reading
        self._repeated = [_places(file, index) for file in reading.repeated]

    def chunks(self) -> Iterator[Chunk]:
        """The text in chunks; a `ConfigError` if it cannot be read."""
        held: list[list[list[str]]] = []
        lines = size = first = 0
        for block in self._blocks():
            held.append(block)
            lines += len(block[0])
            size += sum(sum(map(len, column)) for column in block)
            if lines >= CHUNK_LINES or size >= CHUNK_CHARACTERS:
                yield self._chunk(held, first)
                first += lines
                held, lines, size = [], 0, 0
        if held:
            yield self._chunk(held, first)

    def _blocks(self) -> Iterator[list[list[str]]]:
        """Clean columns of equal length."""
        for number, part in enumerate(self._unit):
            count = 0
            for raw in part.blocks():
                self._seen(raw)
                rows = self._readable(raw, number, count)
                count += len(raw[0])
                if rows and rows[0]:
                    yield [clean_all(column) for column in rows]
            self.lines += count
            if part.source.columns == 1:
                yield [[""]]  # the end of a file ends a document

    def _readable(self, raw: RawBlock, part: int, before: int) -> list[Sequence[str]]:
        """The block without malformed records."""
        if set().union(*(map(type, column) for column in raw)) <= {str}:
            return list(cast(Sequence[Sequence[str]], raw))
        gone = set()
        for i, row in enumerate(zip(*raw, strict=True)):
            for line in row:
                if isinstance(line, Marked):
                    self._note(MARKS, part, before + i)
            if isinstance(bad := row[0], Malformed):
                place = bad.before if bad.before >= 0 else before + i
                if self._reading.malformed == "error":
                    of = self._unit[part]
                    raise ConfigError(
                        f"{of.source.place(of.start, place)}{bad.problem}; mend it, or set "
                        "data.malformed=skip"
                    )
                self._note(bad.reason, part, place)
                self.dropped[bad.reason] += 1
                gone.add(i)
        rows = cast(Sequence[Sequence[str]], raw)  # but for those that are gone
        return [[line for i, line in enumerate(column) if i not in gone] for column in rows]

    def _note(self, reason: str, part: int, before: int) -> None:
        count, *first = self.malformed.get(reason, (0, part, before))
        self.malformed[reason] = (count + 1, *first)

    def _seen(self, raw: RawBlock) -> None:
        for column in raw:
            text = "\n".join(["\0" if isinstance(x, Malformed) else x for x in column])
            self.digest.update(text.encode("utf-8", "surrogatepass"))

    def _chunk(self, held: list[list[list[str]]], first: int) -> Chunk:
        columns = [[line for block in held for line in block[i]] for i in range(len(held[0]))]
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
            excluded = hash_sets.opened(self._reading.excluded)
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
            columns = [[x for x, kept in zip(c, keep, strict=True) if kept] for c in columns]
            hashes = [column[keep] for column in hashes]
            places = places[keep]
        return Chunk(tuple(columns), tuple(hashes), places)


def excluded_lines(data: Data) -> Iterator[list[str]]:
    """The clean lines of `data.exclude`, and what stands between their tabs; a `ConfigError` if a
    file cannot be read."""
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
    """The files of `data.exclude`; of each field of JSON lines or Parquet a source of its own.

    Raises:
      ConfigError: if there is no such file.
    """
    found = []
    for text in data.exclude:
        name, sign, fields = text.partition("#")
        for field in fields.split("|"):
            sources = open_sources(f"{name}{sign}{field}", 1, data, "data.exclude")
            if not sources:
                raise ConfigError(f"data.exclude={text}: there is no such file")
            found += sources
    return found


def _places(file: AnyPath, unit: int) -> np.ndarray:
    """The places of a unit in a file of `REPEATED`, uint32."""
    every = storage.mapped(file, REPEATED)
    start, stop = np.searchsorted(every["unit"], np.array([unit, unit + 1], np.uint32))
    return np.array(every["place"][start:stop])
