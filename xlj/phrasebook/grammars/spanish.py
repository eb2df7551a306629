"""Spanish: pro-drop, ser and estar, preterite, personal a, gustar."""

from xlj.phrasebook.grammars.grammar import PERSONS, agreement, fuse, is_feminine, join, nameable
from xlj.phrasebook.grammars.lexicon import adjectives, forms, names, table, time_words
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, word
from xlj.phrasebook.world import STATES

# singular, gender, feminine
NOUNS = forms(
    """
    profesor m profesora; médico m médica; estudiante m estudiante; agricultor m agricultora;
    ingeniero m ingeniera; conductor m conductora; cocinero m cocinera; escritor m escritora;
    cantante m cantante; abogado m abogada; periodista m periodista; enfermero m enfermera;
    pintor m pintora; niño m; hombre m; mujer f; chica f; chico m; invitado m invitada; madre f;
    padre m; hermano m; hermana f; amigo m amiga; vecino m vecina; tío m; tía f; abuela f;
    abuelo m; perro m; gato m; caballo m; vaca f; pájaro m; gallina f; oveja f; cabra f; conejo m;
    manzana f; naranja f; plátano m; pastel m; huevo m; patata f; tomate m; zanahoria f; pan m;
    arroz m; pescado m; carne f; queso m; sopa f; miel f; agua f; leche f; té m; café m; zumo m;
    libro m; carta f; periódico m; revista f; historia f; informe m; poema m; silla f; mesa f;
    lámpara f; cama f; espejo m; caja f; cesta f; llave f; teléfono m; bolsa f; taza f; plato m;
    reloj m; cuadro m; regalo m; ordenador m; pelota f; bolígrafo m; paraguas m; billete m;
    botella f; radio f; cámara f; mapa m; flor f; cuchillo m; puerta f; ventana f; camisa f;
    vestido m; sombrero m; abrigo m; zapato m; falda f; coche m; autobús m; bicicleta f; tren m;
    barco m; escuela f; mercado m; hospital m; casa f; oficina f; estación f; granja f; jardín m;
    cocina f; biblioteca f; restaurante m; hotel m; iglesia f; museo m; pueblo m; ciudad f;
    banco m; tienda f; teatro m; fábrica f; aeropuerto m; universidad f; puente m; película f;
    canción f; música f; inglés m; alemán m; francés m; español m; suajili m; turco m; hindi m;
    chino m
    """
)

