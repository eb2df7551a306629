"""Measures the speed of inference from text: word alignment, compared with SimAlign, and sentence
vectors, compared with sentence-transformers.

Word links are also computed from random vectors, without an encoder.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Config, Model
from xlj.config.choices import AlignmentOptions
from xlj.inference.pretrained import Pretrained
from xlj.interop import sentence_modules, to_hugging_face
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.retrieval.embedder import Embedder
from xlj.sharding.meshes import one_device
from xlj.sharding.trees import named_leaves, replicated
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.tools.benchmarking.peers import library, quiet, torch_device
from xlj.tools.benchmarking.rows import sentence_pairs, vocabulary
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.methods import METHODS, Side
from xlj.word_alignment.sentence_pairs import Pair

_PAIRS = 256
_PEER_PAIRS = 32
"""The number of pairs for SimAlign. It can be small, because SimAlign aligns one pair at a time."""


def align(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures word alignment of sentence pairs with vectors of the layer at two thirds of the
    depth.

    The two sentences of a pair are encoded separately, as in SimAlign.
    """
    pretrained, pairs = _encoder(_xlm_r_model(config)), sentence_pairs(_PAIRS)
    layer = encoder.middle_layer(pretrained.model.layers)
    words = [Pair(f"{n}", a.split(), b.split()) for n, (a, b) in enumerate(pairs)]
    peer_rate = None
    if simalign := library("simalign"):
        with quiet(), _folder(pretrained) as folder:
            peer = simalign.SentenceAligner(
                str(folder), matching_methods="i", device=torch_device(), layer=layer
            )

        def align_with_simalign() -> None:
            for a, b in pairs[:_PEER_PAIRS]:
                peer.get_word_aligns(a, b)

        peer_rate = _PEER_PAIRS / median_seconds(align_with_simalign, size.repeats)
    aligner = Aligner(pretrained, AlignmentOptions("itermax", "apart", layer))
    seconds = median_seconds(lambda: list(aligner.align(words)), size.repeats)
    yield Measurement(
        "align", "itermax", _PAIRS / seconds, "pairs/s", "SimAlign", peer_rate, "float32"
    )


def embed(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures embedding of sentences: the mean of the last layer's vectors."""
    pretrained = _encoder(_xlm_r_model(config))
    sentences = [side for pair in sentence_pairs(_PAIRS) for side in pair]
    embedder = Embedder(pretrained, [pretrained.model.layers], "mean")
    peer_rate = None
    if library("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        with quiet(), _folder(pretrained) as folder:
            peer = SentenceTransformer(str(folder), device=torch_device())
        vectors = peer.encode(sentences[:8])
        np.testing.assert_allclose(vectors, embedder.embed(sentences[:8])[0], atol=1e-3)
        peer_rate = len(sentences) / median_seconds(lambda: peer.encode(sentences), size.repeats)
    with quiet():
        seconds = median_seconds(lambda: embedder.embed(sentences), size.repeats)
    rate, peer_name = len(sentences) / seconds, "sentence-transformers"
    yield Measurement("embed", "mean", rate, "sentences/s", peer_name, peer_rate, "float32")


def _xlm_r_model(config: Config) -> Model:
    """Returns XLM-R with the sizes of the config, in float32 like the other libraries."""
    sizes = ("layers", "hidden", "heads", "intermediate", "positions", "attention")
    return Model(**{name: getattr(config.model, name) for name in sizes})


@cache
def _encoder(model: Model) -> Pretrained:
    """Returns an encoder with random weights."""
    pieces = vocabulary()
    draw = jax.jit(
        lambda: encoder.init(jax.random.key(0), model, pieces.size, 1),
        out_shardings=replicated(one_device()),
    )
    return Pretrained(draw(), model, pieces)


@contextlib.contextmanager
def _folder(pretrained: Pretrained) -> Iterator[Path]:
    """Context manager that exports an encoder to a temporary folder, from which other libraries
    load it."""
    leaves, model, pieces = named_leaves(pretrained.params), pretrained.model, pretrained.vocabulary
    exported = to_hugging_face.plan(leaves, model, pieces, headless=True)
    with tempfile.TemporaryDirectory() as folder:
        to_hugging_face.write(Path(folder), exported, leaves, model, pieces)
        modules = sentence_modules.pooling_only(model.positions - FIRST_POSITION, "mean")
        sentence_modules.write(Path(folder), modules, {}, model.hidden)
        yield Path(folder)


_LINK_PAIRS, _SIDE = 256, 64

SIMALIGN_NAMES = {"argmax": "inter", "itermax": "itermax"}
"""Methods of xlj that SimAlign has too, with SimAlign's names."""


def measure_links(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures four methods of word alignment on sentence pairs with 10 to 60 words per sentence.

    The vectors have the model's hidden size.
    """
    vectors, lengths = random_vectors(config.model.hidden, _LINK_PAIRS)
    for method in ("optimal_transport", "released", "argmax", "itermax"):
        rate = _LINK_PAIRS / median_seconds(xlj_call(method, vectors, lengths), size.repeats)
        peer_rate = None
        if method in SIMALIGN_NAMES and library("simalign"):
            call = partial(simalign_links, vectors, lengths, SIMALIGN_NAMES[method])
            peer_rate = _LINK_PAIRS / median_seconds(call, size.repeats)
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
