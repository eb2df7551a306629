"""Swahili: noun classes with concord on verbs, adjectives, numerals and possessives."""

from functools import partial

from xlj.phrasebook.grammars.grammar import (
    PERSONS,
    agreement,
    forms,
    join,
    nameable,
    names,
    times,
    words,
)
from xlj.phrasebook.meaning import Clause, Participant, Word, word

_WORDS = words("swahili")
NOUNS = forms(_WORDS["nouns"])
CONCORDS = forms(_WORDS["concords"])
ADJECTIVES = forms(_WORDS["adjectives"])
VERBS = forms(_WORDS["verbs"])
_MONOSYLLABIC = frozenset(("la", "nywa", "wa"))
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
# Stems that agree begin with a hyphen; the form after the slash is for the n classes.
NUMBERS = "-wili/mbili -tatu/tatu -nne/nne -tano/tano sita saba -nane/nane tisa kumi".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("na", "CCONJ"), "but": ("lakini", "CCONJ"), "because": ("kwa sababu", "SCONJ")}
_SUBJECTS = dict(zip(PERSONS, "ni u a tu wa".split(), strict=True))


def _concord(p: Participant | None) -> tuple[str, ...]:
    """Returns four forms that agree with a participant: the prefix of verbs, the prefix of
    adjectives, the stem of "of" (without -a), and the word for "this"."""
    noun_class = NOUNS[p.concept][2] if p and p.kind == "noun" else "1"
    concords = CONCORDS[noun_class]
    return concords[4:] if p and p.plural else concords[:4]


def _adjective(concept: str, p: Participant | None, slot: str) -> list[Word]:
    kind, *spec = ADJECTIVES[concept]
    _, prefix, of, _ = _concord(p)
    if kind == "same":
        plural = p is not None and p.plural
        return [word(spec[-1] if plural else spec[0], "ADJ", slot)]
    if kind == "of":
        return [word(of + "a", "ADP", slot), word(spec[0], "NOUN", slot)]
    if kind == "with":
        with_ = "mwenye" if prefix == "m" and of == "w" and _concord(p)[0] == "a" else of + "enye"
        return [word(with_, "ADP", slot), word(spec[0], "NOUN", slot)]
    form = {"n": spec[0], "ji": spec[-1]}.get(prefix) or _prefixed(prefix, kind)
    return [word(form, "ADJ", slot)]


def _prefixed(prefix: str, stem: str) -> str:
    """Returns an adjective prefix with its stem; before e, m- becomes mw-, and ki- becomes ch-."""
    if stem[0] != "e":
        return prefix + stem
    return {"m": "mw", "wa": "w", "mi": "my", "ma": "m", "ki": "ch", "vi": "vy"}[prefix] + stem


def noun_phrase(p: Participant | None, role: str) -> list[Word]:
    """Returns the words of a participant: noun, possessive or demonstrative, adjective, numeral.

    Returns [] for a pronoun, because the verb form expresses it.
    """
    if p is None or p.kind != "noun":
        return nameable(p, role, NAMES, ("nani", "nini"))
    entry, (_, prefix, of, this) = NOUNS[p.concept], _concord(p)
    upos = "PROPN" if p.field == "language" else "NOUN"
    phrase = [word(part, upos, role + ".noun") for part in entry[p.plural].split()]
    if p.owner and p.owner.kind == "pronoun":
        mine = PRONOUNS[p.owner.concept][1]
        phrase.append(word(of + mine, "DET", role + ".owner.noun"))
    elif p.owner:  # kin take the animate connective: "kaka wa Anna"
        if entry[2] == "k":
            of = "w"
        phrase.append(word(of + "a", "ADP", role + ".owner.case"))
        phrase += noun_phrase(p.owner, role + ".owner")
    elif p.determiner == "this":
        phrase.append(word(this, "DET", role + ".det"))
    if p.adjective:
        phrase += _adjective(p.adjective, p, role + ".adjective")
    if p.count:
        stem, _, bare = NUMBERS[p.count - 2].partition("/")
        if stem[0] == "-":
            stem = bare if prefix == "n" else prefix + stem[1:]
        phrase.append(word(stem, "NUM", role + ".count"))
    return phrase


def _place(clause: Clause, n: str) -> list[Word]:
    place, role = clause.place, n + ".place"
    if place is None:
        return []
    if place.kind == "unknown":
        return [word("wapi", "ADV", role + ".noun")]
    phrase = noun_phrase(place, role)
    if place.kind != "noun":
        return phrase
    if len(phrase) == 1:  # only a noun without modifiers takes the locative suffix
        return [word(phrase[0].form + "ni", "NOUN", role + ".noun", role + ".case")]
    return [word("kwenye", "ADP", role + ".case"), *phrase]


