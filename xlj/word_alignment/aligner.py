"""Aligns words: encodes two sentences, and links their words by hidden vectors."""

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
from xlj.inference.row_batches import in_flight
from xlj.io.progress import Advance
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK, mesh_of
from xlj.sharding.trees import replicated, shard
from xlj.word_alignment import defaults, methods
from xlj.word_alignment.methods import Method, Side
from xlj.word_alignment.pair_batches import Batch, Pieces, Rows, batches, pieces_of
from xlj.word_alignment.sentence_pairs import Pair

MAX_PIECES = 8192
"""The maximum number of pieces of a sentence. For a pair of such sentences, each float32 matrix of
all pairs of pieces needs 256 MiB, and several of these matrices are in memory."""

_CHUNK = 16_384  # how many sentence pairs are in memory at a time


class PairLinks(NamedTuple):
    """The links of a sentence pair at one layer.

    Attributes:
      links: int32 [links, 2], zero-based indices of source and target words, sorted.
      confidences: float32 [links], between 0 and 1.
      nulls: the probability of each source word and of each target word that it has no counterpart,
        float32 [words] each, 1 for words without pieces; None if the method does not compute it, or
        if only links were requested.
    """

    links: np.ndarray
    confidences: np.ndarray
    nulls: tuple[np.ndarray, np.ndarray] | None = None


class _Values(NamedTuple):
    """Results of a batch on devices.

    Attributes:
      pairs: values for pairs of pieces, [layers, pairs, side, side], or likelihoods [layers,
        pairs].
      nulls: the values of `Alignment.nulls` for both sides, float32 [layers, pairs, 2, side]; None
        if they are not requested.
    """

    pairs: jax.Array
    nulls: jax.Array | None = None


