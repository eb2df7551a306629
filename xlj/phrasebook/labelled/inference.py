"""Entailment, neutral and contradiction: pairs of meanings that are made to be so related.

Half of the hypotheses of each label deny something, and hypotheses are equally rich in details
whatever the label, so that a hypothesis alone says little about it.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from xlj.phrasebook import world
from xlj.phrasebook.casting import a_person, pronoun_for
from xlj.phrasebook.drawing import COLOURS
from xlj.phrasebook.labelled.details import denied, details, enriched, uncounted, with_only
from xlj.phrasebook.labelled.examples import LabelledMeanings
from xlj.phrasebook.labelled.splits import all_within, drawn_clauses
from xlj.phrasebook.meaning import Clause, Meaning, Participant
from xlj.phrasebook.stream import Stream, seed_of

LABELS = ("entailment", "neutral", "contradiction")
_PAIRS = (
    "new/old big/small expensive/cheap clean/dirty hot/cold rich/poor long/short happy/sad "
    "hot_weather/cold_weather"
)
_OPPOSITES = dict(pair.split("/") for pair in _PAIRS.split())
OPPOSITE = _OPPOSITES | {other: one for one, other in _OPPOSITES.items()}
"""The opposite of each word: both cannot be so."""

_FAR_APART = tuple("school hospital church museum farm airport station library theatre".split())
"""Places none of which is in another."""


def inferences(split: str) -> Iterator[LabelledMeanings]:
    """Endless premises and hypotheses of a split, `LABELS` taking turns."""
    clauses, seed = drawn_clauses("nli", split), seed_of(f"nli choices {split}")
    for position in count():
        stream = Stream(seed, position)
        label, negated = LABELS[position % 3], position // 3 % 2 == 1
        while True:
            made = _inference(stream, clauses, label, negated)
            if made and all_within(split, made.first.clauses + made.second.clauses):
                yield made
                break


def _inference(
    stream: Stream, clauses: Iterator[Clause], label: str, negated: bool
) -> LabelledMeanings | None:
    """An inference about the next clause; `negated` says whether its hypothesis is; or None."""
    clause = next(clauses)
    if label == "neutral":
        denies = stream.chance(50)
    else:  # what is told agrees in polarity with what follows from it
        denies = negated == (label == "entailment")
    if denies and label != "neutral":
        other = _excluded(stream, clause)
        if other and stream.chance(75):  # "is big", so "is not small"
            return _told(stream, clauses, clause, denied(other) if negated else other, label)
    clause = enriched(stream, uncounted(clause) if denies else clause)
    order = _shuffled(stream, details(clause))
    new = [name for name in order if not (name == "time" and clause.tense == "now")]
    if label == "neutral" and stream.chance(50):  # a detail that is not told
        if len(order) < 2 or not new:
            return None
        rest = [name for name in order if name != new[0]]
        told = with_only(clause, rest[: 1 + stream.below(2)])
        hypothesis = with_only(clause, new[:1])
    else:
        few = int(stream.chance(30 if label == "neutral" else 65))
        told = with_only(clause, order[: few if denies else few + 1])
        hypothesis = with_only(clause, order[:few])
        if label == "neutral":
            another = _another(stream, clauses, hypothesis)
            if another is None:
                return None
            hypothesis = another
    return _told(
        stream, clauses, denied(told) if denies else told,
        denied(hypothesis) if negated else hypothesis, label,
    )  # fmt: skip


def _told(
    stream: Stream, clauses: Iterator[Clause], told: Clause, hypothesis: Clause, label: str
) -> LabelledMeanings:
    """The inference, perhaps with something else told beside the clause."""
    first = bool(hypothesis.time) and stream.chance(50)
    same = uncounted(replace(told, negative=hypothesis.negative)) == uncounted(hypothesis)
    claimed = Meaning("claimed", (replace(hypothesis, time_first=first),))
    # One clause alone is neither repeated to the letter nor, without a time to move, denied
    if stream.chance(50) and (told.time or not (same or told.negative)):
        told = replace(told, time_first=bool(told.time) and not first)
        return LabelledMeanings(Meaning("told", (told,)), claimed, label)
    reason = _reason(stream, told)
    if reason and stream.chance(25):
        return LabelledMeanings(Meaning("told", (told, reason), "because"), claimed, label)
    aside = _aside(stream, clauses, told, hypothesis)
    parts = (told, aside) if stream.chance(50) else (aside, told)
    return LabelledMeanings(Meaning("told", parts, stream.pick(("and", "but"))), claimed, label)


def _reason(stream: Stream, told: Clause) -> Clause | None:
    """Why somebody does so; of what is denied it would not be clear what has the reason."""
    subject = told.subject
    if subject is None or not subject.human or told.negative or told.predicate == "be":
        return None
    tense = "past" if told.tense == "past" else "habit"
    return Clause("be", pronoun_for(subject), attribute=stream.pick(world.STATES), tense=tense)


def _aside(stream: Stream, clauses: Iterator[Clause], told: Clause, hypothesis: Clause) -> Clause:
    """Something else, about somebody else."""
    people, known = _who(told) | _who(hypothesis), (told.predicate, hypothesis.predicate)
    aside = next(
        clause
        for clause in clauses
        if clause.tense == told.tense
        and clause.predicate not in known
        and not _who(clause) & people
    )
    return denied(aside) if stream.chance(35) else aside


def _who(clause: Clause) -> set[str]:
    """Who and what takes part, owners left aside."""
    roles = (clause.subject, clause.object, clause.recipient, clause.place)
    return {p.concept for p in roles if p}


def _excluded(stream: Stream, clause: Clause) -> Clause | None:
    """A clause that cannot be true at the time of the clause, if there is one to name."""
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


def _another(stream: Stream, clauses: Iterator[Clause], clause: Clause) -> Clause | None:
    """Another event of the same participant, or the same event of another: neither follows."""
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


def _of_someone_else(stream: Stream, clause: Clause, subject: Participant) -> Clause:
    """The same, of a person of that gender and number: an adjective or a profession still fits."""
    while True:
        someone = a_person(stream, None, pronouns=False)
        alike = (someone.gender, someone.plural) == (subject.gender, subject.plural)
        called = someone.field in ("profession", "people") and clause.complement
        if alike and not called and someone.concept not in _who(clause):
            return replace(clause, subject=someone)


def _fits(event: Clause, subject: Participant, told: Clause) -> bool:
    """Whether an event can be that of another subject, and says nothing of what is told."""
    if event.subject is None or not event.subject.human or event.complement:
        return False
    return event.predicate != told.predicate and not _who(event) & {subject.concept}


def _shuffled(stream: Stream, names: tuple[str, ...]) -> list[str]:
    left = list(names)
    return [left.pop(stream.below(len(left))) for _ in names]
