"""One vector a sentence: the pooled hidden vectors of a layer."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import ConfigError, Model
from xlj.config.choices import POOLINGS, check_choice
from xlj.data.ragged import Ragged
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import Advance, buckets, in_flight
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.bitext import average
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import mesh_of
from xlj.sharding.trees import replicated, shard

_CHUNK = 8192  # sentences encoded at a time


class Embedder:
    """Embeds sentences.

    Args:
      pretrained: the encoder, on any mesh; each process then embeds the same sentences.
      layers: whose hidden vectors to pool, each from 0 (embeddings) to the model's last.
      pooling: one of `choices.POOLINGS`.
      batch_rows: sentences at a time, at most; None for as many as suit the device.

    Raises:
      ConfigError: if there is no such layer or pooling.

    Attributes:
      cut: sentences so far that lost their end, because the model has no positions for it.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        layers: Sequence[int],
        pooling: str,
        batch_rows: int | None = None,
    ):
        check_choice("pooling", pooling, POOLINGS)
        last = pretrained.model.layers
        wrong = [layer for layer in layers if not 0 <= layer <= last]
        if wrong:
            raise ConfigError(f"there is no layer {wrong[0]}; the model has layers 0 to {last}")
        self._pretrained, self._mesh = pretrained, mesh_of(pretrained.params)
        self._limit = pretrained.model.positions - FIRST_POSITION
        static = {"mesh": self._mesh, "model": pretrained.model, "pooling": pooling}
        self._pooled = partial(_pooled, layers=tuple(layers), **static)
        self.layers, self.width = tuple(layers), pretrained.model.hidden
        self.cut, self._batch_rows = 0, batch_rows

    def embed(self, sentences: Sequence[str], with_bar: bool | None = None) -> np.ndarray:
        """Vectors of sentences, float32 [layers, sentences, hidden], in order. A progress bar is
        shown if `with_bar`; None is for terminals only."""
        hidden = None if with_bar is None else not with_bar
        vectors, done = np.empty((len(self.layers), len(sentences), self.width), np.float32), 0
        with tqdm(total=len(sentences), desc="embedding", unit=" sentences", disable=hidden) as bar:
            for part in self.stream(sentences, bar.update):
                vectors[:, done : done + part.shape[1]] = part
                done += part.shape[1]
        return vectors

    def stream(self, sentences: Iterable[str], progress: Advance = bool) -> Iterator[np.ndarray]:
        """Vectors of any number of sentences, in order and bounded memory: arrays float32 [layers,
        some sentences, hidden]. `progress` is called with numbers of sentences as they are done."""
        rest = iter(sentences)
        while chunk := list(itertools.islice(rest, _CHUNK)):
            yield self.embed_ids(self._pretrained.vocabulary.encode(chunk), progress)

    def embed_ids(self, encoded: Ragged, progress: Advance = bool) -> np.ndarray:
        """Vectors of sentences that are encoded already, as `Vocabulary.encode` does: float32
        [layers, sentences, hidden]."""
        count = len(encoded.lengths)
        vectors = np.empty((len(self.layers), count, self.width), np.float32)
        for members, made in in_flight(self._batches(encoded)):
            vectors[:, members] = np.asarray(made)[:, : len(members)]
            progress(len(members))
        return vectors

    def _batches(self, encoded: Ragged) -> Iterator[tuple[np.ndarray, jax.Array]]:
        """Sentences by index, and their vectors [layers, rows, hidden], with rows to spare."""
        lengths = np.minimum(encoded.lengths, self._limit - 2)
        self.cut += int((lengths < encoded.lengths).sum())
        starts = encoded.starts
        batches = buckets(lengths + 2, self._limit, self._mesh.size, self._batch_rows)
        for members, width, rows in batches:
            tokens = np.full((rows, width), PAD, np.int32)
            for row, member in enumerate(members):
                start, length = starts[member], lengths[member]
                tokens[row, 0], tokens[row, length + 1] = BOS, EOS
                tokens[row, 1 : length + 1] = encoded.ids[start : start + length]
            yield members, self._pooled(self._pretrained.params, shard(tokens, self._mesh))


@partial(jax.jit, static_argnames=("mesh", "model", "layers", "pooling"))
def _pooled(
    params: encoder.Params,
    tokens: jax.Array,
    mesh: Mesh,
    model: Model,
    layers: tuple[int, ...],
    pooling: str,
) -> jax.Array:
    """[rows, length] -> float32 [layers, rows, hidden], on every device."""
    segments = (tokens != PAD).astype(jnp.int32)
    positions = jnp.arange(tokens.shape[1]) * segments
    inputs = encoder.Inputs(tokens, positions, segments, segments)
    depth = max(1, *layers)
    if layers == (depth,):
        hidden = on_mesh(mesh, partial(encoder.apply, layers=depth))(params, model, inputs)
        pooled = _pool(hidden, tokens, pooling)[None]
    else:
        apply = partial(encoder.apply, layers=depth, all_layers=True)
        every = on_mesh(mesh, apply)(params, model, inputs)
        pooled = jnp.stack([_pool(every[layer], tokens, pooling) for layer in layers])
    return jax.lax.with_sharding_constraint(pooled, replicated(mesh))


def _pool(hidden: jax.Array, tokens: jax.Array, pooling: str) -> jax.Array:
    """[rows, length, hidden] -> [rows, hidden]."""
    if pooling == "first":
        return hidden[:, 0]
    if pooling == "text":
        return average(hidden, tokens)
    real = (tokens != PAD).astype(hidden.dtype)[..., None]
    return (hidden * real).sum(1) / jnp.maximum(real.sum(1), 1)
