"""Where text comes from: templates of the config, filled in for each language and pair.

A source yields text in blocks of columns: `(lines,)` of monolingual text, where an empty line ends
a document, or `(first side, second side)` of pairs. TensorFlow, seqio and TFDS are imported only
when a source of theirs is read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.machinery
import itertools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from xlj.config import ConfigError, Data
from xlj.data import files
from xlj.data.cleaning import clean

BLOCK_LINES = 4096

RawBlock = tuple[Sequence[str | None], ...]  # None: not UTF-8
Block = tuple[list[str], ...]


class Source(Protocol):
    """One template, filled in for one language or pair."""

    @property
    def text(self) -> str:
        """The filled template."""
        ...

    def raw_blocks(self) -> Iterator[RawBlock]:
        """The text as it comes, in columns of equal length."""
        ...


@dataclasses.dataclass(frozen=True)
class FileSource:
    """Lines of a file, pairs of a TSV file, or pairs of two line-aligned files."""

    text: str
    paths: tuple[Path, ...]
    columns: int

    def inputs(self) -> list[tuple[Path, int]]:
        """(file, columns in it) of each file, for `files.ScanCache`."""
        return [(path, self.columns // len(self.paths)) for path in self.paths]

    def raw_blocks(self) -> Iterator[RawBlock]:
        if len(self.paths) == 2:
            lines = [itertools.chain.from_iterable(files.blocks(path)) for path in self.paths]
            rows = zip(*lines, strict=True)
            while block := list(itertools.islice(rows, BLOCK_LINES)):
                yield tuple(zip(*block, strict=True))
            return
        for lines_ in files.blocks(self.paths[0]):
            if self.columns == 1:
                yield (lines_,)
            else:
                split = [(None, None) if line is None else line.split("\t") for line in lines_]
                yield tuple(zip(*split, strict=True))


@dataclasses.dataclass(frozen=True)
class PhrasebookSource:
    """The small corpus inside the package; `name` is a language or a pair."""

    text: str
    name: str
    columns: int

    def raw_blocks(self) -> Iterator[RawBlock]:
        yield from _phrasebook_blocks(self.name, self.columns)


@functools.cache  # it is read several times, and drawing it anew would be most of making rows
def _phrasebook_blocks(name: str, columns: int) -> tuple[RawBlock, ...]:
    from xlj.data import phrasebook

    rows: Iterator[tuple[str, ...]] = (
        zip(phrasebook.text_lines(name)) if columns == 1 else phrasebook.pair_lines(name)
    )
    blocks = iter(lambda: tuple(itertools.islice(rows, BLOCK_LINES)), ())
    return tuple(tuple(zip(*block, strict=True)) for block in blocks)


@dataclasses.dataclass(frozen=True)
class TfdsSource:
    """String features of the train split of a TensorFlow dataset."""

    text: str
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
class SeqioSource:
    """String features of the train split of a registered seqio Task or Mixture."""

    text: str
    name: str
    fields: tuple[str, ...]
    modules: tuple[str, ...]

    def raw_blocks(self) -> Iterator[RawBlock]:
        seqio = import_seqio()
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


@dataclasses.dataclass(frozen=True)
class TextTask:
    """All sources of one language or pair, read one after another.

    Attributes:
      name: kind and language or pair, such as `text.en`, `pairs.en-de`; the folder of its rows.
      kind: of its rows, one of `config.KINDS`.
      languages: of each column: one for monolingual text, two for pairs.
      invalid_utf8: `error` or `skip`, as in `Data`.
    """

    name: str
    kind: str
    languages: tuple[str, ...]
    sources: tuple[Any, ...]
    invalid_utf8: str

    def blocks(self, skipped: Counter[str] | None = None) -> Iterator[Block]:
        """Clean text in columns: an empty line ends a document.

        Args:
          skipped: counts the lines that were left out because they are not UTF-8.

        Raises:
          ConfigError: if the text cannot be read.
        """
        for source in self.sources:
            count = 0
            for raw in source.raw_blocks():
                if any(None in column for column in raw):
                    if self.invalid_utf8 == "error":
                        raise ConfigError(
                            f"{source.text}: not UTF-8 in lines {count + 1} to "
                            f"{count + len(raw[0])}; mend it, or set data.invalid_utf8=skip"
                        )
                    rows = [row for row in zip(*raw, strict=True) if None not in row]
                    if skipped is not None:
                        skipped["invalid UTF-8"] += len(raw[0]) - len(rows)
                    raw = tuple(zip(*rows, strict=True))
                if raw and raw[0]:
                    count += len(raw[0])
                    yield tuple(
                        [clean(line) for line in column if line is not None] for column in raw
                    )
            if len(self.languages) == 1:
                yield ([""],)

    def of_kind(self, kind: str) -> TextTask:
        """The same text as rows of another kind."""
        return dataclasses.replace(self, name=f"{kind}.{self.name.partition('.')[2]}", kind=kind)

    @property
    def text_name(self) -> str:
        """The name of the task whose rows are the plainest kind of this text."""
        return self.of_kind("text" if len(self.languages) == 1 else "pairs").name


def text_tasks(data: Data) -> list[TextTask]:
    """The text of a config: a task for each language, of kind `text`, then one for each pair, of
    kind `pairs`.

    Raises:
      ConfigError: if a template cannot be read as one, a language or pair is in none of them, or a
        template is for none of the languages or pairs. The message lists all of these at once.
    """
    problems: list[str] = []
    tasks = []
    if data.mono:
        values = {name: {"language": name} for name in data.languages}
        found = _match(data, "data.languages", "data.mono", values, problems)
        tasks += [
            TextTask(f"text.{name}", "text", (name,), sources, data.invalid_utf8)
            for name, sources in found.items()
        ]
    if data.parallel:
        sides = {name: split_pair(name, data.languages) for name in data.pairs}
        values = {
            name: {"pair": name, "source": first, "target": second}
            for name, (first, second) in sides.items()
        }
        found = _match(data, "data.pairs", "data.parallel", values, problems)
        tasks += [
            TextTask(f"pairs.{name}", "pairs", sides[name], sources, data.invalid_utf8)
            for name, sources in found.items()
        ]
    if problems:
        raise ConfigError("\n".join(problems))
    if not tasks:
        raise ConfigError("there is no data: set data.mono or data.parallel")
    return tasks


def split_pair(
    pair: str, languages: Sequence[str] = (), key: str = "data.pairs"
) -> tuple[str, str]:
    """The two languages of a pair: `en-de`. The first hyphen divides them, unless another one alone
    leaves two of `languages` (`zh-CN-en`).

    Args:
      key: what named the pair, for the error.

    Raises:
      ConfigError: if there are not two different languages.
    """
    parts = pair.split("-")
    splits = [("-".join(parts[:i]), "-".join(parts[i:])) for i in range(1, len(parts))]
    known = [split for split in splits if set(split) <= set(languages)]
    first, second = (known if len(known) == 1 else splits or [("", "")])[0]
    if not first or not second or first == second:
        raise ConfigError(f"{key}={pair}: a pair is two languages and a hyphen, such as en-de")
    return first, second


def module_digest(module: str) -> str:
    """sha256 of a module's file, found without importing it or the packages around it.

    Raises:
      ConfigError: if there is no such module.
    """
    where: Sequence[str] | None = None
    spec = None
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        where = spec.submodule_search_locations if spec else None
    if spec is None or not spec.origin:
        raise ConfigError(f"data.seqio_modules={module}: there is no such module on {sys.path}")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def phrasebook_digest() -> str:
    """sha256 of the phrasebook's source files, but for the labelled tasks, which make no text."""
    from xlj.data import phrasebook

    digest = hashlib.sha256()
    folder = Path(phrasebook.__file__ or "").parent
    for file in sorted(folder.glob("*.py")):
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def import_seqio() -> Any:
    """The seqio module.

    Raises:
      ConfigError: if it cannot be imported, with the reason.
    """
    return import_quietly("seqio")


