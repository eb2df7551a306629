"""Self-training of word alignment: losses, counts and accuracy equal a plain computation."""

import jax
import numpy as np
from compiled import compiled
from constants import with_constants
from random_rows import CORPUS, rows_of

from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.models.segments import whole_examples
from xlj.objectives.word_agreement import loss as word_agreement
from xlj.objectives.word_agreement.options import WordAgreement

OPTIONS = with_constants(WordAgreement(layer=1, weight=2.0, consistency_weight=0.3), scale=6.0)
NAMES = "word_agreement", "word_agreement_consistency"


def pairs_of(tokens):
    """Returns the positions of the pieces of each example of a row."""
    starts = np.flatnonzero(tokens == BOS)
    parts = np.split(np.arange(len(tokens)), starts)[1:]
    return [[k for k in part if tokens[k] not in (BOS, EOS, PAD)] for part in parts]


def log_softmax(scores, axis):
    shifted = scores - scores.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def test_losses_equal_a_computation_by_pairs(model):
    objective = compiled(word_agreement.objective("word_agreement", OPTIONS, model, CORPUS))
    assert objective.losses[NAMES[0]].weight == 2.0
    assert objective.losses[NAMES[1]].weight == 0.6
    rows = rows_of("bitext")
    rngs = jax.random.split(jax.random.key(5), len(rows["languages"]))
    init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
    params = init(jax.random.key(1), model, CORPUS.vocabulary_size, 2)
    sides = objective.corrupt(rows, rngs)
    actual = objective.loss(params, {}, sides, None)
    counts = objective.count(sides)
    hidden = [
        np.asarray(encoder.apply(params, model, whole_examples(model, **side), layers=1))
        for side in sides
    ]
    tokens = [np.asarray(side["tokens"]) for side in sides]
    several = 0
    for row in range(len(tokens[0])):
        likelihood = returns = links = pieces = 0
        for first, second in zip(*(pairs_of(side[row]) for side in tokens), strict=True):
            a, b = hidden[0][row, first], hidden[1][row, second]
            a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
            cosines = a @ b.T
            forth, back = log_softmax(6 * cosines, 1), log_softmax(6 * cosines, 0)
            for i, j in enumerate(cosines.argmax(1)):
                if cosines[:, j].argmax() == i:
                    likelihood += forth[i, j] + back[i, j]
                    links += 1
            returns += np.exp(forth + back).sum()
            pieces += len(first) + len(second)
            several += len(first) > 1
        of_links, of_returns = (actual[name] for name in NAMES)
        np.testing.assert_allclose(of_links.sum[row], -likelihood, rtol=1e-4)
        np.testing.assert_allclose(of_returns.sum[row], pieces - 2 * returns, rtol=1e-4)
        assert of_links.correct[row] == 2 * links and of_returns.correct[row] == 0
        for name in NAMES:
            assert actual[name].count[row] == counts[name][row] == pieces
    assert several > 5
