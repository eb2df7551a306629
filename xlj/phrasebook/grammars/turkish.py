"""Turkish: vowel harmony, case and possessive suffixes, verb-final, mI questions."""

from dataclasses import replace
from functools import cache, partial

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

_WORDS = words("turkish")
NOUNS = forms(_WORDS["nouns"])
VERBS = forms(_WORDS["verbs"])
ADJECTIVES = _WORDS["adjectives"]
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
NUMBERS = "iki üç dört beş altı yedi sekiz dokuz on".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("ve", "CCONJ"), "but": ("ama", "CCONJ"), "because": ("çünkü", "CCONJ")}
CASES = _WORDS["cases"]
OWNED = dict(zip(PERSONS, ("(I)m", "(I)n", "(s)I", "(I)mIz", "(s)I"), strict=True))
_PRESENT = dict(zip(PERSONS, ("um", "sun", "", "uz", "lar"), strict=True))
_PAST = dict(zip(PERSONS, ("m", "n", "", "k", "lAr"), strict=True))
_COPULA = dict(zip(PERSONS, ("(y)Im", "sIn", "", "(y)Iz", "lAr"), strict=True))
_VOWELS = "aıoueiöüâ"
_HARD = "fstkçşhp"


@cache
def attach(stem: str, suffix: str, soft: str = "", front: bool = False) -> str:
    """Returns a stem with a suffix in vowel and consonant harmony.

    Args:
      suffix: A means a or e, I means ı, i, u or ü, and D means d or t. A letter in brackets at the
        start is a buffer: a consonant is used after vowels, a vowel after consonants.
      soft: the form of the stem before a vowel; empty if it does not change.
      front: whether the suffix has front vowels, whatever the stem has.
    """
    after_vowel = stem[-1].lower() in _VOWELS
    if suffix.startswith("("):
        buffer, rest = suffix[1], suffix[3:]
        suffix = (buffer if (buffer in "AI") != after_vowel else "") + rest
    if soft and suffix and suffix[0] in "AI" + _VOWELS:
        stem = soft
    for letter in suffix:
        vowel = next((v for v in reversed(stem.lower()) if v in _VOWELS), "e")
        back = vowel in "aıouâ" and not front
        if letter == "A":
            letter = "a" if back else "e"
        elif letter == "I":
            rounded = vowel in "ouöü"
            letter = ("u" if rounded else "ı") if back else ("ü" if rounded else "i")
        elif letter == "D":
            letter = "t" if stem[-1] in _HARD else "d"
        stem += letter
    return stem


def _noun(p: Participant, case: str, owner: str = "") -> str:
    """Returns a common noun with plural, possessive and case suffixes.

    Args:
      case: a key of `CASES`; empty for the nominative.
      owner: the person of the possessor, a key of `OWNED`; empty without one.
    """
    form, soft = (*NOUNS[p.concept], "")[:2]
    compound, front = soft == "+", soft.endswith("*")
    soft = soft.strip("+*")
    if p.plural and not p.count:
        if compound:
            form = form[:-1]
        form, soft = attach(form, CASES["plural"], "", front), ""
        if compound:
            form = attach(form, "I")
    if owner:
        form = attach(form, OWNED[owner], soft, front)
        soft = ""
    if not case:
        return form
    suffix = CASES[case]
    if owner in ("3s", "3p") or compound:  # the third person possessive takes a buffer n
        suffix = "n" + suffix.replace("(y)", "").replace("(n)", "")
        return attach(form, suffix.replace("D", "d"))
    return attach(form, suffix, soft, front and not owner)


def _proper(form: str, case: str) -> str:
    """Returns a proper name with its case suffix after an apostrophe."""
    lower = form.replace("İ", "i").lower()
    return form + "'" + attach(lower, CASES[case])[len(lower) :]


