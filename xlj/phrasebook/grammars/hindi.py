"""Hindi: verb-final, postpositions with oblique forms, gender agreement, ergative ne."""

from functools import partial

from xlj.phrasebook.grammars.grammar import PERSONS, agreement, is_feminine, join, nameable
from xlj.phrasebook.grammars.lexicon import adjectives, all_names, forms, table, time_words
from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, word

# singular, gender ('*': does not decline), feminine or locative postposition (where not में)
NOUNS = forms(
    """
    अध्यापक m अध्यापिका; डॉक्टर m; छात्र m छात्रा; किसान m; इंजीनियर m; ड्राइवर m; बावर्ची m;
    लेखक m लेखिका; गायक m गायिका; वकील m; पत्रकार m; नर्स m; चित्रकार m; बच्चा m; आदमी m; औरत f;
    लड़की f; लड़का m; मेहमान m; माँ f; पिता m*; भाई m; बहन f; दोस्त m; पड़ोसी m पड़ोसिन; चाचा m*;
    मौसी f; दादी f; दादा m*; कुत्ता m; बिल्ली f; घोड़ा m; गाय f; चिड़िया f; मुर्गी f; भेड़ f; बकरी f;
    ख़रगोश m; सेब m; संतरा m; केला m; केक m; अंडा m; आलू m; टमाटर m; गाजर f; रोटी f; चावल m;
    मछली f; मांस m; पनीर m; सूप m; शहद m; पानी m; दूध m; चाय f; कॉफ़ी f; जूस m; किताब f; चिट्ठी f;
    अख़बार m; पत्रिका f; कहानी f; रिपोर्ट f; कविता f; कुर्सी f; मेज़ f; लैंप m; बिस्तर m; आईना m;
    डिब्बा m; टोकरी f; चाबी f; फ़ोन m; थैला m; प्याला m; प्लेट f; घड़ी f; तस्वीर f; तोहफ़ा m;
    कंप्यूटर m; गेंद f; पेन m; छाता m; टिकट m; बोतल f; रेडियो m*; कैमरा m; नक़्शा m; फूल m; चाकू m;
    दरवाज़ा m; खिड़की f; क़मीज़ f; पोशाक f; टोपी f; कोट m; जूता m; स्कर्ट f; कार f; बस f; साइकिल f;
    रेलगाड़ी f; नाव f; स्कूल m; बाज़ार m; अस्पताल m; घर m; दफ़्तर m; स्टेशन m पर; खेत m; बग़ीचा m;
    रसोई f; पुस्तकालय m; रेस्तराँ m*; होटल m; गिरजाघर m; संग्रहालय m; गाँव m; शहर m; बैंक m; दुकान f;
    थिएटर m; कारख़ाना m; हवाई_अड्डा m पर; विश्वविद्यालय m; पुल m; फ़िल्म f; गाना m; संगीत m;
    अंग्रेज़ी f; जर्मन f; फ़्रेंच f; स्पेनिश f; स्वाहिली f; तुर्की f; हिंदी f; चीनी f
    """
)
HONOURED = frozenset("mother father uncle aunt grandmother grandfather".split())

