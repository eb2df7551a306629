"""Details of a clause: if an affirmative clause is true, it is also true without these parts."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from xlj.phrasebook import world
from xlj.phrasebook.casting import a_place, an_adjective
from xlj.phrasebook.drawing import COLOURS, STATIVE
from xlj.phrasebook.labelled.splits import place_is_free
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.stream import RandomStream

_ROLES = ("subject", "object", "complement")


def details(clause: Clause) -> tuple[str, ...]:
    """Returns the names of a clause's details: 'time', 'place', 'very' or 'ROLE.adjective'."""
    names = ["time"] if clause.time else []
    if clause.place and place_is_free(clause):
        names.append("place")
    if clause.very:
        names.append("very")
    for role in _ROLES:
        p = getattr(clause, role)
        if p and p.adjective:
            names.append(f"{role}.adjective")
    return tuple(names)


def with_only(clause: Clause, names: Collection[str]) -> Clause:
    """Returns a clause with only these details; all other details are removed.

    Args:
      names: some of `details(clause)`.
    """
    for detail in details(clause):
        if detail in names:
            continue
        if detail == "time":
            clause = replace(clause, time=None, time_first=False)
        elif detail == "place":
            clause = replace(clause, place=None)
        elif detail == "very":
            clause = replace(clause, very=False)
        else:
            role = detail.partition(".")[0]
            clause = _with_adjective(clause, role, None)
    return clause


def enrich(stream: RandomStream, clause: Clause) -> Clause:
    """Returns a clause with every detail that it can have; missing details are drawn."""
    timeless = clause.modal or clause.predicate in STATIVE
    if clause.predicate in world.ACTS and not (clause.time or timeless):
        time = stream.pick(world.TIMES[clause.tense])
        clause = replace(clause, time="now" if clause.tense == "now" else time)
    if place_is_free(clause) and not clause.place:
        if places := world.ACTS[clause.predicate].places:
            clause = replace(clause, place=a_place(stream, places))
    if clause.attribute and clause.attribute not in COLOURS:
        clause = replace(clause, very=True)
    for role in _ROLES:
        p = getattr(clause, role)
        if p and _takes_adjective(p) and not (role == "subject" and clause.attribute):
            clause = _with_adjective(clause, role, an_adjective(stream, p.concept, 100))
    return clause


def _takes_adjective(p: Participant) -> bool:
    return (
        p.kind == "noun" and p.field in world.ADJECTIVES and p.field != "kin"
        and p.adjective is None and p.determiner != "all"
    )  # fmt: skip


def _with_adjective(clause: Clause, role: str, adjective: str | None) -> Clause:
    changed: dict[str, Any] = {role: replace(getattr(clause, role), adjective=adjective)}
    return replace(clause, **changed)


def without_counts(clause: Clause) -> Clause:
    """Replaces counted things by single things, since negated clauses have no counts."""

    def one(p: Participant | None) -> Participant | None:
        return replace(p, count=0, plural=False) if p and p.count else p

    return replace(clause, subject=one(clause.subject), object=one(clause.object))


def negate(clause: Clause) -> Clause:
    """Returns the negation of a clause."""
    return replace(without_counts(clause), negative=True)
