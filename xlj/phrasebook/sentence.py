"""Words, sentences and aligned pairs.

Every word names the *slots* of the meaning that it expresses: '0.object.noun' is the head of the
object of the first clause, '1.tense' the tense of the second. Two words of a pair are aligned
exactly when they share a slot, with one addition: a grammatical slot (article, case or
preposition, tense, expletive) for which the other language has no word of its own is expressed
by the head it belongs to, so the word is aligned to that head. Any other word without a
counterpart stays unaligned.
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
    """A word that expresses the given slots."""
    return Word(form, upos, entity, frozenset(slots))


def named(forms: str, slot: str, entity: str) -> list[Word]:
    """The words of a name, all of which express the slot; `entity` is 'PER', 'LOC' or 'ORG'."""
    return [
        word(form, "PROPN", slot, entity=("I-" if position else "B-") + entity)
        for position, form in enumerate(forms.split())
    ]


@dataclass(frozen=True)
class Sentence:
    """A sentence of one language as words; `text` writes it and `spans` finds the words in it."""

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
            # French sets a space before a question mark
            clings = form in _CLOSERS and (self.language, form) != ("fr", "?")
            if not (glue or self.language == "zh" or clings):
                text += " "
            spans.append((len(text), len(text) + len(form)))
            text += form
            glue = form in _OPENERS or (form.endswith("'") and self.language == "fr")
        return text, tuple(spans)

    @property
    def text(self) -> str:
        """The sentence as it is written: spaced, capitalised and punctuated."""
        return self._written[0]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The (start, end) of each word in `text`, in characters."""
        return self._written[1]


@dataclass(frozen=True)
class Pair:
    """Two sentences of one meaning and their gold alignment: (source, target) word indices."""

    source: Sentence
    target: Sentence
    alignment: frozenset[tuple[int, int]]


def align(source: Sentence, target: Sentence) -> frozenset[tuple[int, int]]:
    """The gold alignment of two realisations of one meaning, by the rule of this module."""
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
            found = where.get(slot)
            if found is None:
                base, _, part = slot.rpartition(".")
                heads = (f"{base}.{head}" for head in _HEADS.get(part, ()))
                found = next((where[head] for head in heads if head in where), [])
            links += [(i, j) for j in found]
    return links
