"""Realises meanings as sentences and as aligned pairs of sentences."""

from xlj.phrasebook.grammars import (
    chinese,
    english,
    french,
    german,
    hindi,
    spanish,
    swahili,
    turkish,
)
from xlj.phrasebook.meaning import Meaning
from xlj.phrasebook.sentence import Pair, Sentence, align

GRAMMARS = {
    "en": english,
    "de": german,
    "fr": french,
    "es": spanish,
    "sw": swahili,
    "tr": turkish,
    "hi": hindi,
    "zh": chinese,
}
LANGUAGES = tuple(GRAMMARS)
"""The codes of the languages (ISO 639-1)."""


def check_language(language: str) -> str:
    """Returns the language; raises a ValueError that lists the languages if it is unknown."""
    if language not in GRAMMARS:
        raise ValueError(f"unknown language {language!r}: choose from {', '.join(LANGUAGES)}")
    return language


def realise(meaning: Meaning, language: str) -> Sentence:
    """Returns the sentence that expresses a meaning; raises ValueError for an unknown language."""
    grammar = GRAMMARS[check_language(language)]
    return Sentence(language, tuple(grammar.clauses(meaning.clauses, meaning.link)))


def pair(meaning: Meaning, source_language: str, target_language: str) -> Pair:
    """Returns a meaning in two languages with its gold word alignment; raises as `realise` does."""
    source, target = realise(meaning, source_language), realise(meaning, target_language)
    return Pair(source, target, align(source, target))
