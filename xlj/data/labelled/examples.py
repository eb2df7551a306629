"""Labelled examples, as they are read: one type a kind of task."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Of classification: a sentence, or two that are judged together.

    Attributes:
      texts: one or two.
      label: None where the source has none (a test set to be predicted).
      place: where it stands, `FILE:LINE` or the like, for errors.
    """

    texts: tuple[str, ...]
    label: str | None
    place: str


@dataclasses.dataclass(frozen=True)
class Words:
    """Of tagging: the words of a sentence.

    Attributes:
      words: one at least, none of them empty.
      tags: of each word; None where the source has none.
      place: of the first word.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: str


@dataclasses.dataclass(frozen=True)
class Question:
    """Of question answering: a question about a text.

    Attributes:
      identity: of the question, unique in its file.
      question, context: texts.
      answers: (text, its first character's index in the context) of each; `context[start : start +
        len(text)] == text`. Empty where the question has no answer; None where the source does not
        say.
      place: where it stands.
    """

    identity: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    place: str


Example = Sentences | Words | Question
