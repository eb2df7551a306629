"""Operations counted in a traced program, compared with the formulas of objectives."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
from random_rows import CORPUS

from xlj.config import SUPERVISED, Model, registered
from xlj.data.rows.corpus import Corpus
from xlj.models import encoder
from xlj.objectives import build, counting
from xlj.objectives.flops import TRAINED, Operations, of_layers
from xlj.objectives.objective import Loss, LossSums, Objective

BASE = Model(language_embeddings="predicted", position_bias="gated")
LARGE_CORPUS = Corpus(250_002, ("en", "de"), (3, 2), ("en-de",))

DISTANCES = {
    "mmlm": 0.08, "tlm": 0.08, "camlm": 0.08, "btmlm": 0.06, "mrtd": 0.06, "trtd": 0.06,
    "dwa": 0.07, "xlco": -1.18, "retrieval": 0.02, "distillation": 0.0, "word_hmm": 3.49,
}  # fmt: skip
"""Difference of count and formula, in percent. The gradient of the vocabulary's bias is a product
that formulas ignore. XLCO's formula has the mean pairs of a row, its program the largest number."""


def built(name, model, corpus=LARGE_CORPUS, **values):
    teacher = {"teacher": "a checkpoint"} if name == "distillation" else {}
    options = dataclasses.replace(registered()[name], batch_rows=32, **teacher, **values)
    return options, build({name: options}, model, corpus)[name]


def test_each_objective_with_a_formula_is_counted_here():
    assert set(DISTANCES) == {
        name for name, o in registered().items() if "xlj" in type(o).__module__
    }


@pytest.mark.parametrize("name", DISTANCES)
def test_the_count_is_as_far_from_the_formula_as_is_known(name):
    """With the sizes of a base model: 32 rows of 512."""
    model = dataclasses.replace(BASE, attention="dense")
    objective = built(name, model)[1]
    count = counting.count_operations(objective, model, LARGE_CORPUS, 32, 512).total
    distance = 100 * (count / objective.flops(32, 512).total - 1)
    assert distance == pytest.approx(DISTANCES[name], abs=0.02)


def test_a_task_is_counted_too():
    options = SUPERVISED["tagging"](batch_rows=8, length=62, labels=("a", "b", "c"))
    objective = build({"tagging": options}, BASE, LARGE_CORPUS)["tagging"]
    count = counting.count_operations(objective, BASE, LARGE_CORPUS, 8, 2 * 62).total
    assert count == pytest.approx(objective.flops(8, 2 * 62).total, rel=1e-3)


@pytest.mark.parametrize(
    "changes", [{"attention": "fused"}, {"remat": "all"}, {"remat": "products"}]
)
def test_recomputation_and_kernels_do_not_change_the_count(changes, monkeypatch):
    of_formula = dataclasses.replace
    monkeypatch.setattr(
        counting, "build", lambda *given: {"mmlm": of_formula(build(*given)["mmlm"], flops=None)}
    )

    def found(model):
        options = {"mmlm": built("mmlm", model)[0]}
        return counting.operations(options, model, LARGE_CORPUS, {"mmlm": (4, 128)})["mmlm"]

    assert found(dataclasses.replace(BASE, **changes)) == found(BASE)


def test_a_formula_is_used_where_there_is_one():
    options, objective = built("mmlm", BASE)
    found = counting.operations({"mmlm": options}, BASE, LARGE_CORPUS, {"mmlm": (4, 128)})
    assert found == {"mmlm": objective.flops(4, 128)}


def test_loops_branches_and_the_next_state_count():
    """The objective has single products, whose operations are computed by hand."""
    model = Model(layers=2, hidden=8, heads=2, intermediate=16, positions=34)
    square = jnp.ones((8, 8))

    def loss(params, state, rows, rngs):
        def turn(x, _):
            return x @ params["own_head"]["kernel"], None

        x = jax.lax.scan(turn, jnp.ones((4, 8)), length=5)[0]  # and twice as much backward
        x += jax.lax.cond(x[0, 0] > 0, lambda: jnp.ones((4, 3)) @ jnp.ones((3, 8)), lambda: x)
        each = jnp.broadcast_to(x.sum(), len(rows.tokens))
        return {"own": LossSums(each, each, each)}

    objective = Objective(
        losses={"own": Loss(1.0)},
        corrupt=lambda rows, rngs: rows,
        count=lambda rows: {"own": jnp.ones(len(rows.tokens))},
        loss=loss,
        parts={"own_head": lambda rng: {"kernel": jax.random.normal(rng, (8, 8))}},
        init_state=lambda params: {"square": square},
        update=lambda state, params, rows: {"square": state["square"] @ state["square"]},
    )
    found = counting.count_operations(objective, model, CORPUS, 6, 16)
    turns = 5 * 2 * 4 * 8 * 8
    # The first iteration of the loop needs no gradient of its input, but all iterations are the
    # same program.
    assert found == Operations(other=TRAINED * turns + 2 * 4 * 3 * 8 + 2 * 8 * 8 * 8)


def test_an_encoder_that_is_not_trained_counts_once():
    model = Model(layers=2, hidden=8, heads=2, intermediate=16, positions=34)

    def inputs(rows):
        ids = rows.tokens
        return encoder.Inputs(ids, ids * 0, ids * 0 + 1, ids * 0 + 1)

    def loss(params, state, rows, rngs):
        hidden = encoder.apply(jax.lax.stop_gradient(params), model, inputs(rows), rngs)
        each = hidden.sum((1, 2)) + params["own_head"]["bias"].sum()
        return {"own": LossSums(each, each, each)}

    objective = Objective(
        losses={"own": Loss(1.0)},
        corrupt=lambda rows, rngs: rows,
        count=lambda rows: {"own": jnp.ones(len(rows.tokens))},
        loss=loss,
        parts={"own_head": lambda rng: {"bias": jnp.zeros(8)}},
    )
    found = counting.count_operations(objective, model, CORPUS, 6, 16).total
    assert found == of_layers(model, 2, 6, 16).total and math.isfinite(found)