def noun_phrase(p: Participant | None, role: str, case: str = "", owner: str = "") -> list[Word]:
    """Returns the words of a participant in a case; [] for a pronoun, which suffixes express.

    Args:
      case: a key of `CASES`; empty for the nominative.
      owner: the person of a possessor that is not part of the phrase; empty without one.
    """
    if p is None or p.kind != "noun":
        words = nameable(p, role, NAMES, ("kim", "ne"))
        if case and p and p.kind in ("name", "place"):
            last = words[-1]
            words[-1] = replace(last, form=_proper(last.form, case))
        return words
    words = []
    one = p.determiner == "a" and not (p.plural or p.mass or p.owner)
    if p.owner:
        owner = agreement(p.owner)
        if p.owner.kind == "pronoun":
            words = [word(PRONOUNS[p.owner.concept][1], "PRON", role + ".owner.noun")]
        else:
            words = noun_phrase(p.owner, role + ".owner", "gen")
    elif p.determiner == "this":
        words = [word("bu", "DET", role + ".det")]
    if p.count:
        words.append(word(NUMBERS[p.count - 2], "NUM", role + ".count"))
    if p.adjective:
        words.append(word(ADJECTIVES[p.adjective], "ADJ", role + ".adjective"))
    if one and not owner:
        words.append(word("bir", "DET", role + ".det"))
    upos = "PROPN" if p.field == "language" else "NOUN"
    return words + [word(part, upos, role + ".noun") for part in _noun(p, case, owner).split()]


def _object(p: Participant, role: str, clause: Clause) -> list[Word]:
    """Returns the words of an object.

    A definite, generic or human object is accusative. Other objects have no case, and no plural
    suffix. The verb "help" takes a dative.
    """
    if p.kind == "unknown":
        return noun_phrase(p, role)
    if clause.predicate == "help":
        return noun_phrase(p, role, "dat")
    if not p.indefinite or p.human or p.determiner == "all":
        return noun_phrase(p, role, "acc")
    words = noun_phrase(p, role)
    if p.plural and not p.count:
        words[-1] = word(_noun(replace(p, plural=False), ""), "NOUN", role + ".noun")
    if clause.negative:  # no bir in "did not read a book"
        words = [item for item in words if item.form != "bir"]
    return words


def _verb(clause: Clause, n: str) -> list[Word]:
    subject, event, tense = clause.subject, n + ".event", n + ".tense"
    person = agreement(subject)
    dropped = []
    if subject and subject.kind == "pronoun":
        dropped = [n + ".subject.noun"]
    elif person == "3p":
        person = "3s"  # a verb is singular after a plural subject that is expressed
    entry = VERBS[clause.predicate]
    *before, stem = entry[0].split()
    vowel_stem = (entry[1] if len(entry) > 1 else entry[0]).split()[-1]
    words = [word(form, "NOUN", event) for form in before]
    no = [n + ".negation"] if clause.negative else []
    past, future = clause.tense == "past", clause.tense == "future"
    if clause.modal == "want":
        words.append(word(attach(stem, "mAk"), "VERB", event))
        stem = vowel_stem = "iste"
        event = n + ".modal"
    slots = [event, tense, *no, *dropped]
    if clause.modal == "can":
        slots.append(n + ".modal")
        buffered = attach(stem, "(y)A", vowel_stem) if stem != "ye" else "yiye"
        base = attach(buffered, "mIyor") if no else buffered + "biliyor"
    elif past:
        base = attach(stem, "mADI" if no else "DI")
    elif future and no:
        base = attach(stem, "mAyAcAk")
    elif future:
        base = "yiyecek" if stem == "ye" else attach(stem, "(y)AcAk", vowel_stem)
    elif no:
        base = attach(stem, "mIyor")
    elif stem == "ye":
        base = "yiyor"
    elif stem[-1] in _VOWELS:
        base = attach(stem[:-1], "Iyor")
    else:
        base = attach(stem, "Iyor", vowel_stem)
    if past:
        form = attach(base, _PAST[person])
    elif future:
        form = attach(base, _COPULA[person], base[:-1] + "ğ")
    else:
        form = base + _PRESENT[person]
    if clause.question != "polar":
        return [*words, word(form, "VERB", *slots)]
    particle = attach(base, "mI")[len(base) :]
    if past or person == "3p":
        particle = attach(form, "mI")[len(form) :]
        return [*words, word(form, "VERB", *slots), word(particle, "PART", "question")]
    particle = attach(particle, _COPULA[person])
    return [*words, word(base, "VERB", *slots), word(particle, "PART", "question", *dropped)]


