"""Types of labelled examples, one for each kind of task."""

from dataclasses import dataclass

from xlj.phrasebook.meaning import Meaning


@dataclass(frozen=True, slots=True)
class LabelledMeanings:
    """Two meanings with a common label, independent of a language."""

    first: Meaning
    second: Meaning
    label: str


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Two sentences with a common label."""

    texts: tuple[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class TaggedWords:
    """The words of a sentence, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question about a text, with its answers.

    Attributes:
      answers: (answer, index of its first character in the context); empty if the context has no
        answer.
    """

    question: str
    context: str
    answers: tuple[tuple[str, int], ...]


Example = LabelledTexts | TaggedWords | AnsweredQuestion
