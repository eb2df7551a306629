"""Methods of word alignment, which compute soft alignments and links from hidden vectors of tokens.

| method | soft alignment | links |
|---|---|---|
| optimal_transport | the transport plan | `extraction.itermax` of the plan |
| released | the smaller of `by_rows` and `by_columns` of `Transport` | `extraction.released` |
| argmax, itermax, match | (cosine + 1) / 2, times the prior | `extraction.NAME` |
| hmm | the product of the probabilities in both directions | values of at least `HMM_THRESHOLD` |

The prior is `extraction.diagonal`. `optimal_transport` and `released` multiply the similarities by
the prior before they compute the plan. `register` adds a user's method. The aligner uses only the
attributes of `Method`.

Also makes batches of sentence pairs in a few fixed shapes, for encoding and aligning; NumPy only.

The sentences of a pair are encoded together, as `<s> A </s> B </s>` with continuous positions (as
in XLM's TLM), or separately, as `<s> A </s>` and `<s> B </s>` in two rows.

A pair that is too long for the model's positions is encoded in overlapping windows (ours). Both
sentences are split into the same number of parts, and each window contains one part with as much
context as fits. Then the vectors of all parts are aligned as one sentence. Nothing is truncated.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from xlj.alignment_math import extraction, hmm
from xlj.alignment_math.extraction import diagonal, dot_products, shifted_cosines
from xlj.alignment_math.sinkhorn import same_example, sinkhorn
from xlj.config import ConfigError, Model
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.inference.row_batches import round_up
from xlj.objectives.word_hmm import head as word_hmm_head
from xlj.objectives.word_hmm.loss import HEAD
from xlj.sharding.trees import Params

HMM_THRESHOLD = 0.2
"""The minimum value for a link: the product of the probabilities in both directions. It was chosen
on the gold set en-fr.golden (docs/experiments/aligner.md)."""


class Side(NamedTuple):
    """The source side or the target side of sentence pairs, at all layers to align."""

    vectors: jax.Array  # float [layers, pairs, m, hidden]
    tokens: jax.Array  # int32 [pairs, m]
    ids: jax.Array  # int32 [pairs, m], the example of each token; 0 for padding (`same_example`)


class Alignment(NamedTuple):
    """An alignment of tokens.

    Attributes:
      soft: float32 [layers, pairs, m, n], the strength of each link from 0 to 1; 0 between tokens
        of different examples.
      links: bool [layers, pairs, m, n]; None if `Method.match` computes the links.
    """

    soft: jax.Array
    links: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of word alignment. Equal methods share compiled programs.

    Attributes:
      name: the name in calls, and for xlj's methods also in configs and commands.
      align: function that computes alignments on devices. It takes (parameters, model, source,
        target, strength of the prior on the diagonal) and returns an `Alignment`.
      match: function that computes links on the host in NumPy, if `align` does not compute links.
        It takes (soft [layers, pairs, m, n], source ids [pairs, m], target ids [pairs, n]) and
        returns bool [layers, pairs, m, n].
      head: the name of the head that the method needs; empty if it needs only the encoder.
      needs: a description of the head, for the error message if a model lacks the head.
    """

    name: str
    align: Callable[[Params, Model, Side, Side, float], Alignment]
    match: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
    head: str = ""
    needs: str = ""

    def can_use(self, params: Mapping) -> bool:
        """Returns whether a model's parameters include the head that the method needs."""
        return not self.head or self.head in params


METHODS: dict[str, Method] = {}
"""All methods by name: xlj's methods in the order of `config.choices`, then users' methods."""


def register(method: Method) -> Method:
    """Adds a method, which can then be selected by name in calls, such as `Encoder.align`.

    Configs and commands accept only the methods of `config.choices`.

    Raises:
      ValueError: if another method has this name.
    """
    if METHODS.setdefault(method.name, method) != method:
        raise ValueError(f"another method already has the name {method.name}; choose another name")
    return method


def find(name: str, params: Mapping) -> Method:
    """Returns the method with a name.

    Args:
      params: the parameters of the model that will be aligned.

    Raises:
      ConfigError: if the method does not exist, or needs a head that the model lacks.
    """
    if name not in METHODS:
        raise ConfigError(f"unknown method {name}; expected one of {', '.join(METHODS)}")
    method = METHODS[name]
    if not method.can_use(params):
        raise ConfigError(f"the method {name} needs {method.needs}, which this model lacks")
    return method


