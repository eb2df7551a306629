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
    found = np.take_along_axis(np.asarray(languages), np.minimum(side, 1), axis=1)
    return np.where(example > 0, found, -1)
