"""Converts labelled examples to rows of token ids and labels."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.data.labelled.examples import Sentences, Words
from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Features:
    """Examples as rows.

    Attributes:
      tokens: token ids, int32 [rows, length].
      labels: the fields of the labels by name, arrays [rows, ...] of any numeric type. A row
        without a label has zeros.
      cut: number of truncated texts, by type of text, such as `examples` or `words`.
    """

    tokens: np.ndarray
    labels: Mapping[str, np.ndarray]
    cut: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class WordFeatures(Features):
    """Sentences of tagged words as rows.

    Attributes:
      positions: row and column of the piece that has the label of each word, int32 [words, 2], for
        the words of all sentences in order.
    """

    positions: np.ndarray


def of_sentences(
    examples: Sequence[Sentences],
    vocabulary: Vocabulary,
    labels: Mapping[str, int],
    length: int,
    apart: bool = False,
) -> Features:
    """Converts examples to `<s> A </s>` or `<s> A </s> B </s>`, one example per row.

    Examples that are too long are truncated. Of two sentences, the longer sentence is truncated
    first, as in XTREME's scripts.

    Args:
      examples: the examples.
      vocabulary: the vocabulary.
      labels: the zero-based number of each label. In the field `labels`, int32 [rows, 1], a label
        has this number plus 1, and 0 means unlabelled.
      length: number of tokens of a row.
      apart: whether two sentences are encoded separately, as `<s> A </s> <s> B </s>`.
    """
    tokens, cut = of_texts([example.texts for example in examples], vocabulary, length, apart)
    numbers = [0 if e.label is None else 1 + labels[e.label] for e in examples]
    column = np.array(numbers, np.int32).reshape(-1, 1)
    return Features(tokens, {"labels": column}, {"examples": cut})


def of_texts(
    examples: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int, apart: bool = False
) -> tuple[np.ndarray, int]:
    """Converts examples of one or two texts to `<s> A </s>` or `<s> A </s> B </s>`.

    Args:
      examples: one or two texts each.
      vocabulary: the vocabulary.
      length: number of tokens of a row. Longer examples are truncated; of two texts, the longer
        text is truncated first.
      apart: whether two texts are encoded separately, as `<s> A </s> <s> B </s>`.

    Returns:
      Token ids, int32 [examples, length], and the number of truncated examples.
    """
    pairs = [(texts[0], "".join(texts[1:])) for texts in examples]
    encoded = vocabulary.encode_batch([text for pair in pairs for text in pair])
    tokens = np.full((len(examples), length), PAD, np.int32)
    cut = 0
    for row, texts in enumerate(examples):
        sides = encoded[2 * row : 2 * row + len(texts)]
        room = length - len(sides) - (len(sides) if apart else 1)
        lengths = fit_sizes([len(side) for side in sides], room)
        cut += sum(lengths) < sum(map(len, sides))
        ids: list[int] = []
        for side, size in zip(sides, lengths, strict=True):
            ids += [BOS] * (apart or not ids) + side[:size].tolist() + [EOS]
        tokens[row, : len(ids)] = ids
    return tokens, cut


def of_words(
    examples: Sequence[Words],
    vocabulary: Vocabulary,
    labels: Mapping[str, int],
    length: int,
    first_piece: bool = False,
) -> WordFeatures:
    """Converts sentences to rows `<s> words </s>`.

    A sentence that is too long is split between words and continues in further rows. A word that is
    longer than a row is truncated. Each word is encoded separately. The label of a word is at its
    first piece (Hu et al., 2020). If this piece is only the mark of a word's start, the label is at
    the next piece. (This is ours. When text without spaces is encoded as a whole, its words rarely
    have a separate mark.) A word without pieces becomes `<unk>`, so that it has a piece for the
    label.

    Args:
      examples: the sentences.
      vocabulary: the vocabulary.
      labels: the zero-based number of each tag. In the field `labels`, int32 [rows, length], a tag
        has this number plus 1, and 0 means no tag.
      length: number of tokens of a row.
      first_piece: whether the label is at the first piece even if this is only a mark.
    """
    room = length - 2
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(e.words for e in examples)))
    unknown = np.array([UNK], np.int32)
    encoded = vocabulary.encode_words(distinct)
    pieces = {
        word: ids if len(ids) else unknown for word, ids in zip(distinct, encoded, strict=True)
    }
    marks = set(vocabulary.marks.tolist())
    rows: list[list[np.ndarray]] = []
    positions: list[tuple[int, int]] = []
    cut = 0
    for example in examples:
        used = length  # each sentence starts a new row
        for word in example.words:
            ids = pieces[word][:room]
            cut += len(ids) < len(pieces[word])
            if used + len(ids) > room:
                rows.append([])
                used = 0
            skips_mark = not first_piece and len(ids) > 1 and int(ids[0]) in marks
            positions.append((len(rows) - 1, used + 1 + skips_mark))
            rows[-1].append(ids)
            used += len(ids)
    tokens = np.full((len(rows), length), PAD, np.int32)
    numbers = np.zeros_like(tokens)
    for row, sequences in enumerate(rows):
        ids = np.concatenate(sequences)
        tokens[row, 0], tokens[row, 1 : len(ids) + 1], tokens[row, len(ids) + 1] = BOS, ids, EOS
    row_and_column = np.array(positions, np.int32).reshape(-1, 2)
    tags = itertools.chain.from_iterable(e.tags or [None] * len(e.words) for e in examples)
    values = [0 if tag is None else 1 + labels[tag] for tag in tags]
    numbers[row_and_column[:, 0], row_and_column[:, 1]] = values
    return WordFeatures(tokens, {"labels": numbers}, {"words": cut}, row_and_column)


def fit_sizes(sizes: Sequence[int], room: int) -> list[int]:
    """Reduces the sizes of one or two sentences to `room` in total; the larger size first."""
    if sum(sizes) <= room:
        return list(sizes)
    if len(sizes) == 1:
        return [room]
    shorter = min(min(sizes), room // 2)
    longer = room - shorter
    return [shorter, longer] if sizes[0] <= sizes[1] else [longer, shorter]
