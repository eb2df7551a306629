"""Mining among candidates: the nearest of each sentence by cosine, exactly or by FAISS, and margins
of these alone. The search divides over chunks of sentences, and so over hosts.

Johnson, Douze and Jégou (2019), "Billion-scale similarity search with GPUs"; margins among the
nearest as in Artetxe and Schwenk (2019), whose search is FAISS's too.
"""

import math
from collections.abc import Callable

import numpy as np

from xlj.config import ConfigError
from xlj.io import hashing
from xlj.retrieval.nearest import NEIGHBOURS, Nearest
from xlj.retrieval.search import LEAST_DENSITY, Neighbours, neighbours

CHUNK = 65536
"""Sentences whose nearest are looked for at a time."""
COUNT = 16
"""Candidates of each sentence."""

_SAMPLE = 1024  # sentences that recall is measured with
_TRAINED = 64  # vectors that a list of the index is trained with; FAISS warns below 39


Search = Callable[[np.ndarray], Neighbours]
"""The nearest of some queries [n, width] among what was indexed, by cosine, best first."""


def approximate(keys: np.ndarray, kind: str = "", probes: int = 32) -> Search:
    """The search of an index of FAISS, on CPUs.

    Args:
      keys: float32 [n, width], of which slices are read.
      kind: as its `index_factory` takes it. By itself, an inverted file of about 4 sqrt(n) lists
        that holds float16: half the memory of the vectors.
      probes: how many lists are looked through.

    Raises:
      ConfigError: if FAISS is not installed, or does not take the index.
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
        raise ConfigError(f"--index={kind}: FAISS does not make it ({reason})") from None
    if hasattr(index, "nprobe"):
        index.nprobe = probes

    def search(queries: np.ndarray) -> Neighbours:
        scores, indices = index.search(_unit(queries), min(COUNT, len(keys)))
        return Neighbours(np.where(indices < 0, -np.inf, scores), np.maximum(indices, 0))

    return search


def searched(search: Search, queries: np.ndarray) -> Neighbours:
    """The nearest of any number of queries, a chunk at a time."""
    starts = range(0, len(queries), CHUNK)
    found = [search(queries[start : start + CHUNK]) for start in starts]
    return Neighbours(*(np.concatenate(of) for of in zip(*found, strict=True)))


def recall(search: Search, queries: np.ndarray, keys: np.ndarray) -> float:
    """The share of the four nearest, exactly, that a search finds too, of a sample of queries."""
    sampled = queries[np.sort(hashing.sample(_SAMPLE, len(queries)))]
    count = min(NEIGHBOURS, len(keys))
    best = [np.zeros((len(sampled), 0)), np.zeros((len(sampled), 0), np.int64)]
    for start in range(0, len(keys), CHUNK):  # any number of keys
        found = neighbours(sampled, keys[start : start + CHUNK], count)
        more = found.scores, found.indices + start
        best = [np.concatenate(pair, 1) for pair in zip(best, more, strict=True)]
        order = np.argsort(-best[0], axis=1, kind="stable")[:, :count]
        best = [np.take_along_axis(values, order, 1) for values in best]
    found_too = search(sampled).indices[:, :, None] == best[1][:, None]
    return float(found_too.any(1).mean())


def by_margin(targets: Neighbours, sources: Neighbours) -> Nearest:
    """The best partner of each sentence by margin, of its candidates by cosine; in both directions.

    Args:
      targets: of each source, [sources, count].
      sources: of each target, [targets, count].
    """
    dense = [_density(found) for found in (targets, sources)]
    return Nearest(_best(targets, *dense), _best(sources, *dense[::-1]))


def _density(found: Neighbours) -> np.ndarray:
    nearest = found.scores[:, :NEIGHBOURS]
    return np.where(np.isfinite(nearest), nearest, 0).mean(1)


def _best(found: Neighbours, own: np.ndarray, others: np.ndarray) -> Neighbours:
    divisors = np.maximum((own[:, None] + others[found.indices]) / 2, LEAST_DENSITY)
    margins = found.scores / divisors
    best = margins.argmax(1)[:, None]
    return Neighbours(*(np.take_along_axis(of, best, 1) for of in (margins, found.indices)))


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.ascontiguousarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
