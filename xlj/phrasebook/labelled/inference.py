"""Natural language inference: pairs of meanings, labelled entailment, neutral or contradiction.

Half of the hypotheses of each label are negated. Hypotheses of all labels have about the same
number of details. So the hypothesis alone gives little information about the label.

If an affirmative clause is true, it is also true without its details.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from xlj.phrasebook import world
from xlj.phrasebook.casting import a_person, a_place, an_adjective, pronoun_for
from xlj.phrasebook.drawing import COLOURS, STATIVE
from xlj.phrasebook.labelled.examples import (
    LabelledMeanings,
    all_within,
    drawn_clauses,
    place_is_free,
)
from xlj.phrasebook.meaning import Clause, Meaning, Participant
from xlj.phrasebook.stream import RandomStream, seed_of

LABELS = ("entailment", "neutral", "contradiction")
_PAIRS = (
    "new/old big/small expensive/cheap clean/dirty hot/cold rich/poor long/short happy/sad "
    "hot_weather/cold_weather"
)
_OPPOSITES = dict(pair.split("/") for pair in _PAIRS.split())
OPPOSITE = _OPPOSITES | {other: one for one, other in _OPPOSITES.items()}
"""The opposite of each word. A word and its opposite cannot both be true."""

_FAR_APART = tuple("school hospital church museum farm airport station library theatre".split())
"""Places that are never inside one another."""


def inferences(split: str) -> Iterator[LabelledMeanings]:
    """Yields pairs of a premise and a hypothesis of a split without end, with `LABELS` in turn."""
    clauses, seed = drawn_clauses("nli", split), seed_of(f"nli choices {split}")
    for position in count():
        stream = RandomStream(seed, position)
        label, hypothesis_negated = LABELS[position % 3], position // 3 % 2 == 1
        while True:
            inference = _inference(stream, clauses, label, hypothesis_negated)
            if inference and all_within(split, inference.first.clauses + inference.second.clauses):
                yield inference
                break


def _inference(
    stream: RandomStream, clauses: Iterator[Clause], label: str, hypothesis_negated: bool
) -> LabelledMeanings | None:
    """Draws an inference about the next clause; None if the clause allows no such inference."""
    clause = next(clauses)
    if label == "neutral":
        premise_negated = stream.chance(50)
    else:  # entailment needs the same polarity of both, contradiction needs opposite polarities
        premise_negated = hypothesis_negated == (label == "entailment")
    if premise_negated and label != "neutral":
        other = _excluded(stream, clause)
        if other and stream.chance(75):  # "is big", so "is not small"; the premise is affirmative
            hypothesis = negate(other) if hypothesis_negated else other
            return _example(stream, clauses, clause, hypothesis, label)
    clause = enrich(stream, without_counts(clause) if premise_negated else clause)
    order = _shuffled(stream, details(clause))
    new = [name for name in order if not (name == "time" and clause.tense == "now")]
    if label == "neutral" and stream.chance(50):  # a detail that the premise lacks
        if len(order) < 2 or not new:
            return None
        rest = [name for name in order if name != new[0]]
        premise = with_only(clause, rest[: 1 + stream.below(2)])
        hypothesis = with_only(clause, new[:1])
    else:
        few = int(stream.chance(30 if label == "neutral" else 65))
        premise = with_only(clause, order[: few if premise_negated else few + 1])
        hypothesis = with_only(clause, order[:few])
        if label == "neutral":
            another = _another(stream, clauses, hypothesis)
            if another is None:
                return None
            hypothesis = another
    return _example(
        stream, clauses, negate(premise) if premise_negated else premise,
        negate(hypothesis) if hypothesis_negated else hypothesis, label,
    )  # fmt: skip


def _example(
    stream: RandomStream, clauses: Iterator[Clause], premise: Clause, hypothesis: Clause, label: str
) -> LabelledMeanings:
    """Returns the inference, often with a second clause in the premise."""
    first = bool(hypothesis.time) and stream.chance(50)
    positive = without_counts(replace(premise, negative=hypothesis.negative))
    same = positive == without_counts(hypothesis)
    second = Meaning("hypothesis", (replace(hypothesis, time_first=first),))
    # A premise of one clause must have a time, which has another place than in the hypothesis.
    # Without a time, it must be affirmative and differ from the hypothesis in more than negation.
    if stream.chance(50) and (premise.time or not (same or premise.negative)):
        premise = replace(premise, time_first=bool(premise.time) and not first)
        return LabelledMeanings(Meaning("premise", (premise,)), second, label)
    reason = _reason(stream, premise)
    if reason and stream.chance(25):
        return LabelledMeanings(Meaning("premise", (premise, reason), "because"), second, label)
    aside = _aside(stream, clauses, premise, hypothesis)
    members = (premise, aside) if stream.chance(50) else (aside, premise)
    return LabelledMeanings(Meaning("premise", members, stream.pick(("and", "but"))), second, label)


def _reason(stream: RandomStream, premise: Clause) -> Clause | None:
    """Draws a reason for an action; None for other clauses.

    A negated action has no reason, because the scope of the negation would be ambiguous.
    """
    subject = premise.subject
    if subject is None or not subject.human or premise.negative or premise.predicate == "be":
        return None
    tense = "past" if premise.tense == "past" else "habit"
    return Clause("be", pronoun_for(subject), attribute=stream.pick(world.STATES), tense=tense)


def _aside(
    stream: RandomStream, clauses: Iterator[Clause], premise: Clause, hypothesis: Clause
) -> Clause:
    """Draws another clause in the same tense, with another verb and other participants."""
    people = _participants(premise) | _participants(hypothesis)
    known = premise.predicate, hypothesis.predicate
    aside = next(
        clause
        for clause in clauses
        if clause.tense == premise.tense
        and clause.predicate not in known
        and not _participants(clause) & people
    )
    return negate(aside) if stream.chance(35) else aside


def _participants(clause: Clause) -> set[str]:
    """Returns the concepts of all participants other than owners."""
    roles = (clause.subject, clause.object, clause.recipient, clause.place)
    return {p.concept for p in roles if p}


def _excluded(stream: RandomStream, clause: Clause) -> Clause | None:
    """Draws a clause that cannot be true if this clause is true, or returns None."""
    if clause.subject is None and clause.predicate in OPPOSITE and clause.tense == "now":
        return replace(clause, predicate=OPPOSITE[clause.predicate])
    if clause.tense != "habit" or clause.predicate not in ("be", "live"):
        return None
    if clause.attribute in OPPOSITE:
        return replace(clause, attribute=OPPOSITE[clause.attribute], very=False)
    if clause.attribute in COLOURS:
        return replace(clause, attribute=stream.pick(sorted(COLOURS - {clause.attribute})))
    if clause.place:
        for group in (world.CITIES, world.COUNTRIES, _FAR_APART):
            if clause.place.concept in group:
                others = sorted(set(group) - {clause.place.concept})
                place = replace(clause.place, concept=stream.pick(others), adjective=None)
                return replace(clause, place=place)
    return None


def _another(stream: RandomStream, clauses: Iterator[Clause], clause: Clause) -> Clause | None:
    """Draws a clause that neither follows from this clause nor contradicts it, or returns None.

    It is another event of the same subject, or the same event of another subject.
    """
    subject = clause.subject
    if subject is None:
        excluded = (clause.predicate, OPPOSITE.get(clause.predicate))
        others = [weather for weather in world.WEATHER if weather not in excluded]
        return replace(clause, predicate=stream.pick(others))
    if not subject.human:
        known = (clause.attribute, OPPOSITE.get(str(clause.attribute)))
        fitting = [a for a in world.ADJECTIVES.get(subject.field, ()) if a not in known]
        if clause.attribute in COLOURS:
            fitting = [a for a in fitting if a not in COLOURS]
        if not fitting or clause.predicate == "exist":
            return None
        return Clause("be", replace(subject, adjective=None), attribute=stream.pick(fitting))
    if stream.chance(40):
        return _of_someone_else(stream, clause, subject)
    event = next(event for event in clauses if _fits(event, subject, clause))
    return replace(with_only(event, details(event)[: stream.below(2)]), subject=subject)


def _of_someone_else(stream: RandomStream, clause: Clause, subject: Participant) -> Clause:
    """Replaces the subject by a person of the same gender and number, so that words still agree."""
    while True:
        someone = a_person(stream, None, pronouns=False)
        agrees = (someone.gender, someone.plural) == (subject.gender, subject.plural)
        has_role = someone.field in ("profession", "people") and clause.complement
        if agrees and not has_role and someone.concept not in _participants(clause):
            return replace(clause, subject=someone)


def _fits(event: Clause, subject: Participant, clause: Clause) -> bool:
    """Returns whether an event fits this subject, and has another predicate than `clause`."""
    if event.subject is None or not event.subject.human or event.complement:
        return False
    return event.predicate != clause.predicate and not _participants(event) & {subject.concept}


def _shuffled(stream: RandomStream, names: tuple[str, ...]) -> list[str]:
    left = list(names)
    return [left.pop(stream.below(len(left))) for _ in names]


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
