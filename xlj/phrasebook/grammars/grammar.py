"""Parts that the grammars of several languages share."""

from collections.abc import Callable, Mapping

from xlj.phrasebook.meaning import Clause, Participant
from xlj.phrasebook.sentence import Word, named, word

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
      names: as returned by `lexicon.names`; articles of organisations are in lower case.
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
    parts: tuple[Clause, ...],
    link: str | None,
    clause: Callable[[Clause, str], list[Word]],
    links: Links,
    commas: tuple[str, ...] = ("and", "but"),
    marks: tuple[str, str, str] = (".", "?", ","),
) -> list[Word]:
    """Returns the words of a sentence of one or two clauses, with its punctuation.

    Args:
      parts: the clauses.
      link: 'and', 'but' or 'because' before the second clause; None for one clause.
      clause: returns the words of a clause; its arguments are the clause and its number, '0' or
        '1'.
      links: the words for each link.
      commas: the links that have a comma before them.
      marks: the full stop, the question mark and the comma.
    """
    stop, question, comma = marks
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
    """Returns the person and number of a verb: '1s', '2s', '3s', '1p' or '3p'."""
    if subject is None:
        return "3s"
    if subject.kind == "pronoun":
        return _PERSONS[subject.concept]
    return "3p" if subject.plural else "3s"


_PERSONS = {"i": "1s", "you": "2s", "he": "3s", "she": "3s", "we": "1p", "they": "3p"}
PERSONS = ("1s", "2s", "3s", "1p", "3p")
"""The order of forms in tables of verbs."""
