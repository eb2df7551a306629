"""Losses of labelled rows against NumPy, their gradients, padding and dropout of heads."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled
from jax.sharding import AxisType
from references import heads as reference

from xlj.config import Model
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.models import encoder
from xlj.objectives.supervised import loss as supervised
from xlj.objectives.supervised.head import (
    classify,
    classify_tokens,
    of_kind,
    pair_features,
)
from xlj.objectives.supervised.options import SUPERVISED
from xlj.sharding.devices import AXES, REPLICATED, ROWS, on_mesh

MODEL = Model(layers=2, hidden=16, heads=2, intermediate=32, positions=34, dropout=0.3)
CORPUS = Corpus(60, ("en",), (1,))
LENGTH, CLASSES = 12, ("a", "b", "c")
KINDS = [kind for kind in SUPERVISED if kind != "word_links"]  # tests/tasks/test_word_links.py
CLASSIFIED = ("classification", "pair_classification")
OF_ROWS = (*CLASSIFIED, "multiple_choice", "regression")
WITHOUT_LABEL_NAMES = ("question_answering", "multiple_choice", "regression")


def labelled_problem(kind, rows=5, seed=0):
    """Returns an objective, its parameters, labelled rows, and their tokens and labels."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, 50, (rows, LENGTH))
    lengths = rng.integers(6, LENGTH + 1, rows)
    for row, length in zip(tokens, lengths, strict=True):
        row[0], row[length - 1], row[length:] = BOS, EOS, PAD
        if kind in ("pair_classification", "multiple_choice"):  # <s> A </s> <s> B </s>
            row[:2], row[2:4] = (BOS, row[1]), (EOS, BOS)
    if kind in CLASSIFIED:
        labels = rng.integers(0, 4, (rows, 1))
    elif kind == "tagging":
        labels = rng.integers(0, 4, tokens.shape) * (tokens != PAD)
    elif kind == "multiple_choice":
        labels = rng.integers(0, 3, (rows, 1))
    elif kind == "regression":
        labels = rng.normal(3, 2, rows).astype(np.float32)
        labels[1] = 0  # no score
    else:
        labels = rng.integers(0, lengths[:, None], (rows, 2))
        labels[0] = 0  # no answer: both ends are at <s>
    labels_of_kind = () if kind in WITHOUT_LABEL_NAMES else CLASSES
    options = SUPERVISED[kind](batch_size=rows, length=LENGTH, labels=labels_of_kind)
    objective = compiled(supervised.objective(kind, options, MODEL, CORPUS))
    params = perturbed(
        encoder_params() | {name: make(jax.random.key(1)) for name, make in objective.parts.items()}
    )
    fields = {"labels": np.asarray(labels, np.int32)}
    if kind == "regression":
        fields = {"score": labels, "has_score": np.arange(rows, dtype=np.uint8) != 1}
    batch = {"tokens": tokens.astype(np.uint16), "languages": np.zeros((rows, 2), np.int32)}
    batch = jax.tree.map(jnp.asarray, batch | fields)
    return objective, params, batch, tokens, labels


@functools.cache
def encoder_params():
    init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
    return jax.device_get(init(jax.random.key(0), MODEL, CORPUS.vocabulary_size, 1))


def perturbed(params):
    """Returns parameters with noise, so that no parameter has its initial value."""
    rng = np.random.default_rng(2)
    return jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), params)


def logits(kind, params, tokens):
    """Computes logits in NumPy from the vectors of the encoder."""
    head = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params[f"{kind}_head"])
    if kind == "pair_classification":
        sides = [[], []]
        for row in tokens:
            ends = np.flatnonzero(row == EOS) + 1
            for side, text in zip(sides, np.split(row, ends)[:2], strict=True):
                side.append(encoded(params, text[None])[0, 1:-1].mean(0))
        first, second = map(np.array, sides)
        hidden = np.concatenate([first, second, np.abs(first - second), first * second], 1)
    elif kind == "multiple_choice":  # vectors of <s>, of each choice separately
        choices = [np.split(row, np.flatnonzero(row == EOS) + 1)[:2] for row in tokens]
        hidden = np.stack(
            [np.stack([encoded(params, text[None])[0, 0] for text in row]) for row in choices]
        )
    else:
        hidden = encoded(params, tokens)
        hidden = hidden[:, 0] if kind in OF_ROWS else hidden
    if kind in OF_ROWS:
        hidden = np.tanh(hidden @ head["dense"]["kernel"] + head["dense"]["bias"])
    return hidden @ head["output"]["kernel"] + head["output"]["bias"]


