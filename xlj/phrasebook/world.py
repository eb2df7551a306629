"""The concepts of meanings: nouns, adjectives, verbs, names and times."""

from dataclasses import dataclass

NOUNS: dict[str, tuple[str, ...]] = {
    field: tuple(words.split())
    for field, words in {
        "profession": "teacher doctor student farmer engineer driver cook writer singer lawyer "
        "journalist nurse painter",
        "people": "child man woman girl boy guest",
        "kin": "mother father brother sister friend neighbour uncle aunt grandmother grandfather",
        "animal": "dog cat horse cow bird chicken sheep goat rabbit",
        "fruit": "apple orange banana cake",
        "food": "egg potato tomato carrot",
        "staple": "bread rice fish meat cheese soup honey",
        "drink": "water milk tea coffee juice",
        "text": "book letter newspaper magazine story report poem",
        "furniture": "chair table lamp bed mirror box basket",
        "article": "key phone bag cup plate clock picture gift computer ball pen umbrella ticket "
        "bottle radio camera map flower knife",
        "opening": "door window",
        "clothes": "shirt dress hat coat shoe skirt",
        "vehicle": "car bus bicycle train boat",
        "place": "school market hospital house office station farm garden kitchen library "
        "restaurant hotel church museum village city bank shop theatre factory airport "
        "university",
        "structure": "bridge",
        "show": "film song",
        "music": "music",
        "language": "english german french spanish swahili turkish hindi chinese",
    }.items()
}
"""The common nouns by semantic field."""


def nouns_of(*fields: str) -> tuple[str, ...]:
    """Returns the nouns of several fields, in order."""
    return tuple(noun for field in fields for noun in NOUNS[field])


NOUN_FIELD = {noun: field for field, nouns in NOUNS.items() for noun in nouns}
HUMAN = frozenset(("profession", "people", "kin", "name", "pronoun"))
MASS = frozenset(("staple", "drink", "music", "language"))
GENDER = {
    **dict.fromkeys(("woman", "girl", "mother", "sister", "aunt", "grandmother"), "f"),
    **dict.fromkeys(("man", "boy", "father", "brother", "uncle", "grandfather", "child"), "m"),
}
"""Nouns for people that have a fixed gender; other nouns for people may have either gender."""

_LOOKS = "new old big small beautiful expensive cheap red white black green blue yellow"
_PERSON = "young kind clever famous rich poor strong"
ADJECTIVES = {
    field: tuple(words.split())
    for field, words in {
        "profession": _PERSON,
        "people": "young kind clever strong poor",
        "kin": "kind clever rich strong young",
        "animal": "big small white black beautiful strong",
        "fruit": "fresh cheap sweet tasty expensive small big",
        "food": "fresh cheap big small expensive",
        "staple": "fresh tasty cheap expensive",
        "drink": "hot cold fresh",
        "text": "new old long interesting short",
        "furniture": _LOOKS + " heavy clean dirty",
        "article": _LOOKS,
        "opening": "new old big small white green blue dirty",
        "clothes": _LOOKS + " clean dirty",
        "vehicle": _LOOKS + " dirty clean",
        "place": "new old big small beautiful famous quiet clean",
        "structure": "new old big small long beautiful",
        "show": "new old beautiful long short interesting",
    }.items()
}
"""By field: the adjectives that fit its nouns."""

STATES = ("tired", "happy", "sad", "busy", "nervous", "angry")
"""Adjectives that are used for people only, and only as predicates."""

# For each verb: the fields or nouns of its objects, its tenses ('*': all), and its flags. The flag
# 'place' allows a place, and 'modal' allows 'want' and 'can'.
_ALL = ("now", "habit", "past", "future")
_TRANSITIVE = {
    "eat": "fruit food staple : * : place modal",
    "cook": "rice fish meat soup potato egg carrot : * : place modal",
    "drink": "drink : * : place modal",
    "read": "text : * : place modal",
    "write": "letter story report poem book : * : place modal",
    "buy": "fruit food staple text furniture article clothes car bicycle : * : place modal",
    "sell": "fruit food staple text furniture article clothes car bicycle : * : place modal",
    "find": "article clothes animal letter book : past : place",
    "lose": "key phone bag hat pen umbrella ticket camera map ball letter : past : place",
    "see": "animal people vehicle : past : place",
    "open": "opening box bottle bag letter gift : * : modal",
    "close": "opening box bag : * : modal",
    "wash": "clothes cup plate car bottle tomato : * : modal",
    "repair": "car bicycle phone radio clock computer camera chair table : * : modal",
    "clean": "kitchen house office restaurant shop garden : * : modal",
    "carry": "bag box chair table basket : * : modal",
    "watch": "film : * : place modal",
    "listen": "music song story radio : * : place modal",
    "sing": "song : * : place modal",
    "learn": "language : * : place modal",
    "speak": "language : habit : modal",
    "help": "profession people kin name : * : modal",
    "invite": "profession people kin name : * : modal",
    "love": "kin name : habit :",
    "know": "profession kin name : habit :",
    "search": "key phone bag hat pen umbrella ticket camera animal book : * : place modal",
    "use": "computer phone camera umbrella knife map bicycle : * : place modal",
    "build": "house school bridge hospital boat : * : modal",
    "draw": "animal flower house boat bridge car : * : place modal",
    "hide": "key letter bag gift ball phone : * : place modal",
    "feed": "animal : * : place modal",
}


