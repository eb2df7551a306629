"""Labelled examples, as they are read: one type a kind of task."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Of classification: a sentence, or two that are judged together; its label, None where the
    source has none (a test set to be predicted); and its place, `FILE:LINE` or the like."""

    texts: tuple[str, ...]
    label: str | None
    place: str


@dataclasses.dataclass(frozen=True)
class Words:
    """Of tagging: the words of a sentence, one at least and none empty; the tag of each, None where
    the source has none; the place of the first word; and the line of each, where they have lines of
    their own."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: str
    lines: tuple[int, ...] = dataclasses.field(default=(), compare=False)

    def place_of(self, index: int) -> str:
        """The place of a word, as near as it is known."""
        return f"{self.place.rpartition(':')[0]}:{self.lines[index]}" if self.lines else self.place


@dataclasses.dataclass(frozen=True)
class Question:
    """Of question answering: a question about a text.

    Attributes:
      identity: unique in its file.
      answers: (text, its first character's index in the context) of each; `context[start : start +
        len(text)] == text`. Empty where the question has no answer; None where the source does not
        say.
    """

    identity: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    place: str


Example = Sentences | Words | Question


def prefix_of(language: str, words: Iterable[str]) -> str:
    """`language:` if all words begin with it, as in WikiAnn's own files; else nothing."""
    prefix = f"{language}:"
    return prefix if all(word.startswith(prefix) for word in words) else ""
