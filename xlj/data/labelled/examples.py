"""Types of labelled examples. A kind of task may define its own type."""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Example:
    """Base class of examples; a subclass adds fields, including `place`.

    Attributes:
      what: what is predicted, for errors.
      hint: what to do if it is missing.
    """

    what: ClassVar[str] = "label"
    hint: ClassVar[str] = ""

    @property
    def where(self) -> str:
        """The place of the example, such as `FILE:LINE`."""
        return str(getattr(self, "place", ""))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The label, or the label of each part; None if the source has none.

        Empty for examples whose answers are not labels.
        """
        raise NotImplementedError

    @property
    def parts(self) -> int:
        """Number of texts, if it must be the same in the whole file; else 0."""
        return 0

    def place_of(self, index: int) -> str:
        """Returns the place of the part with this label, as precisely as known."""
        return self.where

    def part_of(self, index: int) -> str:
        """Returns the part with this label; empty if it is the whole example."""
        return ""


@dataclasses.dataclass(frozen=True)
class Sentences(Example):
    """An example of classification.

    Attributes:
      texts: a sentence, or two sentences that are classified together.
      label: None if the source has none (a test set to predict).
      place: `FILE:LINE` or similar.
    """

    texts: tuple[str, ...]
    label: str | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The label."""
        return None if self.label is None else (self.label,)

    @property
    def parts(self) -> int:
        """Number of sentences: one or two."""
        return len(self.texts)


@dataclasses.dataclass(frozen=True)
class Words(Example):
    """An example of tagging.

    Attributes:
      words: the words of a sentence: at least one, none empty.
      tags: the tag of each word; None if the source has none.
      place: place of the first word.
      lines: the line of each word, if each word is on its own line.
    """

    what = "tags"

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: str
    lines: tuple[int, ...] = dataclasses.field(default=(), compare=False)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The tags."""
        return self.tags

    def place_of(self, index: int) -> str:
        """Returns the place of a word, as precisely as known."""
        return f"{self.place.rpartition(':')[0]}:{self.lines[index]}" if self.lines else self.place

    def part_of(self, index: int) -> str:
        """Returns the word."""
        return self.words[index]


@dataclasses.dataclass(frozen=True)
class Question(Example):
    """An example of question answering: a question about a text.

    Attributes:
      identity: unique in its file.
      answers: (text, index of its first character in the context) of each answer; `context[start :
        start + len(text)] == text`. Empty if the question has no answer; None if the source does
        not contain the answers.
    """

    what = "answers"
    hint = "mark questions without an answer with is_impossible, as in SQuAD 2.0"

    identity: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """None if the source does not contain the answers of the question; else empty."""
        return None if self.answers is None else ()


def prefix_of(language: str, words: Iterable[str]) -> str:
    """Returns `language:` if all words begin with it, as in WikiAnn's own files; else nothing."""
    prefix = f"{language}:"
    return prefix if all(word.startswith(prefix) for word in words) else ""
