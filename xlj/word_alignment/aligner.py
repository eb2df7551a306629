"""Word alignment with an encoder: hidden vectors of two sentences to links between their words."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xlj.alignment import extraction
from xlj.alignment.sinkhorn import sinkhorn
from xlj.config import ConfigError, Model
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import in_flight
from xlj.models import encoder
from xlj.models.sharding import on_mesh
from xlj.training.partitioning import mesh_of, replicated, shard
from xlj.word_alignment.pair_batches import Batch, Pieces, batches, pieces_of
from xlj.word_alignment.sentence_pairs import Pair

MOST_PIECES = 8192
"""A longer sentence is refused: the matrices of a pair would take several times 256 MB."""

_CHUNK = 16_384  # sentence pairs held in memory at a time


class Aligner:
    """Aligns sentence pairs.

    Args:
      pretrained: the encoder, on any mesh; each process then aligns the same pairs.
      layers: whose hidden vectors to align, each between 0 (embeddings) and the model's last.
      method: one of `choices.METHODS`. Those of XLM-Align compare tokens by the product of their
        vectors, those of SimAlign by (cosine + 1) / 2.
      together: encode a pair as one example (XLM-Align), not each sentence alone (SimAlign).

    Attributes:
      windowed: pairs so far that were too long for the model, and were encoded in windows.
    """

    def __init__(
        self, pretrained: Pretrained, layers: Sequence[int], method: str, together: bool = True
    ):
        self._pretrained, self._mesh = pretrained, mesh_of(pretrained.params)
        self._limit = pretrained.model.positions - encoder.FIRST_POSITION
        self._layers, self._method, self._together = tuple(layers), method, together
        static = {"mesh": self._mesh, "model": pretrained.model, "method": method}
        self._align = partial(_align, layers=self._layers, **static)
        self.windowed = 0

    def align(
        self, pairs: Iterable[Pair], progress: Callable[[int], Any] = bool
    ) -> Iterator[list[np.ndarray]]:
        """The links of each pair, in order: for each layer int32 [links, 2], sorted, words from 0.

        Two words are linked if any of their pieces are. `progress` is called with numbers of pairs
        as they are aligned.

        Raises:
          ConfigError: if a sentence has more than `MOST_PIECES` pieces.
        """
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            pieces = self._pieces(chunk)
            found = [[_NO_LINKS] * len(self._layers) for _ in chunk]
            for batch, links in self._links(pieces):
                _collect(found, batch, links, pieces)
                progress(len(batch.members))
            yield from found

    def _pieces(self, chunk: list[Pair]) -> list[tuple[Pieces, Pieces]]:
        vocabulary = self._pretrained.vocabulary
        sources = pieces_of([pair.source for pair in chunk], vocabulary)
        targets = pieces_of([pair.target for pair in chunk], vocabulary)
        pieces = list(zip(sources, targets, strict=True))
        for pair, both in zip(chunk, pieces, strict=True):
            most = max(len(side.ids) for side in both)
            if most > MOST_PIECES:
                raise ConfigError(
                    f"{pair.where}: a sentence of {most} pieces; at most {MOST_PIECES} can be "
                    "aligned, so split it"
                )
        return pieces

    def _links(self, pieces: list[tuple[Pieces, Pieces]]) -> Iterator[tuple[Batch, np.ndarray]]:
        """Batches, each with its links between pieces, bool [layers, pairs, side, side]."""
        for batch, result in in_flight(self._started(pieces)):
            found = np.asarray(result)
            if self._method == "match":
                rows = batch.rows
                found = extraction.match(found, rows.source_places >= 0, rows.target_places >= 0)
            yield batch, found

    def _started(self, pieces: list[tuple[Pieces, Pieces]]) -> Iterator[tuple[Batch, jax.Array]]:
        for batch in batches(pieces, self._limit, self._together, self._mesh.size):
            self.windowed += len(batch.members) * batch.windowed
            yield batch, self._align(self._pretrained.params, shard(batch.rows, self._mesh))


_NO_LINKS = np.zeros((0, 2), np.int32)


@partial(jax.jit, static_argnames=("mesh", "model", "layers", "method"))
def _align(params: encoder.Params, rows: Any, mesh: Mesh, **static: Any) -> jax.Array:
    """Links between pieces, bool [layers, pairs, side, side]; for `match`, their similarities. On
    every device."""
    linked = on_mesh(mesh, partial(_linked, **static))(params, rows)
    return jax.lax.with_sharding_constraint(linked, replicated(mesh))


def _linked(
    params: encoder.Params, rows: Any, model: Model, layers: tuple[int, ...], method: str
) -> jax.Array:
    inputs = encoder.Inputs(
        rows.tokens, rows.positions, rows.segments, rows.segments, sides=rows.sides
    )
    depth = max(layers)
    if len(layers) == 1:
        hidden = encoder.apply(params, model, inputs, layers=depth)[None]
    else:
        every = encoder.apply(params, model, inputs, layers=depth, all_layers=True)
        hidden = every[jnp.array(layers)]
    hidden = hidden.reshape(len(layers), -1, hidden.shape[-1])
    source, target = hidden[:, rows.source_places], hidden[:, rows.target_places]
    source_ids = (rows.source_places >= 0).astype(jnp.int32)
    target_ids = (rows.target_places >= 0).astype(jnp.int32)
    if method in ("optimal_transport", "released"):
        transport = sinkhorn(_products(source, target), source_ids, target_ids)
        if method == "released":
            return extraction.released(transport)
        return extraction.itermax(transport.plan, source_ids, target_ids)
    similarity = (1 + _products(_unit(source), _unit(target))) / 2
    if method == "match":
        return similarity
    extract = {"argmax": extraction.argmax, "itermax": extraction.itermax}[method]
    return extract(similarity, source_ids, target_ids)


def _products(source: jax.Array, target: jax.Array) -> jax.Array:
    """[..., m, hidden] and [..., n, hidden] -> float32 [..., m, n], exact on every backend."""
    return jnp.einsum("...mh,...nh->...mn", source, target, precision=jax.lax.Precision.HIGHEST)


def _unit(vectors: jax.Array) -> jax.Array:
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _collect(
    found: list[list[np.ndarray]],
    batch: Batch,
    links: np.ndarray,
    pieces: list[tuple[Pieces, Pieces]],
) -> None:
    """Puts a batch's links between pieces into `found`, as links between words."""
    layer, place, *ends = np.nonzero(links)
    words = []
    for side, end in enumerate(ends):
        table = np.zeros((links.shape[1], links.shape[2]), np.int64)
        for k, member in enumerate(batch.members):
            mine = pieces[member][side].words
            table[k, : len(mine)] = mine
        words.append(table[place, end])
    owner = layer * links.shape[1] + place
    # One number a link, in the order that links are written: 24 bits for each word.
    distinct = np.unique(owner << 48 | words[0] << 24 | words[1])
    pairs = np.stack([distinct >> 24 & 0xFFFFFF, distinct & 0xFFFFFF], 1).astype(np.int32)
    bounds = np.searchsorted(distinct >> 48, np.arange(links.shape[0] * links.shape[1] + 1))
    for layer_index in range(links.shape[0]):
        for k, member in enumerate(batch.members):
            at = layer_index * links.shape[1] + k
            found[member][layer_index] = pairs[bounds[at] : bounds[at + 1]]
