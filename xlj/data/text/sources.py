"""Sources of text: files of lines, JSON, Parquet or TMX, the phrasebook, TFDS and seqio.

A source is identified by facts that need no reading, such as sizes, and divided into parts. Each
part is read by one process. `blocks` yields text in columns: `(lines,)` for monolingual text, where
an empty line ends a document, or `(first side, second side)` for pairs. A `Malformed` replaces a
record that cannot be read, on both sides of a pair.
TensorFlow, seqio, TFDS and pyarrow are imported only when a source that needs them is read.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.machinery
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from xlj import phrasebook
from xlj.config import ConfigError, Data
from xlj.data.text.templates import split_pair
from xlj.io import compressed, files, formats, json_file, storage, tmx
from xlj.io.malformed import INVALID_UTF8, NUL, Line, Malformed, Marked
from xlj.io.quiet import import_quietly
from xlj.io.quoting import shortened
from xlj.io.storage import AnyPath

BLOCK_LINES = 4096

RawBlock = tuple[Sequence[Line], ...]

_RECORDS = (".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a source; small enough to send to workers.

    Attributes:
      start, stop: its range, in units of the source (bytes, row groups, shards).
      size: bytes.
    """

    source: "TextSource"
    start: int
    stop: int
    size: int

    def blocks(self) -> Iterator[RawBlock]:
        """Yields the raw text in columns of equal length.

        Raises:
          ConfigError: if it cannot be read.
        """
        return self.source.blocks(self.start, self.stop)


@dataclasses.dataclass(frozen=True)
class TextSource:
    """The text that a filled template names for one language or pair.

    Attributes:
      text: the filled template, for errors.
      columns: 1 for a language, 2 for a pair.
    """

    text: str
    columns: int

    def identity(self) -> str | list | dict:
        """Returns facts that identify the text without reading it, as JSON values."""
        return self.text

    def parts(self, size: int) -> list[Part]:
        """Divides the source into parts of about `size` bytes, in order.

        Raises:
          ConfigError: if it cannot be read, or lacks a field.
        """
        return [Part(self, 0, 1, size)]

    def unsplittable(self, size: int) -> int:
        """Returns the bytes of a source that is larger than `size` but cannot be split; else 0."""
        return 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        """See `Part.blocks`."""
        raise NotImplementedError

    def place(self, start: int, before: int) -> str:
        """Describes the place of a line, from the lines before it in the part at `start`."""
        return self.text


