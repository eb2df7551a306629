"""Examples, sides and positions of packed rows, token by token."""

import numpy as np

BOS, PAD, EOS, FIRST_PIECE = 0, 1, 2, 4


def layout(tokens):
    """[rows, length] -> example (from 1), side and position of each token; 0 for padding."""
    example, side, position = (np.zeros(np.shape(tokens), int) for _ in range(3))
    for row, ids in enumerate(np.asarray(tokens)):
        number = ends = since = 0
        for at, token in enumerate(ids):
            if token == BOS:
                number, ends, since = number + 1, 0, 0
            if token != PAD:
                example[row, at], side[row, at], position[row, at] = number, ends, since
            ends += token == EOS
            since += 1
    return example, side, position


def is_word(tokens):
    """Which tokens are neither `<s>`, `</s>` nor padding."""
    return ~np.isin(tokens, (BOS, PAD, EOS))


def of_sides(tokens, languages):
    """The language of each token, -1 for padding; `languages` [rows, 2]."""
    example, side, _ = layout(tokens)
    return of_examples(example, side, languages)


def of_examples(example, side, languages):
    """As `of_sides`, of tokens whose example and side are given, [rows, length] each."""
    found = np.take_along_axis(np.asarray(languages), np.minimum(side, 1), axis=1)
    return np.where(example > 0, found, -1)


def of_lengths(rows, length):
    """Example, side and position of the tokens of rows, without regard to special tokens.

    Args:
      rows: for each row, the lengths of its examples; the first is at the row's start.
      length: of the rows, padding included.
    """
    example, side, position = (np.zeros((len(rows), length), int) for _ in range(3))
    for row, lengths in enumerate(rows):
        start = 0
        for number, size in enumerate(lengths, 1):
            example[row, start : start + size] = number
            position[row, start : start + size] = np.arange(size)
            start += size
    return example, side, position


def agree(query_ids, key_ids):
    """Which keys a query sees by segment ids [rows, length]: bool [rows, query, key]."""
    return np.asarray(query_ids)[:, :, None] == np.asarray(key_ids)[:, None, :]
