"""Reference implementation of XLCO, retrieval and distillation.

XLCO and retrieval encode the two sentences of a pair separately.
"""

import numpy as np

from references.encoder import encode
from references.layout import BOS, PAD, is_word
from references.losses import log_sum_exp, softplus


def examples(tokens):
    """The examples of each row, as lists of ids."""
    rows = []
    for row in np.asarray(tokens).tolist():
        rows.append([])
        for token in row:
            if token == BOS:
                rows[-1].append([])
            if token != PAD:
                rows[-1][-1].append(token)
    return rows


def by_example(vector, params, model, side, layer, most):
    """Computes a vector of each example, which is encoded in a row of its own.

    Args:
      vector: a function of an example's hidden vectors [length, hidden] and ids [length].
      most: the maximum number of examples in a row.

    Returns:
      vectors: [rows, most, hidden], 0 where a row has no such example.
      is_real: bool [rows, most], whether a row has the example.
    """
    ids_of_rows = examples(side["tokens"])
    places = [
        (row, n) for row, ids_of_row in enumerate(ids_of_rows) for n in range(len(ids_of_row))
    ]
    alone = np.full((len(places), np.asarray(side["tokens"]).shape[1]), PAD)
    for k, (row, n) in enumerate(places):
        alone[k, : len(ids_of_rows[row][n])] = ids_of_rows[row][n]
    languages = np.asarray(side["languages"])[[row for row, _ in places]]
    hidden = encode(params, model, alone, languages)[layer]
    computed = np.stack([vector(h, ids) for h, ids in zip(hidden, alone, strict=True)])
    vectors = np.zeros((len(ids_of_rows), most, computed.shape[1]))
    is_real = np.zeros((len(ids_of_rows), most), bool)
    for k, place in enumerate(places):
        vectors[place], is_real[place] = computed[k], True
    return vectors, is_real


def projected(params, model, side, layer, most):
    """InfoXLM's vectors: the projected first token of each example, in the form of `by_example`."""

    def vector(hidden, ids):
        return hidden[0] @ params["contrast_head"]["kernel"]

    return by_example(vector, params, model, side, layer, most)


def contrast(queries, keys, queue, temperature, is_real):
    """Sums of -log softmax of each query's own key among this key and the queue, and the number of
    queries whose own key scores highest, [rows] each."""
    sums, correct = np.zeros(len(queries)), np.zeros(len(queries))
    for row, n in zip(*np.nonzero(is_real), strict=True):
        query = queries[row, n]
        scores = np.concatenate([[query @ keys[row, n]], queue @ query]) / temperature
        sums[row] += log_sum_exp(scores) - scores[0]
        correct[row] += (scores[0] >= scores[1:]).all()
    return sums, correct


def contrast_state(state, params, vectors, momentum, is_real):
    """The state after a step: averages the parameters of the momentum encoder, and writes the
    vectors of real examples into the queue, one by one."""
    queue, next_slot, filled = np.array(state["queue"]), int(state["next"]), int(state["filled"])
    for vector in vectors[is_real]:
        queue[next_slot] = vector
        next_slot, filled = (next_slot + 1) % len(queue), min(filled + 1, len(queue))

    def average(old, new):
        if isinstance(old, dict):
            return {name: average(part, new[name]) for name, part in old.items()}
        old = np.asarray(old, np.float64)
        return momentum * old + (1 - momentum) * np.asarray(new, np.float64)[: len(old)]

    momentum_params = average(state["momentum"], params)
    return {"momentum": momentum_params, "queue": queue, "next": next_slot, "filled": filled}


def averaged(params, model, side, layer, most):
    """The normalised mean of each example's word vectors at a layer, [rows * most, hidden]; 0 where
    a row has no such example."""

    def vector(hidden, ids):
        mean = hidden[is_word(ids)].mean(0)
        return mean / np.sqrt(mean @ mean)

    vectors, _ = by_example(vector, params, model, side, layer, most)
    return vectors.reshape(-1, vectors.shape[-1])


def negatives_of(first, second, most):
    """The negatives of each pair i of rows * most: the real pairs that share no sentence with pair
    i on either side. A pair that is not real has none. `first` and `second` are tokens
    [rows, length]."""
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
    """Losses and correct pairs, [rows] each, of unit vectors [rows, hidden]; 0 for a pair without
    negatives.

    Kind `hardest` is the binary cross-entropy of the translation and of the nearest negative, in
    both directions (ERNIE-M, section 4.2). Kind `softmax` is -log softmax of the translation among
    all negatives of both sides (NT-Xent).
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
    """The gradient at `x` of a function that returns a number, by central differences."""
    gradient = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        offset = np.zeros_like(x)
        offset[place] = step
        gradient[place] = (function(x + offset) - function(x - offset)) / (2 * step)
    return gradient


def distilled(student, teacher, model, tokens, languages, language):
    """Sums and counts, [rows] each, of the mean squared difference between the last layers of
    student and teacher, over the tokens of rows in `language`."""
    tokens, languages = np.asarray(tokens), np.asarray(languages)
    difference = (
        encode(student, model, tokens, languages)[-1]
        - encode(teacher, model, tokens, languages)[-1]
    )
    counted = (tokens != PAD) & (languages[:, :1] == language)
    return ((difference**2).mean(-1) * counted).sum(1), counted.sum(1)
