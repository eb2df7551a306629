"""BTMLM (ERNIE-M, section 3.2): sentences with placeholders behind them, then pseudo-tokens."""

import math

import numpy as np

from references.encoder import encode
from references.heads import prediction
from references.layout import BOS, EOS, FIRST_PIECE, PAD, layout, of_sides
from references.mlm import predicted


def placeholders(tokens, ratio, mask):
    """The rows with ceil(ratio * n) placeholders behind a sentence of n tokens and padding in the
    other slots, and where placeholders are, bool [rows, length]."""
    source, placed = np.array(tokens), np.zeros(np.shape(tokens), bool)
    for row in range(len(source)):
        for start in np.flatnonzero(source[row] == BOS):
            end = start + int((source[row, start:] == EOS).argmax())
            wanted, at = math.ceil(ratio * (end - start - 1) - 1e-9), end + 1
            while at < source.shape[1] and source[row, at] == mask:
                placed[row, at] = at - end <= wanted
                source[row, at] = mask if placed[row, at] else PAD
                at += 1
    return source, placed


def marks(tokens, placed, targets, languages, everywhere):
    """The language embedded at each token: a placeholder has its target's."""
    others = of_sides(tokens, languages) if everywhere else np.full(np.shape(tokens), -1)
    return np.where(placed, targets, others)


def pseudo_tokens(params, model, source, placed, targets, languages, noise=None):
    """The rows with each placeholder filled: by the argmax of its logits, plus `noise` [rows,
    length, vocabulary] for a sample. A placeholder sees its sentence, and is seen by nothing."""
    example, _, _ = layout(source)
    sees = (example[:, :, None] == example[:, None, :]) & ~placed[:, None, :]
    everywhere = model.language_embeddings == "all"
    marked = marks(source, placed, targets, languages, everywhere)
    hidden = encode(params, model, source, languages, sees=sees, marked=marked)[-1]
    logits = prediction(params["prediction_head"], params["embeddings"]["word"], model, hidden)
    if noise is not None:
        logits = logits + noise
    logits[..., :FIRST_PIECE] = logits[..., -1] = -np.inf  # specials and `<mask>`
    return np.where(placed, logits.argmax(-1), source)


def loss(params, model, masked, placed, targets):
    """The loss of the sentence's masked tokens, read with their pseudo-tokens."""
    marked = None
    if model.language_embeddings == "all":
        marked = marks(masked.tokens, placed, targets, masked.languages, everywhere=True)
    hidden = encode(params, model, masked.tokens, masked.languages, marked=marked)[-1]
    return predicted(params, model, masked, hidden)
