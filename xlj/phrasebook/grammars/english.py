"""English: SVO, articles, do-support, the progressive."""

from functools import partial

from xlj.phrasebook.grammars.grammar import PERSONS, agreement, join, nameable
from xlj.phrasebook.grammars.lexicon import forms, names, table, time_words
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, word

NOUNS = forms(
    """
    teacher teachers; doctor doctors; student students; farmer farmers; engineer engineers;
    driver drivers; cook cooks; writer writers; singer singers; lawyer lawyers;
    journalist journalists; nurse nurses; painter painters; child children; man men;
    woman women; girl girls; boy boys; guest guests; mother; father; brother; sister; friend;
    neighbour; uncle; aunt; grandmother; grandfather; dog dogs; cat cats; horse horses;
    cow cows; bird birds; chicken chickens; sheep sheep; goat goats; rabbit rabbits;
    apple apples; orange oranges; banana bananas; cake cakes; egg eggs; potato potatoes;
    tomato tomatoes; carrot carrots; bread; rice; fish; meat; cheese; soup; honey; water; milk;
    tea; coffee; juice; book books; letter letters; newspaper newspapers; magazine magazines;
    story stories; report reports; poem poems; chair chairs; table tables; lamp lamps; bed beds;
    mirror mirrors; box boxes; basket baskets; key keys; phone phones; bag bags; cup cups;
    plate plates; clock clocks; picture pictures; gift gifts; computer computers; ball balls;
    pen pens; umbrella umbrellas; ticket tickets; bottle bottles; radio radios; camera cameras;
    map maps; flower flowers; knife knives; door doors; window windows; shirt shirts;
    dress dresses; hat hats; coat coats; shoe shoes; skirt skirts; car cars; bus buses;
    bicycle bicycles; train trains; boat boats; school schools; market markets;
    hospital hospitals; house houses; office offices; station stations; farm farms;
    garden gardens; kitchen kitchens; library libraries; restaurant restaurants; hotel hotels;
    church churches; museum museums; village villages; city cities; bank banks; shop shops;
    theatre theatres; factory factories; airport airports; university universities;
    bridge bridges; film films; song songs; music; English; German; French; Spanish; Swahili;
    Turkish; Hindi; Chinese
    """
)
AT = frozenset("station farm airport university market bank theatre factory".split())

# base, third person, past, participle in -ing; then a preposition; of some weather an adjective
VERBS = table(
    """
    eat: eat eats ate eating; cook: cook cooks cooked cooking; drink: drink drinks drank drinking;
    read: read reads read reading; write: write writes wrote writing; buy: buy buys bought buying;
    sell: sell sells sold selling; find: find finds found finding; lose: lose loses lost losing;
    see: see sees saw seeing; open: open opens opened opening; close: close closes closed closing;
    wash: wash washes washed washing; repair: repair repairs repaired repairing;
    clean: clean cleans cleaned cleaning; carry: carry carries carried carrying;
    watch: watch watches watched watching; listen: listen listens listened listening to;
    sing: sing sings sang singing; learn: learn learns learned learning;
    speak: speak speaks spoke speaking; help: help helps helped helping;
    invite: invite invites invited inviting; love: love loves loved loving;
    know: know knows knew knowing; search: look looks looked looking for;
    use: use uses used using; build: build builds built building; draw: draw draws drew drawing;
    hide: hide hides hid hiding; feed: feed feeds fed feeding; sleep: sleep sleeps slept sleeping;
    work: work works worked working; play: play plays played playing;
    dance: dance dances danced dancing; live: live lives lived living;
    wait: wait waits waited waiting; smile: smile smiles smiled smiling;
    study: study studies studied studying; laugh: laugh laughs laughed laughing;
    cry: cry cries cried crying; go: go goes went going; return: return returns returned returning;
    arrive: arrive arrives arrived arriving; come: come comes came coming;
    give: give gives gave giving; send: send sends sent sending; show: show shows showed showing;
    bring: bring brings brought bringing; have: have has had having; like: like likes liked liking;
    rain: rain rains rained raining; snow: snow snows snowed snowing; hot_weather: hot;
    cold_weather: cold
    """
)
ADJECTIVES = {"tasty": "delicious"}
NAMES = names(
    """
    unicef: UNICEF; unesco: UNESCO; red_cross: the Red Cross; world_bank: the World Bank
    """
)
TIMES = time_words(
    """
    now/ADV; today/ADV; every/DET day/NOUN; every/DET week/NOUN; in/ADP the/DET morning/NOUN;
    in/ADP the/DET evening/NOUN; yesterday/ADV; last/ADJ week/NOUN; last/ADJ month/NOUN;
    this/DET morning/NOUN; tomorrow/ADV; next/ADJ week/NOUN; next/ADJ month/NOUN; tonight/ADV
    """,
    "on/ADP {}/PROPN",
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "at/ADP {}/NUM o'clock/NOUN",
    "one two three four five six seven eight nine ten eleven twelve",
)
NUMBERS = "two three four five six seven eight nine ten".split()
PRONOUNS = table("i: I my; you: you your; he: he his; she: she her; we: we our; they: they their")
LINKS = {"and": ("and", "CCONJ"), "but": ("but", "CCONJ"), "because": ("because", "SCONJ")}


def _article(following: str) -> str:
    vowel = following[0] in "aeiouAEIOU" and not following.startswith(("uni", "use", "one"))
    return "an" if vowel else "a"


def noun_phrase(p: Participant | None, role: str) -> list[Word]:
    """A participant: determiner, numeral, adjective, noun."""
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
    """The finite auxiliaries (which precede the subject of a question) and the rest."""
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
