"""Reference implementation of denoising word alignment (XLM-Align, sections 3.1 and 3.2)."""

import numpy as np

from references.alignment import best_of_columns, best_of_rows, itermax, sinkhorn_log
from references.encoder import encode
from references.heads import pointer
from references.layout import is_word, layout
from references.losses import log_sum_exp
from references.mlm import predicted


def words_of_pairs(tokens):
    """Yields (row, places of the first sentence's words, places of the second sentence's words) of
    each example."""
    example, side, _ = layout(tokens)
    for row in range(len(tokens)):
        for number in range(1, example[row].max() + 1):
            is_word_of_pair = (example[row] == number) & is_word(tokens[row])
            yield row, *(np.flatnonzero(is_word_of_pair & (side[row] == i)) for i in (0, 1))


def labels(params, model, original, languages, options):
    """The labels of the pointer: {(row, place): the place of the aligned word}. The last place
    counts if there are several. `options` has the keys of `objectives.dwa`."""
    layer, columns_first = options.label_layer, options.sinkhorn_first == "columns"
    transport = options.sinkhorn_iterations, columns_first, options.sinkhorn_mu
    rounds = options.filtering_alpha, options.filtering_iterations
    hidden = encode(params, model, original, languages)[layer]
    place_of = {}
    for row, first, second in words_of_pairs(original):
        plan, _, _ = sinkhorn_log(hidden[row, first] @ hidden[row, second].T, *transport)
        links = best_of_rows(plan) | best_of_columns(plan)
        if options.filtering:
            links = itermax(plan, *rounds)
        for i, j in sorted(links):
            one, other = first[i], second[j]
            place_of[row, one] = max(other, place_of.get((row, one), -1))
            place_of[row, other] = max(one, place_of.get((row, other), -1))
    return place_of


def some_of(candidates, share, order):
    """Chooses floor(share * n) of each row's n candidates: those with the lowest `order`."""
    chosen = np.zeros_like(candidates)
    for row, is_candidate in enumerate(candidates):
        places = sorted(np.flatnonzero(is_candidate), key=lambda at: order[row, at])
        chosen[row, places[: int(share * len(places) + 1e-6)]] = True
    return chosen


def losses(params, model, original, masked, queries, layer):
    """Sums, counts and correct predictions, [rows] each, of TLM and of the pointer on `layer`.

    Args:
      queries: {(row, place): the place to point to}.
    """
    hidden = encode(params, model, masked.tokens, masked.languages)
    pointer_losses = np.zeros((3, len(original)))
    head = params["pointer_head"]
    for row, first, second in words_of_pairs(original):
        for own, other in ((first, second), (second, first)):
            for at in own:
                if (row, at) in queries:
                    scores = pointer(head, hidden[layer][row, at], hidden[layer][row, other])
                    label = other.tolist().index(queries[row, at])
                    loss = log_sum_exp(scores) - scores[label]
                    pointer_losses[:, row] += loss, 1, scores.argmax() == label
    return predicted(params, model, masked, hidden[-1]), pointer_losses
