"""German: verb-second, three genders and cases, weak and strong adjectives, split verbs."""

from xlj.phrasebook.grammars.grammar import PERSONS, agreement, fuse, join, nameable
from xlj.phrasebook.grammars.lexicon import adjectives, forms, names, phrases, table, time_words
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, word

# singular, gender ('*': weak masculine, -n in the oblique), plural, feminine or preposition
NOUNS = forms(
    """
    Lehrer m Lehrer Lehrerin; Arzt m Ärzte Ärztin; Student m* Studenten Studentin;
    Bauer m* Bauern Bäuerin; Ingenieur m Ingenieure Ingenieurin; Fahrer m Fahrer Fahrerin;
    Koch m Köche Köchin; Schriftsteller m Schriftsteller Schriftstellerin;
    Sänger m Sänger Sängerin; Anwalt m Anwälte Anwältin; Journalist m* Journalisten Journalistin;
    Krankenpfleger m Krankenpfleger Krankenschwester; Maler m Maler Malerin;
    Kind n Kinder; Mann m Männer; Frau f Frauen; Mädchen n Mädchen; Junge m* Jungen;
    Gast m Gäste; Mutter f; Vater m; Bruder m; Schwester f; Freund m Freunde Freundin;
    Nachbar m* Nachbarn Nachbarin; Onkel m; Tante f; Großmutter f; Großvater m;
    Hund m Hunde; Katze f Katzen; Pferd n Pferde; Kuh f Kühe; Vogel m Vögel; Huhn n Hühner;
    Schaf n Schafe; Ziege f Ziegen; Kaninchen n Kaninchen; Apfel m Äpfel; Orange f Orangen;
    Banane f Bananen; Kuchen m Kuchen; Ei n Eier; Kartoffel f Kartoffeln; Tomate f Tomaten;
    Karotte f Karotten; Brot n; Reis m; Fisch m; Fleisch n; Käse m; Suppe f; Honig m; Wasser n;
    Milch f; Tee m; Kaffee m; Saft m; Buch n Bücher; Brief m Briefe; Zeitung f Zeitungen;
    Zeitschrift f Zeitschriften; Geschichte f Geschichten; Bericht m Berichte; Gedicht n Gedichte;
    Stuhl m Stühle; Tisch m Tische; Lampe f Lampen; Bett n Betten; Spiegel m Spiegel;
    Kiste f Kisten; Korb m Körbe; Schlüssel m Schlüssel; Telefon n Telefone; Tasche f Taschen;
    Tasse f Tassen; Teller m Teller; Uhr f Uhren; Bild n Bilder; Geschenk n Geschenke;
    Computer m Computer; Ball m Bälle; Stift m Stifte; Regenschirm m Regenschirme;
    Fahrkarte f Fahrkarten; Flasche f Flaschen; Radio n Radios; Kamera f Kameras;
    Karte f Karten; Blume f Blumen; Messer n Messer; Tür f Türen; Fenster n Fenster;
    Hemd n Hemden; Kleid n Kleider; Hut m Hüte; Mantel m Mäntel; Schuh m Schuhe; Rock m Röcke;
    Auto n Autos; Bus m Busse; Fahrrad n Fahrräder; Zug m Züge; Boot n Boote;
    Schule f Schulen in; Markt m Märkte auf; Krankenhaus n Krankenhäuser in; Haus n Häuser in;
    Büro n Büros in; Bahnhof m Bahnhöfe an; Bauernhof m Bauernhöfe auf; Garten m Gärten in;
    Küche f Küchen in; Bibliothek f Bibliotheken in; Restaurant n Restaurants in;
    Hotel n Hotels in; Kirche f Kirchen in; Museum n Museen in; Dorf n Dörfer in;
    Stadt f Städte in; Bank f Banken in; Laden m Läden in; Theater n Theater in;
    Fabrik f Fabriken in; Flughafen m Flughäfen an; Universität f Universitäten an;
    Brücke f Brücken; Film m Filme; Lied n Lieder; Musik f; Englisch n; Deutsch n;
    Französisch n; Spanisch n; Suaheli n; Türkisch n; Hindi n; Chinesisch n
    """
)

