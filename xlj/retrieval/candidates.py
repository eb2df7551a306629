"""Approximate search with FAISS, and margins computed among the nearest candidates only.

Sources: Johnson, Douze and Jégou (2019), "Billion-scale similarity search with GPUs". Margins among
the nearest as in Artetxe and Schwenk (2019), who use FAISS too.
"""

import math
from collections.abc import Callable

import numpy as np

from xlj.config import ConfigError
from xlj.io import hashing
from xlj.retrieval.nearest import NEIGHBOURS, Nearest
from xlj.retrieval.search import LEAST_DENSITY, Neighbours, neighbours

CHUNK = 65536
"""The number of queries or keys per call of the index."""
COUNT = 16
"""The number of candidates per sentence."""

_SAMPLE = 1024  # queries for measuring recall
_TRAINED = 64  # training vectors per list of the index; FAISS warns below 39


Search = Callable[[np.ndarray], Neighbours]
"""Takes queries [n, width]; returns their nearest indexed vectors by cosine, best first."""


def approximate(keys: np.ndarray, kind: str = "", probes: int = 32) -> Search:
    """Builds a FAISS index on CPUs and returns its search function.

    Args:
      keys: float32 [n, width]; read in slices.
      kind: the index for FAISS' `index_factory`. The default is an inverted file of about 4 sqrt(n)
        lists with float16 vectors, which needs half the memory of the vectors.
      probes: the number of lists to search.

    Raises:
      ConfigError: if FAISS is not installed, or cannot build the index.
    """
    try:
        import faiss
    except ImportError:
        raise ConfigError("--search=faiss needs pip install -e '.[faiss]'") from None
    lists = min(4 * math.isqrt(len(keys)), len(keys) // _TRAINED)
    kind = kind or (f"IVF{lists},SQfp16" if lists > 1 else "Flat")
    try:
        index = faiss.index_factory(keys[:1].shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            most = max(lists * _TRAINED, 1 << 16)
            index.train(_unit(keys[np.sort(hashing.sample(most, len(keys)))]))
        for start in range(0, len(keys), CHUNK):
            index.add(_unit(keys[start : start + CHUNK]))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0][:300]
        raise ConfigError(f"--index={kind}: FAISS cannot build this index ({reason})") from None
    if hasattr(index, "nprobe"):
        index.nprobe = probes

    def search(queries: np.ndarray) -> Neighbours:
        scores, indices = index.search(_unit(queries), min(COUNT, len(keys)))
        return Neighbours(np.where(indices < 0, -np.inf, scores), np.maximum(indices, 0))

    return search


def search_chunks(search: Search, queries: np.ndarray) -> Neighbours:
    """Searches for any number of queries, one chunk at a time."""
    starts = range(0, len(queries), CHUNK)
    results = [search(queries[start : start + CHUNK]) for start in starts]
    return Neighbours(*(np.concatenate(of) for of in zip(*results, strict=True)))


def recall(search: Search, queries: np.ndarray, keys: np.ndarray) -> float:
    """Measures, for a sample of queries, the share of the four exact nearest keys that a search
    finds."""
    sampled = queries[np.sort(hashing.sample(_SAMPLE, len(queries)))]
    count = min(NEIGHBOURS, len(keys))
    best = [np.zeros((len(sampled), 0)), np.zeros((len(sampled), 0), np.int64)]
    for start in range(0, len(keys), CHUNK):  # keys may not fit in memory
        exact = neighbours(sampled, keys[start : start + CHUNK], count)
        more = exact.scores, exact.indices + start
        best = [np.concatenate(pair, 1) for pair in zip(best, more, strict=True)]
        order = np.argsort(-best[0], axis=1, kind="stable")[:, :count]
        best = [np.take_along_axis(values, order, 1) for values in best]
    is_hit = search(sampled).indices[:, :, None] == best[1][:, None]
    return float(is_hit.any(1).mean())


def by_margin(targets: Neighbours, sources: Neighbours) -> Nearest:
    """Returns the candidate of each sentence with the largest margin, in both directions.

    Args:
      targets: the candidates of each source, [sources, count].
      sources: the candidates of each target, [targets, count].
    """
    densities = [_density(candidates) for candidates in (targets, sources)]
    return Nearest(_best(targets, *densities), _best(sources, *densities[::-1]))


def _density(candidates: Neighbours) -> np.ndarray:
    nearest = candidates.scores[:, :NEIGHBOURS]
    return np.where(np.isfinite(nearest), nearest, 0).mean(1)


def _best(candidates: Neighbours, own: np.ndarray, others: np.ndarray) -> Neighbours:
    divisors = np.maximum((own[:, None] + others[candidates.indices]) / 2, LEAST_DENSITY)
    margins = candidates.scores / divisors
    best = margins.argmax(1)[:, None]
    return Neighbours(*(np.take_along_axis(of, best, 1) for of in (margins, candidates.indices)))


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.ascontiguousarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