def _predicate(words: list[Word], clause: Clause, n: str) -> list[Word]:
    """Returns a predicate without a verb, with its copula.

    The copula is a suffix of the predicate's last word, of değil (if negative), or of the question
    particle. In the future, it is the word olacak or olmayacak.
    """
    tense, subject = n + ".tense", clause.subject
    there_is = clause.predicate in ("have", "exist")
    person, dropped = "3s", list[str]()
    if subject and subject.kind == "pronoun" and not there_is:
        person, dropped = agreement(subject), [n + ".subject.noun"]
    no = [n + ".negation"] if clause.negative else []
    past = clause.tense == "past"
    if clause.tense == "future":
        base = "olmayacak" if no else "olacak"
        if clause.question == "polar" and person == "3p":
            asks = [word("olacaklar", "AUX", tense, *dropped), word("mı", "PART", "question")]
            return [*words, *asks]
        if clause.question == "polar":
            particle = word(attach("mı", _COPULA[person]), "PART", "question", *dropped)
            return [*words, word(base, "AUX", tense), particle]
        form = attach(base, _COPULA[person], base[:-1] + "ğ")
        return [*words, word(form, "AUX", tense, *no, *dropped)]

    def copula(host: str) -> str:
        if past:
            return attach(attach(host, "(y)DI"), _PAST[person])
        return attach(host, _COPULA[person])

    if no and not there_is:
        return [*words, word(copula("değil"), "AUX", tense, *no, *dropped)]
    last = words[-1]
    if clause.question == "polar":
        if person == "3p" and not past:
            plural = attach(last.form, "lAr")
            words = [*words[:-1], replace(last, form=plural, slots=last.slots | set(dropped))]
            form = attach(plural, "mI")[len(plural) :]
        else:
            form = copula(attach(last.form, "mI")[len(last.form) :])
        return [*words, word(form, "PART", "question", tense, *dropped)]
    form = copula(last.form)
    if last.upos == "PROPN" and "'" not in last.form and form != last.form:
        form = last.form + "'" + form[len(last.form) :]
    return [*words[:-1], replace(last, form=form, slots=last.slots | {tense, *dropped})]


def _place(clause: Clause, n: str) -> list[Word]:
    place, role = clause.place, n + ".place"
    if place is None:
        return []
    if place.kind == "unknown":
        return [word("nerede", "ADV", role + ".noun")]
    return noun_phrase(place, role, {"at": "loc", "to": "dat", "from": "abl"}[clause.relation])


def _clause(clause: Clause, n: str) -> list[Word]:
    subject, predicate, role = clause.subject, clause.predicate, n + ".subject"
    time = TIMES[clause.time](n) if clause.time else []
    place = _place(clause, n)
    no = [n + ".negation"] if clause.negative else []
    there = word("yok" if no else "var", "VERB", n + ".event", *no)
    if predicate == "exist" and subject:
        if clause.negative:  # no bir in "there is no cat"
            subject = replace(subject, plural=False, determiner="all", count=0)
        return [*time, *place, *_predicate([*noun_phrase(subject, role), there], clause, n)]
    if predicate == "have" and subject and clause.object:
        person = agreement(subject)
        owner = noun_phrase(subject, role, "gen")
        thing = noun_phrase(clause.object, n + ".object", owner="3s" if owner else person)
        if not owner:  # the possessive suffix expresses a dropped owner
            form = thing[-1].form
            if person == "3p":
                soft = NOUNS[clause.object.concept][-1]
                form = attach(_noun(clause.object, ""), "lArI", front=soft.endswith("*"))
            slots = thing[-1].slots | {role + ".noun"}
            thing[-1] = replace(thing[-1], form=form, slots=slots)
        return [*owner, *_predicate([*thing, there], clause, n)]
    if predicate.endswith("_weather"):
        air = word("hava", "NOUN", n + ".expletive")
        weather = word(VERBS[predicate][0], "ADJ", n + ".event")
        return [*time, *place, *_predicate([air, weather], clause, n)]
    front = noun_phrase(subject, role)
    head = time + front if clause.time_first or subject is None else front + time
    if predicate == "be":
        words = place + [word("çok", "ADV", n + ".degree")] * clause.very
        if clause.attribute:
            words.append(word(ADJECTIVES[clause.attribute], "ADJ", n + ".event"))
        if clause.complement:
            words += noun_phrase(clause.complement, n + ".complement")
            if clause.negative or not clause.complement.adjective:
                words = [item for item in words if item.form != "bir"]
        return head + _predicate(words, clause, n)
    words = [*head, *place, *noun_phrase(clause.recipient, n + ".recipient", "dat")]
    if clause.object:
        words += _object(clause.object, n + ".object", clause)
    return words + _verb(clause, n)


clauses = partial(join, clause=_clause, links=LINKS, commas=("but", "because"))