@dataclasses.dataclass(frozen=True)
class FileSource(TextSource):
    """Lines of text, or of tab-separated pairs, in files.

    Files are identified by their paths, sizes and times, or by the ETags of servers.
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
        return total if total > size and not files.can_be_split(self.paths[0], size) else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        for lines in self._lines(start, stop, files.LINE_BYTES):
            yield (lines,) if self.columns == 1 else _block(map(_sides, lines))

    def _lines(self, start: int, stop: int, longest: int) -> Iterator[list[Line]]:
        return files.range_blocks(self.paths[0], start, stop, longest)

    def place(self, start: int, before: int) -> str:
        return f"{self.paths[0]}: line {files.first_line(self.paths[0], start) + before}"

    def _size(self) -> int:
        return sum(map(storage.size, self.paths))


class AlignedFiles(FileSource):
    """Pairs in two files, where line n translates line n; one process reads both files."""

    def unsplittable(self, size: int) -> int:
        return self._size() if self._size() > size else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        for sides in files.aligned_blocks(self.paths):
            yield _block(zip(*sides, strict=True), may_be_empty=True)

    def place(self, start: int, before: int) -> str:
        return f"{' or '.join(map(str, self.paths))}: line {before + 1}"


@dataclasses.dataclass(frozen=True)
class FieldsOfFile(FileSource):
    """Named fields of files."""

    fields: tuple[str, ...]

    def identity(self) -> str | list | dict:
        return [*super().identity(), self.fields]


class JsonLines(FieldsOfFile):
    """String fields of objects, one object per line; null is an empty text."""

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        before = 0
        for lines in self._lines(start, stop, json_file.RECORD_BYTES):
            records: list[Sequence[Line]] = []
            for number, line in enumerate(lines, before):
                if isinstance(line, Malformed) or (line and not line.isspace()):
                    records.append(_whole(self._record(line), number))
            before += len(lines)
            yield from _records(records, len(self.fields))

    def _record(self, line: Line) -> list[Line]:
        if isinstance(line, Malformed):
            return [line] * len(self.fields)
        try:
            record = json_file.parse(line, "this record")
        except ConfigError as error:
            return [Malformed("no JSON", f": {error}")] * len(self.fields)
        fields = [_field(record, field) for field in self.fields]
        if isinstance(line, Marked) and isinstance(fields[0], str):
            fields[0] = Marked(fields[0])
        return fields


class ParquetFile(FieldsOfFile):
    """String columns of a Parquet file, split at row groups; null is an empty text."""

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
                with self._convert_errors("cannot read the file"):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    columns = [_strings(batch, field) for field in self.fields]
                rows = enumerate(zip(*columns, strict=True), before)
                yield from _records([_whole(row, number) for number, row in rows], len(columns))
                before += len(columns[0])

    def place(self, start: int, before: int) -> str:
        with self._open() as file:
            groups = map(file.metadata.row_group, range(start))
            return f"{self.paths[0]}: row {sum(group.num_rows for group in groups) + before + 1}"

    def _open(self) -> Any:
        with self._convert_errors("not a Parquet file"):
            path = self.paths[0]
            if not storage.can_seek(path):
                raise OSError(
                    "its server does not support range requests, which Parquet needs; copy the file"
                )
            parquet = importlib.import_module("pyarrow.parquet")
            return parquet.ParquetFile(path if isinstance(path, Path) else path.open())

    @contextlib.contextmanager
    def _convert_errors(self, problem: str) -> Iterator[None]:
        """Converts the exceptions of pyarrow on a damaged file to a `ConfigError`."""
        try:
            yield
        except ImportError as error:
            raise ConfigError(f"{self.paths[0]}: reading Parquet needs pyarrow ({error})") from None
        except Exception as error:  # pyarrow raises many types, including Python's own
            reason = shortened(str(error))
            raise ConfigError(f"{self.paths[0]}: {problem} ({reason})") from None


class TmxFile(FieldsOfFile):
    """The units of a translation memory in two languages; one process reads the whole file."""

    def unsplittable(self, size: int) -> int:
        return self._size() if self._size() > size else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        units = tmx.read(self.paths[0], self.fields)
        while block := list(itertools.islice(units, BLOCK_LINES)):
            yield _block((unit.source, unit.target) for unit in block)

    def place(self, start: int, before: int) -> str:
        return f"{self.paths[0]}: unit {before + 1}"


@dataclasses.dataclass(frozen=True)
class PhrasebookSource(TextSource):
    """The small corpus in the package; `name` is a language or a pair."""

    name: str

    def identity(self) -> str | list | dict:
        return {"phrasebook": self.name, "version": phrasebook.VERSION}

    def parts(self, size: int) -> list[Part]:
        return [Part(self, 0, 1, 1 << 20)]

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        rows: Iterator[tuple[str, ...]] = (
            zip(phrasebook.text_lines(self.name))
            if self.columns == 1
            else phrasebook.pair_lines(self.name)
        )
        while block := tuple(itertools.islice(rows, BLOCK_LINES)):
            yield tuple(zip(*block, strict=True))


@dataclasses.dataclass(frozen=True)
class SeqioSource(TextSource):
    """String features of a registered seqio Task or Mixture, or of a TensorFlow dataset.

    Reads the train split. Parts are its shards, if it has any.

    Attributes:
      scheme: `seqio` or `tfds`.
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
        return _dataset_blocks(self.text, dataset, self.fields)

    def _shards(self) -> list[tuple[Any, Any]]:
        """Returns (Task or dataset, shard) in reading order.

        Each Task of a Mixture is read once: a Mixture repeats without end, and sampling rates are
        set by training.
        """
        seqio, provider = import_quietly("seqio", self.text), self._provider()
        shards = []
        for one in getattr(provider, "tasks", [provider]):
            count = len(getattr(one, "source", one).list_shards("train"))
            shards += [
                (one, seqio.ShardInfo(i, count) if count > 1 else None) for i in range(count)
            ]
        return shards

    def _provider(self) -> Any:
        seqio = import_quietly("seqio", self.text)
        if self.scheme == "tfds":
            try:
                source = seqio.TfdsDataSource(tfds_name=self.name, splits=["train"])
                source.list_shards("train")
            except Exception as error:  # TFDS raises many kinds
                raise ConfigError(f"{self.text}: TFDS cannot load it ({error})") from error
            return source
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ConfigError(f"data.seqio_modules={module}: {error}") from error
        try:
            return seqio.get_mixture_or_task(self.name)
        except ValueError as error:
            raise ConfigError(
                f"{self.text}: no seqio Task of this name is registered; set data.seqio_modules to "
                f"the module that registers it ({error})"
            ) from error


