"""Details of a clause: each can be left out, and the rest is still true."""

from collections.abc import Collection
from dataclasses import replace

from xlj.phrasebook.casting import a_place, an_adjective
from xlj.phrasebook.drawing import COLOURS, STATIVE
from xlj.phrasebook.labelled.splits import place_is_free
from xlj.phrasebook.meaning import (
    ADJECTIVES,
    DITRANSITIVE,
    INTRANSITIVE,
    MOTION,
    TIMES,
    TRANSITIVE,
    Clause,
    Participant,
)
from xlj.phrasebook.stream import Stream

_ROLES = ("subject", "object", "complement")


def details(clause: Clause) -> tuple[str, ...]:
    """The names of the details that a clause has: 'time', 'place', 'very' or 'ROLE.adjective'."""
    found = ["time"] if clause.time else []
    if clause.place and place_is_free(clause):
        found.append("place")
    if clause.very:
        found.append("very")
    for role in _ROLES:
        p = getattr(clause, role)
        if p and p.adjective:
            found.append(f"{role}.adjective")
    return tuple(found)


def with_only(clause: Clause, kept: Collection[str]) -> Clause:
    """The clause without its details, except those that are kept."""
    for detail in details(clause):
        if detail in kept:
            continue
        if detail == "time":
            clause = replace(clause, time=None, time_first=False)
        elif detail == "place":
            clause = replace(clause, place=None)
        elif detail == "very":
            clause = replace(clause, very=False)
        else:
            role = detail.partition(".")[0]
            bare = replace(getattr(clause, role), adjective=None)
            clause = _with_role(clause, role, bare)
    return clause


def enriched(stream: Stream, clause: Clause) -> Clause:
    """The clause with every detail that it has room for."""
    acts = clause.predicate in TRANSITIVE | INTRANSITIVE | MOTION | DITRANSITIVE
    if acts and not (clause.time or clause.modal or clause.predicate in STATIVE):
        time = stream.pick(TIMES[clause.tense])
        if clause.tense == "now":
            time = "now"
        clause = replace(clause, time=time)
    if place_is_free(clause) and not clause.place:
        places = (TRANSITIVE | INTRANSITIVE)[clause.predicate].places
        if places:
            clause = replace(clause, place=a_place(stream, places))
    if clause.attribute and clause.attribute not in COLOURS:
        clause = replace(clause, very=True)
    for role in _ROLES:
        p = getattr(clause, role)
        if p and _takes_adjective(p) and not (role == "subject" and clause.attribute):
            clause = _with_role(
                clause, role, replace(p, adjective=an_adjective(stream, p.concept, 100))
            )
    return clause


def _takes_adjective(p: Participant) -> bool:
    return (
        p.kind == "noun" and p.field in ADJECTIVES and p.field != "kin"
        and p.adjective is None and p.determiner != "all"
    )  # fmt: skip


def _with_role(clause: Clause, role: str, p: Participant) -> Clause:
    if role == "subject":
        return replace(clause, subject=p)
    return replace(clause, object=p) if role == "object" else replace(clause, complement=p)


def uncounted(clause: Clause) -> Clause:
    """The clause about one thing where it was about three: what is denied is not counted."""

    def one(p: Participant | None) -> Participant | None:
        return replace(p, count=0, plural=False) if p and p.count else p

    return replace(clause, subject=one(clause.subject), object=one(clause.object))


def denied(clause: Clause) -> Clause:
    """The negation of a clause."""
    return replace(uncounted(clause), negative=True)
