"""Language-independent meanings, and the sentences that express them.

A `Meaning` has one or two clauses. A `Clause` is a predicate with its participants, tense,
polarity, time and mood. A `Participant` is a person, thing or place in a clause. `drawing` draws
meanings, and the grammars realise them.

Each word of a sentence has the *slots* of the meaning that it expresses: '0.object.noun' is the
head of the object of the first clause, '1.tense' the tense of the second clause. Two words of a
pair are aligned if they share a slot. Some slots are grammatical: article, case or preposition,
number of an hour, tense, expletive. If the other language has no word for a grammatical slot, the
word is aligned to the head of the slot: a noun, or the predicate. Other words without a counterpart
are not aligned.
"""

from dataclasses import dataclass
from functools import cached_property

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


_PREDICATE = ("event", "complement.noun", "place.noun")
_HEADS = {
    **dict.fromkeys(("det", "case", "hour"), ("noun",)),
    **dict.fromkeys(("tense", "expletive"), _PREDICATE),
}
_OPENERS = frozenset("¿(")
_CLOSERS = frozenset((*".,?!。，？।", "'s", "'"))


@dataclass(frozen=True, slots=True)
class Word:
    """A word: its form, UPOS tag, BIO entity tag and the slots of the meaning it expresses."""

    form: str
    upos: str
    entity: str
    slots: frozenset[str]


def word(form: str, upos: str, *slots: str, entity: str = "O") -> Word:
    """Returns a word that expresses these slots."""
    return Word(form, upos, entity, frozenset(slots))


def named(forms: str, slot: str, entity: str) -> list[Word]:
    """Returns the words of a name, which all express one slot.

    Args:
      forms: the words, separated by blanks.
      entity: 'PER', 'LOC' or 'ORG'.
    """
    return [
        word(form, "PROPN", slot, entity=("I-" if position else "B-") + entity)
        for position, form in enumerate(forms.split())
    ]


@dataclass(frozen=True)
class Sentence:
    """A sentence of one language as a sequence of words."""

    language: str
    words: tuple[Word, ...]

    @cached_property
    def _written(self) -> tuple[str, tuple[tuple[int, int], ...]]:
        text, spans, glue = "", [], True
        for item in self.words:
            form = item.form
            if text in ("", "¿"):
                first = "İ" if self.language == "tr" and form[0] == "i" else form[0].upper()
                form = first + form[1:]
            # French has a space before a question mark.
            clings = form in _CLOSERS and (self.language, form) != ("fr", "?")
            if not (glue or self.language == "zh" or clings):
                text += " "
            spans.append((len(text), len(text) + len(form)))
            text += form
            glue = form in _OPENERS or (form.endswith("'") and self.language == "fr")
        return text, tuple(spans)

    @property
    def text(self) -> str:
        """The sentence as text, with spaces, capitals and punctuation."""
        return self._written[0]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The range (start, end) of each word in `text`, in characters."""
        return self._written[1]


@dataclass(frozen=True)
class Pair:
    """Two sentences with the same meaning, and their gold alignment.

    Attributes:
      alignment: pairs (index of a source word, index of a target word), zero-based.
    """

    source: Sentence
    target: Sentence
    alignment: frozenset[tuple[int, int]]


def align(source: Sentence, target: Sentence) -> frozenset[tuple[int, int]]:
    """Returns the gold alignment of two realisations of one meaning, by the rule of this module."""
    forward = _links(source, target)
    return frozenset(forward + [(i, j) for j, i in _links(target, source)])


def _links(source: Sentence, target: Sentence) -> list[tuple[int, int]]:
    where: dict[str, list[int]] = {}
    for j, item in enumerate(target.words):
        for slot in item.slots:
            where.setdefault(slot, []).append(j)
    links = []
    for i, item in enumerate(source.words):
        for slot in item.slots:
            targets = where.get(slot)
            if targets is None:
                base, _, part = slot.rpartition(".")
                heads = (f"{base}.{head}" for head in _HEADS.get(part, ()))
                targets = next((where[head] for head in heads if head in where), [])
            links += [(i, j) for j in targets]
    return links
