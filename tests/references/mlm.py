"""Reference implementation of MMLM, TLM and CAMLM (ERNIE-M, section 3.2)."""

import numpy as np

from references.encoder import encode
from references.heads import prediction
from references.layout import layout, of_sides
from references.losses import of_masked


def predicted(params, model, masked, hidden):
    """The loss of the masked tokens, predicted from hidden vectors [rows, length, hidden]."""
    logits = prediction(params["prediction_head"], params["embeddings"]["word"], model, hidden)
    return of_masked(logits, masked)


def mlm(params, model, masked):
    """The loss of MMLM and TLM: a token sees its whole example."""
    hidden = encode(params, model, masked.tokens, masked.languages)[-1]
    return predicted(params, model, masked, hidden)


def selected(masked):
    """Which tokens are predicted, bool [rows, length]."""
    is_selected = np.zeros(np.shape(masked.tokens), bool)
    for row, (positions, weights) in enumerate(zip(masked.positions, masked.weights, strict=True)):
        is_selected[row, np.asarray(positions)[np.asarray(weights) > 0]] = True
    return is_selected


def camlm(params, model, masked):
    """The loss of CAMLM: a predicted token sees only the other side of its example, any other token
    its own side; no token sees a predicted token."""
    example, side, _ = layout(masked.tokens)
    is_predicted = selected(masked)
    same = example[:, :, None] == example[:, None, :]
    other_side = side[:, :, None] != side[:, None, :]
    sees = same & (other_side == is_predicted[:, :, None]) & ~is_predicted[:, None, :]
    marked = None
    if model.language_embeddings == "predicted":
        marked = np.where(is_predicted, of_sides(masked.tokens, masked.languages), -1)
    hidden = encode(params, model, masked.tokens, masked.languages, sees=sees, marked=marked)[-1]
    return predicted(params, model, masked, hidden)
