"""Draws single meanings, and short documents whose sentences share a hero and a place."""

from collections.abc import Callable
from dataclasses import replace

from xlj.phrasebook import world
from xlj.phrasebook.casting import (
    Scene,
    a_known,
    a_name,
    a_person,
    a_place,
    a_region,
    a_relative,
    a_setting,
    a_thing,
    an_adjective,
    apart,
    pronoun_for,
)
from xlj.phrasebook.meaning import Clause, Meaning, Participant
from xlj.phrasebook.stream import RandomStream

_DOCUMENTS = 1  # so that documents and single meanings have different random streams
COLOURS = frozenset("red white black green blue yellow".split())
STATIVE = frozenset(("love", "know", "speak", "live", "be"))
"""Predicates that describe a state. Clauses in the tense 'habit' with them have no time."""
_LIKED = (*world.nouns_of("drink", "fruit", "music"), "cheese", "fish", "rice")
_OWNED = world.nouns_of("animal", "article", "furniture", "vehicle", "clothes")
_INDOORS = tuple("school house office kitchen library restaurant hotel museum shop theatre".split())
_FOUND_INDOORS = (*world.nouns_of("article", "furniture", "clothes", "text"), "cat", "dog")
_DESCRIBED = world.nouns_of(*world.ADJECTIVES)
_DESTINATIONS = tuple(noun for noun in world.NOUNS["place"] if noun != "kitchen")


def draw(seed: int, index: int) -> Meaning:
    """Draws meaning number `index` of a seed; a pure function of both."""
    return _meaning(RandomStream(seed, index), None)


def document(seed: int, index: int) -> tuple[Meaning, ...]:
    """Draws document number `index` of a seed: two to six meanings about one person."""
    stream = RandomStream(seed, index, _DOCUMENTS)
    scene = _scene(stream)
    meanings: list[Meaning] = []
    for _ in range(2 + stream.below(5)):
        meaning = _meaning(stream, scene)
        meanings.append(meaning)
        if meaning.clauses[0].subject == scene.hero:  # later sentences may use a pronoun
            scene = replace(scene, named=True)
    return tuple(meanings)


def hero(seed: int, index: int) -> Participant:
    """Returns the hero of document number `index` of a seed."""
    return _scene(RandomStream(seed, index, _DOCUMENTS)).hero


def _scene(stream: RandomStream) -> Scene:
    tense = stream.pick(("past", "past", "habit", "now", "future"))
    return Scene(a_name(stream, full=stream.chance(50)), a_place(stream), tense)


def _meaning(stream: RandomStream, scene: Scene | None) -> Meaning:
    roll = stream.below(100)
    for frame, (weight, draw_frame) in _FRAMES.items():
        roll -= weight
        if roll < 0:
            drawn = draw_frame(stream, scene)
            if isinstance(drawn, Meaning):
                return drawn
            return Meaning(frame, (_ask(stream, scene, drawn),))
    raise AssertionError("the weights of `_FRAMES` must sum to 100")


# Clauses


def _time(stream: RandomStream, clause: Clause, percent: int) -> Clause:
    if clause.tense == "habit":  # habits mostly have a time, states in this tense never
        percent = 0 if clause.predicate in STATIVE else 85
    if not stream.chance(percent):
        return clause
    time = stream.pick(world.TIMES[clause.tense])
    if clause.tense == "now" and time == "today":
        time = "now"
    return replace(clause, time=time, time_first=stream.chance(30))


def _tense(stream: RandomStream, scene: Scene | None, allowed: tuple[str, ...]) -> str:
    if scene and scene.tense in allowed and stream.chance(85):
        return scene.tense
    return stream.pick(allowed)


def _transitive(stream: RandomStream, scene: Scene | None) -> Clause:
    verb = stream.pick(tuple(world.TRANSITIVE))
    allows = world.TRANSITIVE[verb]
    modal = stream.pick(("want", "can")) if allows.modal and stream.chance(15) else None
    tense = "habit" if modal else _tense(stream, scene, allows.tenses)
    negative = stream.chance(15)
    noun = stream.pick(allows.objects)
    thing = a_name(stream) if noun == "name" else a_thing(stream, noun, negative)
    subject = a_person(stream, scene)
    clause = Clause(
        verb, apart(stream, subject, thing), thing, tense=tense, modal=modal, negative=negative
    )
    if allows.places and stream.chance(40):
        clause = replace(clause, place=a_setting(stream, scene, allows.places))
    return clause if modal else _time(stream, clause, 45)


def _intransitive(stream: RandomStream, scene: Scene | None) -> Clause:
    verb = stream.pick(tuple(world.INTRANSITIVE))
    allows = world.INTRANSITIVE[verb]
    tense = _tense(stream, scene, allows.tenses)
    if verb == "live":
        place = a_region(stream) if stream.chance(70) else a_place(stream, allows.places)
    elif verb == "work" and stream.chance(50):
        place = Participant("organisation", stream.pick(world.ORGANISATIONS))
    elif verb in ("work", "study") and stream.chance(40):
        place = a_region(stream)
    else:
        place = a_setting(stream, scene, allows.places)
    clause = Clause(
        verb, a_person(stream, scene), place=place, tense=tense, negative=stream.chance(15)
    )
    return clause if verb == "live" else _time(stream, clause, 50)


