"""Sources of text: files of lines, JSON, Parquet or TMX; TFDS; seqio; the synthetic phrasebook.

A source is identified without reading it, for example by sizes of files. It is divided into parts,
each of which a single process reads. The method `blocks` yields text in columns:

- Monolingual text has one column, `(lines,)`. An empty line ends a document.
- Pairs have two columns, `(first sides, second sides)`.
- Examples have the columns that their kind of rows names.

A `Malformed` replaces a record that cannot be read, in all columns.

TensorFlow, seqio, TFDS and pyarrow are imported only when a source that needs them is read.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.machinery
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xlj import phrasebook
from xlj.config import ConfigError, Data
from xlj.data.text.templates import split_pair
from xlj.io import compressed, files, formats, json_file, storage, tmx
from xlj.io.columns import (
    RANGE,
    WHOLE_LINES,
    Choice,
    Layout,
    find_pairs,
    find_sentences,
    first_lines,
    join_ranges,
    split,
)
from xlj.io.malformed import INVALID_UTF8, NUL, Line, Malformed, Marked
from xlj.io.quiet import import_quietly
from xlj.io.quoting import shortened
from xlj.io.storage import AnyPath

BLOCK_LINES = 4096
"""The maximum number of records that are read at once from Parquet, TMX and the phrasebook."""

RawBlock = tuple[Sequence[Line], ...]
"""Lines of text, or records of several texts, before cleaning: columns of equal length."""

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a source; small enough to send to worker processes.

    Attributes:
      source: the source.
      start, stop: the range [start, stop) of the part, in bytes, row groups or shards. The type of
        the source determines the unit.
      size: approximate size in bytes.
    """

    source: "TextSource"
    start: int
    stop: int
    size: int

    def blocks(self) -> Iterator[RawBlock]:
        """Yields the raw text in columns of equal length.

        Raises:
          ConfigError: if the text cannot be read.
        """
        return self.source.blocks(self.start, self.stop)


@dataclasses.dataclass(frozen=True)
class TextSource:
    """The text that a filled template, such as `text/en.txt`, names for one language or pair.

    Attributes:
      text: the filled template, which names the source.
      columns: names of the columns; one for monolingual text, two for pairs.
      optional, deciding: how many of the last columns may be empty, and how many of the first
        columns decide what is held out (`RowKind`).
    """

    text: str
    columns: tuple[str, ...]
    optional: int = dataclasses.field(default=0, kw_only=True)
    deciding: int = dataclasses.field(default=0, kw_only=True)

    def identity(self) -> str | list | dict:
        """Returns JSON values that identify the text, without reading the text."""
        return self.text

    def check(self, key: str) -> None:
        """Checks by the beginning of the text that its columns are sentences.

        Args:
          key: the config key of the template.

        Raises:
          ConfigError: if they are not; the message shows the columns, and how to choose.
        """

    def parts(self, size: int) -> list[Part]:
        """Divides the source into parts of about `size` bytes, in order.

        Raises:
          ConfigError: if the source cannot be read, or does not have a field that the template
            names.
        """
        return [Part(self, 0, 1, size)]

    def unsplittable(self, size: int) -> int:
        """Returns the size of the source in bytes if it exceeds `size` and cannot be split; else 0.

        One process must read such a source as a whole.
        """
        return 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        """Yields the raw text of the part [start, stop) in columns of equal length.

        Raises:
          ConfigError: if the text cannot be read.
        """
        raise NotImplementedError

    def place(self, start: int, before: int) -> str:
        """Describes the place of a line, for errors.

        Args:
          start: the start of the part that has the line.
          before: number of lines before the line in this part.
        """
        return self.text


