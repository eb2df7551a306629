"""Retrieval: the hardest negative of the whole batch, and never a copy of the pair itself."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from random_rows import CORPUS, rows_of

from xlj.config import Retrieval
from xlj.models import encoder
from xlj.objectives import retrieval
from xlj.objectives.bitext import average
from xlj.objectives.segments import whole_examples

OPTIONS = Retrieval(scale=5.0)


def whole(function, inputs):
    return function(inputs)


def halves_at_a_time(function, inputs):
    """Microbatches, as the step makes them."""
    parts = [jax.tree.map(lambda x, i=i: x[i::2], inputs) for i in range(2)]
    made = [function(part) for part in parts]
    return jax.tree.map(lambda a, b: jnp.stack([a, b], 1).reshape(-1, *a.shape[1:]), *made)


def test_loss_equals_numpy_with_negatives_from_all_rows(model, params_of, keys_of):
    objective = retrieval.objective("retrieval", "bitext", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("bitext", count=20)
    rows = jax.tree.map(lambda x: x.at[7].set(x[3]), rows)  # a pair that stands twice
    rows = rows._replace(tokens=rows.tokens.at[9].set(1))  # and a row of padding
    inputs = jax.jit(objective.corrupt)(rows, keys_of(rows))
    made = objective.label(params, {}, inputs, whole)

    def vectors(side):
        read = whole_examples(model, side.tokens, side.languages)
        hidden = encoder.apply(params, model, read, layers=encoder.middle_layer(model.layers))
        mean = np.asarray(average(hidden, side.tokens), np.float64)
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-6)

    similarity = vectors(inputs.first) @ vectors(inputs.second).T
    allowed = ~np.eye(20, dtype=bool)
    allowed[9] = allowed[:, 9] = allowed[3, 7] = allowed[7, 3] = False
    negative = np.where(allowed, similarity, -np.inf)

    def softplus(x):
        return np.log1p(np.exp(x))

    wanted = 2 * softplus(-5 * np.diag(similarity))
    wanted += softplus(5 * negative.max(1)) + softplus(5 * negative.max(0))
    found = objective.loss(params, {}, made, None)["retrieval"]
    real = np.arange(20) != 9
    np.testing.assert_allclose(found.sum[real], wanted[real], rtol=1e-4)
    assert float(found.sum[9]) == float(found.count[9]) == 0 and found.count.sum() == 19
    parts = objective.label(params, {}, inputs, halves_at_a_time)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), parts, made)


def test_gradient_is_of_one_loss_over_all_rows(model, params_of, keys_of):
    """A sentence learns as its pair's and as the negative of others, in whichever microbatch."""
    objective = retrieval.objective("retrieval", "bitext", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("bitext", count=12)
    tokens = rows.tokens.at[7].set(rows.tokens[3]).at[9].set(1)  # a pair twice, a row of padding
    tokens = tokens.at[5, : tokens.shape[1] // 2].set(tokens[2, : tokens.shape[1] // 2])
    rows = rows._replace(tokens=tokens)
    inputs = jax.jit(objective.corrupt)(rows, keys_of(rows))
    made = objective.label(params, {}, inputs, whole)

    @jax.jit
    @jax.grad
    def ours(params, part):
        return objective.loss(params, {}, part, None)["retrieval"].sum.sum()

    def at_once(params):
        def vectors(side):
            read = whole_examples(model, side.tokens, side.languages)
            hidden = encoder.apply(params, model, read, layers=encoder.middle_layer(model.layers))
            mean = average(hidden, side.tokens)
            mean = mean.at[9].set(1.0)
            return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)

        scores = 5 * vectors(inputs.first) @ vectors(inputs.second).T
        allowed = ~np.eye(12, dtype=bool)
        allowed[9] = allowed[:, 9] = allowed[3, 7] = allowed[7, 3] = False
        allowed[2, 5] = allowed[5, 2] = False
        others = jnp.where(allowed, scores, -1e9)
        losses = 2 * jax.nn.softplus(-jnp.diag(scores))
        losses += jax.nn.softplus(others.max(1)) + jax.nn.softplus(others.max(0))
        return losses.at[9].set(0.0).sum()

    wanted = jax.jit(jax.grad(at_once))(params)
    parts = [ours(params, jax.tree.map(lambda x, i=i: x[i::3], made)) for i in range(3)]
    found = jax.tree.map(lambda *leaves: sum(leaves), *parts)
    jax.tree.map(partial(np.testing.assert_allclose, atol=2e-4), found, wanted)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted)) > 0.1


def test_pairs_that_are_all_the_same_teach_nothing(model, params_of, keys_of):
    objective = retrieval.objective("retrieval", "bitext", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("bitext", count=4)
    rows = jax.tree.map(lambda x: jnp.repeat(x[:1], 4, axis=0), rows)
    made = objective.label(params, {}, jax.jit(objective.corrupt)(rows, keys_of(rows)), whole)
    assert not np.asarray(made.found).any()
    assert not np.asarray(made.pull_first).any() and not np.asarray(made.pull_second).any()
