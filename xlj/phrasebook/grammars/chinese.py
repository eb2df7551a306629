"""Chinese: no inflection; classifiers; aspect words; time and place before the verb."""

from functools import partial

from xlj.phrasebook.grammars.grammar import forms, join, nameable, names, times, words
from xlj.phrasebook.meaning import Clause, Participant, Word, word

_WORDS = words("chinese")
NOUNS = forms(_WORDS["nouns"])
VERBS = forms(_WORDS["verbs"])
_WITH_LE = frozenset(("smile", "laugh", "cry", "sleep", "dance"))  # take 了 in the past
_SPLIT = frozenset(("sleep", "dance"))  # 睡了觉: the aspect goes between verb and object
ADJECTIVES = forms(_WORDS["adjectives"])
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
NUMBERS = "两 三 四 五 六 七 八 九 十".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("，", "PUNCT"), "but": ("但是", "CCONJ"), "because": ("因为", "SCONJ")}


def noun_phrase(p: Participant, role: str, bare: bool = False) -> list[Word]:
    """Returns the words of a participant.

    Args:
      bare: whether to leave out the indefinite determiner, and the definite determiner of a noun
        without an adjective.
    """
    noun, det = role + ".noun", role + ".det"
    if p.kind != "noun":
        name = nameable(p, role, NAMES, ("谁", "什么"), PRONOUNS)
        if p.surname:
            name.insert(1, word("·", "PUNCT", role + ".dot", entity="I-PER"))
        return name
    form, classifier = NOUNS[p.concept][:2]
    if p.field == "language":
        return [word(form, "PROPN", noun)]
    words: list[Word] = []
    if p.owner:
        words = noun_phrase(p.owner, role + ".owner")
        family = p.field == "kin" and p.concept not in ("friend", "neighbour")
        if not family or p.owner.kind != "pronoun" or p.owner.plural:  # 我妈妈 is without 的
            words.append(word("的", "PART", role + ".owner.case"))
    elif p.count:
        slot = role + ".count"
        words = [word(NUMBERS[p.count - 2], "NUM", slot), word(classifier, "NOUN", slot)]
    elif not p.mass or p.determiner == "this":
        first = {"this": "这", "the": "那", "a": "一"}.get(p.determiner, "")
        if bare and (p.determiner == "a" or p.determiner == "the" and not p.adjective):
            first = ""
        elif p.field == "place" and p.determiner == "the":
            first = ""
        if first:
            words = [word(first, "NUM" if first == "一" else "DET", det)]
            words.append(word("些" if p.plural else classifier, "NOUN", det))
    if p.adjective:
        adjective, *kind = ADJECTIVES[p.adjective]
        words.append(word(adjective, "ADJ", role + ".adjective"))
        if kind:
            words.append(word("的", "PART", role + ".adjective"))
    people = p.human and p.plural and p.determiner == "the" and not words
    return [*words, word(form + "们" if people else form, "NOUN", noun)]


def _place(clause: Clause, n: str) -> list[Word]:
    """Returns the place with its preposition, if it has one, and with 里 if the noun takes it."""
    place, role = clause.place, n + ".place"
    if place is None:
        return []
    case = role + ".case"
    prepositions = {"at": "在", "from": "从", "to": ""}
    words = [word(prepositions[clause.relation], "ADP", case)] if clause.relation != "to" else []
    if place.kind == "unknown":
        return [*words, word("哪里", "PRON", role + ".noun")]
    words += noun_phrase(place, role)
    if place.kind == "noun" and clause.relation == "at" and NOUNS[place.concept][2] == "里":
        words.append(word("里", "ADP", case))
    return words


def _quality(clause: Clause, n: str) -> list[Word]:
    """Returns an adjective as a predicate: 很 replaces the copula."""
    tense, weather = n + ".tense", clause.attribute is None
    form, *kind = VERBS[clause.predicate] if weather else ADJECTIVES[str(clause.attribute)]
    adjective = word(form, "ADJ", n + ".event")
    words = [word("不", "ADV", n + ".negation")] * clause.negative
    if clause.tense == "future":
        words.append(word("会", "AUX", tense))
    if kind == ["是"]:
        return [*words, word("是", "AUX", tense), adjective, word("的", "PART", n + ".event")]
    if clause.very:
        words.append(word("非常", "ADV", n + ".degree"))
    elif not clause.negative and not clause.question:
        words.append(word("很", "ADV", tense))
    return [*words, adjective]


