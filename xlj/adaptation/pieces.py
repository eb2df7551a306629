"""Chooses how many pieces a vocabulary gets for a new language (ours)."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xlj.config import ConfigError
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility
from xlj.interop.vocabulary_extension import add_characters, check_extendable, extend

MAX_RATIO = 1.25
"""A language gets pieces if it has more than `MAX_RATIO` times the pieces per word of the best old
language. The best old language is the one with the fewest pieces per word."""

MAX_UNKNOWN_SHARE = 0.001
"""A language also gets pieces if more than this share of its pieces are `<unk>`."""

_GOAL = 1.1
"""Pieces are added until a language has at most `_GOAL` times the pieces per word of the best old
language."""

_USUAL = 1.5
"""Assumed pieces per word of the best old language if there is no text of an old language."""

_FIRST = 250
"""The first number of pieces to try. Each further trial doubles the number."""

_WORDS_PER_PIECE = 40
"""The minimum number of words of text per new piece. With fewer, many new pieces would be too rare
for their vectors to be learned."""

_GAIN = 0.02
"""The share by which each trial after the first must reduce the pieces per word. If it does not,
the smaller vocabulary is used, since each piece costs a row of the embeddings."""


class Choice(NamedTuple):
    """The number of pieces that a language gets.

    Attributes:
      before, after: pieces per word, before and after the vocabulary was extended.
      unknown_before, unknown_after: the share of pieces that are `<unk>`.
      pieces: the number of new pieces.
      reason: why the language does not get more pieces, for printing.
    """

    language: str
    before: float
    after: float
    unknown_before: float
    unknown_after: float
    pieces: int
    reason: str


def choose(
    old: Vocabulary,
    new_text: Mapping[str, Sequence[str]],
    old_text: Mapping[str, Sequence[str]],
    pieces: int | None = None,
) -> tuple[Vocabulary, list[Choice]]:
    """Extends a vocabulary for each language that needs pieces.

    The languages get pieces one after another; the language with the most pieces per word is the
    first. Pieces per word are measured on every tenth line of a language's text, and pieces are
    learned from the other lines.

    Args:
      old: the vocabulary to extend.
      new_text: lines of each new language, none of them held out.
      old_text: lines of each old language. The language with the fewest pieces per word, the best
        old language, sets the goal.
      pieces: the number of pieces for each new language. None chooses the number. It is then 0 for
        a language that needs no pieces (`MAX_RATIO`, `MAX_UNKNOWN_SHARE`). Otherwise 250 pieces are
        tried, and the number is doubled until one of these conditions holds:

        - The language has at most 1.1 times the pieces per word of the best old language.
        - The text has only 40 words per new piece.
        - Twice as many pieces would reduce the pieces per word by less than 2 %.

        If more than 0.1 % of the pieces are unknown, the characters without a piece get one,
        however little text there is.

    Returns:
      The extended vocabulary, and the choice for each new language.

    Raises:
      ConfigError: if xlj cannot extend the vocabulary, or the text does not yield `pieces` pieces.
        If `pieces` is None, such a language gets fewer pieces or none.
    """
    of_old = [measure_fertility(old, lines).pieces_per_word for lines in old_text.values()]
    best = min(of_old, default=_USUAL)
    split = {name: _split(lines) for name, lines in new_text.items()}
    before = {name: measure_fertility(old, test) for name, (_, test) in split.items()}
    vocabulary, choices = old, []
    for name in sorted(before, key=lambda name: -before[name].pieces_per_word):
        train, test = split[name]
        if pieces is None:
            vocabulary, count, reason = _add_enough(vocabulary, train, test, best)
        else:
            vocabulary = extend(vocabulary, train, pieces) if pieces else vocabulary
            count, reason = pieces, "as requested"
        then, now = before[name], measure_fertility(vocabulary, test)
        per_word = then.pieces_per_word, now.pieces_per_word
        unknown = then.unknown_share, now.unknown_share
        choices.append(Choice(name, *per_word, *unknown, count, reason))
    return vocabulary, choices


def _add_enough(
    vocabulary: Vocabulary, train: Sequence[str], test: Sequence[str], best: float
) -> tuple[Vocabulary, int, str]:
    """Adds as many pieces as a language needs.

    Args:
      train: lines from which pieces are learned.
      test: lines on which pieces per word are measured.
      best: pieces per word of the best old language.

    Returns:
      The extended vocabulary, the number of new pieces, and the reason why the number is not
      larger.
    """
    now = measure_fertility(vocabulary, test)
    if now.pieces_per_word <= MAX_RATIO * best and now.unknown_share <= MAX_UNKNOWN_SHARE:
        return vocabulary, 0, _describe_ratio(MAX_RATIO, best)
    try:
        check_extendable(vocabulary)
    except ConfigError as error:
        return vocabulary, 0, str(error)
    extended, count = vocabulary, 0
    if now.unknown_share > MAX_UNKNOWN_SHARE:
        extended, count = add_characters(vocabulary, train)
    max_pieces = measure_fertility(vocabulary, train).words // _WORDS_PER_PIECE
    if max_pieces < _FIRST:
        lack = "too little text for other pieces" if count else "too little text"
        words = _FIRST * _WORDS_PER_PIECE
        return extended, count, f"{lack}: {_FIRST} pieces need {words:,} words"
    max_pieces, trial, per_word = max(max_pieces, count), 0, math.inf
    while trial < max_pieces:
        trial = min(max(_FIRST, count, 2 * trial), max_pieces)
        try:
            larger = extend(vocabulary, train, trial)
        except ConfigError:
            return extended, count, f"the text yields fewer than {trial:,} new pieces"
        fewer = measure_fertility(larger, test).pieces_per_word
        if fewer > (1 - _GAIN) * per_word:
            gain = 1 - fewer / per_word
            reason = f"{trial:,} pieces would lower the pieces per word by {gain:.1%}"
            return extended, count, reason
        extended, count, per_word = larger, trial, fewer
        if per_word <= _GOAL * best:
            return extended, count, _describe_ratio(_GOAL, best)
    return extended, count, f"its text has only {_WORDS_PER_PIECE} words per new piece"


def _describe_ratio(ratio: float, best: float) -> str:
    return f"at most {ratio} times the {best:.2f} pieces per word of the best old language"


def _split(lines: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Splits lines into lines that pieces are learned from, and every tenth line, on which pieces
    per word are measured."""
    return [line for place, line in enumerate(lines) if place % 10] or lines, lines[::10]
