"""Reads the words of a language from `words/LANGUAGE.toml`; sections map concepts to words."""

import tomllib
from collections.abc import Callable, Mapping
from importlib import resources

from xlj.phrasebook import world
from xlj.phrasebook.sentence import Word, word

_SLOTS = {"ADP": "case", "DET": "det", "NUM": "hour"}


def words(language: str) -> dict[str, dict[str, str]]:
    """Reads a language's file, and returns its entries by section and concept.

    Args:
      language: the English name in lower case, such as 'german'.
    """
    file = resources.files("xlj.phrasebook.grammars") / "words" / f"{language}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def forms(section: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Splits each entry of a section into forms at blanks, and turns underscores in forms into
    spaces."""
    return {
        concept: tuple(form.replace("_", " ") for form in entry.split())
        for concept, entry in section.items()
    }


def names(section: Mapping[str, str]) -> dict[str, str]:
    """Returns the proper names of a language; names without an entry are spelled as in English."""
    return {name: name.replace("_", " ").title() for name in world.NAMES} | dict(section)


def times(section: Mapping[str, str]) -> dict[str, Callable[[str], list[Word]]]:
    """Returns a function for each time.

    The function takes the number of a clause, '0' or '1', and returns the words of the time in this
    clause.

    Entries are 'form/UPOS form/UPOS'. The part of speech (UPOS) determines the slot of a word:
    'case' for adpositions, 'det' for determiners, 'hour' for numerals, and 'noun' for all other
    words. Forms joined by underscores have the same part of speech.
    """
    return {concept: _tagged(entry) for concept, entry in section.items()}


def _tagged(entry: str) -> Callable[[str], list[Word]]:
    items = [item.rpartition("/") for item in entry.split()]
    plan = [
        (form, upos, f".time.{_SLOTS.get(upos, 'noun')}")
        for whole, _, upos in items
        for form in whole.split("_")
    ]
    return lambda n: [word(form, upos, n + slot) for form, upos, slot in plan]
