"""The embedded corpus: text by language and sentence pairs by pair of languages."""

from collections.abc import Iterator

from xlj.phrasebook.drawing import document, draw
from xlj.phrasebook.realising import LANGUAGES, check_language, realise
from xlj.phrasebook.stream import seed_of

VERSION = 1
"""Version of the text: raise it when a language or pair yields other lines, or more or fewer. Rows
are kept under it (xlj/data/rows/recipe.py)."""

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
"""The number of sentences of the monolingual text of each language."""

PAIRS = {
    "en-de": 10_000,
    "en-fr": 10_000,
    "en-es": 10_000,
    "en-zh": 6_000,
    "en-hi": 6_000,
    "en-tr": 6_000,
    "en-sw": 3_000,
}
"""The number of sentence pairs by pair of languages, in either order; others have 3,000."""


def text_lines(language: str) -> Iterator[str]:
    """The text of a language: a sentence a line, an empty line between documents.

    There are `SENTENCES[language]` sentences. Each language tells its own stories: none is a
    translation of another. Raises ValueError for an unknown language.
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
    """The sentence pairs of 'en-de': (English, German), and so for any two languages.

    Both orders of a pair give the same sentences. Raises ValueError if the pair is not two
    different known languages with a hyphen between.
    """
    source, _, target = pair.partition("-")
    if source == target or source not in LANGUAGES or target not in LANGUAGES:
        raise ValueError(
            f'unknown pair {pair!r}: write two different languages as "en-de", '
            f"from {', '.join(LANGUAGES)}"
        )
    return _pair_lines(source, target)


def _pair_lines(source: str, target: str) -> Iterator[tuple[str, str]]:
    first, second = sorted((source, target), key=LANGUAGES.index)
    name = f"{first}-{second}"
    seed = seed_of(f"pair {name}")
    for index in range(PAIRS.get(name, 3_000)):
        meaning = draw(seed, index)
        yield realise(meaning, source).text, realise(meaning, target).text