class Aligner:
    """Aligns sentence pairs.

    Args:
      pretrained: the encoder, on any mesh. All processes must align the same pairs.
      options: options for encoding pairs and linking pieces.
      layers: the layers whose vectors are aligned, from 0 (the embeddings) to the last layer. If
        empty, the layer in `options` is used.
      threshold: links with a confidence below this value are removed. 0 removes no links; but for
        the method `word_links`, 0 selects the threshold that the model stores.

    Raises:
      ConfigError: if the method does not exist, or needs a head that the model lacks.

    Attributes:
      windowed: the number of pairs so far that were too long for the model, and were therefore
        encoded in windows.
      threshold: the threshold that is applied.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        options: AlignmentOptions,
        layers: Sequence[int] = (),
        threshold: float = 0.0,
    ):
        self._pretrained, self._mesh = pretrained, mesh_of(pretrained.params)
        model, options = pretrained.model, defaults.resolve(options, pretrained)
        self._limit = model.positions - FIRST_POSITION
        self._layers = tuple(layers) or (options.layer,)
        self._method = methods.find(options.method, pretrained.params)
        self._together = options.encode == "together"
        self.threshold = threshold or defaults.threshold(self._method, pretrained)
        static = {"mesh": self._mesh, "model": model, "prior": options.prior}
        self._align = partial(_align, layers=self._layers, method=self._method, **static)
        self.windowed = 0

    def align(self, pairs: Iterable[Pair], progress: Advance = bool) -> Iterator[list[np.ndarray]]:
        """Yields for each pair a list with the links at each layer.

        Links are int32 [links, 2], zero-based indices of source and target words, sorted. Two words
        are linked if any of their pieces are linked.

        Args:
          pairs: the sentence pairs. The results are in the same order.
          progress: called with the number of newly aligned pairs, without pairs that have an empty
            sentence.

        Raises:
          ConfigError: if a sentence has more than `MAX_PIECES` pieces.
        """
        output = "confidences" if self.threshold else "links"
        for _, by_layer in self._align_chunks(pairs, output, progress):
            yield [aligned.links for aligned in by_layer]

    def scored(
        self, pairs: Iterable[Pair], progress: Advance = bool, of_pieces: bool = False
    ) -> Iterator[list[PairLinks]]:
        """Yields for each pair a list with the links and confidences at each layer.

        The confidence of a link between two pieces is its entry in the soft alignment (`methods`).
        The confidence of a link between two words is the highest confidence of the links between
        their pieces.

        Args:
          pairs, progress: the arguments of `align`.
          of_pieces: whether links connect pieces instead of words. Indices of pieces are
            zero-based.
        """
        for _, by_layer in self._align_chunks(pairs, "confidences", progress, of_pieces):
            yield by_layer

    def soft(self, pairs: Iterable[Pair], progress: Advance = bool) -> Iterator[np.ndarray]:
        """Yields the soft alignment of each pair, float32 [layers, source words, target words].

        The value of a pair of words is the highest value of all pairs of their pieces (`methods`).
        It is 0 if one of the words has no pieces.
        """
        for pair, by_layer in self._align_chunks(pairs, "soft", progress):
            matrices = np.zeros((len(by_layer), len(pair.source), len(pair.target)), np.float32)
            for matrix, aligned in zip(matrices, by_layer, strict=True):
                matrix[tuple(aligned.links.T)] = aligned.confidences
            yield matrices

    def likelihoods(self, pairs: Iterable[Pair], progress: Advance = bool) -> Iterator[float]:
        """Yields the likelihood of each pair at the first of the aligner's layers.

        `methods.likelihoods` defines the likelihood, which needs the head of the method `hmm`, also
        if the aligner has another method. The likelihood is NaN if a sentence is empty.

        Raises:
          ConfigError: if a sentence has more than `MAX_PIECES` pieces.
        """
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            result = np.full(len(chunk), np.nan)
            started = self._start_batches(self._split_pieces(chunk, False), "likelihood")
            for batch, values in in_flight(started):
                result[batch.members] = np.asarray(values.pairs)[0, : len(batch.members)]
                progress(len(batch.members))
            yield from result.tolist()

    def count_links(
        self, pairs: Iterable[tuple[np.ndarray, np.ndarray]], progress: Advance = bool
    ) -> np.ndarray:
        """Counts the links between pieces at each layer, int64 [layers].

        Args:
          pairs: the ids of the pieces of both sentences of each pair, int [pieces], without special
            tokens.
          progress: called with the number of newly aligned pairs.
        """
        total = np.zeros(len(self._layers), np.int64)
        pieces = [
            (Pieces(source, np.arange(len(source))), Pieces(target, np.arange(len(target))))
            for source, target in pairs
        ]
        for batch, values, _ in self._compute_values(pieces, "links"):
            total += np.count_nonzero(values, axis=(1, 2, 3))
            progress(len(batch.members))
        return total

    def _align_chunks(
        self, pairs: Iterable[Pair], output: str, progress: Advance, of_pieces: bool = False
    ) -> Iterator[tuple[Pair, list[PairLinks]]]:
        """Yields each pair with the alignments at all layers.

        Args:
          output: `links`, `confidences` (links with confidences), or `soft` (the values of all
            pairs of words, as confidences of links; values of 0 are left out).
        """
        pairs = iter(pairs)
        size = max(_CHUNK // 16, 1) if output == "soft" else _CHUNK
        while chunk := list(itertools.islice(pairs, size)):
            pieces = self._split_pieces(chunk, of_pieces)
            by_pair = [[_NO_LINKS] * len(self._layers) for _ in chunk]
            if self._method.has_nulls and output == "confidences":
                for pair, both, aligned in zip(chunk, pieces, by_pair, strict=True):
                    aligned[:] = [_unlinked(pair, both, of_pieces) for _ in aligned]
            for batch, values, nulls in self._compute_values(pieces, output):
                _collect_links(by_pair, batch, values, pieces)
                if nulls is not None:
                    _collect_nulls(by_pair, batch, nulls, pieces)
                progress(len(batch.members))
            yield from zip(chunk, by_pair, strict=True)

    def _split_pieces(self, chunk: list[Pair], of_pieces: bool) -> list[tuple[Pieces, Pieces]]:
        """Returns the pieces of both sentences of each pair.

        Args:
          of_pieces: whether each piece counts as a word.
        """
        vocabulary = self._pretrained.vocabulary
        sources = pieces_of([pair.source for pair in chunk], vocabulary, of_pieces)
        targets = pieces_of([pair.target for pair in chunk], vocabulary, of_pieces)
        pieces = list(zip(sources, targets, strict=True))
        for pair, both in zip(chunk, pieces, strict=True):
            piece_count = max(len(side.ids) for side in both)
            if piece_count > MAX_PIECES:
                raise ConfigError(
                    f"{pair.where}: a sentence has {piece_count} pieces, but at most {MAX_PIECES} "
                    "can be aligned; split the sentence"
                )
        return pieces

    def _compute_values(
        self, pieces: list[tuple[Pieces, Pieces]], output: str
    ) -> Iterator[tuple[Batch, np.ndarray, np.ndarray | None]]:
        """Yields batches with values for pairs of pieces, [layers, pairs, side, side], and nulls.

        `side` is the number of slots for pieces (`pair_batches.Rows`). The values are bool links,
        float32 confidences that are 0 without a link, or the float32 soft alignment. Nulls are
        those of `_Values`.
        """
        match = self._method.match
        on_device = "soft" if match else output
        for batch, result in in_flight(self._start_batches(pieces, on_device)):
            values = np.asarray(result.pairs)
            nulls = None if result.nulls is None else np.asarray(result.nulls)
            if match and output != "soft":
                sides = batch.rows.source_indices, batch.rows.target_indices
                links = match(values, *((side >= 0).astype(np.int32) for side in sides))
                values = links if output == "links" else np.where(links, values, 0)
            if self.threshold and output != "soft":
                values = np.where(values >= self.threshold, values, 0)
            yield batch, values, nulls

    def _start_batches(
        self, pieces: list[tuple[Pieces, Pieces]], output: str
    ) -> Iterator[tuple[Batch, _Values]]:
        for batch in batches(pieces, self._limit, self._together, self._mesh.size):
            self.windowed += len(batch.members) * batch.windowed
            rows = shard(batch.rows, self._mesh)
            yield batch, self._align(self._pretrained.params, rows, output=output)


_NO_LINKS = PairLinks(np.zeros((0, 2), np.int32), np.zeros(0, np.float32))


@partial(
    jax.jit,
    static_argnames=("mesh", "model", "layers", "method", "prior", "output"),
    compiler_options=QUICK,
)
def _align(params: encoder.Params, rows: Rows[jax.Array], mesh: Mesh, **static: Any) -> _Values:
    """Encodes and aligns a batch on the devices; returns values that all devices have."""
    result: _Values = on_mesh(mesh, partial(_align_rows, **static))(params, rows)
    return jax.lax.with_sharding_constraint(result, replicated(mesh))


def _align_rows(
    params: encoder.Params,
    rows: Rows[jax.Array],
    model: Model,
    layers: tuple[int, ...],
    method: Method,
    prior: float,
    output: str,
) -> _Values:
    inputs = encoder.Inputs(
        rows.tokens, rows.positions, rows.segments, rows.segments, sides=rows.sides
    )
    depth = max(layers)
    if len(layers) == 1:
        hidden = encoder.apply(params, model, inputs, layers=depth)[None]
    else:
        all_hidden = encoder.apply(params, model, inputs, layers=depth, all_layers=True)
        hidden = all_hidden[jnp.array(layers)]
    hidden = hidden.reshape(len(layers), -1, hidden.shape[-1])
    tokens = rows.tokens.reshape(-1)
    source, target = (
        Side(hidden[:, indices], tokens[indices], (indices >= 0).astype(jnp.int32), words)
        for indices, words in (
            (rows.source_indices, rows.source_words),
            (rows.target_indices, rows.target_words),
        )
    )
    if output == "likelihood":
        return _Values(methods.likelihoods(params, model, source, target))
    alignment = method.align(params, model, source, target, prior)
    if output == "soft" or alignment.links is None:
        return _Values(alignment.soft)
    if output == "links":
        return _Values(alignment.links)
    nulls = None if alignment.nulls is None else jnp.stack(alignment.nulls, 2)
    return _Values(jnp.where(alignment.links, alignment.soft, 0), nulls)


def _collect_links(
    by_pair: list[list[PairLinks]],
    batch: Batch,
    values: np.ndarray,
    pieces: list[tuple[Pieces, Pieces]],
) -> None:
    """Converts the values of a batch from pieces to words, and stores the links in `by_pair`.

    The value of a pair of words is the highest value of all pairs of their pieces.
    """
    layer, place, *ends = np.nonzero(values)
    words = []
    for side, end in enumerate(ends):
        of_pieces = [pieces[member][side].words for member in batch.members]
        starts = np.cumsum([0, *map(len, of_pieces)])
        words.append(np.concatenate(of_pieces, dtype=np.int64)[starts[place] + end])
    owner = layer * values.shape[1] + place
    # Encode each link as one integer, with 24 bits for each word, so that sorting the integers
    # sorts the links.
    distinct, which = np.unique(owner << 48 | words[0] << 24 | words[1], return_inverse=True)
    highest = np.zeros(len(distinct), np.float32)
    np.maximum.at(highest, which, values[layer, place, ends[0], ends[1]])
    links = np.stack([distinct >> 24 & 0xFFFFFF, distinct & 0xFFFFFF], 1).astype(np.int32)
    bounds = np.searchsorted(distinct >> 48, np.arange(values.shape[0] * values.shape[1] + 1))
    for layer_index in range(values.shape[0]):
        for k, member in enumerate(batch.members):
            at = layer_index * values.shape[1] + k
            start, end = bounds[at], bounds[at + 1]
            aligned = by_pair[member][layer_index]
            by_pair[member][layer_index] = aligned._replace(
                links=links[start:end], confidences=highest[start:end]
            )


def _unlinked(pair: Pair, pieces: tuple[Pieces, Pieces], of_pieces: bool) -> PairLinks:
    """Returns the result of a pair in which no word has a counterpart."""
    sizes = map(len, (side.ids for side in pieces)) if of_pieces else map(len, pair[1:3])
    source, target = (np.ones(size, np.float32) for size in sizes)
    return _NO_LINKS._replace(nulls=(source, target))


def _collect_nulls(
    by_pair: list[list[PairLinks]],
    batch: Batch,
    nulls: np.ndarray,
    pieces: list[tuple[Pieces, Pieces]],
) -> None:
    """Stores the probabilities of "no counterpart" of each word in `by_pair`.

    Args:
      nulls: float32 [layers, pairs, 2, side], for each piece the probability of its word.
    """
    for k, member in enumerate(batch.members):
        for layer, aligned in enumerate(by_pair[member]):
            for side, of_words in enumerate(aligned.nulls or ()):
                words = pieces[member][side].words
                of_words[words] = nulls[layer, k, side, : len(words)]
