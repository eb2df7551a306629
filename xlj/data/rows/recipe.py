"""What rows a config asks for: checked inputs, and the hash that decides whether they are made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from xlj.config import ROW_KINDS, Config, ConfigError, Data
from xlj.data.rows.packing import PACKING
from xlj.data.rows.store import FORMAT, MANIFEST
from xlj.data.text.cleaning import CLEANING
from xlj.data.text.scans import Scan, ScanCache
from xlj.data.text.sources import (
    FileSource,
    PhrasebookSource,
    SeqioSource,
    module_digest,
)
from xlj.data.text.text_tasks import TextTask, text_tasks
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary

UNIT_LINES = 16_384
"""Input lines in a unit of work. Fixed, so that rows do not depend on who makes them."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All that decides what rows are made.

    Text, vocabulary and rows are each kept under a hash of what they depend on, so that recipes
    share what they have in common: a vocabulary serves rows of other lengths, and rows serve
    whoever has the vocabulary, trained here or given.

    Attributes:
      data: the config's section.
      tasks: the text, in order.
      kinds: of rows that are made of it.
      scans: the scan of each (file, columns).
      text: what decides the text and what of it is held out, as JSON values: no paths or times.
      vocabulary: None while it is yet to be trained.
    """

    data: Data
    tasks: tuple[TextTask, ...]
    kinds: tuple[str, ...]
    scans: dict[tuple[Path, int], Scan] = dataclasses.field(repr=False)
    text: dict[str, Any] = dataclasses.field(repr=False)
    vocabulary: Vocabulary | None

    @property
    def text_folder(self) -> Path:
        """Where what is known of the text is kept."""
        return _cache(self.data) / "texts" / _hash(self.text)

    @property
    def vocabulary_file(self) -> Path:
        """Where the vocabulary trained for this recipe is, or will be."""
        settings = vocabulary_training.settings(self.data)
        name = _hash({**self.text, "vocabulary": settings})
        return _cache(self.data) / "vocabularies" / f"{name}.model"

    @property
    def content(self) -> dict[str, Any]:
        """What rows depend on, as JSON values: no paths, times, rates or worker counts."""
        assert self.vocabulary is not None, "rows depend on a vocabulary that is yet to be trained"
        return {
            **self.text,
            "format": FORMAT,
            "packing": PACKING,
            "unit_lines": UNIT_LINES,
            "vocabulary": {"sha256": self.vocabulary.digest},
            "lengths": {task.kind: self.length(task.kind) for task in self.row_tasks},
        }

    @property
    def folder(self) -> Path:
        """Where the rows are, or will be: named by the recipe hash, 16 hex digits."""
        return _cache(self.data) / _hash(self.content)

    @property
    def finished(self) -> bool:
        """Whether the rows are made."""
        return self.vocabulary is not None and (self.folder / MANIFEST).is_file()

    @property
    def row_tasks(self) -> tuple[TextTask, ...]:
        """The tasks that rows are made for: every text, as rows of every kind it is wanted as."""
        return tuple(
            task.of_kind(kind)
            for kind in self.kinds
            for task in self.tasks
            if ROW_KINDS[task.kind].source == ROW_KINDS[kind].source
        )

    def length(self, kind: str) -> int:
        """Tokens in a row of this kind."""
        return getattr(self.data, ROW_KINDS[kind].length.removeprefix("data."))


def resolve(config: Config) -> Recipe:
    """Reads and checks every input file (once; later starts look at size and time only).

    Neither TensorFlow nor seqio is imported.

    Raises:
      ConfigError: if anything is missing, empty or malformed; it names the file and the line.
    """
    data = config.data
    tasks = tuple(text_tasks(data))
    vocabulary = Vocabulary.load(data.vocabulary) if data.vocabulary else None
    modules = {module: module_digest(module) for module in data.seqio_modules}
    inputs = [item for task in tasks for source in task.sources for item in _files(source)]
    cache = _cache(data)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"data.cache={data.cache} cannot be made: {error}") from error
    scans = ScanCache(cache / "inputs.json").scan_all(inputs)
    _check(tasks, scans, data.invalid_utf8)
    text = {
        "cleaning": CLEANING,
        "held_out_lines": data.held_out_lines,
        "tasks": {
            task.name: {
                "languages": list(task.languages),
                "inputs": [_identity(source, scans, modules) for source in task.sources],
            }
            for task in tasks
        },
    }
    recipe = Recipe(data, tasks, config.row_kinds(), scans, text, vocabulary)
    if vocabulary is None and recipe.vocabulary_file.is_file():
        return dataclasses.replace(recipe, vocabulary=Vocabulary.load(recipe.vocabulary_file))
    return recipe


def _cache(data: Data) -> Path:
    return Path(data.cache).expanduser()


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _files(source: Any) -> list[tuple[Path, int]]:
    return source.inputs() if isinstance(source, FileSource) else []


def _identity(source: Any, scans: dict, modules: dict[str, str]) -> Any:
    if isinstance(source, FileSource):
        return {"sha256": [scans[item].sha256 for item in source.inputs()]}
    if isinstance(source, PhrasebookSource):
        from xlj import phrasebook

        return {"phrasebook": source.name, "version": phrasebook.VERSION}
    if isinstance(source, SeqioSource):
        return {"source": source.text, "modules": modules}
    return {"source": source.text}


def _check(tasks: tuple[TextTask, ...], scans: dict, invalid_utf8: str) -> None:
    for task in tasks:
        found = 0
        for source in task.sources:
            parts = [(path, scans[path, columns]) for path, columns in _files(source)]
            for path, scan in parts:
                if scan.first_invalid and invalid_utf8 == "error":
                    raise ConfigError(
                        f"{path}: line {scan.first_invalid} is not UTF-8 ({scan.invalid} such "
                        "lines); mend the file, or set data.invalid_utf8=skip"
                    )
                if scan.odd_line:
                    raise ConfigError(
                        f"{path}: line {scan.odd_line} has {scan.odd_tabs} tabs; a line must be "
                        "two sentences with one tab between them"
                    )
            if len(parts) == 2 and parts[0][1].lines != parts[1][1].lines:
                (first, left), (second, right) = parts
                end, shorter = min((left.lines, first), (right.lines, second))
                raise ConfigError(
                    f"{first} has {left.lines} lines but {second} has {right.lines}; line-aligned "
                    f"files have as many ({shorter} ends after line {end})"
                )
            found += sum(sum(scan.sentences) for _, scan in parts) if parts else 1
        if not found:
            where = ", ".join(source.text for source in task.sources)
            raise ConfigError(f"{task.name} is empty: no line of text in {where}")
