"""Counts the operations of a step of each objective, by a formula or in the traced program."""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxprs_in_params

from xlj.config import Model, Options
from xlj.contracts.arrays import PyTree
from xlj.data.rows.corpus import Corpus
from xlj.models import encoder
from xlj.objectives import build
from xlj.objectives.flops import Operations
from xlj.objectives.logits import in_one_block
from xlj.objectives.objective import Objective, Params, Rows


def operations(
    options: Mapping[str, Options],
    model: Model,
    corpus: Corpus,
    shapes: Mapping[str, tuple[int, int]],
) -> dict[str, Operations]:
    """Returns the floating-point operations of a step of each objective, by name.

    If an objective has a function `flops`, its result is used. Otherwise `count_operations` counts
    the operations in the objective's traced program.

    Args:
      options: the options of each objective, by name.
      shapes: (number of rows, length of a row) of each objective to count.
    """
    # Dense attention, because products inside Pallas kernels cannot be counted. No
    # rematerialisation, because recomputed products must not count.
    plain = dataclasses.replace(model, attention="blocks,dense", remat="none")
    built = build({name: options[name] for name in shapes}, plain, corpus)
    return {
        name: count_operations(built[name], plain, corpus, abstract_rows(options[name], *shape))
        if (formula := built[name].flops) is None
        else formula(*shape)
        for name, shape in shapes.items()
    }


def abstract_rows(options: Options, rows: int, length: int, ids: str = "<i4") -> dict[str, Any]:
    """Returns the shapes and dtypes of rows of an objective's batch, without values.

    Args:
      rows, length: the number of rows, and the length of a row in tokens.
      ids: the type of token ids.
    """
    return {
        field.name: jax.ShapeDtypeStruct((rows, *field.shape), field.dtype)
        for field in options.row_kind.batch_fields(length, ids)
    }


def count_operations(
    objective: Objective, model: Model, corpus: Corpus, batch: Mapping[str, Any]
) -> Operations:
    """Counts the operations of the matrix products in a traced step, which never runs.

    The step includes corruption, targets, losses, gradients and the next state. It is traced for
    one device, with the whole vocabulary as one block. A `while` loop counts as one iteration. Of
    several branches, only the most expensive one counts.

    Args:
      batch: rows, or their shapes and dtypes (`abstract_rows`).
    """
    parts = objective.parts

    def initial(rng: jax.Array) -> tuple[Params, PyTree]:
        params = encoder.init(rng, model, corpus.vocabulary_size, len(corpus.languages))
        params |= {name: make(rng) for name, make in parts.items()}
        return params, objective.init_state(params)

    def step(params: Params, state: PyTree, batch: Rows, rngs: jax.Array) -> PyTree:
        corrupted = objective.corrupt(batch, rngs)
        inputs = objective.targets(params, state, corrupted, lambda function, of: function(of))

        def loss(params: Params) -> jax.Array:
            losses = objective.loss(params, state, inputs, rngs)
            return sum((sums.sum.sum() for sums in losses.values()), jnp.zeros(()))

        return jax.grad(loss)(params), objective.update(state, params, inputs)

    rng = jax.eval_shape(lambda: jax.random.key(0))
    params, state = jax.eval_shape(initial, rng)
    rngs = jax.eval_shape(partial(jax.random.split, num=len(batch["languages"])), rng)
    with in_one_block():
        traced = jax.make_jaxpr(step)(params, state, batch, rngs)
    return Operations(other=float(_products(traced.jaxpr)))


def _products(jaxpr: Jaxpr) -> int:
    """Counts the operations of all matrix products in a program, with its loops and branches."""
    total = 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            left: Any = equation.invars[0].aval
            result: Any = equation.outvars[0].aval
            total += 2 * math.prod(left.shape[axis] for axis in contracted) * result.size
        inner = list(map(_products, jaxprs_in_params(params)))
        if name == "cond":
            total += max(inner)
        else:
            total += sum(inner) * (params["length"] if name == "scan" else 1)
    return total
