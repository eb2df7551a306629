"""Sources of text: files, the phrasebook, TFDS and seqio.

A source yields text in blocks of columns: `(lines,)` of monolingual text, where an empty line ends
a document, or `(first side, second side)` of pairs. TensorFlow, seqio and TFDS are imported only
when a source of theirs is read.
"""

import dataclasses
import functools
import hashlib
import importlib
import importlib.machinery
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlj import phrasebook
from xlj.config import ConfigError, Data
from xlj.data.text.scans import Scan
from xlj.data.text.templates import split_pair
from xlj.io import files
from xlj.io.quiet import import_quietly

BLOCK_LINES = 4096

RawBlock = tuple[Sequence[str | None], ...]  # None: not UTF-8
Input = tuple[Path, int]  # a file, and the columns in it


@dataclasses.dataclass(frozen=True)
class TextSource:
    """One template, filled in for one language or pair: `text`."""

    text: str

    def inputs(self) -> list[Input]:
        """(file, columns in it) of each file that is read; most sources have none."""
        return []

    def identity(self, scans: Mapping[Input, Scan]) -> dict[str, Any]:
        """Whatever tells the text from another, as JSON values; `scans` are of all `inputs`."""
        return {"source": self.text}

    def raw_blocks(self) -> Iterator[RawBlock]:
        """The text as it comes, in columns of equal length."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class FileSource(TextSource):
    """Lines of a file, pairs of a TSV file, or pairs of two line-aligned files."""

    paths: tuple[Path, ...]
    columns: int

    def inputs(self) -> list[Input]:
        return [(path, self.columns // len(self.paths)) for path in self.paths]

    def identity(self, scans: Mapping[Input, Scan]) -> dict[str, Any]:
        return {"sha256": [scans[item].sha256 for item in self.inputs()]}

    def raw_blocks(self) -> Iterator[RawBlock]:
        if len(self.paths) == 2:
            yield from files.aligned_blocks(self.paths)
            return
        for lines_ in files.blocks(self.paths[0]):
            if self.columns == 1:
                yield (lines_,)
            else:
                split = [(None, None) if line is None else line.split("\t") for line in lines_]
                yield tuple(zip(*split, strict=True))


@dataclasses.dataclass(frozen=True)
class PhrasebookSource(TextSource):
    """The small corpus inside the package; `name` is a language or a pair."""

    name: str
    columns: int

    def identity(self, scans: Mapping[Input, Scan]) -> dict[str, Any]:
        return {"phrasebook": self.name, "version": phrasebook.VERSION}

    def raw_blocks(self) -> Iterator[RawBlock]:
        yield from _phrasebook_blocks(self.name, self.columns)


@functools.cache  # it is read several times, and drawing it anew would take most of the time
def _phrasebook_blocks(name: str, columns: int) -> tuple[RawBlock, ...]:
    rows: Iterator[tuple[str, ...]] = (
        zip(phrasebook.text_lines(name)) if columns == 1 else phrasebook.pair_lines(name)
    )
    blocks = iter(lambda: tuple(itertools.islice(rows, BLOCK_LINES)), ())
    return tuple(tuple(zip(*block, strict=True)) for block in blocks)


@dataclasses.dataclass(frozen=True)
class TfdsSource(TextSource):
    """String features of the train split of a TensorFlow dataset."""

    name: str
    fields: tuple[str, ...]

    def raw_blocks(self) -> Iterator[RawBlock]:
        tfds = import_quietly("tensorflow_datasets")
        try:
            dataset = tfds.load(self.name, split="train", shuffle_files=False)
        except Exception as error:  # TFDS raises many kinds
            raise ConfigError(f"{self.text}: TFDS cannot load it ({error})") from error
        yield from _string_blocks(self.text, dataset, self.fields)


@dataclasses.dataclass(frozen=True)
class SeqioSource(TextSource):
    """String features of the train split of a registered seqio Task or Mixture."""

    name: str
    fields: tuple[str, ...]
    modules: tuple[str, ...]

    def identity(self, scans: Mapping[Input, Scan]) -> dict[str, Any]:
        digests = {module: module_digest(module) for module in self.modules}
        return {"source": self.text, "modules": digests}

    def raw_blocks(self) -> Iterator[RawBlock]:
        seqio = import_quietly("seqio")
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ConfigError(f"data.seqio_modules={module}: {error}") from error
        try:
            provider = seqio.get_mixture_or_task(self.name)
        except ValueError as error:
            raise ConfigError(
                f"{self.text}: no seqio Task of this name is registered; name the module that "
                f"registers it in data.seqio_modules ({error})"
            ) from error
        dataset = provider.get_dataset(sequence_length=None, split="train", shuffle=False)
        yield from _string_blocks(self.text, dataset, self.fields)


def module_digest(module: str) -> str:
    """sha256 of a module's file, found without importing it or the packages around it; a
    `ConfigError` if there is none."""
    where: Sequence[str] | None = None
    spec = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        where = spec.submodule_search_locations if spec else None
    if spec is None or not spec.origin:
        raise ConfigError(f"data.seqio_modules={module}: there is no such module on {sys.path}")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def open_source(text: str, columns: int, data: Data, key: str) -> TextSource | None:
    """The source that a filled template names; None if it is not there.

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
        return PhrasebookSource(text, rest, columns) if there else None
    if scheme in ("tfds", "seqio"):
        name, _, fields = rest.partition("#")
        parts = tuple(fields.split("|"))
        if not name or len(parts) != columns or not all(parts):
            shape = "#FIELD" if columns == 1 else "#FIELD|FIELD"
            raise ConfigError(f"{key}={text}: it must look like {scheme}:NAME{shape}")
        if scheme == "tfds":
            return TfdsSource(text, name, parts)
        return SeqioSource(text, name, parts, data.seqio_modules)
    return _open_files(text, columns, key)


def _open_files(text: str, columns: int, key: str) -> TextSource | None:
    paths = tuple(Path(part).expanduser() for part in text.split("|"))
    if len(paths) > columns:
        allowed = "one file" if columns == 1 else "one TSV file or two files"
        raise ConfigError(f"{key}={text}: it must name {allowed}")
    missing = [path for path in paths if not path.is_file()]
    if missing and len(missing) < len(paths):
        raise ConfigError(f"{key}={text}: {missing[0]} is missing, though its other side is there")
    if missing:
        return None
    for path in paths:
        if path.suffix in files.NOT_TEXT:
            raise ConfigError(
                f"{path}: {path.suffix} files cannot be read; bring lines of text, plain or as "
                ".gz, .xz or .zst"
            )
    return FileSource(text, paths, columns)


def _string_blocks(text: str, dataset: Any, fields: tuple[str, ...]) -> Iterator[RawBlock]:
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
        if len(columns) == 1:
            lines: list[str | None] = []
            for document in columns[0]:
                lines += [None] if document is None else document.split("\n")
                lines.append("")
            yield (lines,)
        else:
            yield tuple(columns)
