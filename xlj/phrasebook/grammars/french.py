"""French: gender and number, elision and contraction, two-part negation, est-ce que."""

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
from xlj.phrasebook.world import COUNTRIES

_WORDS = words("french")
NOUNS = forms(_WORDS["nouns"])
VERBS = forms(_WORDS["verbs"])
WEATHER = {"hot_weather": "chaud", "cold_weather": "froid", "rain": "", "snow": ""}
WITH_ETRE = frozenset(("go", "return", "arrive", "come"))
ADJECTIVES = forms(_WORDS["adjectives"])
NAMES = names(_WORDS["names"])
MASCULINE = frozenset("kenya japan brazil mexico canada portugal".split())
TIMES = times(_WORDS["times"])
NUMBERS = "deux trois quatre cinq six sept huit neuf dix".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("et", "CCONJ"), "but": ("mais", "CCONJ"), "because": ("parce que", "SCONJ")}
CONTRACTIONS = _WORDS["contractions"]
_ELIDED = frozenset(("le", "la", "de", "ne", "que", "je"))
_VOWELS = "aeiouéèêâîôûœAEIOUÉÈÊ"


def _vowel(form: str) -> bool:
    """Returns whether 'le', 'de', 'ne', 'que' and similar words are elided before this form.

    An initial h counts as a vowel: every common noun in h- of the lexicon has a mute h.
    """
    return form == "y" or form[0] in _VOWELS + "h" and form not in ("huit", "hindi")


def _plural(form: str) -> str:
    if form[-1] in "sx" or " marché" in form:
        return form
    if form.endswith("al"):
        return form[:-2] + "aux"
    if " " in form:
        head, _, rest = form.partition(" ")
        return f"{head}s {rest}"
    return form + ("x" if form.endswith("eau") else "s")


def _adjective(concept: str, feminine: bool, plural: bool) -> str:
    form = ADJECTIVES[concept][feminine]
    return _plural(form) if plural else form


def noun_phrase(p: Participant, role: str, negation: bool = False) -> list[Word]:
    """Returns the words of a participant.

    Args:
      negation: whether the clause is negative; the indefinite article is then 'de'.
    """
    if p.kind != "noun":
        return nameable(p, role, NAMES, ("qui", "que"), PRONOUNS)
    entry, feminine = NOUNS[p.concept], is_feminine(p, NOUNS)
    form = entry[2] if p.human and p.gender == "f" and len(entry) > 2 else entry[0]
    if p.plural:
        form = _plural(form)
    upos = "PROPN" if p.field == "language" else "NOUN"
    phrase = [word(part, "ADP" if part == "de" else upos, role + ".noun") for part in form.split()]
    before = False
    if p.adjective:
        spec = ADJECTIVES[p.adjective]
        before = len(spec) > 2
        adjective = _adjective(p.adjective, feminine, p.plural)
        if len(spec) > 3 and not feminine and not p.plural and _vowel(form):
            adjective = spec[3]
        adjectives = [word(part, "ADJ", role + ".adjective") for part in adjective.split()]
        phrase = adjectives + phrase if before else phrase + adjectives
    if p.count:
        phrase.insert(0, word(NUMBERS[p.count - 2], "NUM", role + ".count"))
    vowel, singular = _vowel(phrase[0].form), "la" if feminine else "le"
    if p.owner and p.owner.kind == "pronoun":
        mine = PRONOUNS[p.owner.concept]
        form = mine[3] if p.plural else mine[2] if feminine and not vowel else mine[1]
        return [word(form, "DET", role + ".owner.noun"), *phrase]
    owner: list[Word] = []
    if p.owner:
        of = word("de", "ADP", role + ".owner.case")
        owner = [of, *noun_phrase(p.owner, role + ".owner")]
    if p.owner or p.determiner in ("the", "all"):
        article = "les" if p.plural else singular
    elif p.determiner == "this":
        article = "ces" if p.plural else "cette" if feminine else "cet" if vowel else "ce"
    elif p.count:
        article = ""
    elif negation:
        article = "de"
    elif p.plural:
        article = "de" if before else "des"
    elif p.mass:
        article = "de " + singular if vowel or feminine else "du"
    else:
        article = "une" if feminine else "un"
    return [*(word(form, "DET", role + ".det") for form in article.split()), *phrase, *owner]


def _place(clause: Clause, n: str) -> list[Word]:
    place, role = clause.place, n + ".place"
    if place is None or place.kind == "unknown":
        return []
    phrase, away = noun_phrase(place, role), clause.relation == "from"
    preposition = "de" if away else "à"
    if place.kind == "place":
        if place.concept in MASCULINE:
            phrase.insert(0, word("le", "DET", role + ".det"))
        elif place.concept in COUNTRIES and not away:
            preposition = "en"
    elif place.kind == "organisation":
        preposition = "à" if phrase[0].upos == "DET" else "chez"
    elif not away:
        # "dans l'école" for the place of an event, but "à l'école" for the goal of a motion
        preposition = "à" if clause.relation == "to" else NOUNS[place.concept][2]
        if preposition == "à" and (place.determiner == "this" or place.adjective):
            preposition = "dans"
    return [word(preposition, "ADP", role + ".case"), *phrase]


