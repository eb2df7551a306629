"""Sources of text: files of lines, JSON, Parquet or TMX, the phrasebook, TFDS and seqio.

A source is known by what can be told without reading it, and cut into parts, each of which some
process reads by itself: `blocks` yields text in columns, `(lines,)` of monolingual text, where an
empty line ends a document, or `(first side, second side)` of pairs; a `Malformed` stands for a
record that cannot be read, on both sides of a pair.
TensorFlow, seqio, TFDS and pyarrow are imported only when a source of theirs is read.
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
    """A part of a source, from `start` to `stop` in whatever the source counts, and its size in
    bytes; small, so that workers can be sent it."""

    source: "TextSource"
    start: int
    stop: int
    size: int

    def blocks(self) -> Iterator[RawBlock]:
        """The text as it comes, in columns of equal length; a `ConfigError` if it cannot be
        read."""
        return self.source.blocks(self.start, self.stop)


@dataclasses.dataclass(frozen=True)
class TextSource:
    """What a filled template names for one language or pair: `text`, for errors; `columns` are 1
    for a language, 2 for a pair."""

    text: str
    columns: int

    def identity(self) -> str | list | dict:
        """Whatever tells the text from another without reading it, as JSON values."""
        return self.text

    def parts(self, size: int) -> list[Part]:
        """The source in parts of about so many bytes, in order.

        Raises:
          ConfigError: if it cannot be read, or has no such fields.
        """
        return [Part(self, 0, 1, size)]

    def uncut(self, size: int) -> int:
        """Bytes of the source if one process must read it all, although it is larger than `size`;
        else 0."""
        return 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        """See `Part.blocks`."""
        raise NotImplementedError

    def place(self, start: int, before: int) -> str:
        """Where a line stands that has so many before it in the part from `start`, for errors."""
        return self.text


@dataclasses.dataclass(frozen=True)
class FileSource(TextSource):
    """Files, known by their paths, sizes and times, or servers' tags of them; lines of text, or of
    tab-separated pairs."""

    paths: tuple[AnyPath, ...]

    def identity(self) -> str | list | dict:
        return [storage.identity(path) for path in self.paths]

    def parts(self, size: int) -> list[Part]:
        total = self._size()
        count = 1 if self.uncut(size) else max(1, round(total / size))
        cuts = [total * i // count for i in range(count + 1)]
        return [Part(self, a, b, b - a) for a, b in itertools.pairwise(cuts)]

    def uncut(self, size: int) -> int:
        total = self._size()
        return total if total > size and not files.can_be_cut(self.paths[0], size) else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        for lines in self._lines(start, stop, files.LINE_BYTES):
            yield (lines,) if self.columns == 1 else _block(map(_sides, lines))

    def _lines(self, start: int, stop: int, longest: int) -> Iterator[list[Line]]:
        return files.stretch(self.paths[0], start, stop, longest)

    def place(self, start: int, before: int) -> str:
        return f"{self.paths[0]}: line {files.first_line(self.paths[0], start) + before}"

    def _size(self) -> int:
        return sum(map(storage.size, self.paths))


class AlignedFiles(FileSource):
    """Pairs of two files of which line n translates line n: one process reads both to the end."""

    def uncut(self, size: int) -> int:
        return self._size() if self._size() > size else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        for sides in files.aligned_blocks(self.paths):
            yield _block(zip(*sides, strict=True), may_be_empty=True)

    def place(self, start: int, before: int) -> str:
        return f"{' or '.join(map(str, self.paths))}: line {before + 1}"


@dataclasses.dataclass(frozen=True)
class FieldsOfFile(FileSource):
    """Some of what a file holds, by name."""

    fields: tuple[str, ...]

    def identity(self) -> str | list | dict:
        return [*super().identity(), self.fields]


class JsonLines(FieldsOfFile):
    """String fields of the objects of a file, one a line; null is an empty text."""

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
        found = [_field(record, field) for field in self.fields]
        if isinstance(line, Marked) and isinstance(found[0], str):
            found[0] = Marked(found[0])
        return found


class ParquetFile(FieldsOfFile):
    """String columns of a Parquet file, of which parts are row groups; null is an empty text."""

    def parts(self, size: int) -> list[Part]:
        with self._open() as file:
            meta = file.metadata
            names = [meta.schema.column(i).path for i in range(meta.num_columns)]
            for field in self.fields:
                if field not in names:
                    raise ConfigError(
                        f"{self.paths[0]}: there is no column {field}; there are {', '.join(names)}"
                    )
                kind = meta.schema.column(names.index(field)).logical_type
                if str(kind) != "String":
                    raise ConfigError(f"{self.paths[0]}: column {field} is no text but {kind}")
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

    def uncut(self, size: int) -> int:
        return 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        before = 0
        with self._open() as file:
            batches = file.iter_batches(
                BLOCK_LINES, range(start, stop), list(self.fields), use_threads=False
            )
            while True:
                with self._readable("cannot read it to the end"):
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
        with self._readable("it is no Parquet file"):
            path = self.paths[0]
            if not storage.can_seek(path):
                raise OSError("its server knows no ranges, which reading Parquet needs; copy it")
            parquet = importlib.import_module("pyarrow.parquet")
            return parquet.ParquetFile(path if isinstance(path, Path) else path.open())

    @contextlib.contextmanager
    def _readable(self, problem: str) -> Iterator[None]:
        """Turns what pyarrow raises of a damaged file into a line."""
        try:
            yield
        except ImportError as error:
            raise ConfigError(f"{self.paths[0]}: reading Parquet needs pyarrow ({error})") from None
        except Exception as error:  # it has a dozen kinds, some of which are Python's own
            said = shortened(str(error))
            raise ConfigError(f"{self.paths[0]}: {problem} ({said})") from None


class TmxFile(FieldsOfFile):
    """The units of a translation memory in two languages; one process reads it to the end."""

    def uncut(self, size: int) -> int:
        return self._size() if self._size() > size else 0

    def blocks(self, start: int, stop: int) -> Iterator[RawBlock]:
        units = tmx.read(self.paths[0], self.fields)
        while block := list(itertools.islice(units, BLOCK_LINES)):
            yield _block((unit.source, unit.target) for unit in block)

    def place(self, start: int, before: int) -> str:
        return f"{self.paths[0]}: unit {before + 1}"


@dataclasses.dataclass(frozen=True)
class PhrasebookSource(TextSource):
    """The small corpus inside the package; `name` is a language or a pair."""

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
    """String features of the train split of a registered seqio Task or Mixture, or of a
    TensorFlow dataset (`scheme` is `seqio` or `tfds`); parts are its shards, if it has any."""

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
        """What is read, in order: a Task or a dataset, and a shard of it. Of a Mixture it is each
        of its Tasks once, since it has no end itself, and rates are those of training."""
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
                f"{self.text}: no seqio Task of this name is registered; name the module that "
                f"registers it in data.seqio_modules ({error})"
            ) from error


def module_digest(module: str, key: str = "data.seqio_modules") -> str:
    """sha256 of a module's file, found without importing it or the packages around it; a
    `ConfigError` that names `key` if there is none."""
    where: Sequence[str] | None = None
    spec = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        where = spec.submodule_search_locations if spec else None
    if spec is None or not spec.origin:
        raise ConfigError(f"{key}={module}: there is no such module on {sys.path}")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def open_sources(text: str, columns: int, data: Data, key: str) -> list[TextSource]:
    """The sources that a filled template names, files in the order of their names; none if they are
    not there.

    Args:
      columns: 1 for monolingual text, 2 for pairs.
      key: of the template, for errors.

    Raises:
      ConfigError: if it cannot be read as a template, or one side of two files is missing.
    """
    scheme, _, rest = text.partition(":")
    if scheme == "phrasebook":
        sides = (rest,) if columns == 1 else split_pair(rest, tuple(phrasebook.LANGUAGES))
        there = set(sides) <= set(phrasebook.LANGUAGES)
        return [PhrasebookSource(text, columns, rest)] if there else []
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
        raise ConfigError(f"{key}={text}: it must look like {text.partition('#')[0]}{shape}")
    return name, parts


def _open_files(text: str, columns: int, key: str) -> list[TextSource]:
    if "#" in text:
        name, fields = _with_fields(text, text, columns, key)
        found: list[TextSource] = []
        for path in storage.matching(name):
            ending = _ending(path)
            if ending == ".parquet" and path.suffix == ending:
                found.append(ParquetFile(text, columns, (path,), fields))
            elif ending in _RECORDS:
                found.append(JsonLines(text, columns, (path,), fields))
            elif ending == ".tmx" and columns == 2:
                found.append(TmxFile(text, columns, (path,), fields))
            else:
                raise ConfigError(
                    f"{path}: fields ({key}={text}) are of .jsonl or .parquet files; languages, of "
                    "pairs in .tmx files"
                )
        return found
    sides = [storage.matching(side) for side in text.split("|")]
    if len(sides) > columns:
        allowed = "one file" if columns == 1 else "one TSV file or two files"
        raise ConfigError(f"{key}={text}: it must name {allowed}")
    if any(sides) and not all(sides):
        missing = text.split("|")[[bool(side) for side in sides].index(False)]
        raise ConfigError(f"{key}={text}: {missing} is missing, though its other side is there")
    if len({len(side) for side in sides}) > 1:
        counts = " and ".join(f"{len(side)} files" for side in sides)
        raise ConfigError(f"{key}={text}: its two sides are {counts}; each needs its other side")
    for path in itertools.chain.from_iterable(sides):
        if _ending(path) in (".parquet", *_RECORDS):
            shape = "#FIELD" if columns == 1 else "#FIELD|FIELD"
            raise ConfigError(f"{path}: say which field holds the text: {key}={text}{shape}")
        if _ending(path) == ".tmx":
            raise ConfigError(f"{path}: say which languages to read: {key}={text}#SOURCE|TARGET")
        formats.refuse(path, readable=("CSV",) if columns == 2 else ())  # some call tables so
    kind = AlignedFiles if len(sides) == 2 else FileSource
    return [kind(text, columns, paths) for paths in zip(*sides, strict=True)]


def _ending(path: AnyPath) -> str:
    """What the file is called after, but for compression."""
    return (path.with_suffix("") if path.suffix in compressed.ENDINGS else path).suffix


def _field(record: Any, field: str) -> Line:
    """The text at a path of names in an object."""
    for name in field.split("."):
        if not isinstance(record, dict) or name not in record:
            return Malformed("missing field", f": there is no field {field}")
        record = record[name]
    if record is not None and not isinstance(record, str):
        return Malformed("field that is no text", f": field {field} is no text")
    return INVALID_UTF8 if record and not json_file.is_text(record) else record or ""


def _sides(line: Line) -> Sequence[Line]:
    """The sentences of a line of a table."""
    if isinstance(line, Malformed):
        return line, line
    sides: list[Line] = [*formats.split_columns(line)]
    if len(sides) != 2:
        wanted = "a line must be two sentences with one tab between them"
        bad = Malformed("wrong number of columns", f" has {len(sides) - 1} tabs; {wanted}")
        return [bad if line.strip() else Malformed("blank line", f" is blank; {wanted}")] * 2
    if isinstance(line, Marked):
        sides[0] = Marked(sides[0])
    return sides


def _whole(record: Sequence[Line], before: int = -1, may_be_empty: bool = False) -> Sequence[Line]:
    """A record as it is, or what stands for it in each column: if a text of it is malformed, holds
    NUL, or is the blank side of a pair.

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
    """Pairs as columns."""
    whole = (_whole(pair, may_be_empty=may_be_empty) for pair in pairs)
    return tuple(zip(*whole, strict=True))


