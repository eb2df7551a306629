"""Parts that the grammars of several languages share."""

from collections.abc import Callable, Mapping

from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, named, word

Links = Mapping[str, tuple[str, str]]
"""The word that joins two clauses and its part of speech, by kind of link."""


def person_name(p: Participant, role: str, spelling: Mapping[str, str] | None = None) -> list[Word]:
    """A first name, perhaps with a surname; `spelling` transliterates both."""
    spell = spelling or {}
    names = named(spell.get(p.concept, p.concept), role + ".noun", "PER")
    if p.surname:
        surname = spell.get(p.surname, p.surname)
        names.append(word(surname, "PROPN", role + ".surname", entity="I-PER"))
    return names


def organisation(name: str, role: str) -> list[Word]:
    """An organisation; a first word in lower case is its article."""
    first, _, rest = name.partition(" ")
    if first[0].islower():
        return [word(first, "DET", role + ".det"), *named(rest, role + ".noun", "ORG")]
    return named(name, role + ".noun", "ORG")


def fuse(words: list[Word], contractions: Mapping[tuple[str, str], str]) -> list[Word]:
    """Contracts adpositions with the articles after them: 'de' 'le' becomes 'du'."""
    fused: list[Word] = []
    for item in words:
        last = fused[-1] if fused else None
        short = contractions.get((last.form, item.form)) if last and last.upos == "ADP" else None
        if last and short and item.upos == "DET":
            fused[-1] = Word(short, "ADP", "O", last.slots | item.slots)
        else:
            fused.append(item)
    return fused


def join(
    parts: tuple[Clause, ...],
    link: str | None,
    clause: Callable[[Clause, str], list[Word]],
    links: Links,
    stop: str = ".",
    question: str = "?",
    commas: tuple[str, ...] = ("and", "but"),
    comma: str = ",",
) -> list[Word]:
    """One or two clauses as a sentence; a comma stands before the links named in `commas`."""
    words = clause(parts[0], "0")
    if link:
        if link in commas:
            words.append(word(comma, "PUNCT", "comma"))
        form, upos = links[link]
        words += [word(part, upos, "link") for part in form.split()]
        words += clause(parts[1], "1")
    words.append(word(question if parts[0].question else stop, "PUNCT", "stop"))
    return words


def agreement(subject: Participant | None) -> str:
    """The person and number of a verb: '1s', '2s', '3s', '1p' or '3p'."""
    if subject is None:
        return "3s"
    if subject.kind == "pronoun":
        return _PERSONS[subject.concept]
    return "3p" if subject.plural else "3s"


_PERSONS = {"i": "1s", "you": "2s", "he": "3s", "she": "3s", "we": "1p", "they": "3p"}
PERSONS = ("1s", "2s", "3s", "1p", "3p")
"""The order in which the tables of verbs list their forms."""
