"""Applies `data.filter`, a function of the user that judges lines or identifies their language."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.config.languages import matching

FILTER = "data.filter"
LOW_SCORE = "score below data.min_score"
OTHER_LANGUAGE = "another language"
UNKNOWN = "und"
"""The code of a line whose language the function does not know (it returns an empty text)."""


class Verdict(NamedTuple):
    """What the function says about a line.

    Attributes:
      is_good: False if the line is to be dropped.
      score: the score of the line; None without a score.
      language: the language that the function believes the line to be in; None without a belief.
    """

    is_good: bool = True
    score: float | None = None
    language: str | None = None


class Verdicts(NamedTuple):
    """What the function says about lines or pairs.

    Attributes:
      dropped: for each reason, which lines or pairs are dropped for it, bool [lines].
      others: number of lines or pairs by believed language, if this is another language than that
        of the text.
    """

    dropped: dict[str, np.ndarray]
    others: Counter[str]


def judge(
    function: Callable[[str], Any],
    rows: Sequence[tuple[str, ...]],
    languages: Sequence[str],
    min_score: float,
    drops_others: bool,
) -> Verdicts:
    """Calls the function for each side of each row; blank sides are good.

    A row is dropped if one of its sides is. It counts once, for the first reason.

    Args:
      rows: the sides of each row.
      languages: the language of each side; further sides have the last language. Empty if it is
        not known: then no side is in another language.
      min_score: sides with a lower score are dropped.
      drops_others: whether sides in another language are dropped.

    Raises:
      ConfigError: if the function returns a score that is below 0 or not a number.
    """
    dropped = {why: np.zeros(len(rows), bool) for why in (FILTER, LOW_SCORE, OTHER_LANGUAGE)}
    others: Counter[str] = Counter()
    for row, sides in enumerate(rows):
        reasons, believed = set[str](), ""
        for side, language in itertools.zip_longest(sides, languages[: len(sides)]):
            if not side:
                continue
            verdict = _read(function(side), side)
            if not verdict.is_good:
                reasons.add(FILTER)
            if verdict.score is not None and verdict.score < min_score:
                reasons.add(LOW_SCORE)
            expected = language or (languages[-1] if languages else None)
            if verdict.language is not None and expected and not believed:
                if not _is_same(verdict.language, expected):
                    believed = verdict.language or UNKNOWN
        if believed:
            others[believed] += 1
            reasons |= {OTHER_LANGUAGE} if drops_others else set()
        if first := next((why for why in dropped if why in reasons), None):
            dropped[first][row] = True
    return Verdicts(dropped, others)


def _read(value: Any, line: str) -> Verdict:
    """Interprets a value of the function: a language, a score, both, or whether a line is good."""
    if isinstance(value, str):
        return Verdict(language=value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return Verdict(score=_score(value[1], line), language=value[0])
    if isinstance(value, float | np.floating):
        return Verdict(score=_score(value, line))
    return Verdict(is_good=bool(value))


def _score(value: Any, line: str) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not score >= 0:
        raise ConfigError(
            f"data.filter returned the score {value!r} for the line {line[:80]!r}; a score must be "
            "a number of at least 0"
        )
    return score


@functools.lru_cache(maxsize=1 << 16)
def _is_same(believed: str, language: str) -> bool:
    """Whether two codes mean the same language: `eng_Latn` and `en`, but not `sr_Cyrl` and
    `sr_Latn`."""
    return bool(matching(believed, [language]))
