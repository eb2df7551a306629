"""Counts the floating-point operations of training steps in their traced programs.

The count has the matrix products that the mathematics of a step needs, by xlj's convention
(docs/papers.md): a multiply-add is 2 operations, and padding is included. Embedding look-ups,
activations, sums, recomputation and the optimizer do not count.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Jaxpr, jaxprs_in_params
from jax.sharding import AbstractDevice, AbstractMesh

from xlj.config import Model, Options
from xlj.contracts.arrays import PyTree
from xlj.data.rows.row_kind import Field
from xlj.data.rows.store import Corpus
from xlj.models import encoder
from xlj.models.lowering import counting
from xlj.objectives.objective import Objective, Rows, abstract_rows, build
from xlj.sharding.devices import AXES
from xlj.sharding.trees import Params

_CPU = AbstractMesh(
    (1, 1), AXES, abstract_device=AbstractDevice("cpu", num_cores=None, platform="cpu")
)
"""Programs are traced for one CPU, which need not be present, so that counts of all platforms are
equal. On GPUs, for example, the vocabulary is padded."""


@lru_cache(maxsize=64)
def of_step(
    name: str,
    options: Options,
    model: Model,
    corpus: Corpus,
    rows: int,
    fields: tuple[Field, ...],
) -> int:
    """Counts the operations of one objective in a step, which is traced but never compiled.

    Args:
      name: the name of the objective.
      rows: the number of rows.
      fields: the fields of a row (`RowKind.batch_fields`).
    """
    # Dense attention, because products inside Pallas kernels cannot be counted. No
    # rematerialisation, because recomputation must not count. A loop over layers takes less time to
    # trace. The type of numbers does not matter, and may still be `auto`.
    plain = dataclasses.replace(
        model, attention="dense", remat="none", scan_layers=True, dtype="float32"
    )
    objective = build({name: options}, plain, corpus)[name]
    return count(objective, plain, corpus, abstract_rows(fields, rows))


def count(objective: Objective, model: Model, corpus: Corpus, batch: Mapping[str, Any]) -> int:
    """Counts the operations of the matrix products in a traced step of an objective.

    The step includes corruption, targets, losses, gradients and the next state. It is traced for
    one CPU, inside `counting`. A `while` loop counts as one iteration. Of several branches, only
    the most expensive one counts.

    Args:
      model: with dense attention and without rematerialisation.
      batch: rows, or their shapes and dtypes (`abstract_rows`).
    """
    parts = objective.parts

    def more(params: Params, rng: jax.Array) -> tuple[Params, PyTree]:
        params = params | {name: make(rng) for name, make in parts.items()}
        return params, objective.init_state(params)

    def step(params: Params, state: PyTree, batch: Rows, rngs: jax.Array) -> PyTree:
        corrupted = objective.corrupt(batch, rngs)
        inputs = objective.targets(params, state, corrupted, lambda function, of: function(of))

        def loss(params: Params) -> jax.Array:
            losses = objective.loss(params, state, inputs, rngs)
            return sum((sums.sum.sum() for sums in losses.values()), jnp.zeros(()))

        return jax.grad(loss)(params), objective.update(state, params, inputs)

    # Shapes made under the mesh of a run would keep it, and JAX refuses two meshes in one program.
    with counting(), jax.sharding.use_abstract_mesh(_CPU):
        rng = jax.eval_shape(lambda: jax.random.key(0))
        params = _encoder_shapes(model, corpus.vocabulary_size, len(corpus.languages))
        params, state = jax.eval_shape(more, params, rng)
        rngs = jax.eval_shape(partial(jax.random.split, num=len(batch["languages"])), rng)
        traced = jax.make_jaxpr(step)(params, state, batch, rngs)
    return _products(traced.jaxpr)


@lru_cache(maxsize=8)
def _encoder_shapes(model: Model, pieces: int, languages: int) -> Params:
    """Returns the shapes and dtypes of the encoder's parameters, the same for all objectives."""
    rng = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(lambda rng: encoder.init(rng, model, pieces, languages), rng)


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