def encoded(params, tokens):
    inputs = supervised.whole_examples(MODEL, jnp.asarray(tokens), None)
    hidden = jax.jit(encoder.apply, static_argnums=1)(params, MODEL, inputs)
    return np.asarray(hidden).astype(np.float64)


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_losses_equal_numpy(kind):
    objective, params, batch, tokens, labels = labelled_problem(kind)
    examples = objective.corrupt(batch, None)
    sums = jax.device_get(objective.loss(params, {}, examples, None)[kind])
    outputs = logits(kind, params, tokens)
    for row in range(len(tokens)):
        losses, correct = [], 0
        if kind in CLASSIFIED and labels[row, 0]:
            losses.append(-log_softmax(outputs[row])[labels[row, 0] - 1])
            correct += outputs[row].argmax() == labels[row, 0] - 1
        elif kind == "multiple_choice" and labels[row, 0]:
            losses.append(-log_softmax(outputs[row, :, 0])[labels[row, 0] - 1])
            correct += outputs[row, :, 0].argmax() == labels[row, 0] - 1
        elif kind == "regression" and row != 1:  # row 1 has no score
            losses.append((outputs[row, 0] - labels[row]) ** 2)
            correct += abs(outputs[row, 0] - labels[row]) <= 0.5
        elif kind == "tagging":
            for place in np.flatnonzero(labels[row]):
                losses.append(-log_softmax(outputs[row, place])[labels[row, place] - 1])
                correct += outputs[row, place].argmax() == labels[row, place] - 1
        elif kind == "question_answering":
            real = tokens[row] != PAD
            for end in (0, 1):
                losses.append(-log_softmax(outputs[row, real, end])[labels[row, end]])
                correct += outputs[row, real, end].argmax() == labels[row, end]
        np.testing.assert_allclose(sums.sum[row], sum(losses), rtol=1e-4, atol=1e-5)
        assert sums.count[row] == len(losses) and sums.correct[row] == correct
    counts = objective.count(examples)[kind]
    np.testing.assert_array_equal(counts, sums.count)


def test_the_loss_of_order_equals_numpy_on_several_devices():
    """With rows in two microbatches. Row 1 has no score, and rows 2 and 3 have equal scores."""
    _, params, batch, tokens, scores = labelled_problem("regression", rows=8)
    scores[3] = scores[2]
    batch["score"] = jnp.asarray(scores)
    options = SUPERVISED["regression"](batch_size=8, length=LENGTH, loss="order")
    objective = supervised.objective("regression", options, MODEL, CORPUS)
    outputs = logits("regression", params, tokens)[:, 0]
    known = [row for row in range(8) if row != 1]
    lower = [(i, j) for i in known for j in known if scores[i] > scores[j]]
    expected = np.log1p(sum(np.exp(outputs[j] - outputs[i]) for i, j in lower))
    correct = [all(outputs[i] > outputs[j] for k, j in lower if k == i) for i in known]
    assert 0 < sum(correct) < len(known)

    def whole_loss(params):
        """The loss of the whole batch at once, by automatic differentiation."""
        ids = batch["tokens"].astype(jnp.int32)
        s = supervised.logits("regression", params, MODEL, ids, batch["languages"])
        gaps = jnp.stack([s[j, 0] - s[i, 0] for i, j in lower])
        return jnp.log1p(jnp.exp(gaps).sum())

    gradient = jax.jit(jax.grad(whole_loss))(params)

    def by_halves(function, rows):
        halves = [function(jax.tree.map(lambda x, n=n: x[n::2], rows)) for n in (0, 1)]
        return jax.tree.map(lambda *x: jnp.stack(x, 1).reshape(8, *x[0].shape[1:]), *halves)

    def run(params, rows):
        inputs = objective.targets(params, {}, objective.corrupt(rows, None), by_halves)

        def loss(params, inputs):
            sums = objective.loss(params, {}, inputs, None)["regression"]
            return sums.sum.sum(), (sums, objective.count(inputs)["regression"])

        return jax.grad(loss, has_aux=True)(params, inputs)

    for devices in (1, 2, 4):
        mesh = jax.make_mesh(
            (devices, 1), AXES, (AxisType.Auto,) * 2, devices=jax.devices()[:devices]
        )
        rows = jax.device_put(batch, jax.NamedSharding(mesh, ROWS))
        whole = jax.device_put(params, jax.NamedSharding(mesh, REPLICATED))
        gradients, (sums, counts) = jax.device_get(jax.jit(on_mesh(mesh, run))(whole, rows))
        np.testing.assert_allclose(sums.sum[known], expected, rtol=1e-4)
        np.testing.assert_array_equal(sums.count, np.arange(8) != 1)
        np.testing.assert_array_equal(counts, sums.count)
        np.testing.assert_array_equal(sums.correct[known], correct)
        assert sums.sum[1] == sums.correct[1] == 0
        for name in ("regression_head", "layers"):
            wanted = jax.tree.map(lambda x: np.asarray(7 * x), gradient[name])
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4),
                gradients[name], wanted,
            )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_and_reach_head_and_encoder(kind):
    objective, params, batch, _, _ = labelled_problem(kind)
    keys = jax.random.split(jax.random.key(1), 5)

    def loss(params):
        sums = objective.loss(params, {}, objective.corrupt(batch, None), keys)[kind]
        return sums.sum.sum()

    gradients = jax.jit(jax.grad(loss))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    for part in (f"{kind}_head", "layers", "embeddings"):
        assert all(np.abs(leaf).sum() > 0 for leaf in jax.tree.leaves(gradients[part]))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_effect(kind):
    _, params, _, tokens, _ = labelled_problem(kind)
    longer = np.pad(tokens, ((0, 0), (0, 9)), constant_values=PAD)
    short, long = (
        np.asarray(supervised.logits(kind, params, MODEL, jnp.asarray(x), jnp.zeros((5, 2), int)))
        for x in (tokens, longer)
    )
    if kind not in OF_ROWS:
        long = long[:, :LENGTH]
    real = np.ones(len(tokens), bool) if kind in OF_ROWS else tokens != PAD
    np.testing.assert_allclose(long[real], short[real], atol=1e-5)


