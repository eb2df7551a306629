"""Shares of a new vocabulary, and of each language's text, that start from something."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlj.data.rows.report import align
from xlj.interop.matches import RULES, Matches


@dataclasses.dataclass(frozen=True)
class Report:
    """Counts by rule, in the order of `RULES`.

    Attributes:
      pieces: of the new vocabulary, int64 [rules].
      tokens: of each language's text, int64 [rules].
    """

    pieces: np.ndarray
    tokens: Mapping[str, np.ndarray]


def report(matches: Matches, counts: Mapping[str, np.ndarray]) -> Report:
    """Counts pieces, and each language's tokens, by the rule that matched them.

    Args:
      counts: of each language, how often each new id is in its text: int64 [new ids].
    """

    def by_rule(weights: np.ndarray) -> np.ndarray:
        return np.array([weights[matches.rules == rule].sum() for rule in range(len(RULES))])

    every = by_rule(np.ones(len(matches.rules), np.int64))
    return Report(every, {name: by_rule(found) for name, found in counts.items()})


def table(found: Report) -> str:
    """The report in percent, for people: a line for the vocabulary's pieces, one for each
    language's tokens. Rules that matched no piece are left out."""
    used = [rule for rule in range(len(RULES)) if found.pieces[rule]]
    rows = {"vocabulary": found.pieces, **found.tokens}
    return "\n".join(
        align(
            [
                ["", "in all", *(f"{RULES[rule]} %" for rule in used)],
                *([name, f"{counts.sum():,}", *_percents(counts, used)]
                  for name, counts in rows.items()),
            ]
        )
    )  # fmt: skip


def _percents(counts: np.ndarray, used: list[int]) -> list[str]:
    return [f"{100 * counts[rule] / max(1, counts.sum()):.2f}" for rule in used]
