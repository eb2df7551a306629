"""Links from given vectors: word alignment without its encoder."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from xlj.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.benchmarking.peers import library
from xlj.config import Config, Model
from xlj.word_alignment.methods import METHODS, Side

_PAIRS, _SIDE = 256, 64

THEIRS = {"argmax": "inter", "itermax": "itermax"}
"""SimAlign's names of xlj's methods."""


def each_method(config: Config, size: Size) -> Iterator[Measurement]:
    """Pairs of sentences of 10 to 60 words, with vectors of the model's width."""
    vectors, lengths = random_vectors(config.model.hidden, _PAIRS)
    for method in ("optimal_transport", "released", "argmax", "itermax"):
        rate = _PAIRS / median_seconds(ours(method, vectors, lengths), size.repeats)
        theirs = None
        if method in THEIRS and library("simalign"):
            call = partial(simaligns, vectors, lengths, THEIRS[method])
            theirs = _PAIRS / median_seconds(call, size.repeats)
        yield Measurement("links", method, rate, "pairs/s", "SimAlign", theirs)


def random_vectors(width: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Both sides' vectors, float32 [2, pairs, side, width], and how many of them each sentence has,
    int [2, pairs]."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(10, 61, (2, pairs))
    return rng.standard_normal((2, pairs, _SIDE, width), np.float32), lengths


def ours(method: str, vectors: np.ndarray, lengths: np.ndarray) -> Callable[[], jax.Array]:
    """A call that finds all links, bool [pairs, side, side]."""
    there = (np.arange(_SIDE) < lengths[..., None]).astype(np.int32)
    both = zip(vectors, there, there, strict=True)
    sides = (Side(*map(jnp.asarray, arrays)) for arrays in both)
    align = partial(METHODS[method].align, {}, Model())
    return partial(jax.jit(lambda source, target: align(source, target, 0.0).links), *sides)


def simaligns(vectors: np.ndarray, lengths: np.ndarray, method: str) -> list[np.ndarray]:
    """What SimAlign finds in a pair's vectors, one pair after the other."""
    from simalign import SentenceAligner

    found = []
    for source, target, m, n in zip(*vectors, *lengths, strict=True):
        similarity = SentenceAligner.get_similarity(source[:m], target[:n])
        forward, reverse = SentenceAligner.get_alignment_matrix(similarity)
        if method == "itermax":
            found.append(SentenceAligner.iter_max(similarity))
        else:
            found.append(forward * reverse)
    return found