def _inflect(stem: str, prefix: str, negated: str, clause: Clause, infix: str = "") -> str:
    """Returns a finite form: subject concord, tense, object concord and stem.

    Args:
      prefix, negated: the subject concord of affirmative and of negative forms.
      infix: the object concord; empty without one.
    """
    tense = {"past": "li", "future": "ta"}.get(clause.tense, "na")
    # A stem of one syllable keeps the ku- of its infinitive where a tense would be stressed.
    ku = "ku" if stem in _MONOSYLLABIC and not infix else ""
    if not clause.negative:
        return prefix + tense + ku + infix + stem
    if tense == "na":
        return negated + infix + (stem[:-1] + "i" if stem[-1] == "a" else stem)
    return negated + ("ku" if tense == "li" else "ta" + ku) + infix + stem


def _object_concord(clause: Clause) -> str:
    """Returns the concord of the recipient, or else of the object, if it is animate and definite.

    Returns an empty text otherwise.
    """
    thing = clause.recipient or clause.object
    if thing is None or thing.kind == "unknown" or thing.indefinite:
        return ""
    animate = thing.human or thing.field == "animal"
    return ("wa" if thing.plural else "m") if animate else ""


def _verb(clause: Clause, n: str) -> list[Word]:
    event, tense, predicate = n + ".event", n + ".tense", clause.predicate
    subject = clause.subject
    prefix = _concord(subject)[0]
    dropped: list[str] = []
    if subject and subject.kind == "pronoun":
        prefix, dropped = _SUBJECTS[agreement(subject)], [n + ".subject.noun"]
    negated = {"ni": "si", "a": "ha"}.get(prefix, "ha" + prefix)
    if subject and subject.concept == "you":
        negated = "hu"
    no = [n + ".negation"] if clause.negative else []
    present = clause.tense in ("now", "habit")
    has = clause.attribute is not None and ADJECTIVES[clause.attribute][0] == "has"
    exists = predicate == "exist" or predicate.endswith("_weather")
    if exists:
        prefix, negated, dropped = "ku", "haku", []
    if exists or has or predicate == "have":
        if present:
            form = (negated if no else prefix) + "na"
            return [word(form, "VERB", event, tense, *no, *dropped)]
        form = _inflect("wa", prefix, negated, clause)
        return [word(form, "VERB", event, tense, *no, *dropped), word("na", "ADP", event)]
    if predicate == "be" and present:
        if clause.place:
            if prefix == "a":
                prefix, negated = "yu", "hayu"
            form = (negated if no else prefix) + "ko"
            return [word(form, "VERB", tense, *no, *dropped)]
        copula = word("si" if no else "ni", "AUX", tense, *no)
        if dropped and subject:
            pronoun = word(PRONOUNS[subject.concept][0], "PRON", n + ".subject.noun")
            return [pronoun, copula]
        return [copula]
    if predicate == "be":
        return [word(_inflect("wa", prefix, negated, clause), "AUX", tense, *no, *dropped)]
    stem, *extra = VERBS[predicate]
    if predicate == "wash" and clause.object and clause.object.field == "clothes":
        stem = "fua"
    if predicate in ("rain", "snow"):
        prefix, negated, extra = "i", "hai", []
    infix = _object_concord(clause)
    if infix == "m" and stem[0] in "aeiou":
        infix = "mw"
    tail = [word(form, "NOUN", event) for form in extra]
    if clause.modal:
        finite = _inflect(VERBS[clause.modal][0], prefix, negated, clause)
        return [
            word(finite, "VERB", n + ".modal", tense, *no, *dropped),
            word("ku" + infix + stem, "VERB", event),
            *tail,
        ]
    form = _inflect(stem, prefix, negated, clause, infix)
    return [word(form, "VERB", event, tense, *no, *dropped), *tail]


def _clause(clause: Clause, n: str) -> list[Word]:
    subject, predicate = clause.subject, clause.predicate
    words: list[Word] = []
    if clause.question == "polar":
        words = [word("je", "PART", "question"), word(",", "PUNCT", "comma")]
    time = TIMES[clause.time](n) if clause.time else []
    if clause.time_first:
        words += time
    if predicate != "exist":
        words += noun_phrase(subject, n + ".subject")
    if predicate in ("rain", "snow"):
        words.append(word(VERBS[predicate][1], "NOUN", n + ".event"))
    words += _verb(clause, n)
    if predicate.endswith("_weather"):
        words.append(word(VERBS[predicate][1], "NOUN", n + ".event"))
    if clause.attribute:
        kind = ADJECTIVES[clause.attribute]
        if kind[0] == "has":
            words.append(word(kind[1], "NOUN", n + ".event"))
        else:
            words += _adjective(clause.attribute, subject, n + ".event")
    words += [word("sana", "ADV", n + ".degree")] * clause.very
    words += noun_phrase(clause.complement, n + ".complement")
    if predicate == "exist":
        words += noun_phrase(subject, n + ".subject")
    words += noun_phrase(clause.recipient, n + ".recipient")
    words += noun_phrase(clause.object, n + ".object") + _place(clause, n)
    return words if clause.time_first else words + time


clauses = partial(join, clause=_clause, links=LINKS, commas=("but",))
