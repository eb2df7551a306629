"""Mines bitext: finds pairs of sentences in two texts that are translations, as in BUCC.

`evaluation.metrics` computes F1 of mined pairs and the best threshold. Source: Artetxe and
Schwenk (2019), "Margin-based parallel corpus mining", with the ratio margin and the strategy "max.
score".

With FAISS, the search is approximate, and margins are computed among the nearest candidates only.
Sources: Johnson, Douze and Jégou (2019), "Billion-scale similarity search with GPUs"; Artetxe and
Schwenk (2019), who also compute margins among the nearest neighbours that FAISS finds.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xlj.config import ConfigError
from xlj.io import atomic, hashing
from xlj.retrieval.search import NEIGHBOURS, Nearest, Neighbours, nearest, neighbours


class PairIndices(NamedTuple):
    """Mined pairs, best first. Each sentence is in at most one pair.

    Attributes:
      sources: int64 [pairs], indices of source sentences.
      targets: int64 [pairs], indices of target sentences.
      scores: float64 [pairs], margins, in descending order.
    """

    sources: np.ndarray
    targets: np.ndarray
    scores: np.ndarray


def mine(source: np.ndarray, target: np.ndarray) -> PairIndices:
    """Mines pairs: searches exactly, then selects pairs (`select_pairs`).

    Args:
      source, target: the vectors of distinct sentences, [n, hidden] and [m, hidden].
    """
    return select_pairs(nearest(source, target, "margin"))


def select_pairs(best: Nearest) -> PairIndices:
    """Selects pairs by margin, best first.

    A pair is skipped if an earlier selected pair contains one of its sentences.

    Args:
      best: for each sentence, the partner with the highest margin, in both directions.
    """
    sizes = len(best.targets.indices), len(best.sources.indices)
    sources = np.concatenate([np.arange(sizes[0]), best.sources.indices[:, 0]])
    targets = np.concatenate([best.targets.indices[:, 0], np.arange(sizes[1])])
    scores = np.concatenate([best.targets.scores[:, 0], best.sources.scores[:, 0]])
    selected, is_used = [], (np.zeros(sizes[0], bool), np.zeros(sizes[1], bool))
    for pair in np.argsort(-scores, kind="stable"):
        i, j = sources[pair], targets[pair]
        if not (is_used[0][i] or is_used[1][j]):
            is_used[0][i] = is_used[1][j] = True
            selected.append(pair)
    return PairIndices(sources[selected], targets[selected], scores[selected].astype(np.float64))


def first_occurrences(texts: Sequence[str]) -> list[int]:
    """Returns the index of the first occurrence of each distinct sentence.

    Mining needs distinct sentences, because copies of a sentence would compete for partners, and
    could take several places among the nearest neighbours of another sentence.
    """
    first: dict[str, int] = {}
    for place, text in enumerate(texts):
        first.setdefault(text, place)
    return list(first.values())


def write(path: Path, pairs: Sequence[tuple[str, str]], scores: Sequence[float] | None) -> None:
    """Writes a line `source TAB target` for each pair.

    Args:
      scores: the scores of the pairs for a third column; None for two columns.
    """
    with atomic.writing(path) as file:
        for k, pair in enumerate(pairs):
            columns = pair if scores is None else (*pair, f"{scores[k]:.6f}")
            file.write(("\t".join(columns) + "\n").encode())


CHUNK = 65536
"""The number of queries or keys in each call of the index."""
COUNT = 16
"""The number of candidates for each sentence in mining."""

_SAMPLE = 1024  # the maximum number of queries for which recall is measured
_TRAINING_VECTORS = 64  # training vectors for each list of the index; FAISS warns below 39


Search = Callable[[np.ndarray], Neighbours]
"""Takes queries [n, width]. Returns the cosines and indices of the most similar keys of each query,
best first."""


def build_search(keys: np.ndarray, kind: str = "", probes: int = 32, count: int = COUNT) -> Search:
    """Builds a FAISS index of vectors on the CPU, and returns the function that searches the index.

    Args:
      keys: float32 [n, width], read in slices.
      kind: the description of the index for FAISS' `index_factory`. If empty, the index is an
        inverted file of float16 vectors, which needs half the memory of `keys`. It has 4 sqrt(n)
        lists, but at least 64 vectors per list. Below 128 keys, the search is exact.
      probes: the number of lists to search for each query, if the index has lists.
      count: the number of keys to find for each query; all keys if there are fewer.

    Raises:
      ConfigError: if FAISS is not installed, or cannot build the index.
    """
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            "--search=faiss: FAISS is not installed; install it with pip install -e '.[faiss]'"
        ) from None
    lists = min(4 * math.isqrt(len(keys)), len(keys) // _TRAINING_VECTORS)
    kind = kind or (f"IVF{lists},SQfp16" if lists > 1 else "Flat")
    try:
        index = faiss.index_factory(keys[:1].shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            sample_size = max(lists * _TRAINING_VECTORS, 1 << 16)
            index.train(_unit(keys[np.sort(hashing.sample(sample_size, len(keys)))]))
        for start in range(0, len(keys), CHUNK):
            index.add(_unit(keys[start : start + CHUNK]))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:300]
        raise ConfigError(f"--index={kind}: FAISS cannot build this index ({reason})") from None
    if hasattr(index, "nprobe"):
        index.nprobe = probes

    def search(queries: np.ndarray) -> Neighbours:
        scores, indices = index.search(_unit(queries), min(count, len(keys)))
        return Neighbours(np.where(indices < 0, -np.inf, scores), np.maximum(indices, 0))

    return search


def search_chunks(search: Search, queries: np.ndarray) -> Neighbours:
    """Searches for all queries, in chunks of `CHUNK` queries."""
    starts = range(0, len(queries), CHUNK)
    results = [search(queries[start : start + CHUNK]) for start in starts]
    return Neighbours(*(np.concatenate(values) for values in zip(*results, strict=True)))


def recall(search: Search, queries: np.ndarray, keys: np.ndarray) -> float:
    """Measures the recall of a search for a sample of queries.

    An exact search finds the `NEIGHBOURS` nearest keys of each query. Recall is the share of these
    keys that `search` returns too.
    """
    sampled = queries[np.sort(hashing.sample(_SAMPLE, len(queries)))]
    count = min(NEIGHBOURS, len(keys))
    best = [np.zeros((len(sampled), 0)), np.zeros((len(sampled), 0), np.int64)]
    for start in range(0, len(keys), CHUNK):  # keys may not fit in memory
        exact = neighbours(sampled, keys[start : start + CHUNK], count)
        chunk_best = exact.scores, exact.indices + start
        best = [np.concatenate(pair, 1) for pair in zip(best, chunk_best, strict=True)]
        order = np.argsort(-best[0], axis=1, kind="stable")[:, :count]
        best = [np.take_along_axis(values, order, 1) for values in best]
    is_hit = search(sampled).indices[:, :, None] == best[1][:, None]
    return float(is_hit.any(1).mean())


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.ascontiguousarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
