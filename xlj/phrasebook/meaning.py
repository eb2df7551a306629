"""Meanings, their clauses and participants, none of which belongs to any language.

A `Meaning` holds one or two clauses. A `Clause` is a predicate with its participants, tense,
polarity, time and mood; a `Participant` is who or what takes part. The grammars realise them;
`drawing` draws them.
"""

from dataclasses import dataclass

from xlj.phrasebook.world import HUMAN, MASS, NOUN_FIELD


@dataclass(frozen=True, slots=True)
class Participant:
    """Who or what takes part in a clause.

    `kind` says what `concept` is: 'noun' (a key of `NOUN_FIELD`), 'name' (of a person),
    'place' (a city or country), 'organisation', 'pronoun' ('i', 'you', 'he', 'she', 'we',
    'they') or 'unknown' (what a question asks for). `determiner` is 'the', 'a' (an indefinite:
    bare in English for plurals and masses), 'this' or 'all' (a generic: "apples"); an `owner`
    or a `count` above zero replaces it. `gender` ('m' or 'f') is that of people.
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
        """The semantic field of a noun ('food', 'place', ...), else the kind."""
        return NOUN_FIELD[self.concept] if self.kind == "noun" else self.kind

    @property
    def human(self) -> bool:
        """Whether it is a person."""
        return self.field in HUMAN

    @property
    def mass(self) -> bool:
        """Whether it is not counted, as water is not."""
        return self.field in MASS

    @property
    def indefinite(self) -> bool:
        """Whether it is a noun that is neither definite nor anybody's."""
        return self.kind == "noun" and self.owner is None and self.determiner in ("a", "all")


@dataclass(frozen=True, slots=True)
class Clause:
    """One predicate and what goes with it.

    `predicate` is a verb (a key of `ACTS`) or 'be' (with `attribute`, `complement` or `place`),
    'have', 'like', 'exist' or a kind of weather. `relation` says how the place takes part: 'at',
    'to' or 'from'. `tense` is 'now' (progressive), 'habit' (simple present), 'past' or 'future';
    `modal` is 'want' or 'can' (then the tense is 'habit'). `question` is 'polar', or the role it
    asks for: 'subject', 'object' or 'place', whose participant is then of kind 'unknown'.
    `time_first` says that the time is the topic of the clause.
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
    """One sentence's worth of meaning: a clause, or two joined by 'and', 'but' or 'because'."""

    frame: str
    clauses: tuple[Clause, ...]
    link: str | None = None
