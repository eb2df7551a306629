"""Chooses how many pieces a vocabulary gets for a new language (ours)."""

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
    """Pieces per word with the old vocabulary."""
    after: float
    pieces: int
    reason: str


def choose(
    old: Vocabulary,
    new_text: Mapping[str, Sequence[str]],
    old_text: Mapping[str, Sequence[str]],
    pieces: int | None = None,
) -> tuple[Vocabulary, list[Choice]]:
    """Extends a vocabulary for each language that needs pieces.

    Languages get their pieces one after another, the one with most pieces per word first. Every
    tenth line of their text measures pieces per word; the pieces come from the other lines.

    Args:
      new_text: lines of each new language, none of them held out.
      old_text: lines of old languages; the one with fewest pieces per word sets the goal.
      pieces: the number for each new language; 0 for none. None doubles the number from 250 until
        the language has at most 1.1 times the pieces per word of the best old language, until
        there is one piece for 40 words of its text, or until twice as many gain less than 2 %.

    Raises:
      ConfigError: if `pieces` is a number that the vocabulary or the text cannot give.
    """
    of_old = [fertility.measure(old, lines).pieces_per_word for lines in old_text.values()]
    best = min(of_old, default=_USUAL)
    split = {name: _split(lines) for name, lines in new_text.items()}
    before = {
        name: fertility.measure(old, test).pieces_per_word for name, (_, test) in split.items()
    }
    vocabulary, choices = old, []
    for name in sorted(before, key=lambda name: -before[name]):
        train, test = split[name]
        if pieces is None:
            vocabulary, count, reason = _add_enough(vocabulary, train, test, best)
        else:
            vocabulary = extend(vocabulary, train, pieces) if pieces else vocabulary
            count, reason = pieces, "as requested"
        after = fertility.measure(vocabulary, test).pieces_per_word
        choices.append(Choice(name, before[name], after, count, reason))
    return vocabulary, choices


def _add_enough(
    vocabulary: Vocabulary, train: Sequence[str], test: Sequence[str], best: float
) -> tuple[Vocabulary, int, str]:
    """Returns the vocabulary with as many pieces as a language needs, their number, and the reason
    why it is not larger."""
    now = fertility.measure(vocabulary, test)
    if now.pieces_per_word <= TOLERATED * best and now.unknown_share <= UNKNOWN:
        return vocabulary, 0, f"at most {TOLERATED} times the {best:.2f} of the best old language"
    try:
        check_extendable(vocabulary)
    except ConfigError as error:
        return vocabulary, 0, str(error)
    most = fertility.measure(vocabulary, train).words // _WORDS_PER_PIECE
    if most < _FIRST:
        words = _FIRST * _WORDS_PER_PIECE
        return vocabulary, 0, f"too little text: {_FIRST} pieces need {words:,} words"
    extended, count, per_word = vocabulary, 0, now.pieces_per_word
    while count < most:
        more = min(max(_FIRST, 2 * count), most)
        try:
            larger = extend(vocabulary, train, more)
        except ConfigError:
            return extended, count, f"the text has fewer than {more:,} new pieces"
        fewer = fertility.measure(larger, test).pieces_per_word
        if count and fewer > (1 - _GAIN) * per_word:
            return extended, count, f"{more:,} would gain {1 - fewer / per_word:.1%}"
        extended, count, per_word = larger, more, fewer
        if per_word <= _GOAL * best:
            return extended, count, f"within {_GOAL} times the {best:.2f} of the best old language"
    return extended, count, f"one piece for {_WORDS_PER_PIECE} words of its text"


def _split(lines: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Splits lines into those that give pieces, and every tenth, which measures."""
    return [line for place, line in enumerate(lines) if place % 10] or lines, lines[::10]