def import_quietly(name: str) -> Any:
    """A module that imports TensorFlow, which writes to stderr as it starts whatever is set.

    Raises:
      ConfigError: if it cannot be imported, with the reason.
    """
    if name in sys.modules:
        return sys.modules[name]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        return importlib.import_module(name)
    except Exception as error:  # protobuf raises its own kind on versions that do not go together
        mend = "; pip install 'sentencepiece<0.2.3'" if "sentencepiece_model" in str(error) else ""
        raise ConfigError(
            f"reading this data needs {name}, which cannot be imported here "
            f"({type(error).__name__}: {error}){mend}"
        ) from error
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _match(
    data: Data,
    names_key: str,
    templates_key: str,
    values: dict[str, dict[str, str]],
    problems: list[str],
) -> dict[str, tuple[Any, ...]]:
    """Sources of each name, in the order of the templates; what is missing goes to `problems`."""
    templates = data.mono if templates_key == "data.mono" else data.parallel
    columns = 1 if templates_key == "data.mono" else 2
    found: dict[str, list[Any]] = {name: [] for name in values}
    tried: dict[str, list[str]] = {name: [] for name in values}
    for template in templates:
        filled = {name: fill(template, v, templates_key) for name, v in values.items()}
        if len(set(filled.values())) < len(filled):
            needed = " or ".join(f"{{{key}}}" for key in next(iter(values.values())))
            problems.append(
                f"{templates_key}={template} gives several of {names_key} the same source; "
                f"use {needed}"
            )
            continue
        matches = 0
        for name, text in filled.items():
            source, missing = _open(text, columns, data, templates_key)
            tried[name] += missing
            if source is not None:
                found[name].append(source)
                matches += 1
        if not matches:
            problems.append(
                f"{templates_key}={template} is there for none of the {len(values)} {names_key}; "
                f"tried {some(list(filled.values()))}"
            )
    for name, sources in found.items():
        if not sources and any(found.values()):
            problems.append(
                f"{names_key}={name} is in no source of {templates_key}; tried "
                f"{', '.join(tried[name]) or ', '.join(templates)}"
            )
    return {name: tuple(sources) for name, sources in found.items()}


