"""Objectives of pairs that are read apart: XLCO, retrieval; and distillation's distance."""

import numpy as np

from references.encoder import encode
from references.layout import BOS, PAD, is_word
from references.losses import log_sum_exp, softplus


def examples(tokens):
    """Each row's examples, as lists of ids."""
    found = []
    for row in np.asarray(tokens).tolist():
        found.append([])
        for token in row:
            if token == BOS:
                found[-1].append([])
            if token != PAD:
                found[-1][-1].append(token)
    return found


def by_example(vector, params, model, side, layer, most):
    """`vector(hidden [length, hidden], ids [length])` of each example, encoded in a row of its own:
    [rows, most, hidden], 0 where there is none; and which are there, bool [rows, most]."""
    found = examples(side.tokens)
    where = [(row, n) for row, several in enumerate(found) for n in range(len(several))]
    alone = np.full((len(where), np.asarray(side.tokens).shape[1]), PAD)
    for k, (row, n) in enumerate(where):
        alone[k, : len(found[row][n])] = found[row][n]
    languages = np.asarray(side.languages)[[row for row, _ in where]]
    hidden = encode(params, model, alone, languages)[layer]
    made = np.stack([vector(h, ids) for h, ids in zip(hidden, alone, strict=True)])
    vectors = np.zeros((len(found), most, made.shape[1]))
    there = np.zeros((len(found), most), bool)
    for k, place in enumerate(where):
        vectors[place], there[place] = made[k], True
    return vectors, there


def projected(params, model, side, layer, most):
    """InfoXLM's vectors: the projections of the examples' first tokens, as `by_example`."""

    def vector(hidden, ids):
        return hidden[0] @ params["contrast_head"]["kernel"]

    return by_example(vector, params, model, side, layer, most)


def contrast(queries, keys, queue, temperature, there):
    """-log softmax of each query's own key among it and the queue: sums and correct, [rows]."""
    sums, correct = np.zeros(len(queries)), np.zeros(len(queries))
    for row, n in zip(*np.nonzero(there), strict=True):
        query = queries[row, n]
        scores = np.concatenate([[query @ keys[row, n]], queue @ query]) / temperature
        sums[row] += log_sum_exp(scores) - scores[0]
        correct[row] += (scores[0] >= scores[1:]).all()
    return sums, correct


def contrast_state(state, params, vectors, momentum, there):
    """The momentum encoder after the step, and the queue with the vectors that are there, one by
    one."""
    queue, following, filled = np.array(state["queue"]), int(state["next"]), int(state["filled"])
    for vector in vectors[there]:
        queue[following] = vector
        following, filled = (following + 1) % len(queue), min(filled + 1, len(queue))

    def average(old, new):
        if isinstance(old, dict):
            return {name: average(part, new[name]) for name, part in old.items()}
        old = np.asarray(old, np.float64)
        return momentum * old + (1 - momentum) * np.asarray(new, np.float64)[: len(old)]

    kept = average(state["momentum"], params)
    return {"momentum": kept, "queue": queue, "next": following, "filled": filled}


def averaged(params, model, side, layer, most):
    """Unit vectors of the mean of each example's words at a layer, [rows x most, hidden]; 0 where
    there is none."""

    def vector(hidden, ids):
        mean = hidden[is_word(ids)].mean(0)
        return mean / np.sqrt(mean @ mean)

    found, _ = by_example(vector, params, model, side, layer, most)
    return found.reshape(-1, found.shape[-1])


def negatives_of(first, second, most):
    """The pairs that are there and share no sentence with pair i, on either side, for each i of
    rows x most; none for one that is not there. `first` and `second` are tokens [rows, length]."""
    sentences, real = [], []
    for row in zip(examples(first), examples(second), strict=True):
        real += [len(sentences) + n for n in range(len(row[0]))]
        pairs = [{tuple(a), tuple(b)} for a, b in zip(*row, strict=True)]
        sentences += pairs + [set()] * (most - len(pairs))
    first = sentences
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
