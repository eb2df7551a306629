"""The labelled examples that the phrasebook yields: one type a kind of task."""

from dataclasses import dataclass

from xlj.phrasebook.meaning import Meaning


@dataclass(frozen=True, slots=True)
class LabelledMeanings:
    """Two meanings that are made to be judged together, before a language tells them."""

    first: Meaning
    second: Meaning
    label: str


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Two sentences that are judged together, and the label of both."""

    texts: tuple[str, str]
    label: str


@dataclass(frozen=True, slots=True)
class TaggedWords:
    """The words of a sentence, and a tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question about a text: (answer, its first character's index in the context), or nothing
    where the context does not say."""

    question: str
    context: str
    answers: tuple[tuple[str, int], ...]


Example = LabelledTexts | TaggedWords | AnsweredQuestion
