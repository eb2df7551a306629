"""The heads that objectives have on the encoder."""

import math

import numpy as np

from references.encoder import dense, gelu, norm


def prediction(head, word, model, hidden):
    """Logits of every token of the vocabulary.

    RoBERTa's head has a dense layer, GELU and a norm; EuroBERT's has none of them. The products are
    with the word embeddings, or with a table of the head's own, and have a bias if the head has
    one.
    """
    if model.prediction == "dense":
        hidden = norm(head["norm"], model, gelu(dense(head["dense"], hidden)))
    return hidden @ (word if model.tied else head["word"]).T + head.get("bias", 0)


def detection(head, hidden):
    """One logit a token: ELECTRA's."""
    return dense(head["output"], gelu(dense(head["dense"], hidden)))[..., 0]


def pointer(head, query, keys):
    """Scores of keys [n, hidden] for a query [hidden] (XLM-Align Eq. 11 to 13)."""
    return dense(head["key"], keys) @ dense(head["query"], query) / math.sqrt(len(query))


def classification(head, vectors, dropped):
    """RoBERTa's head: dropout (x, site) before and after a dense layer; InferSent's likewise."""
    x = np.tanh(dense(head["dense"], dropped(vectors, 0)))
    return dense(head["output"], dropped(x, 1))
