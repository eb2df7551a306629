"""Swahili: noun classes with concord on verbs, adjectives, numerals and possessives."""

from functools import partial

from xlj.phrasebook.grammars.grammar import PERSONS, agreement, join, nameable
from xlj.phrasebook.grammars.lexicon import forms, names, table, time_words
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, word
from xlj.phrasebook.world import QUALITIES

# singular, plural, class of the singular (1 also for animates of other shapes; k: kin)
NOUNS = forms(
    """
    mwalimu walimu 1; daktari madaktari 1; mwanafunzi wanafunzi 1; mkulima wakulima 1;
    mhandisi wahandisi 1; dereva madereva 1; mpishi wapishi 1; mwandishi waandishi 1;
    mwimbaji waimbaji 1; mwanasheria wanasheria 1; mwanahabari wanahabari 1; muuguzi wauguzi 1;
    mchoraji wachoraji 1; mtoto watoto 1; mwanamume wanaume 1; mwanamke wanawake 1;
    msichana wasichana 1; mvulana wavulana 1; mgeni wageni 1; mama mama k; baba baba k;
    kaka kaka k; dada dada k; rafiki marafiki k; jirani majirani k; mjomba wajomba 1;
    shangazi shangazi k; bibi bibi k; babu babu k; mbwa mbwa 1; paka paka 1; farasi farasi 1;
    ng'ombe ng'ombe 1; ndege ndege 1; kuku kuku 1; kondoo kondoo 1; mbuzi mbuzi 1;
    sungura sungura 1; tufaha matufaha 5; chungwa machungwa 5; ndizi ndizi 9; keki keki 9;
    yai mayai 5; kiazi viazi 7; nyanya nyanya 9; karoti karoti 9; mkate mikate 3; wali wali 11;
    samaki samaki 1; nyama nyama 9; jibini jibini 9; supu supu 9; asali asali 9; maji maji 6;
    maziwa maziwa 6; chai chai 9; kahawa kahawa 9; juisi juisi 9; kitabu vitabu 7;
    barua barua 9; gazeti magazeti 5; jarida majarida 5; hadithi hadithi 9; ripoti ripoti 9;
    shairi mashairi 5; kiti viti 7; meza meza 9; taa taa 9; kitanda vitanda 7; kioo vioo 7;
    sanduku masanduku 5; kikapu vikapu 7; ufunguo funguo 11; simu simu 9; mfuko mifuko 3;
    kikombe vikombe 7; sahani sahani 9; saa saa 9; picha picha 9; zawadi zawadi 9;
    kompyuta kompyuta 9; mpira mipira 3; kalamu kalamu 9; mwavuli miavuli 3; tiketi tiketi 9;
    chupa chupa 9; redio redio 9; kamera kamera 9; ramani ramani 9; ua maua 5; kisu visu 7;
    mlango milango 3; dirisha madirisha 5; shati mashati 5; gauni magauni 5; kofia kofia 9;
    koti makoti 5; kiatu viatu 7; sketi sketi 9; gari magari 5; basi mabasi 5;
    baiskeli baiskeli 9; treni treni 9; mashua mashua 9; shule shule 9; soko masoko 5;
    hospitali hospitali 9; nyumba nyumba 9; ofisi ofisi 9; kituo vituo 7; shamba mashamba 5;
    bustani bustani 9; jiko majiko 5; maktaba maktaba 9; mkahawa mikahawa 3; hoteli hoteli 9;
    kanisa makanisa 5; makumbusho makumbusho 6; kijiji vijiji 7; mji miji 3; benki benki 9;
    duka maduka 5; thieta thieta 9; kiwanda viwanda 7; uwanja_wa_ndege viwanja_vya_ndege 12;
    chuo_kikuu vyuo_vikuu 7; daraja madaraja 5; filamu filamu 9; wimbo nyimbo 11; muziki muziki 3;
    Kiingereza - 7; Kijerumani - 7; Kifaransa - 7; Kihispania - 7; Kiswahili - 7; Kituruki - 7;
    Kihindi - 7; Kichina - 7
    """
)

# By class, singular then plural: concord of the verb, of adjectives, of -a ("of"), of "this"
CONCORDS = table(
    """
    1: a m w huyu wa wa w hawa; k: a m y huyu wa wa z hawa; 3: u m w huu i mi y hii;
    5: li ji l hili ya ma y haya; 6: ya ma y haya ya ma y haya; 7: ki ki ch hiki vi vi vy hivi;
    9: i n y hii zi n z hizi; 11: u m w huu zi n z hizi; 12: u m w huu vi vi vy hivi
    """
)

# The stem alone is an adjective that agrees ("n" class form and "ji" class form follow it);
# "of" and "with" introduce a noun (-a moto, -enye nguvu), "has" a state, "same" what is invariable
ADJECTIVES = forms(
    """
    pya mpya jipya; of zamani; kubwa kubwa kubwa; dogo ndogo dogo; zuri nzuri zuri; same ghali;
    same rahisi; ekundu nyekundu jekundu; eupe nyeupe jeupe; eusi nyeusi jeusi; of kijani; of bluu;
    of njano; zito nzito zito; same safi; chafu chafu chafu; same kijana vijana; ema njema jema;
    erevu nyerevu jerevu; same maarufu; same tajiri; same maskini; with nguvu; has uchovu;
    has furaha; has huzuni; has shughuli; has wasiwasi; has hasira; of moto; of baridi; same freshi;
    tamu tamu tamu; with ladha; tulivu tulivu tulivu; refu ndefu refu; fupi fupi fupi; of kuvutia
    """,
    QUALITIES,
)

