"""Reference implementation of the layout of packed rows: example, side, position of each token."""

import numpy as np

BOS, PAD, EOS, FIRST_PIECE = 0, 1, 2, 4


def layout(tokens):
    """Example (from 1), side and position of each token, [rows, length] each; 0 for padding."""
    example, side, position = (np.zeros(np.shape(tokens), int) for _ in range(3))
    for row, ids in enumerate(np.asarray(tokens)):
        number = sides_before = offset = 0
        for at, token in enumerate(ids):
            if token == BOS:
                number, sides_before, offset = number + 1, 0, 0
            if token != PAD:
                example[row, at], side[row, at], position[row, at] = number, sides_before, offset
            sides_before += token == EOS
            offset += 1
    return example, side, position


def is_word(tokens):
    """Which tokens are neither `<s>`, `</s>` nor padding."""
    return ~np.isin(tokens, (BOS, PAD, EOS))


def of_sides(tokens, languages):
    """The language of each token, -1 for padding; `languages` [rows, 2]."""
    example, side, _ = layout(tokens)
    return of_examples(example, side, languages)


def of_examples(example, side, languages):
    """Like `of_sides`, for tokens with a known example and side, [rows, length] each."""
    language_of = np.take_along_axis(np.asarray(languages), np.minimum(side, 1), axis=1)
    return np.where(example > 0, language_of, -1)


def of_lengths(rows, length):
    """Example, side and position of each token of rows, from lengths instead of special tokens.

    Args:
      rows: for each row, the lengths of its examples; the first is at the row's start.
      length: the length of the rows, including padding.
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
    """Which keys have the query's segment id, bool [rows, query, key]; ids are [rows, length]."""
    return np.asarray(query_ids)[:, :, None] == np.asarray(key_ids)[:, None, :]
