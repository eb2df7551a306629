"""Labelled examples, as they are read. A kind of task may have a type of its own."""

import dataclasses
from collections.abc import Iterable
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Example:
    """What all examples have; a subclass has its fields, and `place` among them.

    Attributes:
      what: is predicted of an example, for errors.
      mend: what to do where it is missing.
    """

    what: ClassVar[str] = "label"
    mend: ClassVar[str] = ""

    @property
    def where(self) -> str:
        """Its place, `FILE:LINE` or the like."""
        return str(getattr(self, "place", ""))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The label, or the label of each of its parts; None where the source has none. Empty for
        examples whose answers have no names."""
        raise NotImplementedError

    @property
    def parts(self) -> int:
        """How many texts it has, where all of a file must have as many; else 0."""
        return 0

    def place_of(self, index: int) -> str:
        """The place of the part with this label, as near as it is known."""
        return self.where

    def part_of(self, index: int) -> str:
        """The part with this label; empty if it is the whole example."""
        return ""


@dataclasses.dataclass(frozen=True)
class Sentences(Example):
    """Of classification: a sentence, or two that are judged together; its label, None where the
    source has none (a test set to be predicted); and its place, `FILE:LINE` or the like."""

    texts: tuple[str, ...]
    label: str | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The label."""
        return None if self.label is None else (self.label,)

    @property
    def parts(self) -> int:
        """One or two."""
        return len(self.texts)


@dataclasses.dataclass(frozen=True)
class Words(Example):
    """Of tagging: the words of a sentence, one at least and none empty; the tag of each, None where
    the source has none; the place of the first word; and the line of each, where they have lines of
    their own."""

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
        """The place of a word, as near as it is known."""
        return f"{self.place.rpartition(':')[0]}:{self.lines[index]}" if self.lines else self.place

    def part_of(self, index: int) -> str:
        """The word."""
        return self.words[index]


@dataclasses.dataclass(frozen=True)
class Question(Example):
    """Of question answering: a question about a text.

    Attributes:
      identity: unique in its file.
      answers: (text, its first character's index in the context) of each; `context[start : start +
        len(text)] == text`. Empty where the question has no answer; None where the source does not
        say.
    """

    what = "answers"
    mend = "of a question without an answer say is_impossible, as SQuAD 2.0"

    identity: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """None of a question whose answers the source does not tell; else empty."""
        return None if self.answers is None else ()


def prefix_of(language: str, words: Iterable[str]) -> str:
    """`language:` if all words begin with it, as in WikiAnn's own files; else nothing."""
    prefix = f"{language}:"
    return prefix if all(word.startswith(prefix) for word in words) else ""
