"""MMLM, TLM and CAMLM (ERNIE-M, section 3.2)."""

import numpy as np

from references.encoder import encode
from references.heads import prediction
from references.layout import layout, of_sides
from references.losses import of_masked


def predicted(params, model, masked, hidden):
    """The loss of the masked tokens by hidden vectors [rows, length, hidden]."""
    logits = prediction(params["prediction_head"], params["embeddings"]["word"], model, hidden)
    return of_masked(logits, masked)


def mlm(params, model, masked):
    """A token sees its whole example."""
    hidden = encode(params, model, masked.tokens, masked.languages)[-1]
    return predicted(params, model, masked, hidden)


def selected(masked):
    """Which tokens are predicted, bool [rows, length]."""
    found = np.zeros(np.shape(masked.tokens), bool)
    for row, (positions, weights) in enumerate(zip(masked.positions, masked.weights, strict=True)):
        found[row, np.asarray(positions)[np.asarray(weights) > 0]] = True
    return found


def camlm(params, model, masked):
    """A predicted token sees the other side of its example, every other token its own side; nothing
    sees a predicted token."""
    example, side, _ = layout(masked.tokens)
    asked = selected(masked)
    same = example[:, :, None] == example[:, None, :]
    other_side = side[:, :, None] != side[:, None, :]
    sees = same & (other_side == asked[:, :, None]) & ~asked[:, None, :]
    marked = None
    if model.language_embeddings == "predicted":
        marked = np.where(asked, of_sides(masked.tokens, masked.languages), -1)
    hidden = encode(params, model, masked.tokens, masked.languages, sees=sees, marked=marked)[-1]
    return predicted(params, model, masked, hidden)
