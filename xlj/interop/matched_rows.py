"""Initialises the embeddings and biases of a new vocabulary from rows of an old vocabulary."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from xlj.data.ragged import Ragged
from xlj.data.rows.report import align_columns
from xlj.io.hashing import combine, hash64, name_hash

RULES = ("special", "exact", "normalised", "dictionary", "accents", "place", "pieces", "none")
"""The rules by which the old rows of a new piece are chosen. `vocabulary_matching.match` and
`vocabulary_extension.initial_rows` define them."""

UNMATCHED = ("random", "mean", "sampled")
_BLOCK_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Matches:
    """The old ids from which each new id is initialised. A new row is the mean of the old rows.

    Attributes:
      sources: the old ids of each new id: none, one, or several (with the rule `pieces`).
      rules: int8 [new ids], the index in `RULES` of each new id's rule. Ids without sources have
        the rule `none`.
    """

    sources: Ragged
    rules: np.ndarray


def share_table(matches: Matches, counts: Mapping[str, np.ndarray]) -> str:
    """Returns a table with the share of each rule in percent.

    The first row counts the pieces of the vocabulary. Each further row counts the tokens of one
    language's text. Rules that apply to no piece have no column.

    Args:
      counts: for each language, how often each new id occurs in the text, int64 [new ids].
    """
    rows = {"vocabulary": np.ones(len(matches.rules), np.int64), **counts}
    used = np.unique(matches.rules)
    lines = [["", "total", *(f"{RULES[rule]} %" for rule in used)]]
    for name, n in rows.items():
        shares = [100 * n[matches.rules == rule].sum() / max(1, n.sum()) for rule in used]
        lines.append([name, f"{n.sum():,}", *(f"{share:.2f}" for share in shares)])
    return "\n".join(align_columns(lines))


def embeddings(
    table: np.ndarray, matches: Matches, unmatched: str, init_std: float, seed: int
) -> np.ndarray:
    """Computes the embedding of every new piece: float32 [new ids, hidden].

    A matched row is the mean of its old rows. The paper (MetaXLM; Chi et al., 2021) does not state
    how unmatched rows are initialised. Here `unmatched` selects one of three ways (ours). An
    unmatched row depends on the seed and its id, not on other unmatched rows.

    - `random`: N(0, init_std^2), as in a new model.
    - `mean`: the mean of all old rows.
    - `sampled`: N(mean, variance) of all old rows, separately for each column.

    Args:
      table: the old embeddings, floating [old ids, hidden].
      unmatched: one of `UNMATCHED`.
      init_std: standard deviation for `random`.
      seed: the random seed of `random` and `sampled`.

    Raises:
      ValueError: if `unmatched` is not in `UNMATCHED`.
    """
    if unmatched not in UNMATCHED:
        raise ValueError(f"unmatched={unmatched}: expected one of {', '.join(UNMATCHED)}")
    rows = _means(table, matches)
    unmatched_ids = np.flatnonzero(matches.sources.lengths == 0)
    mean = np.zeros(table.shape[1]) if unmatched == "random" else table.mean(0, dtype=np.float64)
    if unmatched == "mean":
        rows[unmatched_ids] = mean
        return rows
    std = init_std if unmatched == "random" else table.std(0, dtype=np.float64)
    for start in range(0, len(unmatched_ids), _BLOCK_ROWS):
        block = unmatched_ids[start : start + _BLOCK_ROWS]
        rows[block] = mean + std * _normal(block, table.shape[1], seed)
    return rows


def match_bias(bias: np.ndarray, matches: Matches) -> np.ndarray:
    """Computes the bias of every new piece in a head for masked tokens: float32 [new ids].

    The bias of a matched piece is the mean of its old biases. Unmatched pieces have the bias 0.

    Args:
      bias: the old biases, floating [old ids].
    """
    return _means(bias[:, None], matches)[:, 0]


def _means(table: np.ndarray, matches: Matches) -> np.ndarray:
    """Returns the mean of each new id's old rows, float32 [new ids, hidden]; zeros without old
    rows. With one old row, the new row is a copy, bit for bit (also of -0.0)."""
    sources = matches.sources
    rows = np.zeros((len(sources.lengths), table.shape[1]), np.float32)
    for nth in range(sources.lengths.max(initial=0)):
        longer = np.flatnonzero(sources.lengths > nth)
        values = table[sources.ids[sources.starts[longer] + nth]]
        rows[longer] = rows[longer] + values if nth else values  # 0.0 + -0.0 is 0.0
    several = np.flatnonzero(sources.lengths > 1)
    rows[several] /= sources.lengths[several, None]
    return rows


def _normal(ids: np.ndarray, hidden: int, seed: int) -> np.ndarray:
    """Returns pseudorandom standard normal values [ids, hidden], by the Box-Muller transform.

    Each value depends only on the seed, the id and the column.
    """
    keys = hash64(ids.astype(np.uint64), combine(seed, name_hash("unmatched rows")))
    bits = hash64(np.arange(hidden, dtype=np.uint64), keys[:, None])
    radius = np.sqrt(-2 * np.log(((bits >> np.uint64(32)) + 0.5) / 2**32))
    return radius * np.cos(2 * np.pi * (bits & np.uint64(2**32 - 1)) / 2**32)
