"""Labelled examples as rows of token ids and labels (kinds of tasks say how)."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from xlj.data.labelled.examples import Sentences, Words
from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Features:
    """Examples as rows: int32 [rows, length], int32 [rows, labels of a row], and how many texts
    lost a part, by what they are."""

    tokens: np.ndarray
    labels: np.ndarray
    cut: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class WordFeatures(Features):
    """Sentences of tagged words as rows, and row and column of the piece with each word's label,
    int32 [words, 2], the words of all sentences in order."""

    places: np.ndarray


def of_sentences(
    examples: Sequence[Sentences],
    vocabulary: Vocabulary,
    labels: Mapping[str, int],
    length: int,
    apart: bool = False,
) -> Features:
    """Examples as `<s> A </s>` or `<s> A </s> B </s>`, one a row; `<s> A </s> <s> B </s>` if two
    sentences are read apart, as rows hold several examples.

    What is too long loses its end, of two sentences the longer one first (as in XTREME's scripts).

    Args:
      labels: the number of each label, from 0.
    """
    tokens, cut = of_texts([example.texts for example in examples], vocabulary, length, apart)
    numbers = [0 if e.label is None else 1 + labels[e.label] for e in examples]
    return Features(tokens, np.array(numbers, np.int32).reshape(-1, 1), {"examples": cut})


def of_texts(
    examples: Sequence[Sequence[str]], vocabulary: Vocabulary, length: int, apart: bool = False
) -> tuple[np.ndarray, int]:
    """The tokens of `of_sentences`, int32 [examples, length], of one text or two each; and how many
    lost an end."""
    pairs = [(texts[0], "".join(texts[1:])) for texts in examples]
    encoded = vocabulary.encode_batch([text for pair in pairs for text in pair])
    tokens = np.full((len(examples), length), PAD, np.int32)
    cut = 0
    for row, texts in enumerate(examples):
        sides = encoded[2 * row : 2 * row + len(texts)]
        room = length - len(sides) - (len(sides) if apart else 1)
        kept = shortened([len(side) for side in sides], room)
        cut += sum(kept) < sum(map(len, sides))
        ids: list[int] = []
        for side, size in zip(sides, kept, strict=True):
            ids += [BOS] * (apart or not ids) + side[:size].tolist() + [EOS]
        tokens[row, : len(ids)] = ids
    return tokens, cut


def of_words(
    examples: Sequence[Words], vocabulary: Vocabulary, labels: Mapping[str, int], length: int
) -> WordFeatures:
    """Sentences as `<s> words </s>`; what is too long goes on in further rows, between words.

    Each word is encoded by itself, its label stands at its first piece (Hu et al., 2020): the first
    that is more than the mark of a word's start, since text that is written without spaces has few
    of those by themselves (ours). A word without pieces becomes `<unk>`, so that it has a label.

    Args:
      labels: the number of each tag, from 0.
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
    places: list[tuple[int, int]] = []
    cut = 0
    for example in examples:
        used = length  # a sentence starts a row
        for word in example.words:
            ids = pieces[word][:room]
            cut += len(ids) < len(pieces[word])
            if used + len(ids) > room:
                rows.append([])
                used = 0
            alone = len(ids) > 1 and int(ids[0]) in marks
            places.append((len(rows) - 1, used + 1 + alone))
            rows[-1].append(ids)
            used += len(ids)
    tokens = np.full((len(rows), length), PAD, np.int32)
    numbers = np.zeros_like(tokens)
    for row, parts in enumerate(rows):
        ids = np.concatenate(parts)
        tokens[row, 0], tokens[row, 1 : len(ids) + 1], tokens[row, len(ids) + 1] = BOS, ids, EOS
    where = np.array(places, np.int32).reshape(-1, 2)
    tags = itertools.chain.from_iterable(e.tags or [None] * len(e.words) for e in examples)
    values = [0 if tag is None else 1 + labels[tag] for tag in tags]
    numbers[where[:, 0], where[:, 1]] = values
    return WordFeatures(tokens, numbers, {"words": cut}, where)


def shortened(sizes: Sequence[int], room: int) -> list[int]:
    """Sizes of sentences that together fit into `room`: the longer one gives way."""
    if sum(sizes) <= room:
        return list(sizes)
    if len(sizes) == 1:
        return [room]
    shorter = min(min(sizes), room // 2)
    longer = room - shorter
    return [shorter, longer] if sizes[0] <= sizes[1] else [longer, shorter]
