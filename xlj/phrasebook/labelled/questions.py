"""Questions about a document, with the span that answers them; one in ten has no answer there."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from xlj.phrasebook import world
from xlj.phrasebook.casting import pronoun_for
from xlj.phrasebook.drawing import document, hero
from xlj.phrasebook.labelled.splits import all_within
from xlj.phrasebook.meaning import Clause, Meaning, Participant
from xlj.phrasebook.sentence import Sentence
from xlj.phrasebook.stream import Stream, seed_of

ROLES = ("subject", "object", "place")
_TAKING = world.TRANSITIVE | world.DITRANSITIVE
_PLACED = world.TRANSITIVE | world.INTRANSITIVE
_UNANSWERED = 10
_MEANINGS = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about the clause that says the answer.

    `where` is (meaning, clause) in the document, None where it does not say; the participant in
    that `role` is the answer.
    """

    document: tuple[Meaning, ...]
    question: Meaning
    role: str
    where: tuple[int, int] | None


def questions(split: str) -> Iterator[Asked]:
    """Endless questions of a split, the roles taking turns; each document has one question."""
    stories = _stories(seed_of(f"questions {split}"))
    for position in count():
        stream = Stream(seed_of(f"questions choices {split}"), position)
        role = ROLES[position % len(ROLES)]
        found = None
        while found is None:
            story = next(stories)
            if position % _UNANSWERED == _UNANSWERED - 1:
                found = _unanswered(stream, story, next(stories), role, split)
            else:
                found = _answered(stream, story, role, split)
        yield found


@dataclass(frozen=True, slots=True)
class _Story:
    told: tuple[Meaning, ...]
    hero: Participant

    @property
    def verbs(self) -> list[str]:
        return [clause.predicate for meaning in self.told for clause in meaning.clauses]


def _stories(seed: int) -> Iterator[_Story]:
    for index in count():
        told = document(seed, index)
        if len(told) >= _MEANINGS:
            yield _Story(told, hero(seed, index))


def _answered(stream: Stream, story: _Story, role: str, split: str) -> Asked | None:
    """A question about some clause of a story, the only one with its verb."""
    options = []
    for sentence, meaning in enumerate(story.told):
        for at, clause in enumerate(meaning.clauses):
            event = _event(clause, story.hero, role)
            if event and story.verbs.count(clause.predicate) == 1:
                if question := _about(stream, event, role, split):
                    options.append(Asked(story.told, question, role, (sentence, at)))
    return stream.pick(options) if options else None


def _unanswered(
    stream: Stream, story: _Story, other: _Story, role: str, split: str
) -> Asked | None:
    """A question with a verb that only another story has, about the hero of this one."""
    for clause in (clause for meaning in other.told for clause in meaning.clauses):
        event = _event(clause, other.hero, role)
        if event is None or clause.predicate in story.verbs:
            continue
        if event.subject == _called(other.hero):
            event = replace(event, subject=_called(story.hero))
        question = _about(stream, event, role, split)
        if question and _called(other.hero) not in _owners(event):
            return Asked(story.told, question, role, None)
    return None


def _called(person: Participant) -> Participant:
    """Somebody by first name."""
    return replace(person, surname=None)


def _owners(clause: Clause) -> set[Participant]:
    roles = (clause.subject, clause.object, clause.recipient, clause.place)
    return {p.owner for p in roles if p and p.owner}


def _event(clause: Clause, about: Participant, role: str) -> Clause | None:
    """The event that a clause tells, its participants named, if one can ask for the role."""
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
    """The clause with the hero's name where an owner is said to be him or her."""

    def named(p: Participant | None) -> Participant | None:
        return replace(p, owner=_called(about)) if p and p.owner == pronoun_for(about) else p

    return replace(
        clause, subject=named(clause.subject), object=named(clause.object),
        recipient=named(clause.recipient), place=named(clause.place),
    )  # fmt: skip


def _about(stream: Stream, event: Clause, role: str, split: str) -> Meaning | None:
    """The question that asks for a role of an event, if both are of the split."""
    unknown = Participant("unknown", "person" if role == "subject" else "thing")
    if stream.chance(50):
        event = replace(event, time=None)
    changed: dict[str, Any] = {role: unknown, "question": role}
    asked = replace(event if role != "object" else replace(event, place=None), **changed)
    return Meaning("question", (asked,)) if all_within(split, (event, asked)) else None


def span_of(sentence: Sentence, clause: int, role: str) -> tuple[int, int]:
    """Where a participant stands in a sentence: (start, end) in characters.

    A place has its preposition or the like ("in the garden"), since half of the languages write
    both as one word; others stand without.
    """
    prefix = f"{clause}.{role}."
    left_out = "" if role == "place" else prefix + "case"
    at = [
        position
        for position, word in enumerate(sentence.words)
        if any(slot.startswith(prefix) and slot != left_out for slot in word.slots)
    ]
    return sentence.spans[at[0]][0], sentence.spans[at[-1]][1]
