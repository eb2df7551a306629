"""English: SVO, articles, do-support, the progressive."""

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

_WORDS = words("english")
NOUNS = forms(_WORDS["nouns"])
AT = frozenset("station farm airport university market bank theatre factory".split())
VERBS = forms(_WORDS["verbs"])
ADJECTIVES = {"tasty": "delicious"}
NAMES = names(_WORDS["names"])
TIMES = times(_WORDS["times"])
NUMBERS = "two three four five six seven eight nine ten".split()
PRONOUNS = forms(_WORDS["pronouns"])
LINKS = {"and": ("and", "CCONJ"), "but": ("but", "CCONJ"), "because": ("because", "SCONJ")}


def _article(following: str) -> str:
    vowel = following[0] in "aeiouAEIOU" and not following.startswith(("uni", "use", "one"))
    return "an" if vowel else "a"


def noun_phrase(p: Participant | None, role: str) -> list[Word]:
    """Returns the words of a participant: determiner, numeral, adjective, noun."""
    if p is None or p.kind != "noun":
        return nameable(p, role, NAMES, ("who", "what"), PRONOUNS)
    rest = [word(NUMBERS[p.count - 2], "NUM", role + ".count")] if p.count else []
    if p.adjective:
        adjective = ADJECTIVES.get(p.adjective, p.adjective)
        rest.append(word(adjective, "ADJ", role + ".adjective"))
    entry = NOUNS[p.concept]
    upos = "PROPN" if p.field == "language" else "NOUN"
    rest.append(word(entry[p.plural], upos, role + ".noun"))
    if p.owner:
        if p.owner.kind == "pronoun":
            owner = [word(PRONOUNS[p.owner.concept][1], "PRON", role + ".owner.noun")]
        else:
            owner = noun_phrase(p.owner, role + ".owner")
            owner.append(word("'s", "PART", role + ".owner.case"))
        return owner + rest
    articles = {"the": "the", "this": "these" if p.plural else "this"}
    if not (p.plural or p.mass):
        articles["a"] = _article(rest[0].form)
    article = articles.get(p.determiner)
    return [word(article, "DET", role + ".det"), *rest] if article else rest


def _place(clause: Clause, n: str) -> list[Word]:
    place = clause.place
    if place is None or place.kind == "unknown":
        return []
    if clause.relation != "at" and clause.predicate != "arrive":
        preposition = clause.relation
    elif place.kind == "organisation" or place.concept in AT:
        preposition = "at"
    else:
        arrives = clause.predicate == "arrive" and place.field == "place" and place.kind == "noun"
        preposition = "at" if arrives and place.concept not in ("city", "village") else "in"
    role = n + ".place"
    return [word(preposition, "ADP", role + ".case"), *noun_phrase(place, role)]


def _be(subject: Participant | None, past: bool = False) -> str:
    forms = "was were was were were" if past else "am are is are are"
    return forms.split()[PERSONS.index(agreement(subject))]


def _verb(clause: Clause, n: str) -> tuple[list[Word], list[Word]]:
    """Returns the finite auxiliary with its negation, and the rest of the verb.

    In a question, the first part precedes the subject. It is empty for a verb without auxiliary.
    """
    subject, event, tense = clause.subject, n + ".event", n + ".tense"
    no = [word("not", "PART", n + ".negation")] if clause.negative else []
    past = clause.tense == "past"
    copular = clause.predicate in ("be", "exist") or clause.predicate.endswith("_weather")
    if copular and clause.tense == "future":
        return [word("will", "AUX", tense), *no], [word("be", "AUX", tense)]
    if copular:
        return [word(_be(subject, past), "AUX", tense), *no], []
    entry = VERBS[clause.predicate]
    if clause.tense == "future":
        return [word("will", "AUX", tense), *no], [word(entry[0], "VERB", event)]
    if clause.modal == "can":
        can, slots = ("cannot", [n + ".negation"]) if no else ("can", [])
        return [word(can, "AUX", n + ".modal", *slots)], [word(entry[0], "VERB", event)]
    third = agreement(subject) == "3s"
    finite: tuple[str, ...]
    if clause.modal == "want":
        finite, lexical = ("want", "wants"), n + ".modal"
        tail = [word("to", "PART", event), word(entry[0], "VERB", event)]
    elif clause.tense == "now":
        return [word(_be(subject), "AUX", tense), *no], [word(entry[3], "VERB", event)]
    else:
        finite, lexical, tail = entry, event, []
    asks = clause.question and clause.question != "subject"
    if clause.negative or asks:
        do = "did" if past else "does" if third else "do"
        return [word(do, "AUX", tense), *no], [word(finite[0], "VERB", lexical), *tail]
    form = finite[2 if past else third]
    return [], [word(form, "VERB", lexical, tense), *tail]


def _clause(clause: Clause, n: str) -> list[Word]:
    auxiliary, verb = _verb(clause, n)
    subject = noun_phrase(clause.subject, n + ".subject")
    subject, rest = subject or [word("it", "PRON", n + ".expletive")], list[Word]()
    if clause.predicate == "exist":
        rest, subject = subject, [word("there", "PRON", n + ".event")]
        if clause.negative and rest[0].upos == "DET":  # "there is no cat"
            auxiliary = auxiliary[:1]
            rest[0] = word("no", "DET", n + ".negation", n + ".subject.det")
    if clause.predicate.endswith("_weather"):
        rest = [word(VERBS[clause.predicate][0], "ADJ", n + ".event")]
    rest += [word("very", "ADV", n + ".degree")] * clause.very
    if clause.attribute:
        adjective = ADJECTIVES.get(clause.attribute, clause.attribute)
        rest.append(word(adjective, "ADJ", n + ".event"))
    rest += noun_phrase(clause.complement, n + ".complement")
    rest += noun_phrase(clause.recipient, n + ".recipient")
    front = []
    if clause.object:
        rest += [word(form, "ADP", n + ".event") for form in VERBS[clause.predicate][4:]]
        thing = noun_phrase(clause.object, n + ".object")
        if clause.question == "object":
            front = thing
        else:
            rest += thing
    rest += _place(clause, n)
    time = TIMES[clause.time](n) if clause.time else []
    if clause.time_first:
        return time + subject + auxiliary + verb + rest
    if clause.question in (None, "subject"):
        return subject + auxiliary + verb + rest + time
    if clause.question == "place":
        front = [word("where", "ADV", n + ".place.noun")]
    return front + auxiliary + subject + verb + rest + time


clauses = partial(join, clause=_clause, links=LINKS)
