"""Word alignment with an encoder: hidden vectors of two sentences to links between their words."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xlj.config import ConfigError, Model
from xlj.config.choices import AlignmentOptions
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import Advance, in_flight
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK, mesh_of
from xlj.sharding.trees import replicated, shard
from xlj.word_alignment import methods
from xlj.word_alignment.methods import Method, Side
from xlj.word_alignment.pair_batches import Batch, Pieces, Rows, batches, pieces_of
from xlj.word_alignment.sentence_pairs import Pair

MOST_PIECES = 8192
"""A longer sentence is refused: the matrices of a pair would take several times 256 MB."""

_CHUNK = 16_384  # sentence pairs held in memory at a time


class Aligned(NamedTuple):
    """Of a sentence pair, at one layer."""

    links: np.ndarray  # int32 [links, 2], sorted, words from 0
    confidences: np.ndarray  # float32 [links], of each link, between 0 and 1


class Aligner:
    """Aligns sentence pairs.

    Args:
      pretrained: the encoder, on any mesh; each process then aligns the same pairs.
      options: how pairs are encoded, and their pieces linked.
      layers: whose hidden vectors to align, each between 0 (embeddings) and the model's last; by
        default that of the options.
      threshold: links of a lower confidence are left out.

    Raises:
      ConfigError: if there is no such method, or the model does not have what it needs.

    Attributes:
      windowed: pairs so far that were too long for the model, and were encoded in windows.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        options: AlignmentOptions,
        layers: Sequence[int] = (),
        threshold: float = 0.0,
    ):
        self._pretrained, self._mesh = pretrained, mesh_of(pretrained.params)
        model = pretrained.model
        self._limit = model.positions - FIRST_POSITION
        self._layers = tuple(layers) or (encoder.layer_or_middle(options.layer, model.layers),)
        self._method = methods.named(options.method, pretrained.params)
        self._together, self._threshold = options.encode == "together", threshold
        static = {"mesh": self._mesh, "model": model, "prior": options.prior}
        self._align = partial(_align, layers=self._layers, method=self._method, **static)
        self.windowed = 0

    def align(self, pairs: Iterable[Pair], progress: Advance = bool) -> Iterator[list[np.ndarray]]:
        """The links of each pair, in order: for each layer int32 [links, 2], sorted, words from 0.

        Two words are linked if any of their pieces are. `progress` is called with numbers of pairs
        as they are aligned.

        Raises:
          ConfigError: if a sentence has more than `MOST_PIECES` pieces.
        """
        what = "confidences" if self._threshold else "links"
        for _, found in self._found(pairs, what, progress):
            yield [aligned.links for aligned in found]

    def scored(
        self, pairs: Iterable[Pair], progress: Advance = bool, of_pieces: bool = False
    ) -> Iterator[list[Aligned]]:
        """The links of each pair as `align` gives them, or those of its pieces, from 0, with their
        confidences, for each layer.

        The confidence of a link between pieces is its entry in the soft alignment
        (`methods`), that of a link between words the highest of its pieces'.
        """
        for _, found in self._found(pairs, "confidences", progress, of_pieces):
            yield found

    def soft(self, pairs: Iterable[Pair], progress: Advance = bool) -> Iterator[np.ndarray]:
        """The soft alignment of each pair, in order: float32 [layers, source words, target words],
        the highest of the words' pieces (`methods`); 0 of a word without any piece."""
        for pair, found in self._found(pairs, "soft", progress):
            matrices = np.zeros((len(found), len(pair.source), len(pair.target)), np.float32)
            for matrix, (ends, values) in zip(matrices, found, strict=True):
                matrix[tuple(ends.T)] = values
            yield matrices

    def likelihoods(self, pairs: Iterable[Pair], progress: Advance = bool) -> Iterator[float]:
        """How well each pair's sentences are generated from each other, in order, at the first
        layer: `methods.likelihoods`; NaN of a pair of which a sentence is empty.

        Raises:
          ConfigError: as `align`.
        """
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            found = np.full(len(chunk), np.nan)
            started = self._started(self._pieces(chunk, False), "likelihood")
            for batch, values in in_flight(started):
                found[batch.members] = np.asarray(values)[0, : len(batch.members)]
                progress(len(batch.members))
            yield from found.tolist()

    def _found(
        self, pairs: Iterable[Pair], what: str, progress: Advance, of_pieces: bool = False
    ) -> Iterator[tuple[Pair, list[Aligned]]]:
        """Each pair with what is asked for of it: its links, these with their confidences, or all
        pairs of words with their values ('soft')."""
        pairs = iter(pairs)
        held = max(_CHUNK // 16, 1) if what == "soft" else _CHUNK
        while chunk := list(itertools.islice(pairs, held)):
            pieces = self._pieces(chunk, of_pieces)
            found = [[_NOTHING] * len(self._layers) for _ in chunk]
            for batch, values in self._values(pieces, what):
                _collect(found, batch, values, pieces)
                progress(len(batch.members))
            yield from zip(chunk, found, strict=True)

    def _pieces(self, chunk: list[Pair], of_pieces: bool) -> list[tuple[Pieces, Pieces]]:
        """The pieces of each pair; with `of_pieces` each is a word of its own."""
        vocabulary = self._pretrained.vocabulary
        sources = pieces_of([pair.source for pair in chunk], vocabulary, of_pieces)
        targets = pieces_of([pair.target for pair in chunk], vocabulary, of_pieces)
        pieces = list(zip(sources, targets, strict=True))
        for pair, both in zip(chunk, pieces, strict=True):
            most = max(len(side.ids) for side in both)
            if most > MOST_PIECES:
                raise ConfigError(
                    f"{pair.where}: a sentence of {most} pieces; at most {MOST_PIECES} can be "
                    "aligned, so split it"
                )
        return pieces

    def _values(
        self, pieces: list[tuple[Pieces, Pieces]], what: str
    ) -> Iterator[tuple[Batch, np.ndarray]]:
        """Batches, each with what is asked for of its pieces, [layers, pairs, side, side]: bool, or
        float32 values, 0 where there is nothing."""
        match = self._method.match
        on_device = "soft" if match else what
        for batch, result in in_flight(self._started(pieces, on_device)):
            values = np.asarray(result)
            if match and what != "soft":
                sides = batch.rows.source_places, batch.rows.target_places
                links = match(values, *((side >= 0).astype(np.int32) for side in sides))
                values = links if what == "links" else np.where(links, values, 0)
            if self._threshold and what != "soft":
                values = np.where(values >= self._threshold, values, 0)
            yield batch, values

    def _started(
        self, pieces: list[tuple[Pieces, Pieces]], what: str
    ) -> Iterator[tuple[Batch, jax.Array]]:
        for batch in batches(pieces, self._limit, self._together, self._mesh.size):
            self.windowed += len(batch.members) * batch.windowed
            rows = shard(batch.rows, self._mesh)
            yield batch, self._align(self._pretrained.params, rows, what=what)


_NOTHING = Aligned(np.zeros((0, 2), np.int32), np.zeros(0, np.float32))


@partial(
    jax.jit,
    static_argnames=("mesh", "model", "layers", "method", "prior", "what"),
    compiler_options=QUICK,
)
def _align(params: encoder.Params, rows: Rows[jax.Array], mesh: Mesh, **static: Any) -> jax.Array:
    """What is asked for of pieces, [layers, pairs, side, side], or of pairs, [layers, pairs]. On
    every device."""
    found = on_mesh(mesh, partial(_of_rows, **static))(params, rows)
    return jax.lax.with_sharding_constraint(found, replicated(mesh))


def _of_rows(
    params: encoder.Params,
    rows: Rows[jax.Array],
    model: Model,
    layers: tuple[int, ...],
    method: Method,
    prior: float,
    what: str,
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
    tokens = rows.tokens.reshape(-1)
    source, target = (
        Side(hidden[:, places], tokens[places], (places >= 0).astype(jnp.int32))
        for places in (rows.source_places, rows.target_places)
    )
    if what == "likelihood":
        return methods.likelihoods(params, model, source, target)
    found = method.align(params, model, source, target, prior)
    if what == "soft" or found.links is None:
        return found.soft
    return found.links if what == "links" else jnp.where(found.links, found.soft, 0)


def _collect(
    found: list[list[Aligned]],
    batch: Batch,
    values: np.ndarray,
    pieces: list[tuple[Pieces, Pieces]],
) -> None:
    """Puts a batch's values of pieces into `found`, as those of words: the highest counts."""
    layer, place, *ends = np.nonzero(values)
    words = []
    for side, end in enumerate(ends):
        of_pieces = [pieces[member][side].words for member in batch.members]
        starts = np.cumsum([0, *map(len, of_pieces)])
        words.append(np.concatenate(of_pieces, dtype=np.int64)[starts[place] + end])
    owner = layer * values.shape[1] + place
    # One number a link, in the order that links are written: 24 bits for each word.
    distinct, which = np.unique(owner << 48 | words[0] << 24 | words[1], return_inverse=True)
    highest = np.zeros(len(distinct), np.float32)
    np.maximum.at(highest, which, values[layer, place, ends[0], ends[1]])
    links = np.stack([distinct >> 24 & 0xFFFFFF, distinct & 0xFFFFFF], 1).astype(np.int32)
    bounds = np.searchsorted(distinct >> 48, np.arange(values.shape[0] * values.shape[1] + 1))
    for layer_index in range(values.shape[0]):
        for k, member in enumerate(batch.members):
            at = layer_index * values.shape[1] + k
            start, end = bounds[at], bounds[at + 1]
            found[member][layer_index] = Aligned(links[start:end], highest[start:end])
