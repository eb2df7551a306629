"""Hindi: verb-final, postpositions with oblique forms, gender agreement, ergative ne."""

from functools import partial

from xlj.phrasebook.grammars.grammar import (
    PERSONS,
    agreement,
    forms,
    is_feminine,
    join,
    nameable,
    names,
    times,
    words,
)
from xlj.phrasebook.meaning import Clause, Participant, Word, word

_WORDS = words("hindi")
NOUNS = forms(_WORDS["nouns"])
HONOURED = frozenset("mother father uncle aunt grandmother grandfather".split())
VERBS = forms(_WORDS["verbs"])
_PERFECTIVE = forms(_WORDS["perfective"])
ADJECTIVES = _WORDS["adjectives"]
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
NUMBERS = "दो तीन चार पाँच छह सात आठ नौ दस".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("और", "CCONJ"), "but": ("लेकिन", "CCONJ"), "because": ("क्योंकि", "SCONJ")}
_IS = dict(zip(PERSONS, "हूँ हो है हैं हैं".split(), strict=True))
_FUTURES = forms(_WORDS["futures"])
_FUTURE = dict(zip(PERSONS, "ूँ ो े ें ें".split(), strict=True))
_FUTURE_VOWEL = dict(zip(PERSONS, "ऊँ ओ ए एँ एँ".split(), strict=True))
_WAS = forms(_WORDS["was"])
_MATRAS = "ािीुूेैोौआईऊएओ"


def _decline(form: str, gender: str, plural: bool, oblique: bool) -> str:
    """Returns a form of a noun, by its gender and ending.

    Args:
      form: the direct singular.
      gender: 'm' or 'f'; with '*', the noun has the same form everywhere.
    """
    if gender.endswith("*") or not (plural or oblique):
        return form
    last, stem = form[-1], form[:-1]
    if gender == "m":
        if last == "ा":
            return stem + ("ों" if plural and oblique else "े")
        if not (plural and oblique):
            return form
        return stem + {"ी": "ियों", "ू": "ुओं"}.get(last, last + "ों")
    if not plural:
        return form
    if form.endswith("िया"):
        return stem + ("ों" if oblique else "ाँ")
    ends = {"ी": ("ियाँ", "ियों"), "ई": ("इयाँ", "इयों"), "ा": ("ाएँ", "ाओं")}
    return stem + ends.get(last, (last + "ें", last + "ों"))[oblique]


def _agreeing(form: str, gender: str, plural: bool) -> str:
    """Returns an adjective, participle or possessive in agreement; only forms in -ā change."""
    if form == "हुआ":
        return "हुई" if gender == "f" else "हुए" if plural else form
    if not form.endswith("ा") or form == "ताज़ा":
        return form
    stem = form[:-1]
    if stem.endswith("य"):
        return stem[:-1] + ("ई" if gender == "f" else "ए") if gender == "f" or plural else form
    return stem + ("ी" if gender == "f" else "े" if plural else "ा")


def _gender(p: Participant) -> str:
    return "f" if is_feminine(p, NOUNS) else "m"


def _plural(p: Participant) -> bool:
    """Returns whether words agree with a participant in the plural.

    The participant is plural, तुम ("you"), or a relative with an honorific plural (`HONOURED`).
    """
    return p.plural or p.concept in HONOURED or (p.kind == "pronoun" and p.concept == "you")


def _person(p: Participant | None) -> str:
    return "3p" if p and p.concept in HONOURED else agreement(p)


def noun_phrase(
    p: Participant, role: str, oblique: bool = False, subject: Participant | None = None
) -> list[Word]:
    """Returns the words of a participant.

    Args:
      oblique: whether the noun has the oblique form, which postpositions need.
      subject: the subject of the clause. A possessive pronoun that refers to it becomes अपना.
    """
    if p.kind != "noun":
        return nameable(p, role, NAMES, ("कौन", "क्या"), PRONOUNS)
    entry, gender = NOUNS[p.concept], _gender(p)
    form = entry[0]
    if p.human and p.gender == "f" and len(entry) > 2:
        form = entry[2]
    declension = entry[1] if gender == entry[1][0] else gender
    form = _decline(form, declension, p.plural, oblique)
    bent = oblique or _plural(p)  # masculine adjectives have one form for oblique and plural
    words: list[Word] = []
    if p.owner:
        mine = role + ".owner.noun"
        if p.owner.kind == "pronoun":
            own = "अपना" if subject and _same(p.owner, subject) else PRONOUNS[p.owner.concept][3]
            words = [word(_agreeing(own, gender, bent), "PRON", mine)]
        else:
            words = noun_phrase(p.owner, role + ".owner")
            of = _agreeing("का", gender, bent)
            words.append(word(of, "ADP", role + ".owner.case"))
    elif p.determiner == "this":
        this = ("इन" if p.plural else "इस") if oblique else ("ये" if p.plural else "यह")
        words = [word(this, "DET", role + ".det")]
    if p.count:
        words.append(word(NUMBERS[p.count - 2], "NUM", role + ".count"))
    elif p.determiner == "a" and not (p.plural or p.mass or p.owner):
        words.append(word("एक", "DET", role + ".det"))
    if p.adjective:
        adjective = _agreeing(ADJECTIVES[p.adjective], gender, bent)
        words.append(word(adjective, "ADJ", role + ".adjective"))
    upos = "PROPN" if p.field == "language" else "NOUN"
    return words + [word(part, upos, role + ".noun") for part in form.split()]


