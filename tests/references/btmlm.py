"""Reference implementation of BTMLM (ERNIE-M, section 3.2).

The model fills the placeholders after a sentence with pseudo-tokens, then predicts masked tokens.
"""

import math

import numpy as np

from references.encoder import encode
from references.heads import prediction
from references.layout import BOS, EOS, FIRST_PIECE, PAD, layout, of_sides
from references.mlm import predicted


def placeholders(tokens, ratio, mask):
    """Keeps ceil(ratio * n) placeholders after each sentence of n tokens; the other slots become
    padding. Returns the rows, and which tokens are placeholders, bool [rows, length]."""
    source, placed = np.array(tokens), np.zeros(np.shape(tokens), bool)
    for row in range(len(source)):
        for start in np.flatnonzero(source[row] == BOS):
            end = start + int((source[row, start:] == EOS).argmax())
            count, at = math.ceil(ratio * (end - start - 1) - 1e-9), end + 1
            while at < source.shape[1] and source[row, at] == mask:
                placed[row, at] = at - end <= count
                source[row, at] = mask if placed[row, at] else PAD
                at += 1
    return source, placed


def marks(tokens, placed, targets, languages, everywhere):
    """The language to embed at each token: the target language at placeholders; elsewhere the
    language of the side if `everywhere`, otherwise none (-1)."""
    others = of_sides(tokens, languages) if everywhere else np.full(np.shape(tokens), -1)
    return np.where(placed, targets, others)


def pseudo_tokens(params, model, source, placed, targets, languages, noise=None):
    """Fills each placeholder with the argmax of its logits; `noise` [rows, length, vocabulary] is
    added to them for a sample. A placeholder sees its sentence, and no token sees a placeholder."""
    example, _, _ = layout(source)
    sees = (example[:, :, None] == example[:, None, :]) & ~placed[:, None, :]
    everywhere = model.language_embeddings == "all"
    marked = marks(source, placed, targets, languages, everywhere)
    hidden = encode(params, model, source, languages, sees=sees, marked=marked)[-1]
    logits = prediction(params["prediction_head"], params["embeddings"]["word"], model, hidden)
    if noise is not None:
        logits = logits + noise
    logits[..., :FIRST_PIECE] = logits[..., -1] = -np.inf  # special tokens and `<mask>`
    return np.where(placed, logits.argmax(-1), source)


def loss(params, model, masked, placed, targets):
    """The loss of the masked tokens of sentences that are encoded with their pseudo-tokens."""
    marked = None
    if model.language_embeddings == "all":
        marked = marks(masked.tokens, placed, targets, masked.languages, everywhere=True)
    hidden = encode(params, model, masked.tokens, masked.languages, marked=marked)[-1]
    return predicted(params, model, masked, hidden)
