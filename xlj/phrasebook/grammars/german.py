"""German: verb-second order; three genders; cases; weak and strong adjectives; separable verbs."""

from xlj.phrasebook.grammars.grammar import (
    PERSONS,
    agreement,
    forms,
    fuse,
    join,
    nameable,
    names,
    times,
    words,
)
from xlj.phrasebook.meaning import Clause, Participant, Word, word

_WORDS = words("german")
NOUNS = forms(_WORDS["nouns"])
VERBS = forms(_WORDS["verbs"])
WEATHER = {"hot_weather": "heiß", "cold_weather": "kalt", "rain": "", "snow": ""}
WITH_SEIN = frozenset(("go", "return", "arrive", "come"))
ADJECTIVES = _WORDS["adjectives"]
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
NUMBERS = "zwei drei vier fünf sechs sieben acht neun zehn".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("und", "CCONJ"), "but": ("aber", "CCONJ"), "because": ("weil", "SCONJ")}
CONTRACTIONS = _WORDS["contractions"]

# The forms of der, and the endings of dieser, of ein, and of adjectives after der (weak), after ein
# (mixed) and without an article (strong). Keys are a case and a gender ('p': plural).
_KEYS = [case + gender for case in ("nom", "acc", "dat") for gender in "mfnp"]


def _endings(text: str) -> dict[str, str]:
    return dict(zip(_KEYS, text.replace("-", "").split(","), strict=True))


THE = _endings("der,die,das,die,den,die,das,die,dem,der,dem,den")
THIS = _endings("er,e,es,e,en,e,es,e,em,er,em,en")
EIN = _endings(",e,,e,en,e,,e,em,er,em,en")
WEAK = _endings("e,e,e,en,en,e,e,en,en,en,en,en")
MIXED = _endings("er,e,es,en,en,e,es,en,en,en,en,en")
STRONG = _endings("er,e,es,e,en,e,es,e,em,er,em,en")
_FINITE = forms(_WORDS["finite"])


def noun_phrase(p: Participant | None, role: str, case: str, negated: str = "") -> list[Word]:
    """Returns the words of a participant in a case.

    Args:
      case: 'nom', 'acc' or 'dat'.
      negated: the slot of the negation if the article is 'kein', else empty.
    """
    det = role + ".det"
    if p is None or p.kind != "noun":
        name = nameable(p, role, NAMES, ("wer", "was"), PRONOUNS)
        return [word(THE[case + "f"], "DET", det), *name] if p and p.concept == "turkey" else name
    entry = NOUNS[p.concept]
    form, gender = entry[0], entry[1][0]
    if p.plural:
        form, gender = entry[2], "p"
        if case == "dat" and form[-1] not in "ns":
            form += "n"
    elif p.human and p.gender == "f" and len(entry) > 3:
        form, gender = entry[3], "f"
    elif entry[1] == "m*" and case != "nom":
        form += "n" if form[-1] in "er" else "en"
    key, article, endings = case + gender, [], STRONG
    if p.owner and p.owner.kind == "pronoun":
        stem = PRONOUNS[p.owner.concept][1]
        article = [word(stem + EIN[key], "DET", role + ".owner.noun")]
        endings = MIXED
    elif p.owner:
        name_form = p.owner.concept + ("'" if p.owner.concept[-1] in "sxz" else "s")
        article = [word(name_form, "PROPN", role + ".owner.noun", entity="B-PER")]
    elif negated:
        article, endings = [word("kein" + EIN[key], "DET", negated, det)], MIXED
    elif p.determiner == "the":
        article, endings = [word(THE[key], "DET", det)], WEAK
    elif p.determiner == "this":
        article, endings = [word("dies" + THIS[key], "DET", det)], WEAK
    elif p.determiner == "a" and not (p.plural or p.mass):
        article, endings = [word("ein" + EIN[key], "DET", det)], MIXED
    if p.count:
        article.append(word(NUMBERS[p.count - 2], "NUM", role + ".count"))
    if p.adjective:
        adjective = ADJECTIVES[p.adjective].replace("teuer", "teur") + endings[key]
        article.append(word(adjective, "ADJ", role + ".adjective"))
    return [*article, word(form, "PROPN" if p.field == "language" else "NOUN", role + ".noun")]


def _place(clause: Clause, n: str) -> list[Word]:
    place, role = clause.place, n + ".place"
    if place is None or place.kind == "unknown":
        return []
    relation = "at" if clause.predicate == "arrive" else clause.relation
    case = "dat"
    if place.kind == "place":
        preposition = {"at": "in", "to": "nach", "from": "aus"}[relation]
        if relation == "to" and place.concept == "turkey":
            preposition, case = "in", "acc"
    elif place.kind == "organisation":
        preposition = "bei"
    else:
        at = NOUNS[place.concept][3]
        preposition = {"at": at, "to": "zu", "from": "aus" if at == "in" else "von"}[relation]
    return [word(preposition, "ADP", role + ".case"), *noun_phrase(place, role, case)]


