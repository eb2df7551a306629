"""The embedded corpus: meanings as sentences of each language and as aligned pairs of sentences."""

from collections.abc import Iterator

from xlj.phrasebook.drawing import document, draw
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
from xlj.phrasebook.meaning import Meaning, Pair, Sentence, align
from xlj.phrasebook.stream import seed_of

VERSION = 1
"""Version of the text. Raise it if the lines of any language or pair change. The hash of rows
includes it (`xlj/data/text/sources.py`), so the rows are built again."""

SENTENCES = {
    "en": 40_000,
    "de": 20_000,
    "fr": 16_000,
    "es": 16_000,
    "zh": 12_000,
    "tr": 8_000,
    "hi": 5_000,
    "sw": 3_000,
}
"""Number of sentences in the monolingual text of each language."""

PAIRS = {
    "en-de": 10_000,
    "en-fr": 10_000,
    "en-es": 10_000,
    "en-zh": 6_000,
    "en-hi": 6_000,
    "en-tr": 6_000,
    "en-sw": 3_000,
}
"""Number of sentence pairs of each pair of languages, for both orders of the languages; all other
pairs have 3,000."""


def text_lines(language: str) -> Iterator[str]:
    """Yields the text of a language: one sentence per line, empty lines between documents.

    There are `SENTENCES[language]` sentences. Texts of different languages are independent, not
    translations of each other.

    Raises:
      ValueError: for an unknown language.
    """
    check_language(language)
    return _text_lines(language)


def _text_lines(language: str) -> Iterator[str]:
    seed, left, index = seed_of(f"text {language}"), SENTENCES[language], 0
    while left:
        if index:
            yield ""
        meanings = document(seed, index)[:left]
        for meaning in meanings:
            yield realise(meaning, language).text
        left -= len(meanings)
        index += 1


def pair_lines(pair: str) -> Iterator[tuple[str, str]]:
    """Yields sentence pairs, for example (English, German) for 'en-de'.

    'en-de' and 'de-en' have the same sentences.

    Raises:
      ValueError: unless the pair is two different known languages with a hyphen between them.
    """
    source, _, target = pair.partition("-")
    if source == target or source not in LANGUAGES or target not in LANGUAGES:
        raise ValueError(
            f'unknown pair {pair!r}: expected two different languages and a hyphen, as in "en-de"; '
            f"the languages are {', '.join(LANGUAGES)}"
        )
    name = "-".join(sorted((source, target), key=LANGUAGES.index))
    seed = seed_of(f"pair {name}")
    meanings = (draw(seed, index) for index in range(PAIRS.get(name, 3_000)))
    return ((realise(m, source).text, realise(m, target).text) for m in meanings)


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
