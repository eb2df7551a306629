"""Reads units of text: cleans and hashes lines, and drops lines that the config excludes."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from xlj.config import ConfigError, Data
from xlj.config.user_code import function_of
from xlj.data.text import held_out, line_filter
from xlj.data.text.cleaning import clean, clean_all, line_hashes
from xlj.data.text.sources import RawBlock, TextSource, module_digest, open_sources
from xlj.data.text.text_tasks import Unit
from xlj.io import storage
from xlj.io.columns import RANGE
from xlj.io.json_file import Record
from xlj.io.malformed import Counted, Malformed, Marked
from xlj.io.storage import AnyPath

CHUNK_LINES = 16_384
CHUNK_CHARACTERS = 1 << 22
"""A chunk ends when it has at least this number of lines or characters, even within a document."""

MARKS = "byte order marks at the starts of lines"
"""The name under which lines with a byte order mark are counted; the mark is removed from them."""
REPEATED = np.dtype([("unit", "<u4"), ("place", "<u4")])
"""The position of a repeated line: the index of its unit, and its index in this unit
(`Chunk.indices`). Files of positions are sorted."""


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options for reading text; small enough to send to worker processes.

    Attributes:
      malformed: `data.malformed`, which is `error` or `skip`.
      filter: `data.filter`, which is `module:function`, or empty.
      min_score, other_language: the keys of `data` with these names.
      languages: the language of each column of the text; `data.filter` may believe a line to be in
        another language.
      excluded: a file with hashes of lines to drop (`write_hashes`); None to drop no lines.
      repeated: files with the positions (`REPEATED`) of lines that repeat an earlier line. These
        lines are dropped.
    """

    malformed: str
    filter: str
    excluded: AnyPath | None = None
    repeated: tuple[AnyPath, ...] = ()
    min_score: float = 0.0
    other_language: str = "keep"
    languages: tuple[str, ...] = ()

    def identity(self) -> Record:
        """Returns JSON values that identify the options, except files and languages, for hashes of
        row stores."""
        module = self.filter.partition(":")[0]
        digest = module_digest(module, "data.filter") if module else ""
        filtering: list[str | float] = [self.filter, digest]
        if self.min_score or self.other_language != "keep":
            filtering += [self.min_score, self.other_language]
        return {"malformed": self.malformed, "filter": filtering}

    @classmethod
    def of(cls, data: Data) -> "ReadOptions":
        """Returns the options of a config; `excluded` is None, `repeated` and `languages` are
        empty."""
        return cls(
            data.malformed,
            data.filter,
            min_score=data.min_score,
            other_language=data.other_language,
        )


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive lines of text, in which an empty line ends a document, or consecutive pairs.

    Attributes:
      columns: the clean lines of each column of the source.
      hashes: the hashes of the lines of each column that decides what is held out (`line_hashes`),
        uint64 [lines].
      indices: the index of each line or pair in its unit, int64 [lines]. Malformed records are not
        counted. The blank line that ends each part of text is counted.
    """

    columns: tuple[list[str], ...]
    hashes: tuple[np.ndarray, ...]
    indices: np.ndarray


class UnitReader:
    """Reads a unit of text once. The attributes are complete when `chunks` ends.

    Args:
      unit: the unit.
      index: the index of the unit in its task.
      reading: the options.

    Attributes:
      dropped: for each reason, the number of dropped lines with text, or of dropped pairs.
      malformed: for each reason, a tuple (count, part, before). `count` is the number of malformed
        records, `part` the index of the part with the first of them, and `before` the number of
        lines before it in this part. The entry `MARKS` counts lines with a byte order mark, and
        there are entries for parts of records that were dropped (`malformed.Counted`).
      other_languages: number of lines or pairs that `data.filter` believes to be in another
        language, by this language. They are dropped only if the options say so.
      lines: number of lines or pairs read, including those that were dropped.
      digest: sha256 hash object of the text of these lines before cleaning.
    """

    def __init__(self, unit: Unit, index: int, reading: ReadOptions):
        self.dropped: Counter[str] = Counter()
        self.malformed: dict[str, tuple[int, ...]] = {}
        self.other_languages: Counter[str] = Counter()
        self.lines = 0
        self.digest = hashlib.sha256()
        self._unit, self._reading = unit, reading
        self._repeated = [_read_repeated(file, index) for file in reading.repeated]

    def chunks(self) -> Iterator[Chunk]:
        """Yields the text in chunks.

        Raises:
          ConfigError: if the text cannot be read, or on a malformed record with
            `data.malformed=error`.
        """
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
        """Yields blocks of clean text: columns of equal length."""
        for number, part in enumerate(self._unit):
            count = 0
            for raw in part.blocks():
                self._add_to_digest(raw)
                columns = self._drop_malformed(raw, number, count)
                count += len(raw[0])
                if columns and columns[0]:
                    yield [clean_all(column) for column in columns]
            self.lines += count
            if len(part.source.columns) == 1:
                yield [[""]]  # the end of a part ends a document

    def _drop_malformed(self, raw: RawBlock, part: int, before: int) -> list[Sequence[str]]:
        """Returns the columns of a block without malformed records, and counts these records.

        Args:
          raw: the block.
          part: the index of the part of the unit that has the block.
          before: the number of lines before the block in this part.
        """
        if set().union(*(map(type, column) for column in raw)) <= {str}:
            return list(cast(Sequence[Sequence[str]], raw))
        dropped = set()
        for i, row in enumerate(zip(*raw, strict=True)):
            for line in row:
                if isinstance(line, Marked):
                    self._count_malformed(MARKS, part, before + i)
                if isinstance(line, Counted):
                    lines_before = line.before if line.before >= 0 else before + i
                    for reason, count in line.counts.items():
                        self._count_malformed(reason, part, lines_before, count)
            if isinstance(bad := row[0], Malformed):
                lines_before = bad.before if bad.before >= 0 else before + i
                if self._reading.malformed == "error":
                    bad_part = self._unit[part]
                    place = bad_part.source.place(bad_part.start, lines_before)
                    raise ConfigError(f"{place}{bad.problem}; fix it, or set data.malformed=skip")
                self._count_malformed(bad.reason, part, lines_before)
                self.dropped[bad.reason] += 1
                dropped.add(i)
        columns = cast(Sequence[Sequence[str]], raw)  # the remaining records are strings
        return [[line for i, line in enumerate(column) if i not in dropped] for column in columns]

    def _count_malformed(self, reason: str, part: int, before: int, more: int = 1) -> None:
        count, *first = self.malformed.get(reason, (0, part, before))
        self.malformed[reason] = (count + more, *first)

    def _add_to_digest(self, raw: RawBlock) -> None:
        for column in raw:
            text = "\n".join(["\0" if isinstance(x, Malformed) else x for x in column])
            self.digest.update(text.encode("utf-8", "surrogatepass"))

    def _chunk(self, blocks: list[list[list[str]]], first: int) -> Chunk:
        columns = [[line for block in blocks for line in block[i]] for i in range(len(blocks[0]))]
        source = self._unit[0].source
        texts = columns[: len(columns) - source.optional]
        hashes = [line_hashes(column) for column in texts]
        drop = np.zeros(len(columns[0]), bool)
        if len(columns) == 1 and RANGE in columns[0]:
            drop |= np.array([line == RANGE for line in columns[0]])
            self.dropped["joined to the line before"] += int(drop.sum())
        if self._reading.filter:
            drop |= self._filter(texts, drop)
        if self._reading.excluded is not None:
            excluded = held_out.open_hashes(self._reading.excluded)
            is_excluded = (
                np.any([held_out.contains_hashes(excluded, x) for x in hashes], axis=0) & ~drop
            )
            self.dropped["stands in data.exclude"] += int(is_excluded.sum())
            drop |= is_excluded
        indices = np.arange(first, first + len(drop))
        if self._repeated:
            is_repeated = np.isin(indices, np.concatenate(self._repeated)) & ~drop
            self.dropped["stands before"] += int(is_repeated.sum())
            drop |= is_repeated
        if drop.any():
            keep = ~drop
            columns = [[x for x, is_kept in zip(c, keep, strict=True) if is_kept] for c in columns]
            hashes = [column[keep] for column in hashes]
            indices = indices[keep]
        return Chunk(tuple(columns), tuple(hashes[: source.deciding or None]), indices)

    def _filter(self, texts: list[list[str]], drop: np.ndarray) -> np.ndarray:
        """Returns which lines or pairs `data.filter` drops, bool [lines], and counts them.

        Args:
          drop: which lines or pairs are dropped for other reasons.
        """
        reading = self._reading
        rows = list(zip(*texts, strict=True))
        blank = ("",) * len(texts)
        verdicts = line_filter.judge(
            function_of(reading.filter, "data.filter"),
            [blank if is_dropped else row for row, is_dropped in zip(rows, drop, strict=True)],
            reading.languages,
            reading.min_score,
            reading.other_language == "drop",
        )
        self.dropped.update({why: int(x.sum()) for why, x in verdicts.dropped.items() if x.any()})
        self.other_languages.update(verdicts.others)
        return np.any([*verdicts.dropped.values()], axis=0)


def read_excluded_lines(data: Data) -> Iterator[list[str]]:
    """Yields the cleaned texts to exclude, one list for each line of the files of `data.exclude`.

    A list contains the line and, if the line has tabs, its fields between tabs.

    Raises:
      ConfigError: if a file cannot be read, or contains a malformed line.
    """
    for source in open_excluded_sources(data):
        for part in source.parts(data.unit_bytes):
            before = 0
            for (column,) in part.blocks():
                for number, line in enumerate(column, before):
                    if isinstance(line, Malformed):
                        place = part.source.place(part.start, max(number, line.before))
                        raise ConfigError(f"data.exclude: {place}{line.problem}")
                    yield [clean(text) for text in {line, *line.split("\t")}]
                before += len(column)


def open_excluded_sources(data: Data) -> list[TextSource]:
    """Returns the sources of `data.exclude`; each field of JSON lines or Parquet is one source.

    Raises:
      ConfigError: if a file does not exist.
    """
    excluded: list[TextSource] = []
    for text in data.exclude:
        name, sign, fields = text.partition("#")
        for field in fields.split("|"):
            sources = open_sources(f"{name}{sign}{field}", ("text",), data, "data.exclude")
            if not sources:
                raise ConfigError(f"data.exclude={text}: no such file")
            excluded += sources
    return excluded


def _read_repeated(file: AnyPath, unit: int) -> np.ndarray:
    """Reads the indices of the repeated lines of a unit from a file of `REPEATED`: uint32."""
    positions = storage.memory_map(file, REPEATED)
    start, stop = np.searchsorted(positions["unit"], np.array([unit, unit + 1], np.uint32))
    return np.array(positions["place"][start:stop])
