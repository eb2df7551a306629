"""Measures the speed of inference from text: word alignment, compared with SimAlign, and sentence
vectors, compared with sentence-transformers."""

import contextlib
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jax
import numpy as np

from xlj.config import Config, Model
from xlj.config.choices import AlignmentOptions
from xlj.inference.pretrained import Pretrained
from xlj.interop import sentence_modules, to_hugging_face
from xlj.models import encoder
from xlj.retrieval.embedder import Embedder
from xlj.sharding.meshes import one_device
from xlj.sharding.trees import named_leaves, replicated
from xlj.tools.benchmarking.measurements import Measurement, Size, median_seconds
from xlj.tools.benchmarking.peers import library, quiet, torch_device
from xlj.tools.benchmarking.sentences import sentence_pairs, vocabulary
from xlj.word_alignment.aligner import Aligner
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
        modules = sentence_modules.pooling_only(model, "mean")
        sentence_modules.write(Path(folder), modules, {}, model.hidden)
        yield Path(folder)