# The stem; "ne" if its perfective takes the ergative; the word before the verb, with a gender if
# it is a noun that the verb agrees with; the postposition of the object
VERBS = table(
    """
    eat: खा ne; cook: पका ne; drink: पी ne; read: पढ़ ne; write: लिख ne; buy: ख़रीद ne;
    sell: बेच ne; find: मिल ko; lose: दे ne खो; see: देख ne; open: खोल ne; close: कर ne बंद;
    wash: धो ne; repair: कर ne ठीक; clean: कर ne साफ़; carry: उठा ne; watch: देख ne; listen: सुन ne;
    sing: गा ne; learn: सीख ne; speak: बोल -; help: कर ne मदद/f की; invite: बुला ne - को;
    love: कर ne प्यार/m से; know: जान ne - को; search: ढूँढ ne; use: कर ne इस्तेमाल/m का; build: बना ne;
    draw: बना ne चित्र/m का; hide: छिपा ne; feed: खिला ne खाना/m को; sleep: सो -; work: कर ne काम/m;
    play: खेल -; dance: नाच -; live: रह -; wait: कर ne इंतज़ार/m; smile: मुस्कुरा -;
    study: कर ne पढ़ाई/f; laugh: हँस -; cry: रो -; go: जा -; return: लौट -; arrive: पहुँच -; come: आ -;
    give: दे ne; send: भेज ne; show: दिखा ne; bring: ला -; have: हो -; like: हो ko पसंद;
    rain: हो - बारिश/f; snow: गिर - बर्फ़/f; hot_weather: हो - गर्मी/f; cold_weather: हो - ठंड/f
    """
)
# masculine singular, masculine plural, feminine, feminine plural
_PERFECTIVE = table(
    "कर: किया किए की कीं; दे: दिया दिए दी दीं; जा: गया गए गई गईं; पी: पिया पिए पी पीं; हो: हुआ हुए हुई हुईं"
)
ADJECTIVES = adjectives(
    """
    नया पुराना बड़ा छोटा सुंदर महँगा सस्ता लाल सफ़ेद काला हरा नीला पीला भारी साफ़ गंदा जवान दयालु
    होशियार मशहूर अमीर ग़रीब ताक़तवर थका_हुआ ख़ुश उदास व्यस्त घबराया_हुआ नाराज़ गरम ठंडा ताज़ा मीठा
    स्वादिष्ट शांत लंबा छोटा दिलचस्प
    """
)
NAMES = all_names(
    """
    अन्ना मारिया सारा फ़ातिमा आयशा एलेना जूलिया नीना लौरा क्लारा अमीना ज़वादी लैला प्रिया मीरा मेई
    लिन सोफ़िया ईवा लूसिया मार्ता ओल्गा नीमा रोज़ा नोरा एम्मा लेना डायना कैमिला सीता ज़ैनब टीना पॉल
    पीटर अली उमर जुमा अहमद मेहमत रवि अर्जुन वेई टॉम डेविड मार्टिन पेड्रो कार्लोस हमीसी बराका एमरे
    यान लियो करीम इवान डिएगो फ़ेलिक्स डैनियल सैमुएल विक्टर एडम साइमन हसन यूसुफ़ कोफ़ी मिलर श्मिट
    वेबर ड्यूपॉन्ट गार्सिया लोपेज़ सिल्वा काया देमिर शर्मा कुमार गुप्ता सिंह वांग झांग चेन म्वांगी
    किमानी मुशी रोस्सी नोवाक पेत्रोव ब्राउन स्मिथ पेरिस लंदन बर्लिन मैड्रिड रोम मॉस्को इस्तांबुल
    अंकारा दिल्ली मुंबई बीजिंग शंघाई नैरोबी मोम्बासा डोडोमा लागोस टोक्यो न्यूयॉर्क लीमा वियना
    म्यूनिख हैम्बर्ग लियोन जिनेवा बार्सिलोना ओस्लो एथेंस लिस्बन वारसॉ प्राग सिंगापुर टोरंटो सिडनी
    जर्मनी फ़्रांस स्पेन तुर्की भारत चीन केन्या तंज़ानिया इटली जापान ब्राज़ील मेक्सिको मिस्र रूस
    कनाडा पुर्तगाल गूगल टोयोटा सैमसंग अमेज़न माइक्रोसॉफ़्ट यूनिसेफ़ यूनेस्को रेड_क्रॉस विश्व_बैंक
    """
)
TIMES = time_words(
    """
    अभी/ADV; आज/ADV; हर/DET दिन/NOUN; हर/DET हफ़्ते/NOUN; सुबह/NOUN; शाम/NOUN को/ADP; कल/ADV;
    पिछले/ADJ हफ़्ते/NOUN; पिछले/ADJ महीने/NOUN; आज/ADV सुबह/NOUN; कल/ADV; अगले/ADJ हफ़्ते/NOUN;
    अगले/ADJ महीने/NOUN; आज/ADV रात/NOUN
    """,
    "{}/NOUN को/ADP",
    "सोमवार मंगलवार बुधवार गुरुवार शुक्रवार शनिवार रविवार",
    "{}/NUM बजे/NOUN",
    "एक दो तीन चार पाँच छह सात आठ नौ दस ग्यारह बारह",
)
NUMBERS = "दो तीन चार पाँच छह सात आठ नौ दस".split()
# direct, with ने, with को, possessive
PRONOUNS = table(
    """
    i: मैं मैंने मुझे मेरा; you: तुम तुमने तुम्हें तुम्हारा; he: वह उसने उसे उसका;
    she: वह उसने उसे उसका; we: हम हमने हमें हमारा; they: वे उन्होंने उन्हें उनका
    """
)
LINKS = {"and": ("और", "CCONJ"), "but": ("लेकिन", "CCONJ"), "because": ("क्योंकि", "SCONJ")}
_IS = dict(zip(PERSONS, "हूँ हो है हैं हैं".split(), strict=True))
_FUTURES = table("हो: हूँ हो हो हों हों; दे: दूँ दो दे दें दें; पी: पिऊँ पिओ पिए पिएँ पिएँ")
_FUTURE = dict(zip(PERSONS, "ूँ ो े ें ें".split(), strict=True))
_FUTURE_VOWEL = dict(zip(PERSONS, "ऊँ ओ ए एँ एँ".split(), strict=True))
_WAS = table("m: था थे; f: थी थीं")
_MATRAS = "ािीुूेैोौआईऊएओ"


