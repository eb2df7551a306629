"""Paraphrases, and sentences that are similar but have another meaning.

The two sentences of every pair differ in the place of the time or in the order of clauses, so word
order does not show whether they are paraphrases (as in PAWS, Zhang et al., 2019). In half of the
pairs that are no paraphrases, two participants, times or adjectives are exchanged, so the words are
the same. In the other half, a participant or a time is replaced.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from xlj.phrasebook import world
from xlj.phrasebook.casting import a_name
from xlj.phrasebook.labelled.examples import LabelledMeanings, all_within, drawn_clauses
from xlj.phrasebook.meaning import Clause, Meaning, Participant
from xlj.phrasebook.stream import RandomStream, seed_of

_Clauses = tuple[Clause, ...]


def paraphrases(split: str) -> Iterator[LabelledMeanings]:
    """Yields pairs of a split without end, labelled "1" (same meaning) and "0" in turn."""
    clauses, seed = drawn_clauses("paraphrases", split), seed_of(f"paraphrases choices {split}")
    for position in count():
        stream = RandomStream(seed, position)
        change = (None, exchanges, None, replacements)[position % 4]
        while True:
            members = _drawn(stream, clauses)
            options = [members] if change is None else change(stream, members)
            options = [option for option in options if all_within(split, option)]
            if options:
                break
        variant = stream.pick(options)
        link = stream.pick(("and", "but")) if len(members) > 1 else None
        one, other = _orders(stream, members, variant)
        label = "1" if change is None else "0"
        yield LabelledMeanings(Meaning("first", one, link), Meaning("second", other, link), label)


def _drawn(stream: RandomStream, clauses: Iterator[Clause]) -> _Clauses:
    """Draws a clause with a time that can move, or two clauses that can have either order."""
    first = next(clause for clause in clauses if _stands_alone(clause))
    if first.time and stream.chance(30):
        return (first,)
    second = next(
        clause
        for clause in clauses
        if _stands_alone(clause) and clause.tense == first.tense
        and clause.predicate != first.predicate and not _people(clause) & _people(first)
    )  # fmt: skip
    return first, second


def _orders(
    stream: RandomStream, members: _Clauses, variant: _Clauses
) -> tuple[_Clauses, _Clauses]:
    """Returns both sentences of a pair: of `members`, and of `variant` in another order."""
    if len(members) == 1:
        early = stream.chance(50)
        return (
            (replace(members[0], time_first=early),),
            (replace(variant[0], time_first=bool(variant[0].time) and not early),),
        )
    return _early(stream, members), _early(stream, variant[::-1])


def _early(stream: RandomStream, members: _Clauses) -> _Clauses:
    """Moves the time of the first clause to the front, with a probability of 30 %."""
    first = replace(members[0], time_first=bool(members[0].time) and stream.chance(30))
    return (first, *members[1:])


def _stands_alone(clause: Clause) -> bool:
    """Returns whether a clause has a subject, and no pronoun that could refer to another clause.

    Such a clause has the same meaning before and after another clause. The predicate 'exist' is
    excluded.
    """
    subject = clause.subject
    if subject is None or subject.kind == "pronoun" or clause.predicate == "exist":
        return False
    return not any(
        p.owner and p.owner.concept in ("he", "she", "they") for p in _participants(clause)
    )


def _participants(clause: Clause) -> tuple[Participant, ...]:
    roles = (clause.subject, clause.object, clause.recipient, clause.place, clause.complement)
    return tuple(p for p in roles if p)


def _people(clause: Clause) -> set[str]:
    return {p.concept for p in _participants(clause) if p.human}


def exchanges(stream: RandomStream, members: _Clauses) -> list[_Clauses]:
    """Returns a variant of the clauses for each way to exchange two participants, times, places or
    adjectives."""
    return _within(members[0]) if len(members) == 1 else _between(*members)


def _within(clause: Clause) -> list[_Clauses]:
    subject, thing, options = clause.subject, clause.object, list[_Clauses]()
    if subject is None or clause.predicate not in world.ACTS:
        return options
    if thing and thing.human and clause.predicate != "know":  # knowing is mutual
        options.append((replace(clause, subject=thing, object=subject),))
    if clause.recipient:
        options.append((replace(clause, subject=clause.recipient, recipient=subject),))
    if subject.kind == "name" and thing and thing.owner and thing.owner.kind == "name":
        owner, owned = thing.owner, replace(thing, owner=replace(subject, surname=None))
        if not subject.surname:
            options.append((replace(clause, subject=owner, object=owned),))
    return options


def _between(first: Clause, second: Clause) -> list[_Clauses]:
    options: list[_Clauses] = []
    one, other = first.subject, second.subject
    if one and other and _may_act(one, second) and _may_act(other, first):
        options.append((replace(first, subject=other), replace(second, subject=one)))
    if first.time and second.time and first.time != second.time:
        options.append((replace(first, time=second.time), replace(second, time=first.time)))
    here, there = first.place, second.place
    if here and there and here.concept != there.concept:
        if there.concept in _verb(first).places and here.concept in _verb(second).places:
            options.append((replace(first, place=there), replace(second, place=here)))
    thing, other_thing = first.object, second.object
    if thing and other_thing:
        fit = _takes(first, other_thing) and _takes(second, thing)
        if fit and thing.concept != other_thing.concept:
            options.append((replace(first, object=other_thing), replace(second, object=thing)))
        a, b = thing.adjective, other_thing.adjective
        if a != b and _may_be(thing, b) and _may_be(other_thing, a):
            options.append((
                replace(first, object=replace(thing, adjective=b)),
                replace(second, object=replace(other_thing, adjective=a)),
            ))  # fmt: skip
    return options


def replacements(stream: RandomStream, members: _Clauses) -> list[_Clauses]:
    """Returns a variant of the clauses for each name, thing, city, country or time that can be
    replaced."""
    people = set().union(*map(_people, members))
    return [
        (*members[:at], changed, *members[at + 1 :])
        for at, clause in enumerate(members)
        for changed in _changed(stream, clause, people)
    ]


def _changed(stream: RandomStream, clause: Clause, people: set[str]) -> Iterator[Clause]:
    subject, thing, place = clause.subject, clause.object, clause.place
    if subject and subject.kind == "name":
        yield replace(clause, subject=_someone_else(stream, subject, people))
    if thing and thing.kind == "noun" and not thing.human and clause.predicate in world.ACTS:
        options = world.ACTS[clause.predicate].objects
        alike = [noun for noun in options if world.NOUN_FIELD.get(noun) == thing.field]
        if changed := _other(stream, alike, thing.concept):
            yield replace(clause, object=replace(thing, concept=changed))
    for cities in (world.CITIES, world.COUNTRIES):
        if place and place.concept in cities and (changed := _other(stream, cities, place.concept)):
            yield replace(clause, place=replace(place, concept=changed))
    if clause.time and (changed := _other(stream, world.TIMES[clause.tense], clause.time)):
        if clause.tense != "now":
            yield replace(clause, time=changed)


def _someone_else(stream: RandomStream, person: Participant, people: set[str]) -> Participant:
    someone = a_name(stream)
    while someone.gender != person.gender or someone.concept in people:
        someone = a_name(stream)
    return replace(someone, surname=person.surname)


def _other(stream: RandomStream, options: tuple[str, ...] | list[str], taken: str) -> str | None:
    left = [option for option in options if option != taken]
    return stream.pick(left) if left else None


def _may_act(p: Participant, clause: Clause) -> bool:
    """Returns whether a person can replace the subject of a clause."""
    subject = clause.subject
    return p.human and subject is not None and subject.human and clause.complement is None


def _verb(clause: Clause) -> world.Verb:
    return world.ACTS.get(clause.predicate, world.Verb(()))


def _takes(clause: Clause, thing: Participant) -> bool:
    return (thing.kind if thing.kind == "name" else thing.concept) in _verb(clause).objects


def _may_be(thing: Participant, adjective: str | None) -> bool:
    return thing.kind == "noun" and (
        adjective is None or adjective in world.ADJECTIVES.get(thing.field, ())
    )