def _verb(clause: Clause, n: str, place: list[Word], given: list[Word]) -> list[Word]:
    """Returns the verb, its negation and aspect words, the place and the recipient, in order.

    Args:
      place: the words of the place.
      given: the words of the recipient, after 给.
    """
    predicate, tense, event = clause.predicate, n + ".tense", n + ".event"
    no, yet = ([word(form, "ADV", n + ".negation")] * clause.negative for form in "不没")
    front, after = list[Word](), list[Word]()
    at_place = bool(place) and place[0].form == "在"
    if clause.modal:
        modal = "想" if clause.modal == "want" else "会" if predicate == "speak" else "能"
        front = [*no, word(modal, "AUX", n + ".modal")]
    elif predicate in ("have", "exist"):
        front = yet
    elif clause.tense == "now":
        # If the preposition 在 precedes the verb, 正 alone expresses 正在.
        aspect = "正" * (not clause.negative) + "在" * (not at_place)
        front = [*yet, *[word(aspect, "ADV", tense)] * bool(aspect)]
    elif clause.tense == "future":
        front = [*no, word("会", "AUX", tense)]
    elif clause.negative:
        front = yet if clause.tense == "past" and predicate != "be" else no
    elif clause.tense == "past":
        moves = clause.relation != "at"
        if clause.object or clause.subject is None or moves or predicate in _WITH_LE:
            after = [word("了", "PART", tense)]
        elif not clause.time and predicate not in ("be", "live"):
            after = [word("过", "PART", tense)]
    if predicate == "be":
        return [*front, *place]
    verb = word(VERBS[predicate][0], "VERB", event)
    if predicate == "live":
        return [*front, verb, *place]
    if clause.relation == "to":
        return [*front, verb, *after, *place]
    if predicate == "give":
        return [*front, verb, *after, *given[1:]]
    if predicate in _SPLIT and after:
        first, second = (word(form, "VERB", event) for form in verb.form)
        return [*front, *place, first, *after, second]
    return [*front, *place, *given, verb, *after]


def _clause(clause: Clause, n: str) -> list[Word]:
    subject, predicate, role = clause.subject, clause.predicate, n + ".subject"
    time = TIMES[clause.time](n) if clause.time else []
    place = _place(clause, n)
    if subject is None:
        place = place[1:]  # without its preposition: the place is the topic of the clause
        weather = predicate.endswith("_weather")
        body = _quality(clause, n) if weather else _verb(clause, n, [], [])
        words = [*time, *place, *body]
    elif predicate == "exist":
        thing = noun_phrase(subject, role, clause.negative)
        words = [*time, *place[1:], *_verb(clause, n, [], []), *thing]
    else:
        front = noun_phrase(subject, role, subject.human)
        words = [*time, *front] if clause.time_first else [*front, *time]
        if clause.attribute:
            words += _quality(clause, n)
        elif clause.complement:
            words += [word("不", "ADV", n + ".negation")] * clause.negative
            words.append(word("是", "AUX", n + ".tense"))
            bare = clause.negative or not clause.complement.adjective
            words += noun_phrase(clause.complement, n + ".complement", bare)
        else:
            given: list[Word] = []
            if clause.recipient:
                given = [word("给", "ADP", n + ".recipient.case")]
                given += noun_phrase(clause.recipient, n + ".recipient", True)
            words += _verb(clause, n, place, given)
            if clause.object:
                bare = clause.negative and clause.object.determiner == "a"
                words += noun_phrase(clause.object, n + ".object", bare)
    if clause.question == "polar":
        words.append(word("吗", "PART", "question"))
    return words


clauses = partial(
    join, clause=_clause, links=LINKS, commas=("but", "because"), marks=("。", "？", "，")
)
