"""Spanish: pro-drop, ser and estar, preterite, personal a, gustar."""

from xlj.phrasebook.grammars.grammar import (
    PERSONS,
    agreement,
    forms,
    fuse,
    is_feminine,
    join,
    nameable,
    names,
    times,
    words,
)
from xlj.phrasebook.meaning import Clause, Participant, Word, word
from xlj.phrasebook.world import STATES

_WORDS = words("spanish")
NOUNS = forms(_WORDS["nouns"])
VERBS = forms(_WORDS["verbs"])
WEATHER = {"hot_weather": "calor", "cold_weather": "frío", "rain": "", "snow": ""}
WITH_ESTAR = frozenset((*STATES, "hot", "cold", "clean", "dirty", "fresh"))
_PRESENT = forms(_WORDS["present"])
_PAST = forms(_WORDS["past"])
ADJECTIVES = _WORDS["adjectives"]
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
NUMBERS = "dos tres cuatro cinco seis siete ocho nueve diez".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("y", "CCONJ"), "but": ("pero", "CCONJ"), "because": ("porque", "SCONJ")}
CONTRACTIONS = {"de el": "del", "a el": "al"}
_ACCENTS = str.maketrans("áéíóú", "aeiou")


def _plural(form: str) -> str:
    if form == "joven":
        return "jóvenes"
    if form[-1] in "aeioué" or form == "paraguas":
        return form if form == "paraguas" else form + "s"
    if form[-2] in "áéíóú":
        form = form.translate(_ACCENTS)
    return (form[:-1] + "c" if form[-1] == "z" else form) + "es"


def _adjective(concept: str, feminine: bool, plural: bool) -> str:
    form = ADJECTIVES[concept]
    if feminine and form.endswith("o"):
        form = form[:-1] + "a"
    return _plural(form) if plural else form


def noun_phrase(p: Participant, role: str) -> list[Word]:
    """Returns the words of a participant; [] for a pronoun, because the verb form expresses it."""
    if p.kind != "noun":
        return nameable(p, role, NAMES, ("quién", "qué"))
    entry, feminine = NOUNS[p.concept], is_feminine(p, NOUNS)
    form = entry[2] if p.human and p.gender == "f" and len(entry) > 2 else entry[0]
    if p.plural:
        form = _plural(form)
    phrase = [word(form, "PROPN" if p.field == "language" else "NOUN", role + ".noun")]
    if p.count:
        phrase.insert(0, word(NUMBERS[p.count - 2], "NUM", role + ".count"))
    if p.adjective:
        adjective = _adjective(p.adjective, feminine, p.plural)
        phrase.append(word(adjective, "ADJ", role + ".adjective"))
    the = ("las" if feminine else "los") if p.plural else ("la" if feminine else "el")
    if form == "agua":  # feminine, but its stressed a- takes the article el
        the = "el"
    if p.owner and p.owner.kind == "pronoun":
        mine = PRONOUNS[p.owner.concept][0]
        if mine == "nuestro" and feminine:
            mine = "nuestra"
        return [word(mine + "s" if p.plural else mine, "DET", role + ".owner.noun"), *phrase]
    if p.owner:
        of = word("de", "ADP", role + ".owner.case")
        phrase += [of, *noun_phrase(p.owner, role + ".owner")]
    elif p.determiner == "this":
        the = ("estas" if feminine else "estos") if p.plural else "esta" if feminine else "este"
    elif p.determiner == "a" and (p.plural or p.mass):
        return phrase
    elif p.determiner == "a":
        the = "una" if feminine else "un"
    return [word(the, "DET", role + ".det"), *phrase]


def _place(clause: Clause, n: str) -> list[Word]:
    place, role = clause.place, n + ".place"
    if place is None or place.kind == "unknown":
        return []
    preposition = {"at": "en", "to": "a", "from": "de"}[clause.relation]
    return [word(preposition, "ADP", role + ".case"), *noun_phrase(place, role)]


def _form(predicate: str, person: str, past: bool = False) -> str:
    entry, at = VERBS[predicate], PERSONS.index(person)
    column = 2 if past else 1
    irregular = entry[column].split(",") if len(entry) > column else ["-"]
    if irregular != ["-"] and irregular[at] != "-":
        return irregular[at]
    infinitive = entry[0]
    return infinitive[:-2] + (_PAST if past else _PRESENT)[infinitive[-2:]][at]


def _gerund(predicate: str) -> str:
    entry = VERBS[predicate]
    if len(entry) > 3:
        return entry[3]
    return entry[0][:-2] + ("ando" if entry[0].endswith("ar") else "iendo")


