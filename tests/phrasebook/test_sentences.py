"""Sentences of each grammar equal hand-checked ones in text, alignment and agreement."""

import pytest

from xlj.phrasebook import LANGUAGES, pair, realise
from xlj.phrasebook.meaning import Clause, Meaning, Participant

ANNA = Participant("name", "Anna", "f")
SHE = Participant("pronoun", "she", "f")
CITY = Participant("place", "paris")


def noun(concept, **features):
    return Participant("noun", concept, **features)


def sentence_of(language, *clauses, link=None):
    return realise(Meaning("test", clauses, link), language).text


GAVE = Clause(
    "give",
    ANNA,
    noun("book", determiner="a", adjective="new"),
    noun("teacher"),
    tense="past",
    time="yesterday",
)
DID_NOT_GO = Clause("go", SHE, place=noun("market"), relation="to", tense="past", negative=True)
WHERE = Clause("work", ANNA, place=Participant("unknown", "thing"), question="place")
HAS = Clause("have", noun("brother", owner=ANNA), noun("cat", plural=True, determiner="a", count=3))
CAME = Clause(
    "come", Participant("name", "Ali"), place=noun("school"), relation="from", tense="past"
)
TIRED = Clause("be", Participant("pronoun", "he"), attribute="tired", tense="past")