# Infinitive, then what is irregular: present forms (yo tú él nosotros ellos), preterite forms
# (the same persons) and gerund, '-' where regular
VERBS = table(
    """
    eat: comer; cook: cocinar; drink: beber;
    read: leer - leí,leíste,leyó,leímos,leyeron leyendo; write: escribir; buy: comprar;
    sell: vender; find: encontrar encuentro,encuentras,encuentra,encontramos,encuentran;
    lose: perder pierdo,pierdes,pierde,perdemos,pierden; see: ver veo,ves,ve,vemos,ven
    vi,viste,vio,vimos,vieron; open: abrir; close: cerrar cierro,cierras,cierra,cerramos,cierran;
    wash: lavar; repair: reparar; clean: limpiar; carry: llevar; watch: ver veo,ves,ve,vemos,ven
    vi,viste,vio,vimos,vieron viendo; listen: escuchar; sing: cantar; learn: aprender;
    speak: hablar; help: ayudar; invite: invitar; love: amar;
    know: conocer conozco,conoces,conoce,conocemos,conocen;
    search: buscar - busqué,buscaste,buscó,buscamos,buscaron; use: usar;
    build: construir construyo,construyes,construye,construimos,construyen
    construí,construiste,construyó,construimos,construyeron construyendo; draw: dibujar;
    hide: esconder; feed: alimentar; sleep: dormir duermo,duermes,duerme,dormimos,duermen
    dormí,dormiste,durmió,dormimos,durmieron durmiendo; work: trabajar;
    play: jugar juego,juegas,juega,jugamos,juegan jugué,jugaste,jugó,jugamos,jugaron;
    dance: bailar; live: vivir; wait: esperar; smile: sonreír
    sonrío,sonríes,sonríe,sonreímos,sonríen sonreí,sonreíste,sonrió,sonreímos,sonrieron
    sonriendo; study: estudiar; laugh: reír río,ríes,ríe,reímos,ríen
    reí,reíste,rio,reímos,rieron riendo; cry: llorar; go: ir voy,vas,va,vamos,van
    fui,fuiste,fue,fuimos,fueron yendo; return: volver vuelvo,vuelves,vuelve,volvemos,vuelven;
    arrive: llegar - llegué,llegaste,llegó,llegamos,llegaron; come: venir
    vengo,vienes,viene,venimos,vienen vine,viniste,vino,vinimos,vinieron viniendo;
    give: dar doy,das,da,damos,dan di,diste,dio,dimos,dieron;
    send: enviar envío,envías,envía,enviamos,envían; show: mostrar
    muestro,muestras,muestra,mostramos,muestran; bring: traer
    traigo,traes,trae,traemos,traen traje,trajiste,trajo,trajimos,trajeron trayendo;
    have: tener tengo,tienes,tiene,tenemos,tienen; like: gustar; ser: ser soy,eres,es,somos,son
    era,eras,era,éramos,eran; estar: estar estoy,estás,está,estamos,están
    estaba,estabas,estaba,estábamos,estaban; want: querer quiero,quieres,quiere,queremos,quieren;
    can: poder puedo,puedes,puede,podemos,pueden; rain: llover -,-,llueve,-,-;
    snow: nevar -,-,nieva,-,-; hot_weather: hacer -,-,hace,-,- -,-,hizo,-,-;
    cold_weather: hacer -,-,hace,-,- -,-,hizo,-,-
    """
)
WEATHER = {"hot_weather": "calor", "cold_weather": "frío", "rain": "", "snow": ""}
WITH_ESTAR = frozenset((*STATES, "hot", "cold", "clean", "dirty", "fresh"))
_PRESENT = table("ar: o as a amos an; er: o es e emos en; ir: o es e imos en")
_PAST = table("ar: é aste ó amos aron; er: í iste ió imos ieron; ir: í iste ió imos ieron")
ADJECTIVES = adjectives(
    """
    nuevo viejo grande pequeño bonito caro barato rojo blanco negro verde azul amarillo pesado
    limpio sucio joven amable inteligente famoso rico pobre fuerte cansado contento triste ocupado
    nervioso enfadado caliente frío fresco dulce delicioso tranquilo largo corto interesante
    """
)
NAMES = names(
    """
    paris: París; london: Londres; berlin: Berlín; rome: Roma; moscow: Moscú; istanbul: Estambul;
    mumbai: Bombay; beijing: Pekín; shanghai: Shanghái; tokyo: Tokio; new_york: Nueva York;
    vienna: Viena; munich: Múnich; hamburg: Hamburgo; geneva: Ginebra; athens: Atenas;
    lisbon: Lisboa; warsaw: Varsovia; prague: Praga; singapore: Singapur; sydney: Sídney;
    germany: Alemania; france: Francia; spain: España; turkey: Turquía; kenya: Kenia; italy: Italia;
    japan: Japón; brazil: Brasil; mexico: México; egypt: Egipto; russia: Rusia; canada: Canadá;
    unicef: UNICEF; unesco: la UNESCO; red_cross: la Cruz Roja; world_bank: el Banco Mundial
    """
)
TIMES = time_words(
    """
    ahora/ADV; hoy/ADV; todos/DET los/DET días/NOUN; todas/DET las/DET semanas/NOUN;
    por/ADP la/DET mañana/NOUN; por/ADP la/DET tarde/NOUN; ayer/ADV; la/DET semana/NOUN pasada/ADJ;
    el/DET mes/NOUN pasado/ADJ; esta/DET mañana/NOUN; mañana/ADV; la/DET próxima/ADJ semana/NOUN;
    el/DET próximo/ADJ mes/NOUN; esta/DET noche/NOUN
    """,
    "el/DET {}/NOUN",
    "lunes martes miércoles jueves viernes sábado domingo",
    "a/ADP {}/NUM",
    "la/DET_una las/DET_dos las/DET_tres las/DET_cuatro las/DET_cinco las/DET_seis las/DET_siete "
    "las/DET_ocho las/DET_nueve las/DET_diez las/DET_once las/DET_doce",
)
NUMBERS = "dos tres cuatro cinco seis siete ocho nueve diez".split()
PRONOUNS = table("i: mi me; you: tu te; he: su le; she: su le; we: nuestro nos; they: su les")
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
    """A participant; a pronoun is left to the verb."""
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
    # A dropped pronoun is expressed by the finite verb.
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
    """The experiencer of gustar: 'a Anna ... le', or only the clitic of a pronoun."""
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
    if clause.complement:  # a profession takes no article unless it is qualified
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


def clauses(parts: tuple[Clause, ...], link: str | None) -> list[Word]:
    """The words of a sentence of one or two clauses, with its punctuation."""
    words = fuse(join(parts, link, _clause, LINKS, commas=("but",)), CONTRACTIONS)
    for i, item in enumerate(words[:-1]):
        if item.form == "y" and words[i + 1].form.lower().startswith("i"):
            words[i] = Word("e", item.upos, item.entity, item.slots)
    return [word("¿", "PUNCT", "opening"), *words] if parts[0].question else words