def some(names: list[str]) -> str:
    """A few names of a list, for errors."""
    return ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]} ... {names[-1]}"


def fill(template: str, values: dict[str, str], key: str) -> str:
    """A template with its placeholders replaced.

    Raises:
      ConfigError: on a placeholder that is none of `values`; it names `key`.
    """

    def value(match: re.Match) -> str:
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(
                f"{key}={template}: unknown placeholder {match[0]}; there are {known}"
            )
        return values[match[1]]

    return re.sub(r"\{(\w*)\}", value, template)


def _open(text: str, columns: int, data: Data, key: str) -> tuple[Any, list[str]]:
    """The source that a filled template names, or None and what was looked for."""
    scheme, _, rest = text.partition(":")
    if scheme == "phrasebook":
        return _open_phrasebook(text, rest, columns)
    if scheme in ("tfds", "seqio"):
        name, _, fields = rest.partition("#")
        parts = tuple(fields.split("|"))
        if not name or len(parts) != columns or not all(parts):
            shape = "#FIELD" if columns == 1 else "#FIELD|FIELD"
            raise ConfigError(f"{key}={text}: it must look like {scheme}:NAME{shape}")
        if scheme == "tfds":
            return TfdsSource(text, name, parts), []
        return SeqioSource(text, name, parts, data.seqio_modules), []
    return _open_files(text, columns, key)


def _open_phrasebook(text: str, name: str, columns: int) -> tuple[Any, list[str]]:
    from xlj.data import phrasebook

    sides = (name,) if columns == 1 else split_pair(name, tuple(phrasebook.LANGUAGES))
    there = set(sides) <= set(phrasebook.LANGUAGES)
    return (PhrasebookSource(text, name, columns), []) if there else (None, [text])


def _open_files(text: str, columns: int, key: str) -> tuple[Any, list[str]]:
    paths = tuple(Path(part).expanduser() for part in text.split("|"))
    if len(paths) > columns:
        allowed = "one file" if columns == 1 else "one TSV file or two files"
        raise ConfigError(f"{key}={text}: it must name {allowed}")
    missing = [path for path in paths if not path.is_file()]
    if missing and len(missing) < len(paths):
        raise ConfigError(f"{key}={text}: {missing[0]} is missing, though its other side is there")
    if missing:
        return None, [str(path) for path in missing]
    for path in paths:
        if path.suffix in files.NOT_TEXT:
            raise ConfigError(
                f"{path}: {path.suffix} files cannot be read; bring lines of text, plain or as "
                ".gz, .xz or .zst"
            )
    return FileSource(text, paths, columns), []


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
        columns = [[_decode(value) for value in column] for column in batch]
        if len(columns) == 1:
            lines: list[str | None] = []
            for document in columns[0]:
                lines += [None] if document is None else document.split("\n")
                lines.append("")
            yield (lines,)
        else:
            yield tuple(columns)


def _decode(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
