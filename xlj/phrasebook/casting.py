"""Draws the participants of clauses: people, things and places."""

from dataclasses import dataclass, replace

from xlj.phrasebook import world
from xlj.phrasebook.meaning import Participant
from xlj.phrasebook.stream import RandomStream

_COUNTABLE = world.nouns_of(*"animal fruit food text furniture article clothes vehicle".split())


@dataclass(frozen=True, slots=True)
class Scene:
    """What the sentences of a document share.

    Attributes:
      hero: the person who is the subject of most sentences.
      place: the place of many events.
      tense: the tense of most clauses.
      named: whether an earlier sentence named the hero.
    """

    hero: Participant
    place: Participant
    tense: str
    named: bool = False


def a_name(stream: RandomStream, full: bool = False) -> Participant:
    """Draws a person with a first name, and with `full` also a surname."""
    gender = stream.pick("fm")
    surname = stream.pick(world.SURNAMES) if full else None
    return Participant('name', stream.pick(world.WOMEN if gender == 'f' else world.MEN), gender,
                       surname=surname)  # fmt: skip


def pronoun_for(person: Participant) -> Participant:
    """Returns the pronoun for a person who was mentioned before."""
    if person.kind == "pronoun":
        return person
    concept = "they" if person.plural else "she" if person.gender == "f" else "he"
    return Participant("pronoun", concept, person.gender, person.plural)


def a_speaker(stream: RandomStream) -> Participant:
    """Draws a personal pronoun of any person and number."""
    concept = stream.pick(("i", "you", "he", "she", "we", "they"))
    gender = {"he": "m", "she": "f"}.get(concept) or stream.pick("fm")
    plural = concept in ("we", "they")
    return Participant("pronoun", concept, "m" if plural else gender, plural)


def an_owner(stream: RandomStream) -> Participant:
    """Draws the owner of a thing or of a relative: "Anna" in "Anna's book" and "Anna's mother"."""
    return a_name(stream) if stream.chance(40) else a_speaker(stream)


def a_person(stream: RandomStream, scene: Scene | None, pronouns: bool = True) -> Participant:
    """Draws a person; in a document, mostly the hero of the scene.

    Args:
      scene: the scene of the document; None for a person who is independent of a document.
      pronouns: whether the person may be a pronoun.
    """
    if scene and (not scene.named or stream.chance(75)):
        known = scene.named and pronouns and stream.chance(70)
        return pronoun_for(scene.hero) if known else scene.hero
    roll = stream.below(100)
    if roll < 40:
        return a_name(stream, full=stream.chance(25))
    if roll < 55 and pronouns and not scene:
        return a_speaker(stream)
    if roll < 75:
        return a_relative(stream, scene)
    concept = stream.pick(world.NOUNS["profession"] + world.NOUNS["people"])
    gender = world.GENDER.get(concept) or stream.pick("fm")
    # Children are always plural, because the German pronoun of one child is "es" (it).
    plural = concept == "child" or stream.chance(25)
    return Participant(
        'noun', concept, world.GENDER.get(concept, 'm') if plural else gender, plural,
        'the' if stream.chance(80) else 'this',
        an_adjective(stream, concept, 20),
    )  # fmt: skip


def a_relative(stream: RandomStream, scene: Scene | None) -> Participant:
    """Draws a relative, friend or neighbour with an owner.

    If the document has named the hero, the owner is the hero.
    """
    concept = stream.pick(world.NOUNS["kin"])
    gender = world.GENDER.get(concept) or stream.pick("fm")
    owner = pronoun_for(scene.hero) if scene and scene.named else an_owner(stream)
    return Participant("noun", concept, gender, owner=owner)


def an_adjective(stream: RandomStream, noun: str, percent: int) -> str | None:
    """Draws an adjective that fits the noun, with a probability in percent; otherwise None."""
    options = world.ADJECTIVES.get(world.NOUN_FIELD[noun])
    return stream.pick(options) if options and stream.chance(percent) else None


def a_thing(stream: RandomStream, noun: str, negative: bool = False) -> Participant:
    """Draws an object with this noun: indefinite, definite, demonstrative, owned or counted.

    Args:
      negative: whether the clause is negative. The object is then not counted.
    """
    field = world.NOUN_FIELD[noun]
    if field == "language":
        return Participant("noun", noun, determiner="a")
    if field == "kin":
        return a_known(stream, noun)
    mass = field in world.MASS
    human = field in ("profession", "people")
    adjective = an_adjective(stream, noun, 35)
    plural = not mass and stream.chance(25)
    free = human and not plural and noun not in world.GENDER
    gender = stream.pick("fm") if free else world.GENDER.get(noun, "m")
    thing = Participant("noun", noun, gender, plural, "the", adjective)
    roll = stream.below(100)
    if roll < 40:
        return replace(thing, determiner="a")
    if roll < 70 or mass or human:
        return thing
    if roll < 80 and noun in _COUNTABLE and not negative:
        return replace(thing, plural=True, determiner="a", count=2 + stream.below(9))
    if roll < 88:
        return replace(thing, determiner="this")
    return replace(thing, owner=an_owner(stream))


def a_place(stream: RandomStream, options: tuple[str, ...] = world.NOUNS["place"]) -> Participant:
    """Draws a place, a common noun that is definite, demonstrative or owned."""
    noun = stream.pick(options)
    place = Participant("noun", noun, adjective=an_adjective(stream, noun, 20))
    if noun in ("house", "garden", "kitchen", "office", "shop", "village") and stream.chance(40):
        return replace(place, owner=an_owner(stream))
    return replace(place, determiner="this") if stream.chance(10) else place


def a_setting(stream: RandomStream, scene: Scene | None, options: tuple[str, ...]) -> Participant:
    """Draws the place of an event; often the place of the document, if it is one of the options."""
    if scene and scene.place.concept in options and stream.chance(60):
        return scene.place
    return a_place(stream, options)


def a_region(stream: RandomStream) -> Participant:
    """Draws a city or a country."""
    return Participant("place", stream.pick(world.CITIES + world.COUNTRIES))


def a_known(stream: RandomStream, noun: str) -> Participant:
    """Draws a subject with this noun: definite, demonstrative or owned."""
    field = world.NOUN_FIELD[noun]
    human, mass = field in world.HUMAN, field in world.MASS
    gender = world.GENDER.get(noun) or (stream.pick("fm") if human else "m")
    if field == "kin":
        return Participant("noun", noun, gender, owner=an_owner(stream))
    plural = not mass and stream.chance(25)
    subject = Participant("noun", noun, world.GENDER.get(noun, "m") if plural else gender, plural)
    roll = stream.below(100)
    if roll < 55 or mass:
        return subject
    if roll < 75 or human or field in ("place", "structure"):
        return replace(subject, determiner="this")
    return replace(subject, owner=an_owner(stream))


def apart(stream: RandomStream, subject: Participant, other: Participant) -> Participant:
    """Returns the subject, or a newly drawn person if subject and `other` have the same concept."""
    while subject.concept == other.concept:
        subject = a_name(stream)
    return subject
