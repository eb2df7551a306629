"""How the grammars write their tables: compact text, one entry after another."""

from collections.abc import Callable

from xlj.phrasebook.meaning import (
    CITIES,
    COUNTRIES,
    HOURS,
    MEN,
    NOUN_FIELD,
    ORGANISATIONS,
    SURNAMES,
    WEEKDAYS,
    WOMEN,
)
from xlj.phrasebook.sentence import Word, word


def phrases(text: str) -> dict[str, str]:
    """'key: some words; key: ...' as a mapping from key to words, spaces normalised."""
    entries = (entry.partition(":") for entry in text.split(";") if entry.strip())
    return {key.strip(): " ".join(value.split()) for key, _, value in entries}


def table(text: str) -> dict[str, tuple[str, ...]]:
    """As `phrases`, the words split; an underscore stands for a space inside a form."""
    return {
        key: tuple(form.replace("_", " ") for form in value.split())
        for key, value in phrases(text).items()
    }


def names(text: str, people: str = "") -> dict[str, str]:
    """The proper names of a language by concept, spelt as in English where nothing else is given.

    Args:
      text: `phrases` of cities, countries and organisations.
      people: first names and surnames, in the order of `WOMEN`, `MEN`, `SURNAMES`.

    Raises ValueError unless there are as many people as there.
    """
    persons = WOMEN + MEN + SURNAMES
    spelt = {c: c.replace("_", " ").title() for c in CITIES + COUNTRIES + ORGANISATIONS}
    return spelt | dict(zip(persons, people.split() or persons, strict=True)) | phrases(text)


def forms(text: str) -> dict[str, tuple[str, ...]]:
    """'singular plural; ...' for every noun concept in the order of `NOUN_FIELD`.

    Raises ValueError unless there are as many entries as nouns.
    """
    entries = [tuple(entry.split()) for entry in text.split(";")]
    return {
        noun: tuple(form.replace("_", " ") for form in entry)
        for noun, entry in zip(NOUN_FIELD, entries, strict=True)
    }


def tagged(text: str) -> Callable[[str], list[Word]]:
    """'form/UPOS ...' as a function from a clause number to the words of a time.

    Adpositions and determiners express the case and the determiner of the time, numerals its
    hour, all others the time itself.
    """
    part = {"ADP": "case", "DET": "det", "NUM": "hour"}
    items = [item.rpartition("/") for item in text.split()]
    plan = [
        (form, upos, f".time.{part.get(upos, 'noun')}")
        for whole, _, upos in items
        for form in whole.split("_")
    ]

    def words(n: str) -> list[Word]:
        return [word(form, upos, n + slot) for form, upos, slot in plan]

    return words


def time_words(
    text: str, weekday: str, weekdays: str, hour: str, hours: str
) -> dict[str, Callable[[str], list[Word]]]:
    """Every time concept: those of `text`, then the weekdays and hours by their templates."""
    entries = phrases(text)
    for concept, form in zip(WEEKDAYS, weekdays.split(), strict=True):
        entries[concept] = weekday.format(form)
    for concept, form in zip(HOURS, hours.split(), strict=True):
        entries[concept] = hour.format(form.replace("/DET_", "/DET "))
    return {concept: tagged(entry) for concept, entry in entries.items()}
