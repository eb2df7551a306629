"""Types of labelled examples. A kind of task may define its own type."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class Example:
    """Base class of examples; a subclass adds fields, including `place`.

    Attributes:
      what: the name of what a model predicts, for errors about unlabelled examples.
      hint: the remedy in these errors; empty for a general remedy, such as "check task.columns".
      language: the code of the language that the source gives for this example; empty if it gives
        none.
    """

    what: ClassVar[str] = "label"
    hint: ClassVar[str] = ""
    language: str = dataclasses.field(default="", kw_only=True, compare=False, repr=False)

    @property
    def content(self) -> list[Any]:
        """The values of all fields except the place and the language."""
        names = (field.name for field in dataclasses.fields(self))
        return [getattr(self, x) for x in names if x not in ("place", "lines", "language")]

    @property
    def where(self) -> str:
        """The place of the example, such as `FILE:LINE`."""
        return str(getattr(self, "place", ""))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The label, or the label of each part (such as a word) of the example.

        None if the example is unlabelled. Empty if the gold answer of the example is not a label,
        but for example a text or a score.
        """
        raise NotImplementedError

    @property
    def text_count(self) -> int:
        """Number of texts, if all examples of a file must have the same number; else 0."""
        return 0

    def place_of(self, index: int) -> str:
        """Returns the place of the part that `labels[index]` labels, as precisely as known."""
        return self.where

    def part_of(self, index: int) -> str:
        """Returns the part that `labels[index]` labels; empty if it is the whole example."""
        return ""


@dataclasses.dataclass(frozen=True)
class Sentences(Example):
    """An example of classification.

    Attributes:
      texts: one sentence, or two sentences that are classified together.
      label: the label; None if the example is unlabelled, such as an example of a test set.
      place: the place of the example, such as `FILE:LINE`.
    """

    texts: tuple[str, ...]
    label: str | None
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The only label, as a tuple."""
        return None if self.label is None else (self.label,)

    @property
    def text_count(self) -> int:
        """Number of sentences: one or two."""
        return len(self.texts)


@dataclasses.dataclass(frozen=True)
class Words(Example):
    """An example of tagging.

    Attributes:
      words: the words of a sentence; there is at least one word, and no word is empty.
      tags: the tag of each word; None if the sentence is unlabelled.
      place: the place of the first word, such as `FILE:LINE`.
      lines: the line number of each word; empty if several words are on one line.
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
        """Returns the place of word `index`, as precisely as known."""
        return f"{self.place.rpartition(':')[0]}:{self.lines[index]}" if self.lines else self.place

    def part_of(self, index: int) -> str:
        """Returns word `index`."""
        return self.words[index]


@dataclasses.dataclass(frozen=True)
class LinkedPair(Example):
    """A sentence pair with links between words.

    Attributes:
      source, target: the words of the two sentences.
      sure, possible: sorted links (index of a source word, index of a target word), zero-based. No
        link is in both. A word without a link has no counterpart.
      place: the place of the pair, such as `FILE:LINE`.
    """

    what = "links"

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: tuple[tuple[int, int], ...]
    possible: tuple[tuple[int, int], ...]
    place: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Empty: links are not labels."""
        return ()


@dataclasses.dataclass(frozen=True)
class Question(Example):
    """An example of question answering: a question about a text.

    Attributes:
      identity: the id of the question, which is unique in its file.
      question: the text of the question.
      context: the text that may contain answers.
      answers: (text, start) of each answer, with `context[start : start + len(text)] == text`.
        Empty if the question has no answer; None if the source does not contain the answers.
      place: the place of the question, such as `FILE: JSON path`.
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
        """None if the source does not contain the answers of the question; else an empty tuple."""
        return None if self.answers is None else ()


def find_language_prefix(language: str, words: Iterable[str]) -> str:
    """Returns the prefix of all words, such as `en:`; an empty string if they have none.

    The words in the original files of WikiAnn have such prefixes: the code of a Wikipedia and a
    colon. A prefix with another code than `language` counts only if there are two words or more,
    and all have text after the prefix.
    """
    words = list(words)
    own = f"{language}:"
    if language and all(word.startswith(own) for word in words):
        return own
    match = _PREFIX.match(words[0]) if len(words) > 1 else None
    prefix = match[0] if match else ""
    has_prefix = all(word.startswith(prefix) and word != prefix for word in words)
    return prefix if has_prefix else ""


_PREFIX = re.compile(r"([a-z]{2,3}|simple)(-[a-z]+)*:")
"""Matches the code of a Wikipedia, such as zh-min-nan, and a colon."""