# English: Anna gave the teacher a new book yesterday . / She did not go to the market . /
# Where does Anna work ? / Anna 's brother has three cats . /
# Ali came from the school because he was tired .
CHECKED = [
    ("de", "Anna hat gestern dem Lehrer ein neues Buch gegeben.",
     "0-0 1-1 1-8 2-3 3-4 4-5 5-6 6-7 7-2 8-9"),
    ("de", "Sie ist nicht zum Markt gegangen.", "0-0 1-1 2-2 3-5 4-3 5-3 6-4 7-6"),
    ("de", "Wo arbeitet Anna?", "0-0 1-1 2-2 3-1 4-3"),
    ("de", "Annas Bruder hat drei Katzen.", "0-0 1-0 2-1 3-2 4-3 5-4 6-5"),
    ("de", "Ali ist aus der Schule gekommen, weil er müde war.",
     "0-0 1-1 1-5 2-2 3-3 4-4 5-7 6-8 7-10 8-9 9-11"),
    ("fr", "Anna a donné un nouveau livre au professeur hier.",
     "0-0 1-1 1-2 2-6 3-6 3-7 4-3 5-4 6-5 7-8 8-9"),
    ("fr", "Elle n'est pas allée au marché.", "0-0 1-2 2-1 2-3 3-4 4-5 5-5 6-6 7-7"),
    ("fr", "Où est-ce qu'Anna travaille ?", "0-0 1-4 2-3 3-4 4-5"),
    ("fr", "Le frère d'Anna a trois chats.", "0-3 1-2 2-0 2-1 3-4 4-5 5-6 6-7"),
    ("fr", "Ali est venu de l'école parce qu'il était fatigué.",
     "0-0 1-1 1-2 2-3 3-4 4-5 5-6 5-7 6-8 7-9 8-10 9-11"),
    ("es", "Anna dio un libro nuevo al profesor ayer.",
     "0-0 1-1 2-5 3-5 3-6 4-2 5-4 6-3 7-7 8-8"),
    ("es", "No fue al mercado.", "0-1 1-1 2-0 3-1 4-2 5-2 6-3 7-4"),
    ("es", "¿Dónde trabaja Anna?", "0-1 1-2 2-3 3-2 4-4"),
    ("es", "El hermano de Anna tiene tres gatos.", "0-3 1-2 2-0 2-1 3-4 4-5 5-6 6-7"),
    ("es", "Ali vino de la escuela porque estaba cansado.",
     "0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-6 8-7 9-8"),
    ("sw", "Anna alimpa mwalimu kitabu kipya jana.", "0-0 1-1 2-2 3-2 4-3 5-4 6-3 7-5 8-6"),
    ("sw", "Hakuenda sokoni.", "0-0 1-0 2-0 3-0 4-1 5-1 6-1 7-2"),
    ("sw", "Anna anafanya kazi wapi?", "0-3 1-1 2-0 3-1 3-2 4-4"),
    ("sw", "Kaka wa Anna ana paka watatu.", "0-2 1-1 2-0 3-3 4-5 5-4 6-6"),
    ("sw", "Ali alitoka shuleni kwa sababu alikuwa na uchovu.",
     "0-0 1-1 2-2 3-2 4-2 5-3 5-4 6-5 7-5 8-5 8-6 8-7 9-8"),
    ("tr", "Anna dün öğretmene yeni bir kitap verdi.",
     "0-0 1-6 2-2 3-2 4-4 5-3 6-5 7-1 8-7"),
    ("tr", "Pazara gitmedi.", "0-1 1-1 2-1 3-1 4-0 5-0 6-0 7-2"),
    ("tr", "Anna nerede çalışıyor?", "0-1 1-2 2-0 3-2 4-3"),
    ("tr", "Anna'nın ağabeyinin üç kedisi var.", "0-0 1-0 2-1 3-4 4-2 5-3 6-5"),
    ("tr", "Ali okuldan geldi, çünkü yorgundu.", "0-0 1-2 2-1 3-1 4-1 5-4 6-5 7-5 8-5 9-6"),
    ("hi", "अन्ना ने कल अध्यापक को एक नई किताब दी।",
     "0-0 0-1 1-8 2-3 3-3 3-4 4-5 5-6 6-7 7-2 8-9"),
    ("hi", "वह बाज़ार नहीं गई।", "0-0 1-3 2-2 3-3 4-1 5-1 6-1 7-4"),
    ("hi", "अन्ना कहाँ काम करती है?", "0-1 1-4 2-0 3-2 3-3 4-5"),
    ("hi", "अन्ना के भाई के पास तीन बिल्लियाँ हैं।", "0-0 1-1 2-2 2-3 2-4 3-7 4-5 5-6 6-8"),
    ("hi", "अली स्कूल से आया क्योंकि वह थका हुआ था।",
     "0-0 1-3 2-2 3-1 4-1 5-4 6-5 7-8 8-6 8-7 9-9"),
    ("zh", "安娜昨天给了老师一本新书。", "0-0 1-2 1-3 2-4 3-4 4-5 4-6 5-7 6-8 7-1 8-9"),
    ("zh", "她没去市场。", "0-0 1-2 2-1 3-2 4-3 5-3 6-3 7-4"),
    ("zh", "安娜在哪里工作？", "0-1 0-2 1-3 2-0 3-3 4-4"),
    ("zh", "安娜的哥哥有三只猫。", "0-0 1-1 2-2 3-3 4-4 4-5 5-6 6-7"),
    ("zh", "阿里从学校来了，因为他很累。",
     "0-0 1-3 1-4 2-1 3-2 4-2 5-6 6-7 7-8 8-9 9-10"),
]  # fmt: skip
MEANINGS = [
    Meaning("test", (GAVE,)),
    Meaning("test", (DID_NOT_GO,)),
    Meaning("test", (WHERE,)),
    Meaning("test", (HAS,)),
    Meaning("test", (CAME, TIRED), "because"),
]


@pytest.mark.parametrize("position", range(len(CHECKED)))
def test_hand_checked_text_and_alignment(position):
    language, text, links = CHECKED[position]
    result = pair(MEANINGS[position % len(MEANINGS)], "en", language)
    assert result.target.text == text
    assert " ".join(f"{i}-{j}" for i, j in sorted(result.alignment)) == links


