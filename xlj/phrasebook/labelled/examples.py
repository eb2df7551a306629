"""Labelled examples: a type for each kind of task, and splits in which no event of dev or test
occurs in train, in any language.

An event is a predicate with its attribute and participants. Time, tense, polarity, adjectives and
owners do not belong to it, nor do the recipient and an optional place of a statement. The hash of
an event decides its split, so each event is in one split only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from xlj.phrasebook.drawing import draw
from xlj.phrasebook.meaning import Clause, Meaning, Participant
from xlj.phrasebook.stream import seed_of
from xlj.phrasebook.world import INTRANSITIVE, TRANSITIVE


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


@dataclass(frozen=True, slots=True)
class LinkedWords:
    """The words of a sentence and of its translation, and the sorted links between them."""

    words: tuple[tuple[str, ...], tuple[str, ...]]
    links: tuple[tuple[int, int], ...]


Example = LabelledTexts | TaggedWords | AnsweredQuestion | LinkedWords


SPLITS = ("train", "dev", "test")
_QUARTERS = ("train", "train", "dev", "test")


def place_is_free(clause: Clause) -> bool:
    """Returns whether the place is optional, unlike that of 'live' or 'go'."""
    return clause.predicate in TRANSITIVE or (
        clause.predicate in INTRANSITIVE and clause.predicate != "live"
    )


def split_of(clause: Clause) -> str:
    """Returns the split of a clause's event; half of all events are in 'train'.

    The event of a question also includes the recipient and the optional place, because the
    participant that the question asks for is unknown.
    """
    asks = clause.question is not None
    place = None if place_is_free(clause) and not asks else clause.place
    recipient = clause.recipient if asks else None
    roles = (clause.subject, clause.object, clause.complement, place, recipient)
    event = (clause.predicate, clause.attribute, *(_concept(p) for p in roles))
    return _QUARTERS[seed_of(repr(event)) % len(_QUARTERS)]


def all_within(split: str, clauses: Iterable[Clause]) -> bool:
    """Returns whether all these clauses are in the split."""
    return all(split_of(clause) == split for clause in clauses)


def sentences(split: str) -> Iterator[Meaning]:
    """Yields meanings of a split without end: statements and questions."""
    seed = seed_of(f"sentences {split}")
    for index in count():
        meaning = draw(seed, index)
        if all_within(split, meaning.clauses):
            yield meaning


def drawn_clauses(name: str, split: str) -> Iterator[Clause]:
    """Yields affirmative statements of one clause without end; their time does not come first.

    The same `name` and `split` give the same clauses.
    """
    seed = seed_of(f"{name} {split}")
    for index in count():
        clauses = draw(seed, index).clauses
        if len(clauses) == 1 and not clauses[0].question and split_of(clauses[0]) == split:
            yield replace(clauses[0], negative=False, time_first=False)


def _concept(p: Participant | None) -> str | None:
    # Some languages have one word for "he" and "she"
    return None if p is None else "he" if p.concept == "she" else p.concept
