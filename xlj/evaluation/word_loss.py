"""Measures the loss of masked words in nats per character, to compare vocabularies.

The loss per token depends on the vocabulary: with more pieces in the vocabulary, a text has fewer
and rarer tokens. With this measure, which is our own, models with different vocabularies predict
the same words from the same context. All pieces of a word are masked together, so no piece is
predicted from the rest of the word. The loss of a word is the sum of the losses of its pieces.

`xlj.adapt` compares a model on plain text before and after an adaptation with it.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from tqdm import tqdm

from xlj.config import Model
from xlj.data.text.cleaning import WORD
from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility
from xlj.evaluation.adaptation_record import LABELS, Scores
from xlj.inference.pretrained import Pretrained
from xlj.inference.row_batches import buckets, in_flight, round_up
from xlj.io.progress import Advance
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.segments import whole_examples
from xlj.objectives.mlm.head import predict
from xlj.objectives.mlm.loss import gather
from xlj.objectives.vocabulary.cross_entropy import cross_entropy
from xlj.retrieval.embedder import Embedder
from xlj.retrieval.search import accuracy, nearest
from xlj.sharding.devices import on_mesh
from xlj.sharding.meshes import QUICK, mesh_of
from xlj.sharding.trees import replicated, shard

EVERY = 7
"""In each row, every seventh word of the line is masked. This is 14 % of the words, about as many
as in training."""

_MAX_WORDS = 64  # how many words of a line are read; further words are ignored
HEAD = "prediction_head"
"""The name of the parameters of the head for masked words."""


class WordLoss(NamedTuple):
    """The loss of the words of a text."""

    nats: float
    """The sum of the losses of all words, in nats."""
    characters: int
    """The number of characters of these words."""
    unknown: float
    """The share of words that contain `<unk>`. These words are context, but are not predicted."""

    @property
    def per_character(self) -> float:
        """The loss in nats per character; NaN without words."""
        return self.nats / self.characters if self.characters else float("nan")


class _Row(NamedTuple):
    """A line with masked words: token ids, and the labels at masked positions."""

    text: int  # index of the text
    tokens: np.ndarray  # int32 [length], including <s> and </s>
    positions: np.ndarray  # int32 [masked]
    labels: np.ndarray  # int32 [masked]


def has_head(pretrained: Pretrained) -> bool:
    """Returns whether a model has a head for masked tokens."""
    return HEAD in pretrained.params


def measure(
    pretrained: Pretrained, texts: Mapping[str, Sequence[str]], progress: Advance = bool
) -> dict[str, WordLoss]:
    """Measures the loss of a model over all words of several texts.

    A line becomes up to seven rows. In each row, another seventh of the line's words is masked, so
    each word is predicted once. Words with `<unk>` are never masked. Rows of all texts share
    batches, so that few shapes are compiled.

    Args:
      pretrained: a model with a head for masked tokens (`has_head`), on any mesh.
      texts: cleaned lines (`data.text.cleaning.clean`) by the name of the text. Only the first 64
        words of a line are read; fewer if they exceed the model's positions.
      progress: called with the number of rows of each finished batch.

    Returns:
      The loss of each text, by its name.
    """
    limit = pretrained.model.positions - FIRST_POSITION
    rows: list[_Row] = []
    characters, words, unknown = np.zeros((3, len(texts)), np.int64)
    for text, lines in enumerate(texts.values()):
        for line in _words_of(pretrained.vocabulary, lines, limit):
            known = [word for word in line.words if UNK not in line.ids[word.pieces]]
            words[text] += len(line.words)
            unknown[text] += len(line.words) - len(known)
            characters[text] += sum(word.characters for word in known)
            rows += _mask_words(text, line, known, pretrained.vocabulary.mask)
    nats, mesh = np.zeros(len(texts)), mesh_of(pretrained.params)
    text_of = np.array([row.text for row in rows], np.int64)
    sizes = np.array([len(row.tokens) for row in rows], np.int64)
    losses = partial(_losses, mesh=mesh, model=pretrained.model)
    for members, batch in in_flight(_batches(rows, sizes, limit, pretrained.params, mesh, losses)):
        of_rows = np.asarray(batch, np.float64).sum(-1)[: len(members)]
        np.add.at(nats, text_of[members], of_rows)
        progress(len(members))
    shares = unknown / np.maximum(1, words)
    losses_of = map(WordLoss, nats.tolist(), characters.tolist(), shares.tolist())
    return dict(zip(texts, losses_of, strict=True))


class _Word(NamedTuple):
    pieces: slice
    characters: int
    number: int  # zero-based index of the word in the line


class _Line(NamedTuple):
    ids: np.ndarray  # int32 [pieces]
    words: list[_Word]


def _words_of(vocabulary: Vocabulary, lines: Sequence[str], limit: int) -> Iterator[_Line]:
    """Yields the pieces and words of each line.

    A piece belongs to the word at its first character. If this character is between words, the
    piece belongs to the next word, or to the last word of the line.
    """
    encoded, spans = vocabulary.encode_with_spans(lines)
    for line, start, length in zip(lines, encoded.starts, encoded.lengths, strict=True):
        ids, begins = encoded.ids[start : start + length], spans[start : start + length, 0]
        number_at = np.zeros(len(line) + 1, np.int64)  # index of the word at or after a character
        sizes = []
        end = 0
        for number, match in enumerate(WORD.finditer(line)):
            number_at[end : match.end()] = number
            end, size = match.end(), match.end() - match.start()
            sizes.append(size)
        number_at[end:] = max(0, len(sizes) - 1)
        numbers = number_at[begins]
        # The pieces of a word are adjacent. A word that lies inside a piece of an earlier word has
        # no pieces; its characters count for the next word with pieces.
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
        words: list[_Word] = []
        for first, last in zip(edges, edges[1:], strict=False):
            if len(words) == _MAX_WORDS or last > limit - 2:
                break
            number = int(numbers[first])
            before = words[-1].number if words else -1
            words.append(_Word(slice(first, last), sum(sizes[before + 1 : number + 1]), number))
        yield _Line(ids[: words[-1].pieces.stop if words else 0], words)


def _mask_words(text: int, line: _Line, known: Sequence[_Word], mask: int) -> Iterator[_Row]:
    """Yields the rows of a line, each with a different group of words masked.

    Args:
      text: the index of the text that the line belongs to.
      known: the words to predict.
    """
    for group in range(EVERY):
        masked = [word for place, word in enumerate(known) if place % EVERY == group]
        if not masked:
            return
        indices = np.concatenate([np.arange(w.pieces.start, w.pieces.stop) for w in masked])
        tokens = np.concatenate([[BOS], line.ids, [EOS]]).astype(np.int32)
        tokens[indices + 1] = mask
        yield _Row(text, tokens, (indices + 1).astype(np.int32), line.ids[indices].astype(np.int32))


def _batches(
    rows: Sequence[_Row], sizes: np.ndarray, limit: int, params: encoder.Params, mesh: Mesh, losses
) -> Iterator[tuple[np.ndarray, jax.Array]]:
    for members, width, count in buckets(sizes, limit, mesh.size):
        slots = round_up(max(len(rows[member].labels) for member in members), max(8, width // 4))
        tokens = np.full((count, width), PAD, np.int32)
        positions, labels = np.zeros((2, count, slots), np.int32)
        weights = np.zeros((count, slots), np.float32)
        for place, member in enumerate(members):
            row = rows[member]
            tokens[place, : len(row.tokens)] = row.tokens
            positions[place, : len(row.labels)] = row.positions
            labels[place, : len(row.labels)] = row.labels
            weights[place, : len(row.labels)] = 1
        arrays = (shard(array, mesh) for array in (tokens, positions, labels, weights))
        yield members, losses(params, *arrays)


@partial(jax.jit, static_argnames=("mesh", "model"), compiler_options=QUICK)
def _losses(
    params: encoder.Params,
    tokens: jax.Array,
    positions: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    mesh: Mesh,
    model: Model,
) -> jax.Array:
    """Computes the cross-entropy of masked tokens in nats, replicated on all devices.

    Args:
      tokens: int32 [rows, length].
      positions, labels: positions and original ids of the masked tokens, int32 [rows, slots].
      weights: float32 [rows, slots], 1 for masked tokens, 0 for unused slots.

    Returns:
      float32 [rows, slots], 0 for unused slots.
    """

    def of_rows(params, tokens, positions, labels):
        language = jnp.full((len(tokens), 2), -1)  # unknown
        hidden = encoder.apply(params, model, whole_examples(model, tokens, language))
        words = params["embeddings"]["word"]
        masked = gather(hidden, positions)  # [rows, slots, hidden]
        vectors, table, bias = predict(params[HEAD], words, model, masked)
        flat = vectors.reshape(-1, vectors.shape[-1])
        losses, _ = cross_entropy(flat, table, bias, labels.reshape(-1), jnp.dtype(model.dtype))
        return losses.reshape(labels.shape)

    losses = on_mesh(mesh, of_rows)(params, tokens, positions, labels) * weights
    return jax.lax.with_sharding_constraint(losses, replicated(mesh))


@dataclasses.dataclass(frozen=True)
class TestText:
    """Held-out text, which occurs in no training text.

    Attributes:
      lines: sentences by language.
      pairs: (source sentences, target sentences) by language pair.
      layer: the layer of the sentence vectors; -1 for the vectors of the model's sentence modules
        or, without modules, for the layer at two thirds of the depth.
      prompt: text that begins each sentence whose vector is computed; None for the default.
    """

    lines: Mapping[str, list[str]]
    pairs: Mapping[str, tuple[list[str], list[str]]]
    layer: int
    prompt: str | None = None


def measure_text(pretrained: Pretrained, text: TestText) -> Scores:
    """Measures a model on held-out text: the measures of `adaptation_record.LABELS`.

    A measure is left out if it has no values. For example, a model without a head for masked tokens
    has no loss.
    """
    scores: Scores = {name: {} for name in LABELS}
    for language, lines in text.lines.items():
        counts = measure_fertility(pretrained.vocabulary, lines)
        scores["pieces_per_word"][language] = counts.pieces_per_word
        scores["unknown_percent"][language] = 100 * counts.unknown_share
    if has_head(pretrained):
        with tqdm(desc="measuring the loss", unit=" rows", disable=None, leave=False) as bar:
            losses = measure(pretrained, text.lines, bar.update)
        scores["nats_per_character"] = {name: loss.per_character for name, loss in losses.items()}
    is_default = text.layer == -1
    layers, pooling = ((), None) if is_default else ((text.layer,), "mean")
    embedder = Embedder(pretrained, layers, pooling, prompt_text=text.prompt)
    total = sum(len(side) for sides in text.pairs.values() for side in sides)
    with tqdm(desc="embedding", total=total, unit=" sentences", disable=None, leave=False) as bar:
        for pair, sides in text.pairs.items():
            vectors = (np.concatenate([*embedder.stream(side, bar.update)], 1)[0] for side in sides)
            scores["accuracy_percent"][pair] = 50 * sum(accuracy(nearest(*vectors)))
    return {name: values for name, values in scores.items() if values}