def _conjugated(predicate: str, person: str) -> str:
    entry, at = VERBS[predicate], PERSONS.index(person)
    if len(entry) > 1:
        return entry[1 + at]
    stem = entry[0][:-2]
    nous = "eons" if stem.endswith("g") else "ons"
    return stem + ("e", "es", "e", nous, "ent")[at]


def _verb(clause: Clause, n: str) -> tuple[Word, list[Word]]:
    """Returns the finite verb, and the participle or infinitive, if there is one."""
    event, tense = n + ".event", n + ".tense"
    predicate, subject = clause.predicate, clause.subject
    if predicate == "exist":
        predicate, subject = "have", None
    person = agreement(subject)
    entry = VERBS[predicate]
    infinitive = word(entry[0], 'AUX' if predicate == 'be' else 'VERB',
                      tense if predicate == 'be' else event)  # fmt: skip
    if clause.modal:
        return word(_conjugated(clause.modal, person), "VERB", n + ".modal", tense), [infinitive]
    if clause.tense == "future":
        return word(_conjugated("go", person), "AUX", tense), [infinitive]
    if predicate == "be":
        form = _conjugated("past" if clause.tense == "past" else "be", person)
        return word(form, "AUX", tense), []
    if clause.tense != "past":
        return word(_conjugated(predicate, person), "VERB", event, tense), []
    participle = entry[6] if len(entry) > 6 else entry[0][:-2] + "é"
    auxiliary = "have"
    if predicate in WITH_ETRE and subject:
        auxiliary = "be"
        participle += "e" * is_feminine(subject, NOUNS) + "s" * subject.plural
    return word(_conjugated(auxiliary, person), "AUX", tense), [word(participle, "VERB", event)]


def _clause(clause: Clause, n: str) -> list[Word]:
    finite, rest = _verb(clause, n)
    negative, subject = clause.negative, clause.subject
    core = [finite]
    if negative:
        slot = n + ".negation"
        core = [word("ne", "PART", slot), finite, word("pas", "PART", slot)]
    asked = [word("est-ce", "PART", "question"), word("que", "PART", "question")]
    if subject is None or clause.predicate == "exist":
        expletive = n + (".event" if subject else ".expletive")
        front = [word("il", "PRON", expletive)]
        if subject:
            core.insert(1 if negative else 0, word("y", "PRON", n + ".event"))
    else:
        front = noun_phrase(subject, n + ".subject")
    if clause.question == "place":
        where = word("où", "ADV", n + ".place.noun")
        if clause.predicate == "be" and subject and subject.kind != "pronoun":
            front, core, rest = [where], [*core, *rest], front
        else:
            front = [where, *asked, *front]
    elif clause.question == "object":
        front = [word("que", "PRON", n + ".object.noun"), *asked, *front]
    elif clause.question == "polar":
        front = [*asked, *front]
    elif clause.time_first and clause.time:
        front = [*TIMES[clause.time](n), word(",", "PUNCT", "comma"), *front]
    words = [*front, *core, *rest]
    words += [word("très", "ADV", n + ".degree")] * clause.very
    if clause.attribute and subject:
        form = _adjective(clause.attribute, is_feminine(subject, NOUNS), subject.plural)
        words += [word(part, "ADJ", n + ".event") for part in form.split()]
    if clause.complement:  # a profession takes no article unless it has an adjective
        phrase = noun_phrase(clause.complement, n + ".complement")
        words += phrase if clause.complement.adjective else phrase[1:]
    if WEATHER.get(clause.predicate):
        words.append(word(WEATHER[clause.predicate], "ADJ", n + ".event"))
    thing = subject if clause.predicate == "exist" else clause.object
    if thing and thing.kind != "unknown":
        role = n + (".subject" if clause.predicate == "exist" else ".object")
        phrase = noun_phrase(thing, role, negative)
        if thing.field == "language":
            speaks = clause.predicate == "speak"
            first = [] if speaks else [word("le", "DET", role + ".det")]
            phrase = [*first, phrase[-1]]
        words += phrase
    if clause.recipient:
        words.append(word("à", "ADP", n + ".recipient.case"))
        words += noun_phrase(clause.recipient, n + ".recipient")
    words += _place(clause, n)
    return words if clause.time_first or not clause.time else words + TIMES[clause.time](n)


def _elide(words: list[Word]) -> list[Word]:
    """Turns 'le', 'de', 'ne', 'que'... before a vowel into l', d', n', qu'..."""
    elided = []
    for item, following in zip(words, words[1:] + [None], strict=True):
        if item.form in _ELIDED and following and _vowel(following.form):
            stem = item.form[:-1]
            item = Word(stem + "'", item.upos, item.entity, item.slots)
        elided.append(item)
    return elided


def clauses(members: tuple[Clause, ...], link: str | None) -> list[Word]:
    """Returns the words of a sentence of one or two clauses, with its punctuation."""
    words = join(members, link, _clause, LINKS, commas=("but",))
    return fuse(_elide(words), CONTRACTIONS)
