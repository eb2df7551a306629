"""The rows that a config asks for, and the hashes that they are kept under."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from xlj.config import ROW_KINDS, Config, Data
from xlj.data.rows.packing import PACKING
from xlj.data.rows.store import FORMAT, MANIFEST
from xlj.data.rows.units import UNIT_LINES
from xlj.data.text.checking import CheckedText
from xlj.data.text.text_tasks import TextTask
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All that decides what rows are built.

    Text, vocabulary and rows are each kept under a hash of what they depend on, so that recipes
    share what they have in common: a vocabulary serves rows of other lengths, and rows serve
    whoever has the vocabulary, trained here or given.

    Attributes:
      kinds: of rows that are built.
      vocabulary: None while it is yet to be trained.
    """

    data: Data
    kinds: tuple[str, ...]
    text: CheckedText
    vocabulary: Vocabulary | None

    @property
    def text_folder(self) -> Path:
        """Folder of what is known of the text."""
        return self._cache / "texts" / _hash(self.text.content)

    @property
    def vocabulary_file(self) -> Path:
        """Where the vocabulary trained for this recipe is, or will be."""
        settings = vocabulary_training.settings(self.data)
        name = _hash({**self.text.content, "vocabulary": settings})
        return self._cache / "vocabularies" / f"{name}.model"

    @property
    def content(self) -> dict[str, Any]:
        """All that rows depend on, as JSON values: no paths, times, rates or worker counts."""
        assert self.vocabulary is not None, "rows depend on a vocabulary that is yet to be trained"
        return {
            **self.text.content,
            "format": FORMAT,
            "packing": PACKING,
            "unit_lines": UNIT_LINES,
            "vocabulary": {"sha256": self.vocabulary.digest},
            "lengths": {task.kind: self.length(task.kind) for task in self.row_tasks},
        }

    @property
    def folder(self) -> Path:
        """Where the rows are, or will be: named by the recipe hash, 16 hex digits."""
        return self._cache / _hash(self.content)

    @property
    def finished(self) -> bool:
        """Whether the rows are there."""
        return self.vocabulary is not None and (self.folder / MANIFEST).is_file()

    @property
    def row_tasks(self) -> tuple[TextTask, ...]:
        """The tasks that have rows: every text, once for every kind it is wanted as."""
        return tuple(
            task.of_kind(kind)
            for kind in self.kinds
            for task in self.text.tasks
            if ROW_KINDS[task.kind].source == ROW_KINDS[kind].source
        )

    def length(self, kind: str) -> int:
        """Tokens in a row of this kind."""
        return getattr(self.data, ROW_KINDS[kind].length.removeprefix("data."))

    @property
    def _cache(self) -> Path:
        return Path(self.data.cache).expanduser()


def recipe_of(config: Config, text: CheckedText) -> Recipe:
    """The recipe of a config and its text; a `ConfigError` if the vocabulary cannot be used."""
    given = Vocabulary.load(config.data.vocabulary) if config.data.vocabulary else None
    recipe = Recipe(config.data, config.row_kinds(), text, given)
    if given is None and recipe.vocabulary_file.is_file():
        return dataclasses.replace(recipe, vocabulary=Vocabulary.load(recipe.vocabulary_file))
    return recipe


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