def test_english_sentences():
    assert [realise(meaning, "en").text for meaning in MEANINGS] == [
        "Anna gave the teacher a new book yesterday.",
        "She did not go to the market.",
        "Where does Anna work?",
        "Anna's brother has three cats.",
        "Ali came from the school because he was tired.",
    ]
    assert (
        sentence_of("en", Clause("have", ANNA, noun("apple", determiner="a")))
        == "Anna has an apple."
    )
    assert sentence_of(
        "en", Clause("read", ANNA, modal="can", object=noun("book"), negative=True)
    ) == ("Anna cannot read the book.")


def test_german_case_gender_and_word_order():
    def sees(thing, **features):
        return sentence_of("de", Clause("see", ANNA, noun(thing, **features), tense="past"))

    assert sees("man", adjective="young") == "Anna hat den jungen Mann gesehen."
    assert sees("woman", adjective="young") == "Anna hat die junge Frau gesehen."
    assert sees("boy", determiner="a") == "Anna hat einen Jungen gesehen."
    assert sees("girl", determiner="a", adjective="young") == "Anna hat ein junges Mädchen gesehen."
    helps = Clause("help", ANNA, noun("child", plural=True), time="today", time_first=True)
    assert sentence_of("de", helps) == "Heute hilft Anna den Kindern."
    invites = Clause("invite", ANNA, noun("guest", plural=True))
    assert sentence_of("de", invites) == "Anna lädt die Gäste ein."
    assert sentence_of("de", Clause("eat", ANNA, noun("bread", determiner="a"), negative=True)) == (
        "Anna isst kein Brot."
    )
    assert sentence_of(
        "de", Clause("go", SHE, place=Participant("place", "turkey"), relation="to")
    ) == ("Sie geht in die Türkei.")


def test_french_elision_contraction_and_agreement():
    def at(place, relation="to"):
        return sentence_of("fr", Clause("go", SHE, place=place, relation=relation))

    assert at(noun("school")) == "Elle va à l'école."
    assert at(noun("market")) == "Elle va au marché."
    assert at(Participant("place", "japan")) == "Elle va au Japon."
    assert at(Participant("place", "egypt")) == "Elle va en Égypte."
    assert sentence_of("fr", Clause("come", SHE, place=noun("market"), relation="from")) == (
        "Elle vient du marché."
    )
    water = noun("water", determiner="a")
    assert sentence_of("fr", Clause("drink", ANNA, water)) == "Anna boit de l'eau."
    assert (
        sentence_of("fr", Clause("drink", ANNA, water, negative=True)) == "Anna ne boit pas d'eau."
    )
    new = noun("apple", plural=True, determiner="a", adjective="beautiful")
    assert sentence_of("fr", Clause("buy", ANNA, new)) == "Anna achète de belles pommes."
    man = noun("man", determiner="this", adjective="old")
    assert sentence_of("fr", Clause("see", ANNA, man, tense="past")) == "Anna a vu ce vieil homme."


def test_french_negated_existence():
    none = Clause("exist", noun("cat", determiner="a"), place=noun("theatre"), negative=True)
    assert sentence_of("fr", none) == "Il n'y a pas de chat au théâtre."


def test_spanish_contraction_clitics_and_personal_a():
    assert sentence_of("es", Clause("help", ANNA, noun("farmer"))) == "Anna ayuda al agricultor."
    like = Clause("like", ANNA, noun("apple", plural=True, determiner="all"), negative=True)
    assert sentence_of("es", like) == "A Anna no le gustan las manzanas."
    assert sentence_of("es", Clause("be", noun("water"), attribute="cold")) == "El agua está fría."
    two = (Clause("rain", tense="now"), Clause("cry", Participant("name", "Ivan"), tense="now"))
    assert sentence_of("es", *two, link="and") == "Está lloviendo e Ivan está llorando."