LENGTHS = ((4, 2, 6), (3, 5))
"""The lengths of the examples in each row of multiple choice. Other rows have one example."""


@pytest.mark.parametrize("layers", ["tanh", "gelu", "gelu_norm"])
@pytest.mark.parametrize(
    "kind, pooling",
    [
        *itertools.product(("classification", "multiple_choice"), ("first", "mean", "late")),
        ("regression", "mean"),
        ("tagging", "late"),
        ("question_answering", "mean"),
    ],
)
def test_heads_of_all_families_equal_the_reference(kind, layers, pooling):
    """Means include special tokens, and exclude padding and the other examples of a row."""
    model = dataclasses.replace(
        MODEL, task_head=layers, task_pooling=pooling, norm_type="unbiased", biases=()
    )
    rng = np.random.default_rng(0)
    tokens = np.full((2, LENGTH + 2), PAD)
    hidden = rng.normal(size=(*tokens.shape, model.hidden)).astype(np.float32)
    lengths = LENGTHS if kind == "multiple_choice" else [(sum(row),) for row in LENGTHS]
    texts = []
    for row, of_row in enumerate(lengths):
        ends = np.cumsum(of_row)
        for start, end in zip([0, *ends], ends, strict=False):
            tokens[row, start:end] = [BOS, *rng.integers(5, 50, end - start - 2), EOS]
            texts.append(hidden[row, start:end].astype(np.float64))
    head = perturbed(supervised.init_head(kind, model, len(CLASSES), jax.random.key(0)))
    logits = of_kind(kind).logits(head, model, jnp.asarray(hidden), jnp.asarray(tokens), None)
    if kind == "multiple_choice":
        assert (logits[0, 3:] == -jnp.inf).all() and (logits[1, 2:] == -jnp.inf).all()
        logits = np.concatenate([logits[0, :3], logits[1, :2]])[:, None]
    elif kind in ("tagging", "question_answering"):
        logits = np.concatenate([logits[row, : sum(LENGTHS[row])] for row in range(2)])
    head = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), head)
    assert ("norm" in head) == (layers == "gelu_norm")
    if kind in OF_ROWS:
        expected = reference.of_texts(head, model, texts)
    else:
        expected = reference.of_vectors(head, model, np.concatenate(texts), by_token=True)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [*CLASSIFIED, "tagging"])
def test_heads_have_their_own_dropout(kind):
    """Without dropout in the encoder, random keys still change the output of the head."""
    model = Model(**{**MODEL.__dict__, "attention_dropout": 0.0})
    _, params, _, tokens, _ = labelled_problem(kind)
    hidden = jnp.ones((5, LENGTH, MODEL.hidden))
    keys = jax.random.split(jax.random.key(1), 5)
    head = params[f"{kind}_head"]
    first, second = hidden[:, 0], hidden[:, 1]
    if kind in CLASSIFIED:
        vectors = first if kind == "classification" else pair_features(first, second)
        plain, dropped = (classify(head, model, vectors, k) for k in (None, keys))
    else:
        plain, dropped = (classify_tokens(head, model, hidden, 0.3, k) for k in (None, keys))
    assert np.abs(plain - dropped).max() > 1e-3
    assert np.abs(dropped[0] - dropped[1]).max() > 1e-3  # each row has its own mask