def _finite(infinitive: str, person: str, du: str, er: str) -> str:
    """Returns a form of the present tense.

    Args:
      person: an element of `PERSONS`.
      du, er: the forms for '2s' and '3s'; other forms follow from the infinitive. For verbs of
        `_FINITE`, all forms come from that table.
    """
    if infinitive in _FINITE:
        return _FINITE[infinitive][PERSONS.index(person)]
    if person == "1s":
        if infinitive.endswith("eln"):
            return infinitive[:-3] + "le"
        return infinitive[:-1] + "e" if infinitive.endswith("rn") else infinitive[:-1]
    return {"2s": du, "3s": er}.get(person, infinitive)


def _verb(clause: Clause, n: str) -> tuple[Word, list[Word]]:
    """Returns the finite verb, and the words that end the clause: prefix, participle or infinitive,
    if there is one."""
    event, tense = n + ".event", n + ".tense"
    person = agreement(None if clause.predicate == "exist" else clause.subject)
    at = PERSONS.index(person)
    if clause.predicate == "be" or clause.predicate.endswith("_weather"):
        if clause.tense == "future":
            return word(_FINITE["werden"][at], "AUX", tense), [word("sein", "AUX", tense)]
        form = _FINITE["war" if clause.tense == "past" else "sein"][at]
        return word(form, "AUX", tense), []
    infinitive, du, er, participle = VERBS[clause.predicate]
    prefix, bar, verb = infinitive.rpartition("|")
    whole = prefix + verb
    if clause.modal:
        form = _FINITE[clause.modal][at]
        return word(form, "AUX", n + ".modal", tense), [word(whole, "VERB", event)]
    if clause.tense == "past":
        auxiliary = "sein" if clause.predicate in WITH_SEIN else "haben"
        form = _FINITE[auxiliary][at]
        return word(form, "AUX", tense), [word(participle, "VERB", event)]
    if clause.tense == "future":
        return word(_FINITE["werden"][at], "AUX", tense), [word(whole, "VERB", event)]
    finite = word(_finite(verb, person, du, er), "VERB", event, tense)
    return finite, [word(prefix, "ADP", event)] if bar else []


def _clause(clause: Clause, n: str, subordinate: bool = False) -> list[Word]:
    finite, closing = _verb(clause, n)
    thing, slot = clause.object, n + ".negation"
    subject, role = clause.subject, n + ".subject"
    none = clause.negative
    kein = slot if none else ""
    time = TIMES[clause.time](n) if clause.time else []
    place = _place(clause, n)
    before, after = noun_phrase(clause.recipient, n + ".recipient", "dat"), list[Word]()
    if thing and thing.kind != "unknown":
        indefinite = thing.indefinite and not thing.count
        case = "dat" if clause.predicate == "help" else "acc"
        before += noun_phrase(thing, n + ".object", case, kein if indefinite else "")
        none = none and not indefinite
    if clause.predicate == "exist" and subject:
        before += noun_phrase(subject, role, "acc", kein)
        none = False
    if clause.complement:
        phrase = noun_phrase(clause.complement, n + ".complement", "nom", kein)
        # A profession takes no article unless it has an adjective or is negated.
        after += phrase if kein or clause.complement.adjective else phrase[1:]
        none = False
    after += [word("sehr", "ADV", n + ".degree")] * clause.very
    if clause.attribute:
        after.append(word(ADJECTIVES[clause.attribute], "ADJ", n + ".event"))
    if WEATHER.get(clause.predicate):
        after.append(word(WEATHER[clause.predicate], "ADJ", n + ".event"))
    nicht = [word("nicht", "PART", slot)] * none
    if clause.predicate == "exist":
        first = [word("es", "PRON", n + ".event")]
    elif subject is None:
        first = [word("es", "PRON", n + ".expletive")]
    else:
        first = noun_phrase(subject, role, "nom")
    if subject is None and place and not clause.negative:  # "es ist in Paris kalt"
        middle = [*time, *place, *after]
    else:
        middle = [*time, *before, *nicht, *place, *after]
    if subordinate:
        return fuse([*first, *middle, *closing, finite], CONTRACTIONS)
    if clause.question == "object":
        front = noun_phrase(thing, n + ".object", "acc")
    elif clause.question == "place":
        front = [word("wo", "ADV", n + ".place.noun")]
    elif clause.question == "polar":
        front = []
    elif clause.time_first:
        front, middle = time, middle[len(time) :]
    else:
        return fuse([*first, finite, *middle, *closing], CONTRACTIONS)
    return fuse([*front, finite, *first, *middle, *closing], CONTRACTIONS)


def clauses(members: tuple[Clause, ...], link: str | None) -> list[Word]:
    """Returns the words of a sentence of one or two clauses, with its punctuation."""

    def clause(clause: Clause, n: str) -> list[Word]:
        return _clause(clause, n, subordinate=link == "because" and n == "1")

    return join(members, link, clause, LINKS, commas=("and", "but", "because"))
