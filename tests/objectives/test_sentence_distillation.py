"""Distillation of sentence vectors equals NumPy, on several devices and for any microbatch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from random_rows import CORPUS, ragged
from references import bitext as reference
from references.encoder import float64
from references.layout import PAD

from xlj.config import ConfigError, row_kinds
from xlj.data.tokenizer.layout import Ragged
from xlj.objectives.sentence_distillation import loss as distillation
from xlj.objectives.sentence_distillation.options import SentenceDistillation, TextDistillation
from xlj.sharding.devices import AXES, REPLICATED, ROWS, on_mesh

PAIRS = ((0, 1), (1, 2))
"""German, 1, is the language of the teacher: it is the second side or the first."""
ACTIVATIONS = {"Identity": lambda x: x, "Tanh": np.tanh}
GERMAN = {"languages": ("de",), "weight": 3.0}
CASES = {
    "both": (SentenceDistillation(**GERMAN, width=32, layer=1), ("first", "second")),
    "other": (
        SentenceDistillation(
            **GERMAN, width=24, dense=24, loss="cosine", sides="other", pooling="first", layer=0
        ),
        ("other",),
    ),
    "same": (SentenceDistillation(**GERMAN, width=32, sides="same", pooling="text"), ("same",)),
    "text": (TextDistillation(width=32, layer=0, pooling="text"), ("tokens",)),
    "dense": (
        TextDistillation(width=24, dense=24, bias=True, activation="Tanh", layer=0),
        ("tokens",),
    ),
}


def rows_of(options, count=22, length=96):
    """Returns packed rows of several examples, then rows of padding, 8 or 12 in all."""
    kind, rng = row_kinds.load(options.rows), np.random.default_rng(3)
    columns = [ragged(rng, count, 1, 9) for _ in kind.columns]
    vectors = rng.normal(size=(count, options.width)).astype(np.float32)
    columns.append(Ragged(vectors.ravel(), np.full(count, options.width)))
    packed = kind.pack(columns, length, np.dtype("<u2"))
    assert packed.sentences == count
    used = len(packed.rows["vectors"])
    size = -(-(used + 1) // 4) * 4
    rows = {"languages": np.array(PAIRS)[np.arange(size) % 2]}
    if len(kind.columns) == 1:
        rows["languages"] = rows["languages"][:, [0, 0]]
    for field in kind.fields(length, "<u2"):
        rows[field.name] = np.full((size, *field.shape), field.fill, field.dtype)
        rows[field.name][:used] = packed.rows[field.name]
    return {n: x.astype(np.float32 if n == "vectors" else np.int32) for n, x in rows.items()}


def expected_of(options, sides, params, model, rows):
    """Returns the sum of the errors and the number of vectors of each row."""

    def vector(hidden, ids):
        real = reference.is_word(ids) if options.pooling == "text" else ids != PAD
        pooled = hidden[0] if options.pooling == "first" else hidden[real].mean(0)
        if not options.dense:
            return pooled
        weights = params["sentence"]["0"]
        return ACTIVATIONS[options.activation](pooled @ weights["kernel"] + weights.get("bias", 0))

    layer = options.layer if options.layer != -2 else model.layers
    slots, total, count = rows["vectors"].shape[1], 0, 0
    for side in sides:
        tokens, languages = rows.get(side), rows["languages"]
        if side in ("same", "other"):  # the side in German is the second in even rows
            is_second = (np.arange(len(languages)) % 2 == 0) == (side == "same")
            tokens = np.where(is_second[:, None], rows["second"], rows["first"])
            languages = np.where(is_second[:, None], languages[:, [1, 1]], languages[:, [0, 0]])
        elif side != "tokens":
            languages = languages[:, [sides.index(side)] * 2]
        own = {"tokens": tokens, "languages": languages}
        student, is_real = reference.by_example(vector, params, model, own, layer, slots)
        teacher = rows["vectors"].astype(np.float64)
        if options.loss == "squared":
            errors = ((student - teacher) ** 2).sum(-1)
        else:
            norms = np.linalg.norm(student, axis=-1) * np.linalg.norm(teacher, axis=-1)
            errors = 1 - (student * teacher).sum(-1) / np.where(is_real, norms, 1)
        total, count = total + (errors * is_real).sum(1), count + is_real.sum(1)
    return total, count


@pytest.mark.parametrize("case", CASES)
def test_losses_equal_numpy_on_several_devices(case, model, params_of, keys_of):
    options, sides = CASES[case]
    objective = distillation.objective("own", options, model, CORPUS)
    params, rows = params_of(model, objective), rows_of(options)
    sums, counts = expected_of(options, sides, float64(params), model, rows)
    assert (
        counts[-1] == 0 and counts.max() > len(sides) and objective.losses["own"].weight in (1, 3)
    )

    def run(params, rows, keys):
        inputs = objective.corrupt(rows, keys)
        losses = objective.loss(params, {}, inputs, None)["own"]
        slope = jax.grad(lambda p: objective.loss(p, {}, inputs, None)["own"].sum.sum())(params)
        return losses, objective.count(inputs)["own"], jnp.sqrt(
            sum((leaf**2).sum() for leaf in jax.tree.leaves(slope))
        )  # fmt: skip

    norms = []
    for devices in (1, 4) if case in ("both", "other") else (2,):
        mesh = jax.make_mesh(
            (devices // 2 or 1, min(devices, 2)), AXES, (AxisType.Auto,) * 2,
            devices=jax.devices()[:devices],
        )  # fmt: skip
        by_row = jax.device_put((rows, keys_of(rows)), jax.NamedSharding(mesh, ROWS))
        whole = jax.device_put(params, jax.NamedSharding(mesh, REPLICATED))
        losses, counted, norm = jax.device_get(jax.jit(on_mesh(mesh, run))(whole, *by_row))
        np.testing.assert_allclose(losses.sum, sums, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(losses.count, counts)
        np.testing.assert_array_equal(counted, counts)
        norms.append(float(norm))
    np.testing.assert_allclose(norms, norms[0], rtol=1e-4)
    assert norms[0] > 0.1


def test_vectors_of_another_size_than_the_students_are_an_error(model, keys_of):
    options = SentenceDistillation(**GERMAN, width=24)
    objective = distillation.objective("own", options, model, CORPUS)
    rows = rows_of(options)
    with pytest.raises(ConfigError, match="objectives.own: .* 24 dimensions, .* 32; .*dense=24"):
        objective.corrupt(rows, keys_of(rows))