def module_digest(module: str, key: str = "data.seqio_modules") -> str:
    """Computes the sha256 of a module's file without importing it or its packages.

    Raises:
      ConfigError: if the module does not exist; the message names `key`.
    """
    where: Sequence[str] | None = None
    spec = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        where = spec.submodule_search_locations if spec else None
    if spec is None or not spec.origin:
        raise ConfigError(f"{key}={module}: no such module on {sys.path}")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def open_sources(text: str, columns: int, data: Data, key: str) -> list[TextSource]:
    """Opens the sources that a filled template names; returns none if they do not exist.

    Files are sorted by name.

    Args:
      columns: 1 for monolingual text, 2 for pairs.
      key: the key of the template, for errors.

    Raises:
      ConfigError: if the template is invalid, or one side of two files is missing.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "phrasebook":
        sides = (rest,) if columns == 1 else split_pair(rest, tuple(phrasebook.LANGUAGES))
        is_known = set(sides) <= set(phrasebook.LANGUAGES)
        return [PhrasebookSource(text, columns, rest)] if is_known else []
    if scheme in ("tfds", "seqio"):
        name, fields = _with_fields(text, rest, columns, key)
        modules = data.seqio_modules if scheme == "seqio" else ()
        return [SeqioSource(text, columns, scheme, name, fields, modules)]
    return _open_files(text, columns, key)


def _with_fields(text: str, rest: str, columns: int, key: str) -> tuple[str, tuple[str, ...]]:
    name, _, fields = rest.partition("#")
    parts = tuple(fields.split("|"))
    if not name or len(parts) != columns or not all(parts):
        shape = "#FIELD" if columns == 1 else "#FIELD|FIELD"
        raise ConfigError(f"{key}={text}: expected the form {text.partition('#')[0]}{shape}")
    return name, parts


def _open_files(text: str, columns: int, key: str) -> list[TextSource]:
    if "#" in text:
        name, fields = _with_fields(text, text, columns, key)
        sources: list[TextSource] = []
        for path in storage.find_files(name):
            ending = _ending(path)
            if ending == ".parquet" and path.suffix == ending:
                sources.append(ParquetFile(text, columns, (path,), fields))
            elif ending in _RECORDS:
                sources.append(JsonLines(text, columns, (path,), fields))
            elif ending == ".tmx" and columns == 2:
                sources.append(TmxFile(text, columns, (path,), fields))
            else:
                raise ConfigError(
                    f"{path}: {key}={text} names fields, which only .jsonl and .parquet files have "
                    "(or languages of pairs, in .tmx files)"
                )
        return sources
    sides = [storage.find_files(side) for side in text.split("|")]
    if len(sides) > columns:
        allowed = "one file" if columns == 1 else "one TSV file or two files"
        raise ConfigError(f"{key}={text}: it must name {allowed}")
    if any(sides) and not all(sides):
        missing = text.split("|")[[bool(side) for side in sides].index(False)]
        raise ConfigError(f"{key}={text}: {missing} is missing, but its other side exists")
    if len({len(side) for side in sides}) > 1:
        counts = " and ".join(f"{len(side)} files" for side in sides)
        raise ConfigError(
            f"{key}={text}: the two sides match {counts}; each file needs its other side"
        )
    for path in itertools.chain.from_iterable(sides):
        if _ending(path) in (".parquet", *_RECORDS):
            shape = "#FIELD" if columns == 1 else "#FIELD|FIELD"
            raise ConfigError(
                f"{path}: set the field that contains the text, such as {key}={text}{shape}"
            )
        if _ending(path) == ".tmx":
            raise ConfigError(
                f"{path}: set the languages to read, such as {key}={text}#SOURCE|TARGET"
            )
        formats.refuse(path, readable=("CSV",) if columns == 2 else ())  # .csv may be a TSV file
    kind = AlignedFiles if len(sides) == 2 else FileSource
    return [kind(text, columns, paths) for paths in zip(*sides, strict=True)]


def _ending(path: AnyPath) -> str:
    """Returns the ending of a file name, without that of compression."""
    return (path.with_suffix("") if path.suffix in compressed.ENDINGS else path).suffix


def _field(record: Any, field: str) -> Line:
    """Returns the text at a dotted path of names in an object."""
    for name in field.split("."):
        if not isinstance(record, dict) or name not in record:
            return Malformed("missing field", f" has no field {field}")
        record = record[name]
    if record is not None and not isinstance(record, str):
        return Malformed("field that is no text", f": field {field} is not a string")
    return INVALID_UTF8 if record and not json_file.is_text(record) else record or ""


def _sides(line: Line) -> Sequence[Line]:
    """Splits a line of a table into two sentences."""
    if isinstance(line, Malformed):
        return line, line
    sides: list[Line] = [*formats.split_columns(line)]
    if len(sides) != 2:
        expected = "a line must be two sentences with one tab between them"
        bad = Malformed("wrong number of columns", f" has {len(sides) - 1} tabs; {expected}")
        return [bad if line.strip() else Malformed("blank line", f" is blank; {expected}")] * 2
    if isinstance(line, Marked):
        sides[0] = Marked(sides[0])
    return sides


def _whole(record: Sequence[Line], before: int = -1, may_be_empty: bool = False) -> Sequence[Line]:
    """Returns a record, or a `Malformed` in each column if the record is malformed.

    A record is malformed if one of its texts is, contains NUL, or is the blank side of a pair.

    Args:
      before: as in `Malformed`.
      may_be_empty: whether both sides may be blank.
    """
    texts = [text for text in record if isinstance(text, str)]
    bad = next((text for text in record if isinstance(text, Malformed)), None)
    if bad is None and any("\0" in text for text in texts):
        bad = NUL
    if bad is None and len(record) == 2:
        blank = [not text or text.isspace() for text in texts]
        if any(blank) and not (may_be_empty and all(blank)):
            bad = Malformed("blank side", " has a blank side")
    return record if bad is None else [dataclasses.replace(bad, before=before)] * len(record)


def _block(pairs: Iterable[Sequence[Line]], may_be_empty: bool = False) -> RawBlock:
    """Converts pairs to columns."""
    whole = (_whole(pair, may_be_empty=may_be_empty) for pair in pairs)
    return tuple(zip(*whole, strict=True))


def _records(records: Sequence[Sequence[Line]], columns: int) -> Iterator[RawBlock]:
    """Converts records to a block.

    With one column, each record is a document, whose line feeds end its lines.
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


def _strings(batch: Any, field: str) -> list[Line]:
    """Returns a column of strings of a pyarrow batch; dots separate nested fields."""
    array: Any = batch
    for name in field.split("."):
        array = array.column(name) if array is batch else array.field(name)
    try:
        return [text or "" for text in array.to_pylist()]
    except UnicodeDecodeError:
        plain = array.dictionary_decode() if hasattr(array, "dictionary_decode") else array
        return [files.decode(value or b"") for value in plain.cast("large_binary").to_pylist()]


def _dataset_blocks(text: str, dataset: Any, fields: tuple[str, ...]) -> Iterator[RawBlock]:
    """Reads string features of a tf.data dataset; with one column, each text is a document."""
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
        yield from _records([_whole(row) for row in zip(*columns, strict=True)], len(columns))
