"""Language-independent meanings, their clauses and participants.

A `Meaning` has one or two clauses. A `Clause` is a predicate with its participants, tense,
polarity, time and mood. A `Participant` is a person, thing or place in a clause. `drawing` draws
meanings, and the grammars realise them.
"""

from dataclasses import dataclass

from xlj.phrasebook.world import HUMAN, MASS, NOUN_FIELD


@dataclass(frozen=True, slots=True)
class Participant:
    """A participant in a clause.

    Attributes:
      kind: the type of `concept`: 'noun' (a key of `NOUN_FIELD`), 'name' (of a person), 'place' (a
        city or country), 'organisation', 'pronoun' ('i', 'you', 'he', 'she', 'we', 'they') or
        'unknown' (the participant that a question asks for).
      gender: 'm' or 'f'; only people have a meaningful value.
      adjective: an adjective that qualifies the noun; None for none.
      count: a number from 2 to 10; 0 for a noun that is not counted.
      owner: the possessor: "Anna" in "Anna's book"; None for none.
      surname: the surname after a first name; None for none.
      determiner: 'the', 'a' (indefinite; no article in English for plurals and masses), 'this' or
        'all' (generic: "apples"). An `owner` or a `count` above zero replaces it.
    """

    kind: str
    concept: str
    gender: str = "m"
    plural: bool = False
    determiner: str = "the"
    adjective: str | None = None
    count: int = 0
    owner: "Participant | None" = None
    surname: str | None = None

    @property
    def field(self) -> str:
        """The semantic field of a noun ('food', 'place', ...); for other kinds, the kind itself."""
        return NOUN_FIELD[self.concept] if self.kind == "noun" else self.kind

    @property
    def human(self) -> bool:
        """Whether the participant is a person or several people."""
        return self.field in HUMAN

    @property
    def mass(self) -> bool:
        """Whether the participant is a mass noun, such as water."""
        return self.field in MASS

    @property
    def indefinite(self) -> bool:
        """Whether the participant is a noun without owner, with the determiner 'a' or 'all'."""
        return self.kind == "noun" and self.owner is None and self.determiner in ("a", "all")


@dataclass(frozen=True, slots=True)
class Clause:
    """A predicate with its participants and modifiers.

    Attributes:
      predicate: a verb (a key of `ACTS`), 'be' (with `attribute`, `complement` or `place`), 'have',
        'like', 'exist' or a kind of weather.
      relation: the relation of the place: 'at', 'to' or 'from'.
      complement: a noun as predicate: "a teacher" in "she is a teacher".
      attribute: an adjective as predicate: "tired" in "she is very tired".
      very: whether "very" modifies the attribute.
      tense: 'now' (progressive), 'habit' (simple present), 'past' or 'future'.
      modal: 'want' or 'can'; the tense is then 'habit'.
      question: None for a statement, 'polar' for a yes-no question, or the role that the question
        asks for: 'subject', 'object' or 'place'. The participant in this role is of kind 'unknown'.
      time: an element of `world.TIMES[tense]`; None for none.
      time_first: whether the time comes first in the clause, as its topic.
    """

    predicate: str
    subject: Participant | None = None
    object: Participant | None = None
    recipient: Participant | None = None
    place: Participant | None = None
    relation: str = "at"
    complement: Participant | None = None
    attribute: str | None = None
    very: bool = False
    tense: str = "habit"
    modal: str | None = None
    negative: bool = False
    question: str | None = None
    time: str | None = None
    time_first: bool = False


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a sentence: one clause, or two clauses that a link joins.

    Attributes:
      frame: the type of the meaning: a key of `drawing._FRAMES`. In labelled examples, it is the
        role of the meaning, such as 'premise' or 'question'.
      link: 'and', 'but' or 'because'; None for one clause.
    """

    frame: str
    clauses: tuple[Clause, ...]
    link: str | None = None
