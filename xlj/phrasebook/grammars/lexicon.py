"""How the grammars write their tables: compact text, one entry after another."""

from collections.abc import Callable, Iterable

from xlj.phrasebook import world
from xlj.phrasebook.sentence import Word, word


def phrases(text: str) -> dict[str, str]:
    """'key: some words; key: ...' as a mapping from key to words, spaces normalised."""
    entries = (entry.partition(":") for entry in text.split(";") if entry.strip())
    return {key.strip(): " ".join(value.split()) for key, _, value in entries}


def table(text: str) -> dict[str, tuple[str, ...]]:
    """As `phrases`, the words split; an underscore stands for a space inside a form."""
    return {key: tuple(map(_spaced, value.split())) for key, value in phrases(text).items()}


def names(text: str) -> dict[str, str]:
    """The proper names of a language, spelt as in English where `phrases` of it spell none else."""
    return {name: name.replace("_", " ").title() for name in world.NAMES} | phrases(text)


def all_names(text: str) -> dict[str, str]:
    """The proper names of a language that spells each in its own way, in the order of `NAMES`."""
    return _words(text, world.NAMES)


def forms(text: str, concepts: Iterable[str] = world.NOUN_FIELD) -> dict[str, tuple[str, ...]]:
    """'singular plural; ...' for every concept, in their order; underscores as in `table`.

    Raises ValueError unless there are as many entries as concepts.
    """
    entries = (tuple(map(_spaced, entry.split())) for entry in text.split(";"))
    return dict(zip(concepts, entries, strict=True))


def adjectives(text: str) -> dict[str, str]:
    """The adjectives of a language that lists one form of each, in the order of `QUALITIES`."""
    return _words(text, world.QUALITIES)


def _words(text: str, concepts: Iterable[str]) -> dict[str, str]:
    return dict(zip(concepts, map(_spaced, text.split()), strict=True))


def _spaced(form: str) -> str:
    return form.replace("_", " ")


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
    return lambda n: [word(form, upos, n + slot) for form, upos, slot in plan]


def time_words(
    text: str, weekday: str, weekdays: str, hour: str, hours: str
) -> dict[str, Callable[[str], list[Word]]]:
    """Every time concept: `MOMENTS` in order, then the weekdays and hours by their templates."""
    entries = dict(zip(world.MOMENTS, text.split(";"), strict=True))
    for concept, form in zip(world.WEEKDAYS, weekdays.split(), strict=True):
        entries[concept] = weekday.format(form)
    for concept, form in zip(world.HOURS, hours.split(), strict=True):
        entries[concept] = hour.format(form.replace("/DET_", "/DET "))
    return {concept: tagged(entry) for concept, entry in entries.items()}
