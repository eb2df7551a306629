"""One vector a sentence: the pooled hidden vectors of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.config import ConfigError, Model
from xlj.data.layout import BOS, EOS, PAD
from xlj.downstream.pretrained import Pretrained, first_layers
from xlj.models import encoder
from xlj.objectives.bitext import average

POOLINGS = ("mean", "first")
"""The mean over the sentence's own tokens, or the vector of `<s>`."""

_BATCH_TOKENS = 8192


class Embedder:
    """Embeds sentences.

    Args:
      pretrained: the encoder.
      layers: whose hidden vectors to pool, each from 0 (embeddings) to the model's last.
      pooling: one of POOLINGS.

    Attributes:
      cut: sentences so far that lost their end, because the model has no positions for it.
    """

    def __init__(self, pretrained: Pretrained, layers: Sequence[int], pooling: str = "mean"):
        last = pretrained.model.layers
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            raise ConfigError(f"there is no layer {wrong[0]}; the model has layers 0 to {last}")
        self._pretrained = first_layers(pretrained, max(1, *layers))
        self._limit = pretrained.model.positions - encoder.FIRST_POSITION
        self._layers, self._pooling = tuple(layers), pooling
        self.cut = 0

    def embed(self, sentences: Sequence[str]) -> np.ndarray:
        """Vectors of sentences, float32 [layers, sentences, hidden], in order."""
        encoded = self._pretrained.vocabulary.encode(sentences)
        lengths = np.minimum(encoded.lengths, self._limit - 2)
        self.cut += int((lengths < encoded.lengths).sum())
        vectors = np.zeros(
            (len(self._layers), len(sentences), self._pretrained.model.hidden), np.float32
        )
        bar = tqdm(total=len(sentences), desc="embedding", unit=" sentences", disable=None)
        for members, width in _buckets(lengths + 2, self._limit):
            tokens = np.full((max(1, _BATCH_TOKENS // width), width), PAD, np.int32)
            for row, member in enumerate(members):
                start, length = encoded.starts[member], lengths[member]
                tokens[row, 0], tokens[row, length + 1] = BOS, EOS
                tokens[row, 1 : length + 1] = encoded.ids[start : start + length]
            made = _pooled(
                self._pretrained.params,
                tokens,
                model=self._pretrained.model,
                layers=self._layers,
                pooling=self._pooling,
            )
            vectors[:, members] = np.asarray(made)[:, : len(members)]
            bar.update(len(members))
        bar.close()
        return vectors


def _buckets(sizes: np.ndarray, limit: int) -> Iterator[tuple[np.ndarray, int]]:
    """Sentences of similar length, by index, and the width of their rows: few shapes in all."""
    widths = np.minimum(2 ** np.ceil(np.log2(np.maximum(sizes, 8))).astype(int), limit)
    for width in np.unique(widths):
        members = np.flatnonzero(widths == width)
        rows = max(1, _BATCH_TOKENS // int(width))
        for start in range(0, len(members), rows):
            yield members[start : start + rows], int(width)


@partial(jax.jit, static_argnames=("model", "layers", "pooling"))
def _pooled(
    params: encoder.Params,
    tokens: jax.Array,
    model: Model,
    layers: tuple[int, ...],
    pooling: str,
) -> jax.Array:
    segments = (tokens != PAD).astype(jnp.int32)
    positions = jnp.arange(tokens.shape[1]) * segments
    inputs = encoder.Inputs(tokens, positions, segments, segments)
    every = encoder.apply(params, model, inputs, all_layers=True)
    pool = partial(average, tokens=tokens) if pooling == "mean" else lambda hidden: hidden[:, 0]
    return jnp.stack([pool(every[layer]) for layer in layers])