def _motion(stream: RandomStream, scene: Scene | None) -> Clause:
    verb = stream.pick(tuple(world.MOTION))
    allows = world.MOTION[verb]
    modal = stream.pick(("want", "can")) if allows.modal and stream.chance(20) else None
    tense = "habit" if modal else _tense(stream, scene, allows.tenses)
    place = a_region(stream) if stream.chance(55) else a_place(stream, _DESTINATIONS)
    clause = Clause(
        verb, a_person(stream, scene), place=place, relation=allows.relation, tense=tense,
        modal=modal, negative=stream.chance(15),
    )  # fmt: skip
    return clause if modal else _time(stream, clause, 55)


def _ditransitive(stream: RandomStream, scene: Scene | None) -> Clause:
    verb = stream.pick(tuple(world.DITRANSITIVE))
    modal = stream.pick(("want", "can")) if stream.chance(15) else None
    tense = "habit" if modal else _tense(stream, scene, world.DITRANSITIVE[verb].tenses)
    negative = stream.chance(12)
    recipient = a_person(stream, None, pronouns=False)
    subject = apart(stream, a_person(stream, scene), recipient)
    thing = a_thing(stream, stream.pick(world.DITRANSITIVE[verb].objects), negative)
    clause = Clause(verb, subject, thing, recipient, tense=tense, modal=modal, negative=negative)
    return clause if modal else _time(stream, clause, 40)


def _description(stream: RandomStream, scene: Scene | None) -> Clause:
    tense = _tense(stream, scene, ("habit", "habit", "past"))
    tense = "habit" if tense in ("now", "future") else tense
    if scene and stream.chance(60) or stream.chance(35):
        subject = a_person(stream, scene)
        attribute = stream.pick(world.STATES)
        clause = _time(stream, Clause('be', subject, attribute=attribute, tense=tense),
                       50 if tense == 'past' else 0)  # fmt: skip
    else:
        noun = stream.pick(_DESCRIBED)
        subject = a_known(stream, noun)
        attribute = stream.pick(world.ADJECTIVES[world.NOUN_FIELD[noun]])
        clause = Clause("be", subject, attribute=attribute, tense=tense)
    if stream.chance(20):
        return replace(clause, negative=True)
    return replace(clause, very=attribute not in COLOURS and stream.chance(30))


def _location(stream: RandomStream, scene: Scene | None) -> Clause:
    if stream.chance(50):
        subject = a_person(stream, scene)
        place = a_region(stream) if stream.chance(40) else a_place(stream)
    else:
        subject = a_known(stream, stream.pick(_FOUND_INDOORS))
        place = a_place(stream, _INDOORS)
    tense = _tense(stream, scene, ("habit", "habit", "past", "future"))
    clause = Clause("be", subject, place=place, tense=tense, negative=stream.chance(15))
    return clause if tense == "habit" else _time(stream, clause, 60)


def _profession(stream: RandomStream, scene: Scene | None) -> Clause:
    subject = a_person(stream, scene)
    while subject.field in ("profession", "people") or subject.plural:
        subject = a_name(stream)
    noun = stream.pick(world.NOUNS["profession"])
    complement = Participant(
        "noun", noun, subject.gender, determiner="a", adjective=an_adjective(stream, noun, 35)
    )
    return Clause("be", subject, complement=complement, negative=stream.chance(15))


def _possession(stream: RandomStream, scene: Scene | None) -> Clause:
    noun = stream.pick(_OWNED)
    thing = Participant("noun", noun, determiner="a", adjective=an_adjective(stream, noun, 45))
    negative = stream.chance(15)
    if not negative and stream.chance(50):
        thing = replace(thing, plural=True, count=2 + stream.below(9))
    return Clause("have", a_person(stream, scene), thing, negative=negative)


def _liking(stream: RandomStream, scene: Scene | None) -> Clause:
    if stream.chance(50):
        noun = stream.pick(_LIKED)
        plural = world.NOUN_FIELD[noun] not in world.MASS
        thing = Participant("noun", noun, plural=plural, determiner="all")
    else:
        noun = stream.pick(world.nouns_of("text", "clothes", "show", "article"))
        thing = Participant(
            'noun', noun, plural=stream.chance(30), determiner=stream.pick(('the', 'this')),
            adjective=an_adjective(stream, noun, 50),
        )  # fmt: skip
    return Clause("like", a_person(stream, scene), thing, negative=stream.chance(25))