def _decline(form: str, gender: str, plural: bool, oblique: bool) -> str:
    """The plural and oblique of a noun by its gender and ending."""
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
    """An adjective, participle or possessive in -ā that agrees; others do not change."""
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
    """Whether a participant agrees in the plural: also tum and those whom one honours."""
    return p.plural or p.concept in HONOURED or (p.kind == "pronoun" and p.concept == "you")


def _person(p: Participant | None) -> str:
    return "3p" if p and p.concept in HONOURED else agreement(p)


def noun_phrase(
    p: Participant, role: str, oblique: bool = False, subject: Participant | None = None
) -> list[Word]:
    """A participant, direct or oblique; an owner that is the `subject` becomes अपना."""
    if p.kind != "noun":
        return nameable(p, role, NAMES, ("कौन", "क्या"), PRONOUNS)
    entry, gender = NOUNS[p.concept], _gender(p)
    form = entry[0]
    if p.human and p.gender == "f" and len(entry) > 2:
        form = entry[2]
    declension = entry[1] if gender == entry[1][0] else gender
    form = _decline(form, declension, p.plural, oblique)
    bent = oblique or _plural(p)  # how adjectives see the phrase
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
    """Whether the owner of a thing is taken to be the subject of the clause."""
    if subject.kind == "pronoun" or owner.concept in ("i", "you", "we"):
        return owner.concept == subject.concept
    if owner.concept == "they" or subject.plural:
        return owner.concept == "they" and subject.plural
    return subject.human and (owner.concept == "she") == (_gender(subject) == "f")


def _marked(p: Participant, role: str, marker: str, subject: Participant | None) -> list[Word]:
    """A participant with its postposition; pronouns fuse with theirs."""
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
    """हूँ, था, होगा... in agreement with a participant, after the negation."""
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
    """The verb in agreement with a participant, or with a noun of the `fixed` gender."""
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
    """The object, and whether a perfective verb agrees with it: it is known and unmarked."""
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
            parts = ADJECTIVES[clause.attribute].split()
            words += [word(_agreeing(part, gender, plural), "ADJ", event) for part in parts]
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
