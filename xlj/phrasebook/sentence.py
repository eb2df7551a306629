"""Words, sentences and aligned pairs.

Each word has the *slots* of the meaning that it expresses: '0.object.noun' is the head of the
object of the first clause, '1.tense' the tense of the second clause. Two words of a pair are
aligned if they share a slot. Some slots are grammatical: article, case or preposition, number of an
hour, tense, expletive. If the other language has no word for a grammatical slot, the word is
aligned to the head of the slot: a noun, or the predicate. Other words without a counterpart are not
aligned.
"""

from dataclasses import dataclass
from functools import cached_property

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