# Places of activities that cannot happen everywhere
_WHERE = {
    "eat": "school market hospital house office station garden kitchen restaurant hotel village",
    "cook": "house kitchen restaurant hotel school farm hospital",
    "drink": "house office station farm garden kitchen restaurant hotel village airport shop",
    "buy": "market shop station airport village city farm museum",
    "sell": "market shop station airport village city farm museum",
    "watch": "house school hotel theatre museum university city",
    "listen": "house school church theatre garden kitchen restaurant hotel office village",
    "sing": "school church theatre house garden restaurant village kitchen hotel city",
    "learn": "school library university office house village museum",
    "feed": "farm garden house village city market",
    "build": "village city",
    "sleep": "house hotel hospital station airport garden village farm office library",
    "work": "school market hospital office station farm kitchen library restaurant hotel church "
    "museum village city bank shop theatre factory airport university",
    "live": "house village city hotel",
    "play": "school house farm garden village city kitchen theatre",
    "dance": "house school garden kitchen restaurant hotel theatre village city",
    "study": "school library university house office kitchen garden city",
}


@dataclass(frozen=True, slots=True)
class Verb:
    """What a verb can occur with.

    Attributes:
      tenses: the tenses that the verb can have.
      objects: the nouns that can be its object; 'name' means any person's name.
      places: the nouns that can be the place of the event; empty for none.
      modal: whether 'want' and 'can' are possible.
      relation: the relation of the place: 'at', 'to' or 'from'.
    """

    tenses: tuple[str, ...]
    objects: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    modal: bool = True
    relation: str = "at"


def _transitive(verb: str, entry: str) -> Verb:
    fields, tenses, flags = (part.split() for part in entry.split(":"))
    return Verb(
        tenses=_ALL if tenses == ["*"] else tuple(tenses),
        objects=tuple(noun for field in fields for noun in NOUNS.get(field, (field,))),
        places=_places(verb) if "place" in flags else (),
        modal="modal" in flags,
    )


def _places(verb: str) -> tuple[str, ...]:
    return tuple(_WHERE[verb].split()) if verb in _WHERE else NOUNS["place"]


TRANSITIVE = {verb: _transitive(verb, entry) for verb, entry in _TRANSITIVE.items()}
INTRANSITIVE = {
    verb: Verb(_ALL if verb != "live" else ("habit",), places=_places(verb))
    for verb in "sleep work play dance live wait smile study laugh cry".split()
}
MOTION = {
    "go": Verb(_ALL, relation="to"),
    "return": Verb(_ALL, relation="to"),
    "arrive": Verb(("past", "future", "habit"), relation="to", modal=False),
    "come": Verb(("now", "past", "habit"), relation="from", modal=False),
}
_GIFTS = nouns_of("article", "text", "clothes", "fruit")
DITRANSITIVE = {verb: Verb(_ALL, objects=_GIFTS) for verb in "give send show bring".split()}
ACTS = TRANSITIVE | INTRANSITIVE | MOTION | DITRANSITIVE
"""All verbs, each with what it can occur with."""
WEATHER = ("rain", "snow", "hot_weather", "cold_weather")

WOMEN = tuple(
    "Anna Maria Sara Fatma Aisha Elena Julia Nina Laura Clara Amina Zawadi Leyla Priya Meera "
    "Mei Lin Sofia Eva Lucia Marta Olga Neema Rosa Nora Emma Lena Diana Camila Sita Zeynep "
    "Tina".split()
)
MEN = tuple(
    "Paul Peter Ali Omar Juma Ahmet Mehmet Ravi Arjun Wei Tom David Martin Pedro Carlos Hamisi "
    "Baraka Emre Jan Leo Karim Ivan Diego Felix Daniel Samuel Victor Adam Simon Hassan Yusuf "
    "Kofi".split()
)
SURNAMES = tuple(
    "Miller Schmidt Weber Dupont Garcia Lopez Silva Kaya Demir Sharma Kumar Gupta Singh Wang "
    "Zhang Chen Mwangi Kimani Mushi Rossi Novak Petrov Brown Smith".split()
)
CITIES = tuple(
    "paris london berlin madrid rome moscow istanbul ankara delhi mumbai beijing shanghai "
    "nairobi mombasa dodoma lagos tokyo new_york lima vienna munich hamburg lyon geneva "
    "barcelona oslo athens lisbon warsaw prague singapore toronto sydney".split()
)
COUNTRIES = tuple(
    "germany france spain turkey india china kenya tanzania italy japan brazil mexico egypt "
    "russia canada portugal".split()
)
ORGANISATIONS = tuple(
    "google toyota samsung amazon microsoft unicef unesco red_cross world_bank".split()
)
NAMES = WOMEN + MEN + SURNAMES + CITIES + COUNTRIES + ORGANISATIONS

WEEKDAYS = tuple("monday tuesday wednesday thursday friday saturday sunday".split())
HOURS = tuple(f"hour_{hour}" for hour in range(1, 13))
_POINTS = WEEKDAYS + HOURS
TIMES: dict[str, tuple[str, ...]] = {
    "now": ("now", "today"),
    "habit": ("every_day", "every_week", "morning", "evening"),
    "past": ("yesterday", "last_week", "last_month", "today", "this_morning", *_POINTS),
    "future": ("tomorrow", "next_week", "next_month", "today", "tonight", *_POINTS),
}
"""The times that fit each tense."""