@dataclasses.dataclass(frozen=True)
class FileSource(TextSource):
    """A file of lines: lines of text, or records with tabs or ` ||| ` between their texts.

    A local file is identified by its path, size and modification time. A URL is identified by the
    URL itself, and the size and version that the server reports (`storage.identity`).

    Attributes:
      paths: the file; `AlignedFiles` has one for each column.
    """

    paths: tuple[AnyPath, ...]

    def identity(self) -> str | list | dict:
        return [storage.identity(path) for path in self.paths]

    def parts(self, size: int) -> list[Part]:
        total = self._size()
        count = 1 if self.unsplittable(size) else max(1, round(total / size))
        cuts = [total * i // count for i in range(count + 1)]
        return [Part(self, a, b, b - a) for a, b in itertools.pairwise(cuts)]

    def unsplittable(self, size: int) -> int:
        total = self._size()
        return total if total > size and not files.can_be_split(self.paths[0]) else 0

    def check(self, key: str) -> None:
        choice = Choice((), f"{key}={self.text}#", "|")
        head = first_lines(self.paths[0])
        if len(self.columns) == 1:
            find_sentences(head, self.paths[0], choice, is_automatic=False)
        else:
            find_pairs(head, self.paths[0], choice, is_exact=True)

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        blocks = self._lines(start, stop, files.LINE_BYTES)
        if len(self.columns) == 1:
            yield from ((lines,) for lines in blocks)
            return
        rows = ((self._split(line) for line in lines) for lines in blocks)
        yield from _join_ranges(map(_to_block, rows))

    def _split(self, line: Line) -> Sequence[Line]:
        return _split_line(line, len(self.columns))

    def _lines(self, start: int, stop: int, longest: int) -> Iterator[list[Line]]:
        return files.range_blocks(self.paths[0], start, stop, longest)

    def place(self, start: int, before: int) -> str:
        return f"{self.paths[0]}: line {files.first_line(self.paths[0], start) + before}"

    def _size(self) -> int:
        return sum(map(storage.size, self.paths))


class ExchangedFile(FileSource):
    """A file of pairs whose columns have the languages in the other order."""

    def identity(self) -> str | list | dict:
        return [*super().identity(), "exchanged"]

    def _split(self, line: Line) -> Sequence[Line]:
        return super()._split(line)[::-1]


class AlignedFiles(FileSource):
    """Files that are aligned by line number, one for each column; one process reads all files."""

    def check(self, key: str) -> None:
        for path in self.paths:
            find_sentences(first_lines(path), path, Choice((), "cut -f"), is_automatic=False)

    def unsplittable(self, size: int) -> int:
        return self._size() if self._size() > size else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        for sides in _join_ranges(files.aligned_blocks(self.paths)):
            yield _to_block(zip(*sides, strict=True), may_be_empty=True)

    def place(self, start: int, before: int) -> str:
        return f"{' or '.join(map(str, self.paths))}: line {before + 1}"


@dataclasses.dataclass(frozen=True)
class FieldsOfFile(FileSource):
    """A file of records.

    Attributes:
      fields: the field of each column; in a TMX file, the language of each column.
    """

    fields: tuple[str, ...]

    def check(self, key: str) -> None:
        """Checks nothing, since the template names the fields."""

    def identity(self) -> str | list | dict:
        return [*super().identity(), self.fields]


class ColumnsOfFile(FieldsOfFile):
    """A file of lines with columns; the fields are numbers of columns, from 1."""

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        if len(self.columns) > 1:
            yield from super().blocks(start, stop)
            return
        for lines in self._lines(start, stop, files.LINE_BYTES):
            yield ([self._layout.text(line) for line in lines],)

    def _split(self, line: Line) -> Sequence[Line]:
        return _split_line(line, len(self.columns), self._layout)

    @functools.cached_property
    def _layout(self) -> Layout:
        return Choice(self.fields).layout((), self.text)


class JsonLines(FieldsOfFile):
    """JSON lines: string fields of objects, one object per line; null is read as an empty text."""

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        before = 0
        for lines in self._lines(start, stop, json_file.RECORD_BYTES):
            records: list[Sequence[Line]] = []
            for number, line in enumerate(lines, before):
                if isinstance(line, Malformed) or (line and not line.isspace()):
                    records.append(_check_record(self._record(line), number))
            before += len(lines)
            yield from _to_blocks(records, len(self.fields))

    def _record(self, line: Line) -> list[Line]:
        if isinstance(line, Malformed):
            return [line] * len(self.fields)
        try:
            record = json_file.parse(line, "this record")
        except ConfigError as error:
            return [Malformed("no JSON", f": {error}")] * len(self.fields)
        fields = [_get_field(record, field) for field in self.fields]
        if isinstance(line, Marked) and isinstance(fields[0], str):
            fields[0] = Marked(fields[0])
        return fields


class ParquetFile(FieldsOfFile):
    """A Parquet file: string columns, split at row groups; null is read as an empty text."""

    def parts(self, size: int) -> list[Part]:
        with self._open() as file:
            meta = file.metadata
            names = [meta.schema.column(i).path for i in range(meta.num_columns)]
            for field in self.fields:
                if field not in names:
                    raise ConfigError(
                        f"{self.paths[0]}: no column {field}; columns are {', '.join(names)}"
                    )
                kind = meta.schema.column(names.index(field)).logical_type
                if str(kind) != "String":
                    raise ConfigError(
                        f"{self.paths[0]}: column {field} must contain strings, not {kind}"
                    )
            columns = [names.index(field) for field in self.fields]
            sizes = []
            for group in map(meta.row_group, range(meta.num_row_groups)):
                sizes.append(sum(group.column(i).total_compressed_size for i in columns))
        return self._join_groups(sizes, size)

    def _join_groups(self, sizes: Sequence[int], size: int) -> list[Part]:
        """Returns parts of consecutive row groups.

        Args:
          sizes: of all row groups, in bytes.
          size: of a part, in bytes.
        """
        parts, start = [], 0
        for stop in range(1, len(sizes) + 1):
            if (total := sum(sizes[start:stop])) >= size or stop == len(sizes):
                parts.append(Part(self, start, stop, total))
                start = stop
        return parts

    def unsplittable(self, size: int) -> int:
        return 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        before = 0
        with self._open() as file:
            batches = file.iter_batches(
                BLOCK_LINES, range(start, stop), list(self.fields), use_threads=False
            )
            while True:
                with self._convert_errors("cannot read this file"):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    columns = [_column_of(batch, field) for field in self.fields]
                rows = enumerate(zip(*columns, strict=True), before)
                yield from _to_blocks(
                    [_check_record(row, number) for number, row in rows], len(columns)
                )
                before += len(columns[0])

    def place(self, start: int, before: int) -> str:
        with self._open() as file:
            groups = map(file.metadata.row_group, range(start))
            return f"{self.paths[0]}: row {sum(group.num_rows for group in groups) + before + 1}"

    def _open(self) -> Any:
        with self._convert_errors("cannot open this file as Parquet"):
            path = self.paths[0]
            if not storage.can_seek(path):
                raise OSError(
                    "its server does not support range requests, which Parquet needs; copy the "
                    "file to a local folder"
                )
            parquet = importlib.import_module("pyarrow.parquet")
            return parquet.ParquetFile(path if isinstance(path, Path) else path.open())

    @contextlib.contextmanager
    def _convert_errors(self, problem: str) -> Iterator[None]:
        """Converts exceptions of pyarrow to a `ConfigError` with the file and `problem`."""
        try:
            yield
        except ImportError as error:
            raise ConfigError(
                f"{self.paths[0]}: reading Parquet needs pyarrow ({error}); pip install pyarrow"
            ) from None
        except Exception as error:  # pyarrow raises many types, including Python's own
            reason = shortened(str(error))
            raise ConfigError(f"{self.paths[0]}: {problem} ({reason})") from None


class TmxFile(FieldsOfFile):
    """A TMX file: translation units in two languages; one process reads the whole file."""

    def unsplittable(self, size: int) -> int:
        return self._size() if self._size() > size else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        units = tmx.read(self.paths[0], self.fields)
        while block := list(itertools.islice(units, BLOCK_LINES)):
            yield _to_block((unit.source, unit.target) for unit in block)

    def place(self, start: int, before: int) -> str:
        return f"{self.paths[0]}: unit {before + 1}"


@dataclasses.dataclass(frozen=True)
class PhrasebookSource(TextSource):
    """The phrasebook, a synthetic corpus that is part of xlj.

    Attributes:
      name: a language or a pair.
    """

    name: str

    def identity(self) -> str | list | dict:
        return {"phrasebook": self.name, "version": phrasebook.VERSION}

    def parts(self, size: int) -> list[Part]:
        return [Part(self, 0, 1, 1 << 20)]

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        rows: Iterator[tuple[str, ...]] = (
            zip(phrasebook.text_lines(self.name))
            if len(self.columns) == 1
            else phrasebook.pair_lines(self.name)
        )
        while block := tuple(itertools.islice(rows, BLOCK_LINES)):
            yield tuple(zip(*block, strict=True))


@dataclasses.dataclass(frozen=True)
class SeqioSource(TextSource):
    """String features of the train split of a seqio Task or Mixture, or of a TFDS dataset.

    Each shard of the split is a part.

    Attributes:
      scheme: `seqio` or `tfds`.
      name: name of the Task, Mixture or dataset.
      fields: the feature of each column.
      modules: modules that register seqio Tasks.
    """

    scheme: str
    name: str
    fields: tuple[str, ...]
    modules: tuple[str, ...]

    def identity(self) -> str | list | dict:
        if self.scheme == "tfds":
            return self.text
        digests = {module: module_digest(module) for module in self.modules}
        return {"source": self.text, "modules": digests}

    def parts(self, size: int) -> list[Part]:
        return [Part(self, i, i + 1, size) for i in range(len(self._shards()))]

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        provider, shard = self._shards()[start]
        if self.scheme == "tfds":
            dataset = provider.get_dataset("train", shuffle=False, shard_info=shard)
        else:
            dataset = provider.get_dataset(
                sequence_length=None, split="train", shuffle=False, shard_info=shard
            )
        return _read_dataset(self.text, dataset, self.fields)

    def _shards(self) -> list[tuple[Any, Any]]:
        """Returns, for each part in order, the Task or dataset and the `ShardInfo`.

        The `ShardInfo` is None if there is only one shard. Each Task of a Mixture is read once. The
        rates of the Mixture are not used, because the config sets the sampling rates of training.
        """
        seqio, provider = import_quietly("seqio", self.text), self._provider()
        shards = []
        for task in getattr(provider, "tasks", [provider]):
            count = len(getattr(task, "source", task).list_shards("train"))
            shards += [
                (task, seqio.ShardInfo(i, count) if count > 1 else None) for i in range(count)
            ]
        return shards

    def _provider(self) -> Any:
        seqio = import_quietly("seqio", self.text)
        if self.scheme == "tfds":
            try:
                source = seqio.TfdsDataSource(tfds_name=self.name, splits=["train"])
                source.list_shards("train")
            except Exception as error:  # TFDS raises many types of errors
                raise ConfigError(f"{self.text}: TFDS cannot load it ({error})") from error
            return source
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ConfigError(
                    f"data.seqio_modules={module}: cannot import this module ({error})"
                ) from error
        try:
            return seqio.get_mixture_or_task(self.name)
        except ValueError as error:
            raise ConfigError(
                f"{self.text}: no seqio Task of this name is registered; set data.seqio_modules to "
                f"the module that registers it ({error})"
            ) from error


def module_digest(module: str, key: str = "data.seqio_modules") -> str:
    """Returns the sha256 of a module's file, as hex digits.

    The module and the packages that contain it are not imported.

    Args:
      module: the full name of the module, with dots.
      key: the config key that names the module, for the error.

    Raises:
      ConfigError: if the module does not exist.
    """
    search_path: Sequence[str] | None = None
    spec = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, search_path)
        search_path = spec.submodule_search_locations if spec else None
    if spec is None or not spec.origin:
        raise ConfigError(f"{key}={module}: no such module on {sys.path}; set PYTHONPATH")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def open_sources(text: str, columns: tuple[str, ...], data: Data, key: str) -> list[TextSource]:
    """Returns the sources that a filled template names; an empty list if none exists.

    If a wildcard matches several files, the sources are sorted by file name.

    Args:
      text: the filled template.
      columns: names of the columns.
      data: the `data` section of the config.
      key: the config key of the template, for errors.

    Raises:
      ConfigError: if the template is invalid, only some of the aligned files exist, or a file has a
        format that is not supported.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "phrasebook":
        sides = (rest,) if len(columns) == 1 else split_pair(rest, tuple(phrasebook.LANGUAGES))
        is_known = set(sides) <= set(phrasebook.LANGUAGES) and len(sides) == len(columns)
        return [PhrasebookSource(text, columns, rest)] if is_known else []
    if scheme in ("tfds", "seqio"):
        name, fields = _split_fields(text, rest, columns, key)
        modules = data.seqio_modules if scheme == "seqio" else ()
        return [SeqioSource(text, columns, scheme, name, fields, modules)]
    return _open_files(text, columns, key)


def open_exchanged(text: str, find: Callable[[str], list[TextSource]]) -> list[TextSource]:
    """Returns the sources of pairs that a filled template names, with exchanged sides.

    Args:
      find: returns the sources of a filled template.
    """
    name, sign, fields = text.partition("#")
    if sign:
        return find(f"{name}#{'|'.join(reversed(fields.split('|')))}")
    if "|" in text:
        return find("|".join(reversed(text.split("|"))))
    sources = [source for source in find(text) if isinstance(source, FileSource)]
    return [ExchangedFile(text, source.columns, source.paths) for source in sources]


def _split_fields(
    text: str, rest: str, columns: tuple[str, ...], key: str
) -> tuple[str, tuple[str, ...]]:
    name, _, fields = rest.partition("#")
    parts = tuple(fields.split("|"))
    if not name or len(parts) != len(columns) or not all(parts):
        shape = _shape(columns)
        raise ConfigError(f"{key}={text}: expected the form {text.partition('#')[0]}{shape}")
    return name, parts


def _shape(columns: tuple[str, ...]) -> str:
    """Returns how a template names the fields of its columns."""
    return "#" + "|".join(["FIELD"] * len(columns))


def _open_files(text: str, columns: tuple[str, ...], key: str) -> list[TextSource]:
    if "#" in text:
        name, fields = _split_fields(text, text, columns, key)
        sources: list[TextSource] = []
        for path in storage.find_files(name):
            ending = ending_of(path)
            if ending == ".parquet" and path.suffix == ending:
                sources.append(ParquetFile(text, columns, (path,), fields))
            elif ending in JSON_ENDINGS:
                sources.append(JsonLines(text, columns, (path,), fields))
            elif ending == ".tmx" and len(columns) == 2:
                sources.append(TmxFile(text, columns, (path,), fields))
            elif not Choice(fields).are_numbers:
                raise ConfigError(
                    f"{path}: {key}={text} has a part after #, which is only for .jsonl and "
                    ".parquet files (fields), .tmx files of pairs (languages) and numbers of "
                    "columns; correct or remove it"
                )
            else:
                sources.append(ColumnsOfFile(text, columns, (path,), fields))
        return sources
    sides = [storage.find_files(side) for side in text.split("|")]
    if len(sides) not in (1, len(columns)):
        allowed = "one file" if len(columns) == 1 else f"one TSV file or {len(columns)} files"
        raise ConfigError(f"{key}={text}: a template of this key must name {allowed}")
    if any(sides) and not all(sides):
        missing = text.split("|")[[bool(side) for side in sides].index(False)]
        raise ConfigError(
            f"{key}={text}: {missing} is missing, but the file of the other side exists"
        )
    if len({len(side) for side in sides}) > 1:
        counts = " and ".join(f"{len(side)} files" for side in sides)
        raise ConfigError(
            f"{key}={text}: the two sides match {counts}; each file must have a file of the other "
            "side"
        )
    for path in itertools.chain.from_iterable(sides):
        if ending_of(path) in (".parquet", *JSON_ENDINGS):
            raise ConfigError(
                f"{path}: set the field that contains the text, such as "
                f"{key}={text}{_shape(columns)}"
            )
        if ending_of(path) == ".tmx":
            raise ConfigError(
                f"{path}: set the languages to read, such as {key}={text}#SOURCE|TARGET"
            )
        # Some files of pairs end in .csv, but have tabs between columns.
        formats.refuse(path, readable=("CSV",) if len(columns) > 1 else ())
    kind = AlignedFiles if len(sides) > 1 else FileSource
    return [kind(text, columns, paths) for paths in zip(*sides, strict=True)]


def ending_of(path: AnyPath) -> str:
    """Returns the ending of a file name without compression: `.jsonl` for `a.jsonl.gz`."""
    return (path.with_suffix("") if path.suffix in compressed.ENDINGS else path).suffix


def _get_field(record: Any, field: str) -> Line:
    """Returns the text of a field; dots in the name of the field separate nested objects."""
    for name in field.split("."):
        if not isinstance(record, dict) or name not in record:
            return Malformed("missing field", f" has no field {field}")
        record = record[name]
    if record is not None and not isinstance(record, str):
        return Malformed("field that is no text", f": field {field} is not a string")
    return INVALID_UTF8 if record and not json_file.is_text(record) else record or ""


def _split_line(line: Line, columns: int, layout: Layout = WHOLE_LINES) -> Sequence[Line]:
    """Splits a line at tabs or `|||` into the texts of a record.

    Args:
      layout: the columns of the texts; by default, the line must have these columns only.
    """
    if isinstance(line, Malformed):
        return [line] * columns
    split_texts = split(line)
    texts = layout.texts(split_texts) if layout.indices else split_texts
    if texts is None or len(texts) != columns:
        expected = "a line must be two sentences with one tab (or one |||) between them"
        if layout.indices:
            expected = f"the template names the columns {Choice((), '', ', ').of(layout.indices)}"
        elif columns > 2:
            expected = f"a line must be {columns} texts with tabs (or |||) between them"
        separators = "tabs" if "\t" in line or len(split_texts) == 1 else "separators |||"
        problem = f" has {len(split_texts) - 1} {separators}; {expected}"
        bad = Malformed("wrong number of columns", problem)
        return [
            bad if line.strip() else Malformed("blank line", f" is blank; {expected}")
        ] * columns
    sides: list[Line] = [*texts]
    if isinstance(line, Marked):
        sides[0] = Marked(sides[0])
    return sides


def _join_ranges(blocks: Iterable[RawBlock]) -> Iterator[RawBlock]:
    """Joins records with `<range>` to those before (`columns.join_ranges`); other blocks do not
    change."""
    held: RawBlock | None = None
    for block in blocks:
        if any(RANGE in column for column in block):
            rows = [*zip(*(held or [[]] * len(block)), strict=True), *zip(*block, strict=True)]
            block = tuple(zip(*join_ranges(rows), strict=True))
        elif held is not None:
            yield held
        held = block
    if held is not None:
        yield held


def _check_record(
    record: Sequence[Line], before: int = -1, may_be_empty: bool = False
) -> Sequence[Line]:
    """Returns a record, or a `Malformed` for each column if the record is malformed.

    A record is malformed if one of its texts is malformed or contains NUL, or if one of several
    texts is blank.

    Args:
      record: the text of each column.
      before: the value of `Malformed.before` for a malformed record.
      may_be_empty: whether a record whose texts are all blank is valid.
    """
    texts = [text for text in record if isinstance(text, str)]
    bad = next((text for text in record if isinstance(text, Malformed)), None)
    if bad is None and any("\0" in text for text in texts):
        bad = NUL
    if bad is None and len(record) > 1:
        blank = [not text or text.isspace() for text in texts]
        if any(blank) and not (may_be_empty and all(blank)):
            bad = Malformed("blank side", " has a blank side")
    return record if bad is None else [dataclasses.replace(bad, before=before)] * len(record)


def _to_block(records: Iterable[Sequence[Line]], may_be_empty: bool = False) -> RawBlock:
    """Checks records (`_check_record`) and converts them to columns."""
    checked = (_check_record(record, may_be_empty=may_be_empty) for record in records)
    return tuple(zip(*checked, strict=True))


def _to_blocks(records: Sequence[Sequence[Line]], columns: int) -> Iterator[RawBlock]:
    """Converts records to at most one block.

    With one column, each record is a document; line feeds separate its lines. An empty line after
    each document ends it.
    """
    if columns > 1:
        if records:
            yield tuple(zip(*records, strict=True))
        return
    lines: list[Line] = []
    for (document,) in records:
        lines += [document] if isinstance(document, Malformed) else document.split("\n")
        if isinstance(document, Marked):
            lines[-1 - document.count("\n")] = Marked(document.partition("\n")[0])
        lines.append("")
    yield (lines,)


def _column_of(batch: Any, field: str) -> list[Line]:
    """Returns a column of strings of a pyarrow batch; nested fields have dots in their names."""
    array: Any = batch
    for name in field.split("."):
        array = array.column(name) if array is batch else array.field(name)
    try:
        return [text or "" for text in array.to_pylist()]
    except UnicodeDecodeError:
        plain = array.dictionary_decode() if hasattr(array, "dictionary_decode") else array
        return [files.decode(value or b"") for value in plain.cast("large_binary").to_pylist()]


def _read_dataset(text: str, dataset: Any, fields: tuple[str, ...]) -> Iterator[RawBlock]:
    """Yields string features of a tf.data dataset in blocks.

    With one field, each example is a document.
    """
    import tensorflow as tf

    def pick(example: Any, field: str) -> Any:
        for name in field.split("."):
            if not isinstance(example, dict) or name not in example:
                raise ConfigError(f"{text}: no field {field}; fields are {spec}")
            example = example[name]
        return example

    spec = dataset.element_spec
    for field in fields:
        feature = pick(spec, field)
        if getattr(feature, "dtype", None) != tf.string or feature.shape.rank != 0:
            raise ConfigError(f"{text}: field {field} must be a string, not {feature}")
    batches = dataset.map(lambda example: tuple(pick(example, f) for f in fields)).batch(1024)
    for batch in batches.as_numpy_iterator():
        columns = [[files.decode(value) for value in column] for column in batch]
        yield from _to_blocks(
            [_check_record(row) for row in zip(*columns, strict=True)], len(columns)
        )
