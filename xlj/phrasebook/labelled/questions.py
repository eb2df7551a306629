"""Questions about a document, with the span of the answer; one in ten has no answer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from xlj.phrasebook import world
from xlj.phrasebook.casting import pronoun_for
from xlj.phrasebook.drawing import document, hero
from xlj.phrasebook.labelled.examples import all_within
from xlj.phrasebook.meaning import Clause, Meaning, Participant, Sentence
from xlj.phrasebook.stream import RandomStream, seed_of

ROLES = ("subject", "object", "place")
_TAKING = world.TRANSITIVE | world.DITRANSITIVE
_PLACED = world.TRANSITIVE | world.INTRANSITIVE
_UNANSWERED = 10
_MEANINGS = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about a document.

    Attributes:
      role: the role of the participant that is the answer, an element of `ROLES`.
      where: (index of the meaning in the document, index of the clause in the meaning) of the
        answer; None if the document has no answer.
    """

    document: tuple[Meaning, ...]
    question: Meaning
    role: str
    where: tuple[int, int] | None


def questions(split: str) -> Iterator[Asked]:
    """Yields questions of a split without end, with `ROLES` in turn; one question per document."""
    stories = _stories(seed_of(f"questions {split}"))
    for position in count():
        stream = RandomStream(seed_of(f"questions choices {split}"), position)
        role = ROLES[position % len(ROLES)]
        question = None
        while question is None:
            story = next(stories)
            if position % _UNANSWERED == _UNANSWERED - 1:
                question = _unanswered(stream, story, next(stories), role, split)
            else:
                question = _answered(stream, story, role, split)
        yield question


@dataclass(frozen=True, slots=True)
class _Story:
    meanings: tuple[Meaning, ...]
    hero: Participant

    @property
    def verbs(self) -> list[str]:
        return [clause.predicate for meaning in self.meanings for clause in meaning.clauses]


def _stories(seed: int) -> Iterator[_Story]:
    for index in count():
        meanings = document(seed, index)
        if len(meanings) >= _MEANINGS:
            yield _Story(meanings, hero(seed, index))


def _answered(stream: RandomStream, story: _Story, role: str, split: str) -> Asked | None:
    """Draws a question about one clause of a story; the verb of the clause occurs only once."""
    options = []
    for sentence, meaning in enumerate(story.meanings):
        for at, clause in enumerate(meaning.clauses):
            event = _event(clause, story.hero, role)
            if event and story.verbs.count(clause.predicate) == 1:
                if question := _about(stream, event, role, split):
                    options.append(Asked(story.meanings, question, role, (sentence, at)))
    return stream.pick(options) if options else None


def _unanswered(
    stream: RandomStream, story: _Story, other: _Story, role: str, split: str
) -> Asked | None:
    """Returns a question that `story` does not answer: its verb occurs only in the story `other`.

    If the question is about the hero of `other`, this hero is replaced by the hero of `story`.
    """
    for clause in (clause for meaning in other.meanings for clause in meaning.clauses):
        event = _event(clause, other.hero, role)
        if event is None or clause.predicate in story.verbs:
            continue
        if event.subject == _called(other.hero):
            event = replace(event, subject=_called(story.hero))
        question = _about(stream, event, role, split)
        if question and _called(other.hero) not in _owners(event):
            return Asked(story.meanings, question, role, None)
    return None


def _called(person: Participant) -> Participant:
    """Returns a person with the first name only."""
    return replace(person, surname=None)


def _owners(clause: Clause) -> set[Participant]:
    roles = (clause.subject, clause.object, clause.recipient, clause.place)
    return {p.owner for p in roles if p and p.owner}


def _event(clause: Clause, about: Participant, role: str) -> Clause | None:
    """Returns a clause with the hero's first name instead of pronouns that need the document.

    Args:
      about: the hero of the story.
      role: the role that a question asks for.

    Returns:
      The clause; None if a question cannot ask for this role of the clause.
    """
    answer: Participant | None = getattr(clause, role)
    if answer is None or clause.negative or clause.modal:
        return None
    if role == "subject":
        if clause.predicate not in world.ACTS or not answer.human or answer.kind == "pronoun":
            return None
    elif role == "object":
        spoken = clause.predicate in ("speak", "learn")  # asked for with "which language"
        if clause.predicate not in _TAKING or answer.human or spoken:
            return None
    elif clause.relation != "at" or not (clause.predicate in _PLACED or clause.predicate == "be"):
        return None
    subject = clause.subject
    if subject is None:
        return None
    if subject.kind == "pronoun":
        if subject != pronoun_for(about):
            return None
        subject = _called(about)
    elif subject.kind == "name":
        subject = _called(subject)
    event = replace(clause, subject=subject, time_first=False)
    return event if subject == _called(about) else _with_owners(event, about)


def _with_owners(clause: Clause, about: Participant) -> Clause:
    """Replaces possessive pronouns for the hero by the hero's name."""

    def named(p: Participant | None) -> Participant | None:
        return replace(p, owner=_called(about)) if p and p.owner == pronoun_for(about) else p

    return replace(
        clause, subject=named(clause.subject), object=named(clause.object),
        recipient=named(clause.recipient), place=named(clause.place),
    )  # fmt: skip


def _about(stream: RandomStream, event: Clause, role: str, split: str) -> Meaning | None:
    """Returns the question for a role of an event; None if the event or the question is not in the
    split."""
    unknown = Participant("unknown", "person" if role == "subject" else "thing")
    if stream.chance(50):
        event = replace(event, time=None)
    changed: dict[str, Any] = {role: unknown, "question": role}
    asked = replace(event if role != "object" else replace(event, place=None), **changed)
    return Meaning("question", (asked,)) if all_within(split, (event, asked)) else None


def span_of(sentence: Sentence, clause: int, role: str) -> tuple[int, int]:
    """Returns the range of a participant in a sentence, (start, end) in characters.

    The span of a place includes its adposition ("in the garden"), because some languages write noun
    and adposition as one word. The spans of other participants do not include adpositions.

    Args:
      clause: the index of the clause in the sentence.
      role: an element of `ROLES`.
    """
    prefix = f"{clause}.{role}."
    left_out = "" if role == "place" else prefix + "case"
    at = [
        position
        for position, word in enumerate(sentence.words)
        if any(slot.startswith(prefix) and slot != left_out for slot in word.slots)
    ]
    return sentence.spans[at[0]][0], sentence.spans[at[-1]][1]
