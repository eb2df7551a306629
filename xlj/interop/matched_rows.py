"""The old rows that the rows of a new vocabulary start from, their shares, and the new arrays."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlj.data.ragged import Ragged
from xlj.data.rows.report import align
from xlj.io.hashing import combine, hash64, name_hash

RULES = ("special", "exact", "normalised", "dictionary", "accents", "place", "pieces", "none")
"""How a row was found. `vocabulary_matching` and `vocabulary_extension` say what they mean."""

UNMATCHED = ("random", "mean", "sampled")
_BLOCK_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Matches:
    """For every new id, the old ids whose mean it starts from: none, one, or several (`pieces`)."""

    sources: Ragged
    rules: np.ndarray  # int8 [new ids], indices into `RULES`; `none` where there are no sources


def share_table(matches: Matches, counts: Mapping[str, np.ndarray]) -> str:
    """Shares by rule in percent, for people: a line for the vocabulary's pieces, one for each
    language's tokens, of the `counts` of each new id in its text, int64 [new ids]. Rules that
    matched no piece are left out."""
    every = {"vocabulary": np.ones(len(matches.rules), np.int64), **counts}
    used = np.unique(matches.rules)
    lines = [["", "in all", *(f"{RULES[rule]} %" for rule in used)]]
    for name, n in every.items():
        shares = [100 * n[matches.rules == rule].sum() / max(1, n.sum()) for rule in used]
        lines.append([name, f"{n.sum():,}", *(f"{share:.2f}" for share in shares)])
    return "\n".join(align(lines))


def embeddings(
    table: np.ndarray, matches: Matches, unmatched: str, init_std: float, seed: int
) -> np.ndarray:
    """The embedding of every new piece: float32 [new ids, hidden].

    A row is the mean of its old rows; with one of them, a copy. What others get is not in the paper
    (ours), and depends on the seed and their id, not on other rows:

    - `random`: N(0, init_std), as in a fresh model.
    - `mean`: the mean of all old rows.
    - `sampled`: N(mean, variance) of all old rows, each column by itself.

    Args:
      table: floating [old ids, hidden].
      unmatched: one of `UNMATCHED`, else a ValueError.
    """
    if unmatched not in UNMATCHED:
        raise ValueError(f"unmatched={unmatched}: it must be one of {', '.join(UNMATCHED)}")
    rows = _means(table, matches)
    left = np.flatnonzero(matches.sources.lengths == 0)
    mean = np.zeros(table.shape[1]) if unmatched == "random" else table.mean(0, dtype=np.float64)
    if unmatched == "mean":
        rows[left] = mean
        return rows
    std = init_std if unmatched == "random" else table.std(0, dtype=np.float64)
    for start in range(0, len(left), _BLOCK_ROWS):
        block = left[start : start + _BLOCK_ROWS]
        rows[block] = mean + std * _normal(block, table.shape[1], seed)
    return rows


def match_bias(bias: np.ndarray, matches: Matches) -> np.ndarray:
    """The bias of every new piece in a language modelling head, from that of the old ones, floating
    [old ids]: float32 [new ids]; 0 if unmatched."""
    return _means(bias[:, None], matches)[:, 0]


def _means(table: np.ndarray, matches: Matches) -> np.ndarray:
    """Mean of each new id's old rows, float32 [new ids, hidden]; 0 where there are none."""
    sources = matches.sources
    rows = np.zeros((len(sources.lengths), table.shape[1]), np.float32)
    for nth in range(sources.lengths.max(initial=0)):
        longer = np.flatnonzero(sources.lengths > nth)
        rows[longer] += table[sources.ids[sources.starts[longer] + nth]]
    several = np.flatnonzero(sources.lengths > 1)
    rows[several] /= sources.lengths[several, None]
    return rows


def _normal(ids: np.ndarray, hidden: int, seed: int) -> np.ndarray:
    """Standard normal values [ids, hidden], each from (seed, id, column) by Box and Muller."""
    keys = hash64(ids.astype(np.uint64), combine(seed, name_hash("unmatched rows")))
    bits = hash64(np.arange(hidden, dtype=np.uint64), keys[:, None])
    radius = np.sqrt(-2 * np.log(((bits >> np.uint64(32)) + 0.5) / 2**32))
    return radius * np.cos(2 * np.pi * (bits & np.uint64(2**32 - 1)) / 2**32)
