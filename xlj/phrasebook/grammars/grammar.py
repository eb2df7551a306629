"""What the grammars of several languages share, and the words of a language from
`words/LANGUAGE.toml`, whose sections map concepts to words.
"""

import tomllib
from collections.abc import Callable, Mapping
from importlib import resources

from xlj.phrasebook import world
from xlj.phrasebook.meaning import Clause, Participant, Word, named, word

Links = Mapping[str, tuple[str, str]]
"""By kind of link ('and', 'but', 'because'): the words that join two clauses, and their part of
speech."""


def nameable(
    p: Participant | None,
    role: str,
    names: Mapping[str, str],
    asked: tuple[str, str],
    pronouns: Mapping[str, tuple[str, ...]] | None = None,
) -> list[Word]:
    """Returns the words of a participant that is not a common noun; [] without a participant.

    Args:
      role: the first part of the words' slots, such as '0.object' for the object of clause 0.
      names: as returned by `names`; articles of organisations are in lower case.
      asked: the words for "who" and "what".
      pronouns: the forms of each pronoun, of which this function uses the first. None if the verb
        expresses pronouns; the result for a pronoun is then [].
    """
    noun = role + ".noun"
    if p is None:
        return []
    if p.kind == "pronoun":
        return [word(pronouns[p.concept][0], "PRON", noun)] if pronouns else []
    if p.kind == "unknown":
        return [word(asked[p.concept != "person"], "PRON", noun)]
    name = names[p.concept]
    if p.kind == "place":
        return named(name, noun, "LOC")
    if p.kind == "organisation":
        article, _, rest = name.partition(" ")
        if article[0].islower():
            return [word(article, "DET", role + ".det"), *named(rest, noun, "ORG")]
        return named(name, noun, "ORG")
    words = named(name, noun, "PER")
    if p.surname:
        words.append(word(names[p.surname], "PROPN", role + ".surname", entity="I-PER"))
    return words


def is_feminine(p: Participant, nouns: Mapping[str, tuple[str, ...]]) -> bool:
    """Returns whether a participant is feminine, so that adjectives and participles agree with it.

    Args:
      nouns: the entries of nouns, whose second form is the gender.
    """
    if p.kind != "noun":
        return p.gender == "f"
    return nouns[p.concept][1] == "f" or (p.human and p.gender == "f")


def fuse(words: list[Word], contractions: Mapping[str, str]) -> list[Word]:
    """Contracts adpositions with the articles after them: 'de le' becomes 'du'."""
    fused: list[Word] = []
    for item in words:
        last = fused[-1] if fused else item
        short = contractions.get(f"{last.form} {item.form}")
        if short and last.upos == "ADP" and item.upos == "DET":
            fused[-1] = Word(short, "ADP", "O", last.slots | item.slots)
        else:
            fused.append(item)
    return fused


def join(
    members: tuple[Clause, ...],
    link: str | None,
    clause: Callable[[Clause, str], list[Word]],
    links: Links,
    commas: tuple[str, ...] = ("and", "but"),
    marks: tuple[str, str, str] = (".", "?", ","),
) -> list[Word]:
    """Returns the words of a sentence of one or two clauses, with its punctuation.

    Args:
      members: the clauses.
      link: 'and', 'but' or 'because' before the second clause; None for one clause.
      clause: returns the words of a clause; its arguments are the clause and its number, '0' or
        '1'.
      links: the words for each link.
      commas: the links that have a comma before them.
      marks: the full stop, the question mark and the comma.
    """
    stop, question, comma = marks
    words = clause(members[0], "0")
    if link:
        if link in commas:
            words.append(word(comma, "PUNCT", "comma"))
        form, upos = links[link]
        words += [word(part, upos, "link") for part in form.split()]
        words += clause(members[1], "1")
    words.append(word(question if members[0].question else stop, "PUNCT", "stop"))
    return words


def agreement(subject: Participant | None) -> str:
    """Returns the person and number of a verb: '1s', '2s', '3s', '1p' or '3p'."""
    if subject is None:
        return "3s"
    if subject.kind == "pronoun":
        return _PERSONS[subject.concept]
    return "3p" if subject.plural else "3s"


_PERSONS = {"i": "1s", "you": "2s", "he": "3s", "she": "3s", "we": "1p", "they": "3p"}
PERSONS = ("1s", "2s", "3s", "1p", "3p")
"""The order of forms in tables of verbs."""


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
