"""Chooses how many pieces a vocabulary gets for a new language (ours)."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.tokenizer import fertility
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.vocabulary_extension import check_extendable, extend

TOLERATED = 1.25
"""A language gets pieces if its words are split into this many times more pieces than those of the
best old language, or if more than `UNKNOWN` of its pieces are `<unk>`."""
UNKNOWN = 0.001

_GOAL = 1.1  # times the pieces per word of the best old language
_USUAL = 1.5  # pieces per word of a language that a vocabulary serves well, if there is no old text
_FIRST = 250  # pieces; then twice as many, and so on
_WORDS_PER_PIECE = 40  # of text: a piece that training rarely sees learns nothing
_GAIN = 0.02  # of the pieces per word: if twice the pieces gain less, they are not worth their rows


class Choice(NamedTuple):
    """The pieces that a language gets."""

    language: str
    before: float
    """Pieces a word with the old vocabulary."""
    after: float
    pieces: int
    reason: str


def check_count(vocabulary: Vocabulary, pieces: int | None) -> None:
    """Raises a `ConfigError` if pieces are asked for that the vocabulary cannot get."""
    if pieces:
        check_extendable(vocabulary)


def choose(
    old: Vocabulary,
    new_text: Mapping[str, Sequence[str]],
    old_text: Mapping[str, Sequence[str]],
    pieces: int | None = None,
) -> tuple[Vocabulary, list[Choice]]:
    """The vocabulary with pieces for each language that needs some.

    Languages get their pieces one after another, the one with most pieces per word first. Every
    tenth line of their text measures; the pieces come from the other lines.

    Args:
      new_text: lines of each new language, none of them held out.
      old_text: lines of old languages; the one with fewest pieces per word sets the goal.
      pieces: for each new language; 0 for none. None for as many as bring a language to 1.1 times
        the pieces per word of the best old language, doubling from 250. It gets at most one piece
        for 40 words of its text, and no more if twice as many gain less than 2 %.

    Raises:
      ConfigError: if `pieces` are asked for that the vocabulary or the text cannot give.
    """
    of_old = [fertility.measure(old, lines).pieces_per_word for lines in old_text.values()]
    best = min(of_old, default=_USUAL)
    measured = {name: fertility.measure(old, _measuring(lines)) for name, lines in new_text.items()}
    order = sorted(measured, key=lambda name: -measured[name].pieces_per_word)
    vocabulary, choices = old, []
    for name in order:
        before = measured[name].pieces_per_word
        if pieces is None:
            vocabulary, count, reason = _enough(vocabulary, new_text[name], best)
        elif pieces:
            vocabulary = extend(vocabulary, new_text[name], pieces)
            count, reason = pieces, "as asked for"
        else:
            count, reason = 0, "as asked for"
        after = fertility.measure(vocabulary, _measuring(new_text[name])).pieces_per_word
        choices.append(Choice(name, before, after, count, reason))
    return vocabulary, choices


def _enough(
    vocabulary: Vocabulary, lines: Sequence[str], best: float
) -> tuple[Vocabulary, int, str]:
    """The vocabulary with as many pieces as a language needs, their number, and why not more."""
    held = _measuring(lines)
    now = fertility.measure(vocabulary, held)
    if now.pieces_per_word <= TOLERATED * best and now.unknown_share <= UNKNOWN:
        return vocabulary, 0, f"at most {TOLERATED} times the {best:.2f} of the best old language"
    try:
        check_extendable(vocabulary)
    except ConfigError as error:
        return vocabulary, 0, str(error)
    rest = [line for place, line in enumerate(lines) if place % 10] or lines
    most = fertility.measure(vocabulary, rest).words // _WORDS_PER_PIECE
    if most < _FIRST:
        return (
            vocabulary,
            0,
            f"too little text: {_FIRST} pieces need {_FIRST * _WORDS_PER_PIECE:,} words",
        )
    found, count, reached = vocabulary, 0, now.pieces_per_word
    for doubled in range(int(math.log2(most / _FIRST)) + 2):
        more = min(_FIRST << doubled, most)
        try:
            larger = extend(vocabulary, rest, more)
        except ConfigError:
            return found, count, f"the text has no {more:,} pieces"
        fewer = fertility.measure(larger, held).pieces_per_word
        if count and fewer > (1 - _GAIN) * reached:
            return found, count, f"{more:,} would gain {1 - fewer / reached:.1%}"
        found, count, reached = larger, more, fewer
        if reached <= _GOAL * best:
            return found, count, f"within {_GOAL} times the {best:.2f} of the best old language"
    return found, count, f"one piece for {_WORDS_PER_PIECE} words of its text"


def _measuring(lines: Sequence[str]) -> Sequence[str]:
    """Every tenth of some lines."""
    return lines[::10]