# The stem; then a noun or particle that belongs to the verb
VERBS = table(
    """
    eat: la; cook: pika; drink: nywa; read: soma; write: andika; buy: nunua; sell: uza; find: pata;
    lose: poteza; see: ona; open: fungua; close: funga; wash: osha; repair: tengeneza;
    clean: safisha; carry: beba; watch: tazama; listen: sikiliza; sing: imba; learn: jifunza;
    speak: zungumza; help: saidia; invite: alika; love: penda; know: fahamu; search: tafuta;
    use: tumia; build: jenga; draw: chora; hide: ficha; feed: lisha; sleep: lala; work: fanya kazi;
    play: cheza; dance: cheza ngoma; live: ishi; wait: subiri; smile: tabasamu; study: soma;
    laugh: cheka; cry: lia; go: enda; return: rudi; arrive: fika; come: toka; give: pa; send: tumia;
    show: onyesha; bring: letea; have: wa na; like: penda; want: taka; can: weza; be: wa;
    rain: nyesha mvua 9; snow: anguka theluji 9; hot_weather: - joto; cold_weather: - baridi
    """
)
_MONOSYLLABIC = frozenset(("la", "nywa", "wa"))
NAMES = names(
    """
    rome: Roma; germany: Ujerumani; france: Ufaransa; spain: Uhispania; turkey: Uturuki;
    italy: Italia; japan: Japani; brazil: Brazili; mexico: Meksiko; egypt: Misri; russia: Urusi;
    canada: Kanada; portugal: Ureno; unicef: UNICEF; unesco: UNESCO; red_cross: Msalaba Mwekundu;
    world_bank: Benki ya Dunia
    """
)
TIMES = time_words(
    """
    sasa/ADV; leo/ADV; kila/DET siku/NOUN; kila/DET wiki/NOUN; asubuhi/NOUN; jioni/NOUN; jana/ADV;
    wiki/NOUN iliyopita/ADJ; mwezi/NOUN uliopita/ADJ; leo/ADV asubuhi/NOUN; kesho/ADV;
    wiki/NOUN ijayo/ADJ; mwezi/NOUN ujao/ADJ; leo/ADV usiku/NOUN
    """,
    "{}/NOUN",
    "Jumatatu Jumanne Jumatano Alhamisi Ijumaa Jumamosi Jumapili",
    # The Swahili clock counts from dawn: three o'clock is "hour nine".
    "saa/NOUN {}/NUM",
    "saba nane tisa kumi kumi_na_moja kumi_na_mbili moja mbili tatu nne tano sita",
)
# Those that agree carry a hyphen; the form after the slash is that of the n classes.
NUMBERS = "-wili/mbili -tatu/tatu -nne/nne -tano/tano sita saba -nane/nane tisa kumi".split()
PRONOUNS = table(
    "i: mimi angu; you: wewe ako; he: yeye ake; she: yeye ake; we: sisi etu; they: wao ao"
)
LINKS = {"and": ("na", "CCONJ"), "but": ("lakini", "CCONJ"), "because": ("kwa sababu", "SCONJ")}
_SUBJECTS = dict(zip(PERSONS, "ni u a tu wa".split(), strict=True))


def _concord(p: Participant | None) -> tuple[str, ...]:
    """The concords of a participant: verb, adjective, of, this."""
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
    """An adjective prefix with its stem: m- becomes mw- and ki- ch- before a vowel."""
    if stem[0] != "e":
        return prefix + stem
    return {"m": "mw", "wa": "w", "mi": "my", "ma": "m", "ki": "ch", "vi": "vy"}[prefix] + stem


def noun_phrase(p: Participant | None, role: str) -> list[Word]:
    """Noun, possessive or demonstrative, adjective, numeral; a pronoun is left to the verb."""
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
    if len(phrase) == 1:  # the locative suffix serves a noun without modifiers
        return [word(phrase[0].form + "ni", "NOUN", role + ".noun", role + ".case")]
    return [word("kwenye", "ADP", role + ".case"), *phrase]


def _inflect(stem: str, prefix: str, negated: str, clause: Clause, infix: str = "") -> str:
    """A finite form: concord, tense, object concord and stem, in the clause's polarity."""
    tense = {"past": "li", "future": "ta"}.get(clause.tense, "na")
    # A stem of one syllable keeps the ku- of its infinitive where a tense would be stressed.
    ku = "ku" if stem in _MONOSYLLABIC and not infix else ""
    if not clause.negative:
        return prefix + tense + ku + infix + stem
    if tense == "na":
        return negated + infix + (stem[:-1] + "i" if stem[-1] == "a" else stem)
    return negated + ("ku" if tense == "li" else "ta" + ku) + infix + stem


def _object_concord(clause: Clause) -> str:
    """The concord of an object that is animate and definite, or of the recipient."""
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
