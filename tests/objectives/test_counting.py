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
"""Difference between count and formula, in percent. The formulas ignore one product, the gradient
of the vocabulary's bias. XLCO's formula uses the mean number of pairs per row; its program uses the
largest number."""


SIX_ROWS = counting.abstract_rows(registered()["mmlm"], 6, 16)


def built(name, model, corpus=LARGE_CORPUS, **values):
    teacher = {"teacher": "a checkpoint"} if name == "distillation" else {}
    options = dataclasses.replace(registered()[name], batch_size=32, **teacher, **values)
    return options, build({name: options}, model, corpus)[name]


def test_each_objective_of_xlj_has_an_entry_in_distances():
    assert set(DISTANCES) == {
        name for name, o in registered().items() if "xlj" in type(o).__module__
    }


@pytest.mark.parametrize("name", DISTANCES)
def test_the_count_differs_from_the_formula_by_the_known_percentage(name):
    """Counts 32 rows of 512 tokens with the sizes of a base model."""
    model = dataclasses.replace(BASE, attention="dense")
    options, objective = built(name, model)
    batch = counting.abstract_rows(options, 32, 512)
    count = counting.count_operations(objective, model, LARGE_CORPUS, batch).total
    distance = 100 * (count / objective.flops(32, 512).total - 1)
    assert distance == pytest.approx(DISTANCES[name], abs=0.02)


def test_a_supervised_task_is_counted():
    options = SUPERVISED["tagging"](batch_size=8, length=62, labels=("a", "b", "c"))
    objective = build({"tagging": options}, BASE, LARGE_CORPUS)["tagging"]
    ids = jax.ShapeDtypeStruct((8, 62), jnp.int32)
    batch = {"tokens": ids, "labels": ids, "languages": jax.ShapeDtypeStruct((8, 2), jnp.int32)}
    count = counting.count_operations(objective, BASE, LARGE_CORPUS, batch).total
    assert count == pytest.approx(objective.flops(8, 62).total, rel=1e-3)


@pytest.mark.parametrize(
    "changes", [{"attention": "triton"}, {"remat": "all"}, {"remat": "products"}]
)
def test_recomputation_and_kernels_do_not_change_the_count(changes, monkeypatch):
    replace = dataclasses.replace
    monkeypatch.setattr(
        counting,
        "build",
        lambda *arguments: {"mmlm": replace(build(*arguments)["mmlm"], flops=None)},
    )

    def count(model):
        options = {"mmlm": built("mmlm", model)[0]}
        return counting.operations(options, model, LARGE_CORPUS, {"mmlm": (4, 128)})["mmlm"]

    assert count(dataclasses.replace(BASE, **changes)) == count(BASE)


def test_a_formula_is_used_if_there_is_one():
    options, objective = built("mmlm", BASE)
    actual = counting.operations({"mmlm": options}, BASE, LARGE_CORPUS, {"mmlm": (4, 128)})
    assert actual == {"mmlm": objective.flops(4, 128)}


def test_loops_branches_and_the_next_state_are_counted():
    """The objective has only a few products, whose operations are computed by hand."""
    model = Model(layers=2, hidden=8, heads=2, intermediate=16, positions=34)
    square = jnp.ones((8, 8))

    def loss(params, state, rows, rngs):
        def iteration(x, _):
            return x @ params["own_head"]["kernel"], None

        # The backward pass of the loop has twice as many operations.
        x = jax.lax.scan(iteration, jnp.ones((4, 8)), length=5)[0]
        x += jax.lax.cond(x[0, 0] > 0, lambda: jnp.ones((4, 3)) @ jnp.ones((3, 8)), lambda: x)
        each = jnp.broadcast_to(x.sum(), len(rows["tokens"]))
        return {"own": LossSums(each, each, each)}

    objective = Objective(
        losses={"own": Loss(1.0)},
        corrupt=lambda rows, rngs: rows,
        count=lambda rows: {"own": jnp.ones(len(rows["tokens"]))},
        loss=loss,
        parts={"own_head": lambda rng: {"kernel": jax.random.normal(rng, (8, 8))}},
        init_state=lambda params: {"square": square},
        update=lambda state, params, rows: {"square": state["square"] @ state["square"]},
    )
    actual = counting.count_operations(objective, model, CORPUS, SIX_ROWS)
    loop = 5 * 2 * 4 * 8 * 8
    # The first iteration of the loop needs no gradient of its input, but all iterations run the
    # same program.
    assert actual == Operations(other=TRAINED * loop + 2 * 4 * 3 * 8 + 2 * 8 * 8 * 8)


def test_an_encoder_without_a_gradient_is_counted_only_forward():
    model = Model(layers=2, hidden=8, heads=2, intermediate=16, positions=34)

    def inputs(rows):
        ids = rows["tokens"]
        return encoder.Inputs(ids, ids * 0, ids * 0 + 1, ids * 0 + 1)

    def loss(params, state, rows, rngs):
        hidden = encoder.apply(jax.lax.stop_gradient(params), model, inputs(rows), rngs)
        each = hidden.sum((1, 2)) + params["own_head"]["bias"].sum()
        return {"own": LossSums(each, each, each)}

    objective = Objective(
        losses={"own": Loss(1.0)},
        corrupt=lambda rows, rngs: rows,
        count=lambda rows: {"own": jnp.ones(len(rows["tokens"]))},
        loss=loss,
        parts={"own_head": lambda rng: {"bias": jnp.zeros(8)}},
    )
    actual = counting.count_operations(objective, model, CORPUS, SIX_ROWS).total
    assert actual == of_layers(model, 2, 6, 16).total and math.isfinite(actual)
