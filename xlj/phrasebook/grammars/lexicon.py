"""The words of a language, from `words/LANGUAGE.toml`: its sections are tables by concept."""

import tomllib
from collections.abc import Callable, Mapping
from importlib import resources

from xlj.phrasebook import world
from xlj.phrasebook.sentence import Word, word

_SLOTS = {"ADP": "case", "DET": "det", "NUM": "hour"}


def words(language: str) -> dict[str, dict[str, str]]:
    """All sections of a language's file."""
    file = resources.files("xlj.phrasebook.grammars") / "words" / f"{language}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def forms(section: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Entries of several forms each; an underscore stands for a space inside a form."""
    return {
        concept: tuple(form.replace("_", " ") for form in entry.split())
        for concept, entry in section.items()
    }


def names(section: Mapping[str, str]) -> dict[str, str]:
    """The proper names of a language: those that a section does not spell are as in English."""
    return {name: name.replace("_", " ").title() for name in world.NAMES} | dict(section)


def times(section: Mapping[str, str]) -> dict[str, Callable[[str], list[Word]]]:
    """The words of each time, 'form/UPOS form/UPOS', as a function of the number of a clause.

    Adpositions and determiners express the case and the determiner of the time, numerals its
    hour, all others the time itself. Forms joined by underscores share a part of speech.
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