def _verb(clause: Clause, n: str) -> list[Word]:
    event, tense, predicate = n + ".event", n + ".tense", clause.predicate
    subject, verb, lexical = clause.subject, "VERB", event
    if predicate == "exist":
        return [word("hay", "VERB", event, tense)]
    if predicate == "like":
        subject = clause.object
    if predicate == "be":
        state = clause.place or clause.attribute in WITH_ESTAR
        predicate, verb, lexical = "estar" if state else "ser", "AUX", tense
    person = agreement(subject)
    # The finite verb expresses a dropped pronoun.
    dropped = [n + ".subject.noun"] if subject and subject.kind == "pronoun" else []
    infinitive = word(VERBS[predicate][0], verb, lexical)
    if clause.modal:
        form = _form(clause.modal, person)
        return [word(form, "VERB", n + ".modal", tense, *dropped), infinitive]
    if clause.tense == "future":
        goes = word(_form("go", person), "AUX", tense, *dropped)
        return [goes, word("a", "ADP", tense), infinitive]
    moves = predicate in ("ir", "go", "come") or predicate.endswith("_weather")
    if clause.tense == "now" and not moves and verb == "VERB":
        is_ = word(_form("estar", person), "AUX", tense, *dropped)
        return [is_, word(_gerund(predicate), "VERB", event)]
    form = _form(predicate, person, clause.tense == "past")
    return [word(form, verb, lexical, tense, *dropped)]


def _liking(clause: Clause, n: str) -> list[Word]:
    """Returns the experiencer of gustar, with its clitic last: 'a Anna le', or only the clitic for
    a pronoun."""
    subject, role = clause.subject, n + ".subject"
    assert subject
    if subject.kind == "pronoun":
        return [word(PRONOUNS[subject.concept][1], "PRON", role + ".noun")]
    clitic = word("les" if subject.plural else "le", "PRON", role + ".case")
    return [word("a", "ADP", role + ".case"), *noun_phrase(subject, role), clitic]


def _clause(clause: Clause, n: str) -> list[Word]:
    verb, subject, thing = _verb(clause, n), clause.subject, clause.object
    front: list[Word] = []
    if clause.predicate == "like":
        *front, clitic = _liking(clause, n)
        verb = [clitic, *verb]
    elif subject and clause.predicate != "exist":
        front = noun_phrase(subject, n + ".subject")
    if clause.negative:
        verb = [word("no", "PART", n + ".negation"), *verb]
    if clause.question == "object":
        words = [word("qué", "PRON", n + ".object.noun"), *verb, *front]
    elif clause.question == "place":
        words = [word("dónde", "ADV", n + ".place.noun"), *verb, *front]
    elif clause.time_first and clause.time:
        words = [*TIMES[clause.time](n), *front, *verb]
    else:
        words = [*front, *verb]
    words += [word("muy", "ADV", n + ".degree")] * clause.very
    if clause.attribute and subject:
        form = _adjective(clause.attribute, is_feminine(subject, NOUNS), subject.plural)
        words.append(word(form, "ADJ", n + ".event"))
    if clause.complement:  # a profession takes no article unless it has an adjective
        phrase = noun_phrase(clause.complement, n + ".complement")
        words += phrase if clause.complement.adjective else phrase[1:]
    if WEATHER.get(clause.predicate):
        words.append(word(WEATHER[clause.predicate], "NOUN", n + ".event"))
    if clause.predicate == "exist" and subject:
        phrase = noun_phrase(subject, n + ".subject")
        words += phrase if subject.adjective or not clause.negative else phrase[-1:]
    if thing and thing.kind != "unknown":
        if thing.human:
            words.append(word("a", "ADP", n + ".object.case"))
        phrase = noun_phrase(thing, n + ".object")
        if clause.predicate == "have" and clause.negative:  # "no tengo gato"
            phrase = phrase if thing.adjective or not thing.indefinite else phrase[-1:]
        words += phrase
    if clause.recipient:
        words.append(word("a", "ADP", n + ".recipient.case"))
        words += noun_phrase(clause.recipient, n + ".recipient")
    words += _place(clause, n)
    return words if clause.time_first or not clause.time else words + TIMES[clause.time](n)


def clauses(members: tuple[Clause, ...], link: str | None) -> list[Word]:
    """Returns the words of a sentence of one or two clauses, with its punctuation."""
    words = fuse(join(members, link, _clause, LINKS, commas=("but",)), CONTRACTIONS)
    for i, item in enumerate(words[:-1]):
        if item.form == "y" and words[i + 1].form.lower().startswith("i"):
            words[i] = Word("e", item.upos, item.entity, item.slots)
    return [word("¿", "PUNCT", "opening"), *words] if members[0].question else words
