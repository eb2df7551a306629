"""Measures the computation of word links from random vectors, without an encoder."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Config, Model
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.tools.benchmarking.peers import library
from xlj.word_alignment.methods import METHODS, Side

_PAIRS, _SIDE = 256, 64

SIMALIGN_NAMES = {"argmax": "inter", "itermax": "itermax"}
"""Methods of xlj that SimAlign has too, with SimAlign's names."""


def measure_links(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures four methods of word alignment on sentence pairs with 10 to 60 words per sentence.

    The vectors have the model's hidden size.
    """
    vectors, lengths = random_vectors(config.model.hidden, _PAIRS)
    for method in ("optimal_transport", "released", "argmax", "itermax"):
        rate = _PAIRS / median_seconds(xlj_call(method, vectors, lengths), size.repeats)
        peer_rate = None
        if method in SIMALIGN_NAMES and library("simalign"):
            call = partial(simalign_links, vectors, lengths, SIMALIGN_NAMES[method])
            peer_rate = _PAIRS / median_seconds(call, size.repeats)
        yield Measurement("links", method, rate, "pairs/s", "SimAlign", peer_rate)


def random_vectors(width: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns random vectors of the words of sentence pairs, and the lengths of the sentences.

    Args:
      width: the size of a vector.
      pairs: the number of sentence pairs.

    Returns:
      The vectors, float32 [2, pairs, 64, width], where the first axis is (source, target) and
      sentences are padded to 64 words. The lengths in words, int [2, pairs].
    """
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 61, (2, pairs))
    return rng.standard_normal((2, pairs, _SIDE, width), np.float32), lengths


def xlj_call(method: str, vectors: np.ndarray, lengths: np.ndarray) -> Callable[[], jax.Array]:
    """Returns a function that computes the links of all pairs, bool [pairs, 64, 64].

    Args:
      method: a key of `METHODS`.
      vectors, lengths: from `random_vectors`.
    """
    ids = (np.arange(_SIDE) < lengths[..., None]).astype(np.int32)
    both = zip(vectors, ids, ids, strict=True)
    sides = (Side(*map(jnp.asarray, arrays)) for arrays in both)
    align = partial(METHODS[method].align, {}, Model())
    return partial(jax.jit(lambda source, target: align(source, target, 0.0).links), *sides)


def simalign_links(vectors: np.ndarray, lengths: np.ndarray, method: str) -> list[np.ndarray]:
    """Computes the links of all pairs with SimAlign, one pair at a time.

    Args:
      vectors, lengths: from `random_vectors`.
      method: a value of `SIMALIGN_NAMES`.
    """
    from simalign import SentenceAligner

    links = []
    for source, target, m, n in zip(*vectors, *lengths, strict=True):
        similarity = SentenceAligner.get_similarity(source[:m], target[:n])
        forward, reverse = SentenceAligner.get_alignment_matrix(similarity)
        if method == "itermax":
            links.append(SentenceAligner.iter_max(similarity))
        else:
            links.append(forward * reverse)
    return links