def _same(owner: Participant, subject: Participant) -> bool:
    """Returns whether the pronoun `owner` is taken to refer to the subject of the clause."""
    if subject.kind == "pronoun" or owner.concept in ("i", "you", "we"):
        return owner.concept == subject.concept
    if owner.concept == "they" or subject.plural:
        return owner.concept == "they" and subject.plural
    return subject.human and (owner.concept == "she") == (_gender(subject) == "f")


def _marked(p: Participant, role: str, marker: str, subject: Participant | None) -> list[Word]:
    """Returns the words of a participant and its postposition `marker`.

    Pronouns fuse with ने and को. With any other marker, a pronoun takes पास.
    """
    case = role + ".case"
    if p.kind == "pronoun" and marker in ("ने", "को"):
        form = PRONOUNS[p.concept][1 if marker == "ने" else 2]
        return [word(form, "PRON", role + ".noun", case)]
    if p.kind == "pronoun":  # मेरे पास
        form = _agreeing(PRONOUNS[p.concept][3], "m", True)
        return [word(form, "PRON", role + ".noun", case), word("पास", "ADP", case)]
    if p.kind == "unknown" and p.concept == "person":
        return [word("किस" + marker if marker == "ने" else "किसे", "PRON", role + ".noun", case)]
    words = noun_phrase(p, role, True, subject)
    return words + [word(part, "ADP", case) for part in marker.split()]


def _perfective(stem: str, gender: str, plural: bool) -> str:
    if stem in _PERFECTIVE:
        return _PERFECTIVE[stem][2 * (gender == "f") + plural]
    if stem[-1] in _MATRAS:
        ends = ("ई", "ईं") if gender == "f" else ("या", "ए")
    else:
        ends = ("ी", "ीं") if gender == "f" else ("ा", "े")
    return stem + ends[plural]


def _future(stem: str, person: str, gender: str) -> str:
    if stem in _FUTURES:
        base = _FUTURES[stem][PERSONS.index(person)]
    else:
        base = stem + (_FUTURE_VOWEL if stem[-1] in _MATRAS else _FUTURE)[person]
    plural = person not in ("1s", "3s")
    return base + ("गी" if gender == "f" else "गे" if plural else "गा")


def _copula(clause: Clause, n: str, agrees: Participant | None, weather: str = "") -> list[Word]:
    """Returns the negation, if any, and the copula (हूँ, था, होगा, ...).

    Args:
      agrees: the participant with which the copula agrees; None for the third person singular.
      weather: the gender of a noun for weather, which replaces the gender of `agrees`; else empty.
    """
    gender = weather or (_gender(agrees) if agrees else "m")
    plural = _plural(agrees) if agrees else False
    if clause.tense == "past":
        tum = agrees and agrees.concept == "you" and gender == "f"
        form = _WAS[gender][plural and not tum]
    elif clause.tense == "future":
        form = _future("हो", _person(agrees), gender)
    else:
        form = _IS[_person(agrees)]
    no = [word("नहीं", "PART", n + ".negation")] if clause.negative else []
    if clause.predicate in ("have", "exist"):
        return [*no, word(form, "VERB", n + ".tense", n + ".event")]
    return [*no, word(form, "AUX", n + ".tense")]


def _verb(clause: Clause, n: str, agrees: Participant | None, fixed: str) -> list[Word]:
    """Returns the negation, if any, and the verb.

    Args:
      agrees: the participant with which the verb agrees; None for the third person singular.
      fixed: a gender that replaces `agrees`: the verb agrees with it in the third person singular.
        Empty otherwise.
    """
    event, tense = n + ".event", n + ".tense"
    stem = VERBS[clause.predicate][0]
    gender = fixed or (_gender(agrees) if agrees else "m")
    plural = _plural(agrees) if agrees and not fixed else False
    person = _person(agrees) if agrees and not fixed else "3s"
    no = [word("नहीं", "PART", n + ".negation")] if clause.negative else []

    def present(participle: str, slot: str, upos: str = "VERB") -> list[Word]:
        verb = word(_agreeing(participle, gender, plural), upos, slot)
        return [verb, word(_IS[person], "AUX", tense)]

    if clause.modal == "want":
        infinitive = word(stem + "ना", "VERB", event)
        return [*no, infinitive, *present("चाहता", n + ".modal")]
    if clause.modal == "can":
        return [*no, word(stem, "VERB", event), *present("सकता", n + ".modal")]
    if clause.tense == "now":
        return [*no, word(stem, "VERB", event), *present("रहा", tense, "AUX")]
    if clause.tense == "habit":
        return [*no, *present(stem + "ता", event)]
    if clause.tense == "future":
        return [*no, word(_future(stem, person, gender), "VERB", event, tense)]
    return [*no, word(_perfective(stem, gender, plural), "VERB", event, tense)]