def _existence(stream: RandomStream, scene: Scene | None) -> Clause:
    noun = stream.pick(_FOUND_INDOORS)
    thing = Participant("noun", noun, determiner="a", adjective=an_adjective(stream, noun, 45))
    negative = stream.chance(12)
    if not negative and stream.chance(60):
        thing = replace(thing, plural=True, count=2 + stream.below(9))
    place = scene.place if scene and stream.chance(40) else a_place(stream, _INDOORS)
    return Clause("exist", thing, place=place, negative=negative)


def _weather(stream: RandomStream, scene: Scene | None) -> Clause:
    weather = stream.pick(world.WEATHER)
    tense = stream.pick(("now", "past", "future"))
    clause = Clause(weather, place=a_region(stream), tense=tense, negative=stream.chance(15))
    return _time(stream, clause, 70)


def _ask(stream: RandomStream, scene: Scene | None, clause: Clause) -> Clause:
    """Returns the clause, or a question about it."""
    if scene or not stream.chance(20):
        return clause
    if clause.subject and clause.subject.concept in ("i", "we"):
        return clause  # people rarely ask about themselves
    clause = replace(clause, negative=False, time_first=False)
    if clause.modal or clause.predicate == "exist" or stream.chance(50):
        return replace(clause, question="polar")
    unknown = Participant("unknown", "thing")
    if clause.predicate in world.TRANSITIVE and clause.object and not clause.object.human:
        if clause.predicate not in ("speak", "learn") and stream.chance(60):
            return replace(clause, question="object", object=unknown, place=None)
    if clause.predicate in world.INTRANSITIVE or clause.predicate == "be" and clause.place:
        if not stream.chance(25) or clause.predicate == "be":
            return replace(clause, question="place", place=unknown)
    if clause.predicate in world.TRANSITIVE or clause.predicate in world.INTRANSITIVE:
        someone = Participant("unknown", "person")
        return replace(clause, question="subject", subject=someone)
    return replace(clause, question="polar")


# Meanings of two clauses


def _reason(stream: RandomStream, scene: Scene | None) -> Meaning:
    """Draws an action with its reason: a state of the person, or the weather."""
    first = stream.pick((_transitive, _intransitive, _motion))(stream, scene)
    first = replace(first, time_first=False)
    assert first.subject
    if first.tense != "past" and stream.chance(25):
        weather = stream.pick(world.WEATHER)
        tense = "now" if first.tense == "habit" else first.tense
        return Meaning("reason", (first, Clause(weather, tense=tense)), "because")
    second = Clause(
        'be', pronoun_for(first.subject), attribute=stream.pick(world.STATES),
        tense='past' if first.tense == 'past' else 'habit', very=stream.chance(25),
    )  # fmt: skip
    return Meaning("reason", (first, second), "because")


def _contrast(stream: RandomStream, scene: Scene | None) -> Meaning:
    """Draws actions of two people, or something that a person likes and something else that the
    person dislikes. Rarely, no second action fits the tense; then it draws only one action."""
    if stream.chance(30):
        subject = a_person(stream, scene)
        one = stream.pick(_LIKED)
        other = stream.pick(tuple(noun for noun in _LIKED if noun != one))
        clauses = tuple(
            Clause('like', person, Participant(
                'noun', noun, plural=world.NOUN_FIELD[noun] == 'fruit', determiner='all'
            ), negative=negative)
            for person, noun, negative in (
                (subject, one, False), (pronoun_for(subject), other, True)
            )
        )  # fmt: skip
        return Meaning("contrast", clauses, "but")
    draw_clause = stream.pick((_transitive, _intransitive, _motion))
    first = replace(draw_clause(stream, scene), time_first=False, modal=None, negative=False)
    second = draw_clause(stream, None)
    for _ in range(20):
        if first.tense in world.ACTS[second.predicate].tenses:
            break
        second = draw_clause(stream, None)
    else:
        return Meaning("transitive", (first,))
    assert first.subject
    someone = apart(stream, a_name(stream) if stream.chance(50) else a_relative(stream, scene),
                     first.subject)  # fmt: skip
    if second.object and second.object.kind == "name":
        someone = apart(stream, someone, second.object)
    second = replace(
        second, subject=someone, tense=first.tense, time=None, time_first=False, modal=None,
        negative=False,
    )  # fmt: skip
    return Meaning("contrast", (first, second), stream.pick(("and", "but")))


_FRAMES: dict[str, tuple[int, Callable[[RandomStream, Scene | None], Clause | Meaning]]] = {
    "transitive": (27, _transitive),
    "intransitive": (11, _intransitive),
    "motion": (9, _motion),
    "ditransitive": (11, _ditransitive),
    "description": (9, _description),
    "location": (5, _location),
    "profession": (3, _profession),
    "possession": (5, _possession),
    "liking": (4, _liking),
    "existence": (3, _existence),
    "weather": (2, _weather),
    "reason": (5, _reason),
    "contrast": (6, _contrast),
}
"""By frame (type of meaning): the percentage of meanings, and the function that draws them."""
