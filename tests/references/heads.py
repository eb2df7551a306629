"""Reference implementation of the heads on the encoder."""

import math

import numpy as np

from references.encoder import dense, gelu, norm


def prediction(head, word, model, hidden):
    """Logits of every token of the vocabulary.

    RoBERTa's head has a dense layer, GELU and a norm; EuroBERT's head has none of them. The output
    layer's matrix is the word embeddings or the head's own table. Its bias is optional.
    """
    if model.prediction == "dense":
        hidden = norm(head["norm"], model, gelu(dense(head["dense"], hidden)))
    return hidden @ (word if model.tied else head["word"]).T + head.get("bias", 0)


def detection(head, hidden):
    """ELECTRA's head: one logit per token."""
    return dense(head["output"], gelu(dense(head["dense"], hidden)))[..., 0]


def pointer(head, query, keys):
    """Scores of keys [n, hidden] for a query [hidden] (XLM-Align Eq. 11 to 13)."""
    return dense(head["key"], keys) @ dense(head["query"], query) / math.sqrt(len(query))


def of_texts(head, model, texts):
    """Logits of the heads that `model.task_head` and `model.task_pooling` name.

    `texts` are the vectors [tokens, hidden] of each text.
    """
    if model.task_pooling == "late":
        return np.stack([of_vectors(head, model, text).mean(0) for text in texts])
    pooled = [text.mean(0) if model.task_pooling == "mean" else text[0] for text in texts]
    return of_vectors(head, model, np.stack(pooled))


def of_vectors(head, model, x, by_token=False):
    """Only ModernBERT has layers before the logits of single tokens."""
    if model.task_head == "gelu_norm":
        x = norm(head["norm"], model, gelu(dense(head["dense"], x)))
    elif not by_token:
        x = dense(head["dense"], x)
        x = gelu(x) if model.task_head == "gelu" else np.tanh(x)
    return dense(head["output"], x)


def classification(head, vectors, dropped):
    """RoBERTa's head: `dropped(x, site)` before and after a dense layer. The head on InferSent's
    features is the same."""
    x = np.tanh(dense(head["dense"], dropped(vectors, 0)))
    return dense(head["output"], dropped(x, 1))