def test_swahili_concord_runs_through_the_sentence():
    def good(thing, plural=False):
        return sentence_of("sw", Clause("be", noun(thing, plural=plural), attribute="beautiful"))

    assert good("teacher") == "Mwalimu ni mzuri."
    assert good("teacher", True) == "Walimu ni wazuri."
    assert good("book") == "Kitabu ni kizuri."
    assert good("book", True) == "Vitabu ni vizuri."
    assert good("door", True) == "Milango ni mizuri."
    assert good("car", True) == "Magari ni mazuri."
    assert good("song", True) == "Nyimbo ni nzuri."
    location = Clause("be", noun("book", plural=True), place=noun("kitchen"))
    assert sentence_of("sw", location) == "Vitabu viko jikoni."
    red = noun("chair", plural=True, determiner="a", count=5, adjective="red")
    assert (
        sentence_of("sw", Clause("buy", SHE, red, tense="future"))
        == "Atanunua viti vyekundu vitano."
    )
    assert sentence_of("sw", Clause("eat", SHE, noun("fish"), negative=True)) == "Hali samaki."
    assert (
        sentence_of("sw", Clause("invite", SHE, noun("guest", plural=True))) == "Anawaalika wageni."
    )


def test_turkish_harmony_and_suffixes():
    def to(place, relation="to"):
        return sentence_of("tr", Clause("go", SHE, place=place, relation=relation, tense="future"))

    assert to(noun("school")) == "Okula gidecek."
    assert to(noun("house")) == "Eve gidecek."
    assert to(noun("airport")) == "Havaalanına gidecek."
    assert to(noun("city")) == "Şehre gidecek."
    assert to(Participant("place", "istanbul")) == "İstanbul'a gidecek."
    first_person = Participant("pronoun", "i")
    assert sentence_of(
        "tr", Clause("lose", ANNA, noun("book", owner=first_person), tense="past")
    ) == ("Anna benim kitabımı kaybetti.")
    assert (
        sentence_of("tr", Clause("be", first_person, place=CITY, question="polar"))
        == "Paris'te miyim?"
    )
    assert sentence_of("tr", Clause("be", noun("grandmother", owner=SHE), attribute="happy")) == (
        "Onun büyükannesi mutlu."
    )


def test_hindi_agreement_and_ergative():
    def ate(thing, **features):
        return sentence_of("hi", Clause("eat", ANNA, noun(thing, **features), tense="past"))

    assert ate("bread") == "अन्ना ने रोटी खाई।"
    assert ate("banana") == "अन्ना ने केला खाया।"
    assert ate("banana", plural=True) == "अन्ना ने केले खाए।"
    saw = Clause("see", ANNA, noun("boy", plural=True), tense="past")
    assert sentence_of("hi", saw) == "अन्ना ने लड़कों को देखा।"
    own = Clause("sell", ANNA, noun("house", owner=SHE), tense="now")
    assert sentence_of("hi", own) == "अन्ना अपना घर बेच रही है।"


def test_chinese_classifiers_and_aspect():
    def buys(thing, **features):
        return sentence_of("zh", Clause("buy", ANNA, noun(thing, **features), tense="past"))

    assert buys("bicycle", determiner="a") == "安娜买了一辆自行车。"
    assert buys("shirt", determiner="this", adjective="white") == "安娜买了这件白色的衬衫。"
    assert buys("knife", determiner="a", count=2, plural=True) == "安娜买了两把刀。"
    now = Clause("read", ANNA, noun("book", determiner="a"), place=noun("garden"), tense="now")
    assert sentence_of("zh", now) == "安娜正在花园里读一本书。"
    assert sentence_of("zh", Clause("sleep", ANNA, place=noun("house"), tense="past")) == (
        "安娜在房子里睡了觉。"
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_spans_of_a_text_are_its_words(language):
    for meaning in MEANINGS:
        sentence = realise(meaning, language)
        forms = [sentence.text[start:end] for start, end in sentence.spans]
        assert [form.lower() for form in forms] == [word.form.lower() for word in sentence.words]
