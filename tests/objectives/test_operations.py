"""Operations counted in traced programs equal plain formulas of their matrix products."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractDevice, AbstractMesh
from random_rows import CORPUS, SIZE
from references import flops as reference

from xlj.config import Model, registered
from xlj.data.rows.row_kind import Field
from xlj.models import encoder
from xlj.models.lowering import counting
from xlj.objectives import operations
from xlj.objectives.masking.options import Masking
from xlj.objectives.objective import Loss, LossSums, Objective, abstract_rows
from xlj.objectives.rtd.options import Generator
from xlj.objectives.supervised.options import SUPERVISED
from xlj.objectives.word_hmm.head import NOISE
from xlj.sharding import devices
from xlj.sharding.devices import AXES

ROWS, LENGTH, RATE = 6, 66, 0.3
PAIRS = 2  # of a row of 66 tokens
SLOTS = reference.slots(RATE, LENGTH)
MASKED = {"masking": Masking(rate=RATE)}


def count(name, options, model):
    fields = options.row_kind.batch_fields(LENGTH, "<i4")
    return operations.of_step(name, options, model, CORPUS, ROWS, fields)


def count_of(name, model, **values):
    return count(name, dataclasses.replace(registered()[name], batch_size=ROWS, **values), model)


def mlm(model):
    return reference.mlm(model, SIZE, ROWS, LENGTH, RATE)


def of_tokens(formula, *arguments):
    return lambda model: formula(model, SIZE, ROWS, LENGTH, RATE, *arguments)


def of_rows(formula, *arguments, length=LENGTH):
    return lambda model: formula(model, ROWS, length, *arguments)


CASES = {
    "mmlm": ("mmlm", MASKED, mlm),
    "tlm": ("tlm", MASKED, mlm),
    "camlm": ("camlm", MASKED, mlm),
    "btmlm": ("btmlm", MASKED, of_tokens(reference.btmlm)),
    "mrtd": ("mrtd", MASKED | {"generator": Generator(layers=2)}, of_tokens(reference.rtd, 2)),
    "trtd": ("trtd", MASKED | {"generator": Generator(layers=1)}, of_tokens(reference.rtd, 1)),
    "dwa": ("dwa", MASKED | {"label_layer": 1}, of_tokens(reference.dwa, 1, SLOTS)),
    "dwa_aligned": (
        "dwa", MASKED | {"label_layer": 2, "queries": "aligned"},
        of_tokens(reference.dwa, 2, LENGTH),
    ),
    "xlco": ("xlco", {"layer": 1, "queue": 40}, of_rows(reference.xlco, PAIRS, 1, 40)),
    "xlco_of_single_pairs": (
        "xlco", {"layer": 2, "queue": 50, "mixup": False},
        of_rows(reference.xlco, PAIRS, 2, 50, length=LENGTH // 2),
    ),
    "retrieval": ("retrieval", {"layer": 1}, of_rows(reference.retrieval, PAIRS, 1, "hardest")),
    "retrieval_all": (
        "retrieval", {"layer": 2, "loss": "softmax"},
        of_rows(reference.retrieval, PAIRS, 2, "softmax"),
    ),
    "contrast": (
        "contrast", {"layer": 1, "negatives": 3, "query_length": 32, "dense": 24},
        of_rows(reference.contrast, PAIRS, 1, 3, 32, 24),
    ),
    "word_hmm": ("word_hmm", {"layer": 1}, of_rows(reference.word_hmm, 1, NOISE)),
    "word_agreement": ("word_agreement", {"layer": 2}, of_rows(reference.word_agreement, 2)),
    "distillation": (
        "distillation", {"teacher": "a checkpoint"}, of_rows(reference.distillation),
    ),
    "sentence_distillation": (
        "sentence_distillation", {"width": 24, "dense": 24, "layer": 1},
        of_rows(reference.sentence_distillation, 2, PAIRS, 1, 24, length=LENGTH // 2),
    ),
    "text_distillation": (
        "text_distillation", {"width": 32, "layer": 1},
        of_rows(reference.sentence_distillation, 1, 0, 1, 0),
    ),
}  # fmt: skip
"""By name: the objective, its options, and the formula of its operations."""


def test_each_objective_of_xlj_has_a_formula():
    of_xlj = {name for name, o in registered().items() if "xlj" in type(o).__module__}
    assert {name for name, _, _ in CASES.values()} == of_xlj


@pytest.mark.parametrize("case", CASES)
def test_the_operations_of_an_objective_equal_the_formula(full_model, case):
    name, values, formula = CASES[case]
    assert count_of(name, full_model, **values) == formula(full_model)


MODELS = {
    "plain": {},
    "grouped": {"feed_forward": "swiglu", "key_value_heads": 2, "norm": "embeddings"},
    "linear": {"prediction": "linear", "tied": False},
    "relative": {"position_bias": "t5"},
    # Long rows of local layers are computed in blocks, and with a bias without blocks.
    "local": {"local_attention": 9, "full_attention_every": 2, "layers": 5},
    "local_biased": {"local_attention": 9, "full_attention_every": 2, "position_bias": "gated"},
    "wide": {"local_attention": 90, "full_attention_every": 2},  # the window ends outside the row
    "covered": {"local_attention": 200, "full_attention_every": 2},  # the window covers the row
}


@pytest.mark.parametrize("options", MODELS)
def test_the_operations_of_a_model_equal_the_formula(model, options):
    model = dataclasses.replace(model, **MODELS[options])
    assert count_of("mmlm", model, **MASKED) == mlm(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "triton"}, {"remat": "all"}, {"remat": "products"}, {"scan_layers": False},
        {"dtype": "bfloat16"}, {"dtype": "auto"}, {"dropout": 0.1},
    ],
)  # fmt: skip
def test_the_count_does_not_depend_on_how_a_step_is_computed(model, changes):
    model = dataclasses.replace(model, dropout=0.0, scan_layers=True)
    assert count_of("mmlm", dataclasses.replace(model, **changes), **MASKED) == mlm(model)


def test_the_count_does_not_depend_on_the_platform(model):
    """On a GPU, a step pads the vocabulary to a multiple of 64."""
    device = AbstractDevice("NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu")
    operations.of_step.cache_clear()
    with jax.sharding.use_abstract_mesh(AbstractMesh((1, 1), AXES, abstract_device=device)):
        assert devices.platform() == "gpu" and SIZE % 64
        assert count_of("mmlm", model, **MASKED) == mlm(model)


@pytest.mark.parametrize(("name", "formula"), [("mmlm", reference.mlm), ("btmlm", reference.btmlm)])
def test_a_large_vocabulary_counts_once(model, name, formula):
    """A step would compute it in blocks, the last of which overlaps the block before it."""
    corpus, options = dataclasses.replace(CORPUS, vocabulary_size=2_000_001), registered()[name]
    fields = options.row_kind.batch_fields(LENGTH, "<i4")
    actual = operations.of_step(name, options, model, corpus, ROWS, fields)
    assert actual == formula(model, 2_000_001, ROWS, LENGTH, options.mask_rate)


def test_a_supervised_task_is_counted_from_the_fields_of_its_rows(full_model):
    options = SUPERVISED["tagging"](batch_size=ROWS, length=LENGTH, labels=("a", "b", "c"))
    fields = (
        Field("tokens", "<u2", (LENGTH,)),
        Field("labels", "<i4", (LENGTH,)),
        Field("languages", "<i4", (2,)),
    )
    actual = operations.of_step("tagging", options, full_model, CORPUS, ROWS, fields)
    assert actual == reference.supervised(full_model, ROWS, LENGTH, 3)


@pytest.mark.parametrize(
    ("name", "layer"), [("dwa", "label_layer"), ("xlco", "layer"), ("retrieval", "layer")]
)
def test_layers_that_are_not_set_are_at_two_thirds_of_the_depth(model, name, layer):
    model = dataclasses.replace(model, layers=6)
    default, fourth, other = (
        count_of(name, model, **values) for values in ({}, {layer: 4}, {layer: 5})
    )
    assert default == fourth != other


SIX_ROWS = abstract_rows(registered()["mmlm"].row_kind.batch_fields(16, "<i4"), 6)
SMALL = Model(layers=2, hidden=8, heads=2, intermediate=16, positions=34)


def test_loops_branches_and_the_next_state_are_counted():
    """The objective has only a few products, whose operations are computed by hand."""
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
    actual = operations.count(objective, SMALL, CORPUS, SIX_ROWS)
    loop = 5 * 2 * 4 * 8 * 8
    # The first iteration of the loop needs no gradient of its input, but all iterations run the
    # same program.
    assert actual == 3 * loop + 2 * 4 * 3 * 8 + 2 * 8 * 8 * 8


def test_an_encoder_without_a_gradient_is_counted_only_forward():
    def inputs(rows):
        ids = rows["tokens"]
        return encoder.Inputs(ids, ids * 0, ids * 0 + 1, ids * 0 + 1)

    def loss(params, state, rows, rngs):
        hidden = encoder.apply(jax.lax.stop_gradient(params), SMALL, inputs(rows), rngs)
        each = hidden.sum((1, 2)) + params["own_head"]["bias"].sum()
        return {"own": LossSums(each, each, each)}

    objective = Objective(
        losses={"own": Loss(1.0)},
        corrupt=lambda rows, rngs: rows,
        count=lambda rows: {"own": jnp.ones(len(rows["tokens"]))},
        loss=loss,
        parts={"own_head": lambda rng: {"bias": jnp.zeros(8)}},
    )
    actual = operations.count(objective, SMALL, CORPUS, SIX_ROWS)
    assert actual == reference.layers(SMALL, 2, 6, 16)


def test_programs_that_run_are_not_those_that_are_counted(model):
    """They compute all scores of a row, also after an error while operations were counted."""
    model = dataclasses.replace(model, local_attention=8, full_attention_every=2)
    ids = jnp.ones((2, 16), jnp.int32)
    params = jax.eval_shape(lambda: encoder.init(jax.random.key(0), model, SIZE, 1))
    inputs = encoder.Inputs(ids, ids, ids, ids)

    def products():
        traced = jax.make_jaxpr(lambda params: encoder.apply(params, model, inputs))(params)
        return operations._products(traced.jaxpr)

    all_scores = reference.layers(dataclasses.replace(model, local_attention=0), 2, 2, 16)
    with counting():
        assert products() == reference.layers(model, 2, 2, 16) < all_scores
    with pytest.raises(AssertionError, match="an error"), counting():
        raise AssertionError("an error")
    assert products() == all_scores
