"""Sources of examples of sentence encoders: JSON lines, tables, Parquet, and the phrasebook."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.text import examples
from xlj.data.text.sources import (
    BLOCK_LINES,
    JSON_ENDINGS,
    FileSource,
    ParquetFile,
    Part,
    PhrasebookSource,
    RawBlock,
    TextSource,
    ending_of,
)
from xlj.io import storage
from xlj.io.malformed import Line


@dataclasses.dataclass(frozen=True)
class ExampleLines(FileSource):
    """A file of examples: JSON lines, or a table with tabs whose first line names its columns.

    Attributes:
      reader: converts the records.
    """

    reader: examples.Reader

    def check(self, key: str) -> None:
        """Checks nothing, since `parts` reads the header of a table."""

    def identity(self) -> str | list | dict:
        return [*super().identity(), *_identity_of(self)]

    def parts(self, size: int) -> list[Part]:
        self._converter()  # raises an error for a table without a header
        return super().parts(size)

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        for block in examples.read_lines(self.paths[0], start, stop, self._converter()):
            if block:
                yield tuple(zip(*block, strict=True))

    def _converter(self) -> Callable[[Line], list[list[Line]]]:
        if ending_of(self.paths[0]) in JSON_ENDINGS:
            return functools.partial(examples.of_json, reader=self.reader)
        return examples.table_reader(self.paths[0], self.reader)


@dataclasses.dataclass(frozen=True)
class ExampleParquet(ParquetFile):
    """A Parquet file of examples, whose columns have texts, numbers and lists of them.

    Attributes:
      reader: converts the records.
    """

    reader: examples.Reader

    def identity(self) -> str | list | dict:
        return [*super().identity(), *_identity_of(self)]

    def parts(self, size: int) -> list[Part]:
        with self._open() as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            return self._join_groups([group.total_byte_size for group in groups], size)

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        before = 0
        with self._open() as file:
            batches = file.iter_batches(BLOCK_LINES, range(start, stop), use_threads=False)
            while True:
                with self._convert_errors("cannot read this file"):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    records = batch.to_pylist()
                block = [
                    columns
                    for number, record in enumerate(records, before)
                    for columns in examples.at(self.reader.examples(record), number)
                ]
                before += len(records)
                if block:
                    yield tuple(zip(*block, strict=True))


def _identity_of(source: ExampleLines | ExampleParquet) -> list[Any]:
    """Returns JSON values that identify how a source of examples converts its records."""
    return [examples.VERSION, dataclasses.asdict(source.reader)]


@dataclasses.dataclass(frozen=True)
class PhrasebookExamples(PhrasebookSource):
    """Examples from the phrasebook: a sentence of a language is the query, its translation into
    English (for English, into German) the positive. The next translations are the negatives.

    The score of the positive is 1, and that of a negative 0.
    """

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        pair = "en-de" if self.name == "en" else f"{self.name}-en"
        pairs = list(phrasebook.pair_lines(pair))
        negatives = sum(name.startswith("negative_") for name in self.columns)
        rows = []
        for number, (query, positive) in enumerate(pairs):
            others = [pairs[(number + n + 1) % len(pairs)][1] for n in range(negatives)]
            scores = [" ".join(["1.0", *["0.0"] * negatives])] * (examples.SCORES in self.columns)
            rows.append((query, positive, *others, *scores))
        for first in range(0, len(rows), BLOCK_LINES):
            yield tuple(zip(*rows[first : first + BLOCK_LINES], strict=True))


_ONLY = re.compile(r"(.+)\[([^\[\]=]+)=([^\[\]]*)\]")
"""A file of examples of which only the records with a value in a field are read."""


def open_examples(
    text: str, columns: tuple[str, ...], optional: int, deciding: int, key: str
) -> list[TextSource]:
    """Returns the sources of examples that a filled template names; an empty list if none exists.

    Args:
      text: the filled template: files, then `[FIELD=VALUE]` to read only the records with this
        value, then `#FIELD|FIELD|...` to name the fields of query, positives and negatives.
      columns, optional, deciding: of the kind of rows (`kinds.examples`).
      key: the config key of the template, for errors.

    Raises:
      ConfigError: if the template is invalid, or a file has a format that is not supported.
    """
    name, sign, named = text.partition("#")
    fields = tuple(named.split("|")) if sign else ()
    if sign and (len(fields) < 2 or not all(fields)):
        raise ConfigError(
            f"{key}={text}: name the fields of the query, of the positives and, if there are any, "
            "of the negatives: FILE#FIELD|FIELD|FIELD"
        )
    match = _ONLY.fullmatch(name)
    only = (match[2], match[3]) if match else ()
    scored = columns[-1] == examples.SCORES
    reader = examples.Reader(optional - scored, scored, fields, only)
    counts = {"optional": optional, "deciding": deciding}
    scheme, _, language = name.partition(":")
    if scheme == "phrasebook":
        source = PhrasebookExamples(text, columns, name=language, **counts)
        return [source] if language in phrasebook.LANGUAGES else []
    sources: list[TextSource] = []
    for path in storage.find_files(match[1] if match else name):
        if path.suffix == ".parquet":
            sources.append(ExampleParquet(text, columns, (path,), (), reader=reader, **counts))
            continue
        if ending_of(path) not in (".tsv", ".txt", *JSON_ENDINGS):
            raise ConfigError(
                f"{path}: examples are read from JSON lines ({', '.join(JSON_ENDINGS)}), from "
                "Parquet (.parquet), and from tables with tabs (.tsv)"
            )
        sources.append(ExampleLines(text, columns, (path,), reader=reader, **counts))
    return sources