# infinitive (prefix|verb if separable), forms for du and er, participle
VERBS = table(
    """
    eat: essen isst isst gegessen; cook: kochen kochst kocht gekocht;
    drink: trinken trinkst trinkt getrunken; read: lesen liest liest gelesen;
    write: schreiben schreibst schreibt geschrieben; buy: kaufen kaufst kauft gekauft;
    sell: verkaufen verkaufst verkauft verkauft; find: finden findest findet gefunden;
    lose: verlieren verlierst verliert verloren; see: sehen siehst sieht gesehen;
    open: öffnen öffnest öffnet geöffnet; close: schließen schließt schließt geschlossen;
    wash: waschen wäschst wäscht gewaschen; repair: reparieren reparierst repariert repariert;
    clean: putzen putzt putzt geputzt; carry: tragen trägst trägt getragen;
    watch: sehen siehst sieht gesehen; listen: hören hörst hört gehört;
    sing: singen singst singt gesungen; learn: lernen lernst lernt gelernt;
    speak: sprechen sprichst spricht gesprochen; help: helfen hilfst hilft geholfen;
    invite: ein|laden lädst lädt eingeladen; love: lieben liebst liebt geliebt;
    know: kennen kennst kennt gekannt; search: suchen suchst sucht gesucht;
    use: benutzen benutzt benutzt benutzt; build: bauen baust baut gebaut;
    draw: zeichnen zeichnest zeichnet gezeichnet; hide: verstecken versteckst versteckt versteckt;
    feed: füttern fütterst füttert gefüttert; sleep: schlafen schläfst schläft geschlafen;
    work: arbeiten arbeitest arbeitet gearbeitet; play: spielen spielst spielt gespielt;
    dance: tanzen tanzt tanzt getanzt; live: wohnen wohnst wohnt gewohnt;
    wait: warten wartest wartet gewartet; smile: lächeln lächelst lächelt gelächelt;
    study: lernen lernst lernt gelernt; laugh: lachen lachst lacht gelacht;
    cry: weinen weinst weint geweint; go: gehen gehst geht gegangen;
    return: zurück|kehren kehrst kehrt zurückgekehrt; arrive: an|kommen kommst kommt angekommen;
    come: kommen kommst kommt gekommen; give: geben gibst gibt gegeben;
    send: schicken schickst schickt geschickt; show: zeigen zeigst zeigt gezeigt;
    bring: bringen bringst bringt gebracht; have: haben hast hat gehabt;
    like: mögen magst mag gemocht; rain: regnen regnest regnet geregnet;
    snow: schneien schneist schneit geschneit; exist: geben gibst gibt gegeben
    """
)
WEATHER = {"hot_weather": "heiß", "cold_weather": "kalt", "rain": "", "snow": ""}
WITH_SEIN = frozenset(("go", "return", "arrive", "come"))
ADJECTIVES = adjectives(
    """
    neu alt groß klein schön teuer billig rot weiß schwarz grün blau gelb schwer sauber schmutzig
    jung nett klug berühmt reich arm stark müde glücklich traurig beschäftigt nervös wütend heiß
    kalt frisch süß lecker ruhig lang kurz interessant
    """
)
NAMES = names(
    """
    rome: Rom; moscow: Moskau; beijing: Peking; tokyo: Tokio; vienna: Wien; munich: München;
    geneva: Genf; athens: Athen; lisbon: Lissabon; warsaw: Warschau; prague: Prag;
    singapore: Singapur; germany: Deutschland; france: Frankreich; spain: Spanien; turkey: Türkei;
    india: Indien; kenya: Kenia; tanzania: Tansania; italy: Italien; brazil: Brasilien;
    mexico: Mexiko; egypt: Ägypten; russia: Russland; canada: Kanada; unicef: UNICEF;
    unesco: der UNESCO; red_cross: dem Roten Kreuz; world_bank: der Weltbank
    """
)
TIMES = time_words(
    """
    jetzt/ADV; heute/ADV; jeden/DET Tag/NOUN; jede/DET Woche/NOUN; am/ADP Morgen/NOUN;
    am/ADP Abend/NOUN; gestern/ADV; letzte/ADJ Woche/NOUN; letzten/ADJ Monat/NOUN;
    heute/ADV Morgen/NOUN; morgen/ADV; nächste/ADJ Woche/NOUN; nächsten/ADJ Monat/NOUN;
    heute/ADV Abend/NOUN
    """,
    "am/ADP {}/NOUN",
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "um/ADP {}/NUM Uhr/NOUN",
    "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
)
NUMBERS = "zwei drei vier fünf sechs sieben acht neun zehn".split()
PRONOUNS = table(
    "i: ich mein; you: du dein; he: er sein; she: sie ihr; we: wir unser; they: sie ihr"
)
LINKS = {"and": ("und", "CCONJ"), "but": ("aber", "CCONJ"), "because": ("weil", "SCONJ")}
CONTRACTIONS = phrases(
    "in dem: im; an dem: am; zu dem: zum; zu der: zur; von dem: vom; bei dem: beim"
)

# Endings by case and gender ('p': plural): of der, of ein, and of adjectives after each.
_KEYS = [case + gender for case in ("nom", "acc", "dat") for gender in "mfnp"]


def _endings(text: str) -> dict[str, str]:
    return dict(zip(_KEYS, text.replace("-", "").split(","), strict=True))


THE = _endings("der,die,das,die,den,die,das,die,dem,der,dem,den")
THIS = _endings("er,e,es,e,en,e,es,e,em,er,em,en")
EIN = _endings(",e,,e,en,e,,e,em,er,em,en")
WEAK = _endings("e,e,e,en,en,e,e,en,en,en,en,en")
MIXED = _endings("er,e,es,en,en,e,es,en,en,en,en,en")
STRONG = _endings("er,e,es,e,en,e,es,e,em,er,em,en")
_FINITE = table(
    """
    sein: bin bist ist sind sind; war: war warst war waren waren; haben: habe hast hat haben haben;
    werden: werde wirst wird werden werden; want: will willst will wollen wollen;
    can: kann kannst kann können können; mögen: mag magst mag mögen mögen
    """
)


def noun_phrase(p: Participant | None, role: str, case: str, negated: str = "") -> list[Word]:
    """A participant in a case; `negated` is the slot of a negation that 'kein' expresses."""
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
    """A present form; 'ich' and the plurals follow from the infinitive."""
    if infinitive in _FINITE:
        return _FINITE[infinitive][PERSONS.index(person)]
    if person == "1s":
        if infinitive.endswith("eln"):
            return infinitive[:-3] + "le"
        return infinitive[:-1] + "e" if infinitive.endswith("rn") else infinitive[:-1]
    return {"2s": du, "3s": er}.get(person, infinitive)


def _verb(clause: Clause, n: str) -> tuple[Word, list[Word]]:
    """The finite verb and what closes the clause: prefix, participle or infinitive."""
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
        # A profession takes no article unless it is qualified or denied
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


def clauses(parts: tuple[Clause, ...], link: str | None) -> list[Word]:
    """The words of a sentence of one or two clauses, with its punctuation."""

    def clause(clause: Clause, n: str) -> list[Word]:
        return _clause(clause, n, subordinate=link == "because" and n == "1")

    return join(parts, link, clause, LINKS, commas=("and", "but", "because"))
