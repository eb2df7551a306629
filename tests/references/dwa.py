"""Denoising word alignment (XLM-Align, sections 3.1 and 3.2)."""

import numpy as np

from references.alignment import best_of_columns, best_of_rows, itermax, sinkhorn_log
from references.encoder import encode
from references.heads import pointer
from references.layout import is_word, layout
from references.losses import log_sum_exp
from references.mlm import predicted


def words_of_pairs(tokens):
    """(row, places of the first sentence's words, of the second's) of every example."""
    example, side, _ = layout(tokens)
    for row in range(len(tokens)):
        for number in range(1, example[row].max() + 1):
            mine = (example[row] == number) & is_word(tokens[row])
            yield row, *(np.flatnonzero(mine & (side[row] == i)) for i in (0, 1))


def labels(params, model, original, languages, options):
    """{(row, place): the place that it is aligned with}, the last of several; `options` has the
    keys of `objectives.dwa`."""
    layer, columns_first = options.label_layer, options.sinkhorn_first == "columns"
    transport = options.sinkhorn_iterations, columns_first, options.sinkhorn_mu
    rounds = options.filtering_alpha, options.filtering_iterations
    hidden = encode(params, model, original, languages)[layer]
    found = {}
    for row, first, second in words_of_pairs(original):
        plan, _, _ = sinkhorn_log(hidden[row, first] @ hidden[row, second].T, *transport)
        links = best_of_rows(plan) | best_of_columns(plan)
        if options.filtering:
            links = itermax(plan, *rounds)
        for i, j in sorted(links):
            one, other = first[i], second[j]
            found[row, one] = max(other, found.get((row, one), -1))
            found[row, other] = max(one, found.get((row, other), -1))
    return found


def some_of(candidates, share, order):
    """floor(share * n) of each row's n candidates, those of the lowest `order`."""
    chosen = np.zeros_like(candidates)
    for row, mine in enumerate(candidates):
        places = sorted(np.flatnonzero(mine), key=lambda at: order[row, at])
        chosen[row, places[: int(share * len(places) + 1e-6)]] = True
    return chosen


def losses(params, model, original, masked, queries, layer):
    """Sums, counts and correct [rows] of TLM, and of the pointer that reads `layer`.

    Args:
      queries: {(row, place): the place to point to}.
    """
    every = encode(params, model, masked.tokens, masked.languages)
    found = np.zeros((3, len(original)))
    head = params["pointer_head"]
    for row, first, second in words_of_pairs(original):
        for mine, other in ((first, second), (second, first)):
            for at in mine:
                if (row, at) in queries:
                    scores = pointer(head, every[layer][row, at], every[layer][row, other])
                    label = other.tolist().index(queries[row, at])
                    loss = log_sum_exp(scores) - scores[label]
                    found[:, row] += loss, 1, scores.argmax() == label
    return predicted(params, model, masked, every[-1]), found