def _object(clause: Clause, role: str) -> tuple[list[Word], bool]:
    """Returns the words of the object, and whether a perfective verb agrees with it.

    The verb agrees with an object that has no postposition, unless a question asks for the object.
    """
    thing, spec = clause.object, VERBS[clause.predicate]
    assert thing
    marker = spec[3] if len(spec) > 3 else "को" if thing.human else ""
    if marker and thing.kind == "unknown":
        return [word("किस", "PRON", role + ".noun"), word(marker, "ADP", role + ".case")], False
    if marker:
        return _marked(thing, role, marker, clause.subject), False
    words = noun_phrase(thing, role, False, clause.subject)
    words = _without_one(words) if clause.negative else words  # "did not read a book"
    return words, thing.kind != "unknown"


def _without_one(words: list[Word]) -> list[Word]:
    return [item for item in words if item.form != "एक"]


def _place(clause: Clause, n: str) -> list[Word]:
    place, role = clause.place, n + ".place"
    if place is None:
        return []
    if place.kind == "unknown":
        return [word("कहाँ", "ADV", role + ".noun")]
    words = noun_phrase(place, role, True, clause.subject)
    if clause.relation == "to":
        return words
    marker = "से"
    if clause.relation == "at":
        noun = place.kind == "noun" and len(NOUNS[place.concept]) > 2
        marker = NOUNS[place.concept][2] if noun else "में"
    return [*words, word(marker, "ADP", role + ".case")]


def _clause(clause: Clause, n: str) -> list[Word]:
    subject, predicate, role = clause.subject, clause.predicate, n + ".subject"
    event = n + ".event"
    time = TIMES[clause.time](n) if clause.time else []
    ask = [word("क्या", "PART", "question")] if clause.question == "polar" else []
    place = _place(clause, n)
    spec = VERBS.get(predicate, ("हो", "-"))
    preverb, _, fixed = (spec[2] if len(spec) > 2 else "").partition("/")
    extra = [word(preverb, "NOUN" if fixed else "ADJ", event)] if preverb not in ("", "-") else []
    if predicate == "exist" and subject:
        thing = noun_phrase(subject, role)
        if clause.negative:
            thing = _without_one(thing)
        return [*ask, *time, *place, *thing, *_copula(clause, n, subject)]
    if subject is None:
        weather = predicate.endswith("_weather")
        verb = _copula(clause, n, None, "f") if weather else _verb(clause, n, None, fixed)
        return [*ask, *time, *place, *extra, *verb]
    if predicate == "be":
        words = place
        if clause.very:
            words = [word("बहुत", "ADV", n + ".degree")]
        if clause.attribute:
            gender, plural = _gender(subject), _plural(subject)
            adjectives = ADJECTIVES[clause.attribute].split()
            words += [word(_agreeing(part, gender, plural), "ADJ", event) for part in adjectives]
        if clause.complement:
            words = noun_phrase(clause.complement, n + ".complement")
            if clause.negative or not clause.complement.adjective:
                words = _without_one(words)
        body, front = words + _copula(clause, n, subject), noun_phrase(subject, role)
    elif predicate in ("have", "like"):
        assert clause.object
        marker = "के पास" if predicate == "have" else "को"
        front = _marked(subject, role, marker, None)
        thing = noun_phrase(clause.object, n + ".object", False, subject)
        if clause.negative:
            thing = _without_one(thing)
        body = [*thing, *extra, *_copula(clause, n, clause.object)]
    else:
        case = spec[1] if clause.tense == "past" and not clause.modal else "-"
        recipient, thing, direct = [], [], False
        if clause.recipient:
            marker = "के लिए" if predicate == "bring" else "को"
            recipient = _marked(clause.recipient, n + ".recipient", marker, subject)
        if clause.object:
            thing, direct = _object(clause, n + ".object")
        agrees: Participant | None = subject
        front = noun_phrase(subject, role)
        if case != "-":
            front = _marked(subject, role, "ने" if case == "ne" else "को", None)
            agrees = clause.object if direct else None
        else:
            fixed = ""
        body = [*place, *recipient, *thing, *extra, *_verb(clause, n, agrees, fixed)]
    head = [*time, *front] if clause.time_first else [*front, *time]
    return [*ask, *head, *body]


clauses = partial(join, clause=_clause, links=LINKS, commas=("but",), marks=("।", "?", ","))