def _records(records: Sequence[Sequence[Line]], columns: int) -> Iterator[RawBlock]:
    """Records as a block: of one column each is a document, whose line feeds end its lines."""
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
    """A column of strings of a pyarrow batch; dots name nested fields."""
    array: Any = batch
    for name in field.split("."):
        array = array.column(name) if array is batch else array.field(name)
    try:
        return [text or "" for text in array.to_pylist()]
    except UnicodeDecodeError:
        plain = array.dictionary_decode() if hasattr(array, "dictionary_decode") else array
        return [files.decoded(value or b"") for value in plain.cast("large_binary").to_pylist()]


def _dataset_blocks(text: str, dataset: Any, fields: tuple[str, ...]) -> Iterator[RawBlock]:
    """String features of a tf.data dataset; a text of one column is a document of its lines."""
    import tensorflow as tf

    def pick(example: Any, field: str) -> Any:
        for name in field.split("."):
            if not isinstance(example, dict) or name not in example:
                raise ConfigError(f"{text}: there is no field {field}; there are {spec}")
            example = example[name]
        return example

    spec = dataset.element_spec
    for field in fields:
        found = pick(spec, field)
        if getattr(found, "dtype", None) != tf.string or found.shape.rank != 0:
            raise ConfigError(f"{text}: field {field} is not a string but {found}")
    batches = dataset.map(lambda example: tuple(pick(example, f) for f in fields)).batch(1024)
    for batch in batches.as_numpy_iterator():
        columns = [[files.decoded(value) for value in column] for column in batch]
        yield from _records([_whole(row) for row in zip(*columns, strict=True)], len(columns))