_Extract = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _prior_weight(source: Side, target: Side, prior: float) -> jax.Array | int:
    return diagonal(source.ids, target.ids, prior) if prior else 1


def _align_by_transport(
    is_released: bool, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by optimal transport on dot products of vectors, as XLM-Align does."""
    similarity = dot_products(source.vectors, target.vectors) * _prior_weight(source, target, prior)
    transport = sinkhorn(similarity, source.ids, target.ids)
    if is_released:
        soft = jnp.minimum(transport.by_rows, transport.by_columns)
        return Alignment(soft, extraction.released(transport))
    return Alignment(transport.plan, extraction.itermax(transport.plan, source.ids, target.ids))


def _align_by_cosine(
    links: _Extract | None, params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by cosines of vectors, as SimAlign does."""
    similarity = shifted_cosines(source.vectors, target.vectors) * _prior_weight(
        source, target, prior
    )
    soft = jnp.where(same_example(source.ids, target.ids), similarity, 0)
    return Alignment(soft, links(similarity, source.ids, target.ids) if links else None)


def _align_by_hmm(
    params: Params, model: Model, source: Side, target: Side, prior: float
) -> Alignment:
    """Aligns by the hidden Markov model that `objectives.word_hmm` trains.

    The strength of a link is the product of the link's posterior probabilities in both directions
    (Liang, Taskar and Klein, 2006). The prior is not used.
    """

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forward, backward = (
            hmm.posteriors(*direction).emission.source
            for direction in _directions(params, model, vectors, source, target)
        )
        return forward * backward.swapaxes(-1, -2)

    soft = jax.lax.map(of_layer, (source.vectors, target.vectors))
    return Alignment(soft, soft >= HMM_THRESHOLD)


def likelihoods(params: Params, model: Model, source: Side, target: Side) -> jax.Array:
    """Computes the likelihood of sentence pairs under the hidden Markov model.

    Returns:
      float32 [layers, pairs] in nats per token; 0 for a pair without tokens. It is the sum of two
      values of `hmm.log_likelihood`, target given source and source given target, divided by the
      number of tokens of both sentences.
    """

    def of_layer(vectors: tuple[jax.Array, jax.Array]) -> jax.Array:
        forward, backward = _directions(params, model, vectors, source, target)
        return hmm.log_likelihood(*forward) + hmm.log_likelihood(*backward)

    total = jax.lax.map(of_layer, (source.vectors, target.vectors))
    tokens = (source.ids > 0).sum(-1) + (target.ids > 0).sum(-1)
    return total / jnp.maximum(tokens, 1)


def _directions(
    params: Params,
    model: Model,
    vectors: tuple[jax.Array, jax.Array],
    source: Side,
    target: Side,
) -> list[tuple[hmm.Emission, jax.Array, jax.Array, jax.Array]]:
    """Computes the arguments of `hmm.log_likelihood` for both directions.

    Args:
      vectors: the vectors of source and target at one layer.

    Returns:
      The arguments for the target given the source, then for the source given the target.
    """
    head, table = params[HEAD], params["embeddings"]["word"]
    keys = [word_hmm_head.keys(head, model, table, side.tokens) for side in (source, target)]
    queries = [word_hmm_head.queries(head, model, side) for side in vectors]
    ids, directions = (source.ids, target.ids), []
    for start, end in ((0, 1), (1, 0)):
        score = word_hmm_head.products(queries[start], keys[end], model.dtype)
        batch = score.shape[:-2]
        null_vectors = jnp.broadcast_to(head["null_bias"], (*batch, 1, model.hidden))
        null = word_hmm_head.products(null_vectors, keys[end], model.dtype)[..., 0, :]
        emission = hmm.Emission(*map(word_hmm_head.log_ratio, (score, null)))
        jumps = jnp.broadcast_to(head["jump_bias"], (*batch, *head["jump_bias"].shape))
        directions.append((emission, jumps, ids[start], ids[end]))
    return directions


register(Method("optimal_transport", partial(_align_by_transport, False)))
register(Method("released", partial(_align_by_transport, True)))
register(Method("argmax", partial(_align_by_cosine, extraction.argmax)))
register(Method("itermax", partial(_align_by_cosine, extraction.itermax)))
register(Method("match", partial(_align_by_cosine, None), match=extraction.match))
_HMM_NEEDS = "the head that objectives.word_hmm trains (configs/aligner.py)"
register(Method("hmm", _align_by_hmm, head=HEAD, needs=_HMM_NEEDS))


BATCH_TOKENS = 4096
"""The approximate number of tokens of a batch, including padding."""


class Pieces(NamedTuple):
    """The pieces of a sentence.

    Attributes:
      ids: int32 [pieces], the ids of the pieces.
      words: int32 [pieces], for each piece the index of its word.
    """

    ids: np.ndarray
    words: np.ndarray


ArrayT = TypeVar("ArrayT", np.ndarray, jax.Array)


class Rows(NamedTuple, Generic[ArrayT]):
    """Rows to encode, and where the pieces of each pair are in the rows. All arrays are int32.

    Attributes:
      tokens, positions: [rows, length].
      segments: [rows, length], 1 for tokens, 0 for padding.
      sides: [rows, length], 1 for the second sentence of a pair that is encoded together, else 0.
      source_indices: [pairs, side], for each piece of the source its index in the flattened tokens;
        -1 in unused slots. `side` is the number of slots, enough for the longest sentence.
      target_indices: [pairs, side], the same for the pieces of the target.
    """

    tokens: ArrayT
    positions: ArrayT
    segments: ArrayT
    sides: ArrayT
    source_indices: ArrayT
    target_indices: ArrayT


class Batch(NamedTuple):
    """A batch of pairs as rows.

    Attributes:
      members: the indices of the pairs. The arrays of `rows` may have room for more pairs.
      windowed: whether the pairs are long pairs that are encoded in windows.
    """

    members: list[int]
    windowed: bool
    rows: Rows[np.ndarray]


class _Window(NamedTuple):
    """A window on a sentence: the pieces [start, end) are encoded, and the vectors of the pieces
    [first, last) are used."""

    start: int
    end: int
    first: int
    last: int


_Member = tuple[int, list[tuple[_Window, _Window]]]  # the index of a pair, and its windows


def pieces_of(
    sentences: Sequence[Sequence[str]], vocabulary: Vocabulary, are_words: bool = False
) -> list[Pieces]:
    """Splits sentences into pieces.

    Each word is tokenized separately, as in XLM-Align's aligner.

    Args:
      are_words: whether each piece counts as a word.
    """
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    pieces = dict(zip(distinct, vocabulary.encode_words(distinct), strict=True))
    empty = np.zeros(0, np.int32)
    result = []
    for sentence in sentences:
        pieces_of_words = [pieces[word] for word in sentence]
        sizes = [len(part) for part in pieces_of_words]
        words = np.repeat(np.arange(len(pieces_of_words), dtype=np.int32), sizes)
        if are_words:
            words = np.arange(sum(sizes), dtype=np.int32)
        result.append(Pieces(np.concatenate([empty, *pieces_of_words]), words))
    return result


def batches(
    pairs: Sequence[tuple[Pieces, Pieces]], limit: int, together: bool, devices: int = 1
) -> Iterator[Batch]:
    """Yields batches of pairs with similar lengths. Pairs with an empty sentence are skipped.

    Pairs are padded to the next longer length if this adds at most `BATCH_TOKENS` tokens of
    padding. This reduces the number of shapes: compiling or loading a program takes longer than
    computing some padding.

    Args:
      limit: the maximum number of tokens of a row, from the model's positions.
      together: whether the two sentences of a pair are encoded in one row.
      devices: the number of devices. It divides the numbers of rows and pairs of each batch.
    """
    buckets: dict[_Shape, list[_Member]] = defaultdict(list)
    for index, (source, target) in enumerate(pairs):
        m, n = len(source.ids), len(target.ids)
        if m and n:
            pair_windows = windows(m, n, limit, together)
            shape = _shape(round_up(max(m, n), 8), len(pair_windows), limit, together, devices)
            buckets[shape].append((index, pair_windows))
    shapes = sorted(buckets, key=lambda shape: (shape.each, shape.side))
    members: list[_Member] = []
    for shape, longer in itertools.zip_longest(shapes, shapes[1:]):
        members += buckets[shape]
        if longer and longer.each == shape.each:
            padding = shape.each * (longer.length - shape.length)
            if len(members) * padding <= BATCH_TOKENS:
                continue
        for start in range(0, len(members), shape.pairs):
            of_batch = members[start : start + shape.pairs]
            yield _fill(of_batch, pairs, shape.for_fewer(len(of_batch), devices), together)
        members = []


def windows(m: int, n: int, limit: int, together: bool) -> list[tuple[_Window, _Window]]:
    """Returns the windows for a pair of m and n pieces: one window if the pair fits, else several.

    Each element has a window on the source and a window on the target.
    """
    room = limit - 3 if together else limit - 2
    if together and m + n > room:
        # The shorter sentence gets the room that it needs, up to half of the room.
        target_room = max(room - m, min(n, room // 2))
        rooms = room - target_room, target_room
    elif together:
        rooms = m, n
    else:
        rooms = room, room
    # A part takes at most half of a window, so a quarter of the window is context on each side.
    sides = tuple(zip((m, n), rooms, strict=True))
    count = max(1 if size <= space else round_up(-(-2 * size // space), 2) for size, space in sides)
    return list(zip(*(_cut_sentence(size, space, count) for size, space in sides), strict=True))


def _cut_sentence(size: int, room: int, count: int) -> list[_Window]:
    result = []
    for k in range(count):
        first, last = size * k // count, size * (k + 1) // count
        start = min(max(first - (room - (last - first)) // 2, 0), max(size - room, 0))
        result.append(_Window(start, min(start + room, size), first, last))
    return result


class _Shape(NamedTuple):
    rows: int
    length: int
    pairs: int
    side: int

    @property
    def each(self) -> int:
        """The number of rows for each pair."""
        return self.rows // self.pairs

    def for_fewer(self, pairs: int, devices: int) -> "_Shape":
        """Returns a smaller shape for at most `pairs` pairs, with few unused pairs."""
        pairs = round_up(pairs, 8)
        pairs = min(pairs + -pairs % devices, self.pairs)
        return self._replace(rows=self.each * pairs, pairs=pairs)


def _shape(side: int, count: int, limit: int, together: bool, devices: int) -> _Shape:
    """Returns the shape for pairs with `count` windows and at most `side` pieces per sentence."""
    length = min(2 * side + 3 if together else side + 2, limit)
    rows = count if together else 2 * count
    pairs = max(1, BATCH_TOKENS // (rows * length))
    pairs += -pairs % devices
    return _Shape(rows * pairs, length, pairs, side)


def _fill(
    members: list[_Member], pairs: Sequence[tuple[Pieces, Pieces]], shape: _Shape, together: bool
) -> Batch:
    tokens = np.full((shape.rows, shape.length), PAD, np.int32)
    positions, segments, sides = np.zeros((3, *tokens.shape), np.int32)
    indices = np.full((2, shape.pairs, shape.side), -1, np.int32)
    row = end = 0
    for k, (member, pair_windows) in enumerate(members):
        for pair_window in pair_windows:
            for side, window in enumerate(pair_window):
                if side == 0 or not together:
                    tokens[row, 0], end = BOS, 1
                begin = end
                ids = pairs[member][side].ids[window.start : window.end]
                tokens[row, end : end + len(ids)] = ids
                first = row * shape.length + end + window.first - window.start
                size = window.last - window.first
                indices[side, k, window.first : window.last] = np.arange(first, first + size)
                end += len(ids)
                tokens[row, end] = EOS
                if side == 1 and together:
                    sides[row, begin : end + 1] = 1
                end += 1
                if side == 1 or not together:
                    positions[row, :end], segments[row, :end] = np.arange(end), 1
                    row += 1
    windowed = len(members[0][1]) > 1
    rows = Rows(tokens, positions, segments, sides, *indices)
    return Batch([member for member, _ in members], windowed, rows)
