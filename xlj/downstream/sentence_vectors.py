"""One vector a sentence: the pooled hidden vectors of a layer."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from xlj.config import ConfigError, Model
from xlj.data.layout import BOS, EOS, PAD
from xlj.downstream.pretrained import Pretrained, first_layers
from xlj.models import encoder
from xlj.objectives.bitext import average

POOLINGS = ("mean", "text", "first")
"""The mean over all of a sentence's tokens, `<s>` and `</s>` too (XTREME's script,
sentence-transformers); over the text's own (what XLCO and fine-tuning for retrieval compare); or
the vector of `<s>`."""

_CHUNK = 8192  # sentences encoded at a time
_BATCH_TOKENS = 8192
_IN_FLIGHT = 2  # batches on the device while the host makes the next


class Embedder:
    """Embeds sentences.

    Args:
      pretrained: the encoder.
      layers: whose hidden vectors to pool, each from 0 (embeddings) to the model's last.
      pooling: one of POOLINGS.

    Attributes:
      layers: as given.
      width: of the vectors, the model's hidden size.
      cut: sentences so far that lost their end, because the model has no positions for it.
    """

    def __init__(self, pretrained: Pretrained, layers: Sequence[int], pooling: str):
        last = pretrained.model.layers
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            raise ConfigError(f"there is no layer {wrong[0]}; the model has layers 0 to {last}")
        self._pretrained = first_layers(pretrained, max(1, *layers))
        self._limit = pretrained.model.positions - encoder.FIRST_POSITION
        self._pooling = pooling
        self.layers, self.width = tuple(layers), pretrained.model.hidden
        self.cut = 0

    def embed(self, sentences: Sequence[str]) -> np.ndarray:
        """Vectors of sentences, float32 [layers, sentences, hidden], in order."""
        vectors, done = np.empty((len(self.layers), len(sentences), self.width), np.float32), 0
        with tqdm(total=len(sentences), desc="embedding", unit=" sentences", disable=None) as bar:
            for part in self.stream(sentences, bar.update):
                vectors[:, done : done + part.shape[1]] = part
                done += part.shape[1]
        return vectors

    def stream(
        self, sentences: Iterable[str], progress: Callable[[int], Any] = bool
    ) -> Iterator[np.ndarray]:
        """Vectors of any number of sentences, in order and bounded memory: arrays float32 [layers,
        some sentences, hidden].

        Args:
          progress: called with numbers of sentences as they are done.
        """
        rest = iter(sentences)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            vectors = np.empty((len(self.layers), len(chunk), self.width), np.float32)
            for members, made in _ahead(self._batches(chunk)):
                vectors[:, members] = np.asarray(made)[:, : len(members)]
                progress(len(members))
            yield vectors

    def _batches(self, sentences: Sequence[str]) -> Iterator[tuple[np.ndarray, jax.Array]]:
        """Sentences by index, and their vectors [layers, rows, hidden], with rows to spare."""
        encoded = self._pretrained.vocabulary.encode(sentences)
        lengths = np.minimum(encoded.lengths, self._limit - 2)
        self.cut += int((lengths < encoded.lengths).sum())
        for members, width in _buckets(lengths + 2, self._limit):
            tokens = np.full((max(1, _BATCH_TOKENS // width), width), PAD, np.int32)
            for row, member in enumerate(members):
                start, length = encoded.starts[member], lengths[member]
                tokens[row, 0], tokens[row, length + 1] = BOS, EOS
                tokens[row, 1 : length + 1] = encoded.ids[start : start + length]
            yield (
                members,
                _pooled(
                    self._pretrained.params,
                    tokens,
                    model=self._pretrained.model,
                    layers=self.layers,
                    pooling=self._pooling,
                ),
            )


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    flying: collections.deque[Any] = collections.deque()
    for batch in batches:
        flying.append(batch)
        if len(flying) > _IN_FLIGHT:
            yield flying.popleft()
    yield from flying


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
    if layers == (model.layers,):  # the model ends with it
        return _pool(encoder.apply(params, model, inputs), tokens, pooling)[None]
    every = encoder.apply(params, model, inputs, all_layers=True)
    return jnp.stack([_pool(every[layer], tokens, pooling) for layer in layers])


def _pool(hidden: jax.Array, tokens: jax.Array, pooling: str) -> jax.Array:
    """[rows, length, hidden] -> [rows, hidden]."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "text":
        return average(hidden, tokens)
    real = (tokens != PAD).astype(hidden.dtype)[..., None]
    return (hidden * real).sum(1) / jnp.maximum(real.sum(1), 1)
