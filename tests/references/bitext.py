"""Objectives of pairs that are read apart: XLCO, retrieval; and distillation's distance."""

import numpy as np

from references.encoder import encode
from references.layout import PAD, is_word
from references.losses import log_sum_exp, softplus


def projected(params, model, side, layer):
    """InfoXLM's vector of a row: the projection of its first token's, [rows, hidden]."""
    hidden = encode(params, model, side.tokens, side.languages)[layer]
    return hidden[:, 0] @ params["contrast_head"]["kernel"]


def contrast(queries, keys, queue, temperature):
    """-log softmax of each query's own key among it and the queue: sums and correct, [rows]."""
    sums, correct = np.zeros(len(queries)), np.zeros(len(queries))
    for row, query in enumerate(queries):
        scores = np.concatenate([[query @ keys[row]], queue @ query]) / temperature
        sums[row] = log_sum_exp(scores) - scores[0]
        correct[row] = (scores[0] >= scores[1:]).all()
    return sums, correct


def contrast_state(state, params, vectors, momentum):
    """The momentum encoder after the step, and the queue with the step's vectors, one by one."""
    queue, following, filled = np.array(state["queue"]), int(state["next"]), int(state["filled"])
    for vector in vectors:
        queue[following] = vector
        following, filled = (following + 1) % len(queue), min(filled + 1, len(queue))

    def average(old, new):
        if isinstance(old, dict):
            return {name: average(part, new[name]) for name, part in old.items()}
        old = np.asarray(old, np.float64)
        return momentum * old + (1 - momentum) * np.asarray(new, np.float64)[: len(old)]

    kept = average(state["momentum"], params)
    return {"momentum": kept, "queue": queue, "next": following, "filled": filled}


def averaged(params, model, side, layer):
    """Unit vectors of the mean of a row's words at a layer, [rows, hidden]; 0 for padding."""
    hidden = encode(params, model, side.tokens, side.languages)[layer]
    found = np.zeros((len(hidden), hidden.shape[-1]))
    for row, words in enumerate(is_word(np.asarray(side.tokens))):
        if words.any():
            mean = hidden[row, words].mean(0)
            found[row] = mean / np.sqrt(mean @ mean)
    return found


def negatives_of(first, second):
    """The pairs that are no padding and share no sentence with pair i, on either side, for each i;
    none for padding. `first` and `second` are tokens [rows, length]."""
    sentences = [{tuple(a), tuple(b)} for a, b in zip(first, second, strict=True)]
    real = [i for i, row in enumerate(first) if row[0] != PAD]
    return [
        [j for j in real if not sentences[i] & sentences[j]] if i in real else []
        for i in range(len(first))
    ]


def compared(first, second, negatives, scale, kind):
    """Losses and correct [rows] of unit vectors [rows, hidden]; 0 where there is no negative.

    `hardest`: binary cross-entropy of the translation and of the nearest negative, both ways
    (ERNIE-M, section 4.2); `all`: -log softmax among all negatives of both sides (NT-Xent).
    """
    losses, correct = np.zeros(len(first)), np.zeros(len(first))
    for i, others in enumerate(negatives):
        if not others:
            continue
        right, nearest = scale * first[i] @ second[i], []
        for own, far in ((first, second), (second, first)):
            across, along = scale * far[others] @ own[i], scale * own[others] @ own[i]
            if kind == "hardest":
                losses[i] += softplus(-right) + softplus(across.max())
                nearest.append(across.max())
            else:
                losses[i] += log_sum_exp(np.concatenate([[right], across, along])) - right
                nearest.append(max(across.max(), along.max()))
        correct[i] = right > max(nearest)
    return losses, correct


def slopes(function, x, step=1e-5):
    """The gradient of a number at an array, by central differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[place] = step
        found[place] = (function(x + moved) - function(x - moved)) / (2 * step)
    return found


def distilled(student, teacher, model, tokens, languages, language):
    """Sums and counts [rows] of the mean squared difference of the last vectors, over the tokens
    of rows of one language."""
    tokens, languages = np.asarray(tokens), np.asarray(languages)
    difference = (
        encode(student, model, tokens, languages)[-1]
        - encode(teacher, model, tokens, languages)[-1]
    )
    counted = (tokens != PAD) & (languages[:, :1] == language)
    return ((difference**2).mean(-1) * counted).sum(1), counted.sum(1)
