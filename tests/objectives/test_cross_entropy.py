"""Cross-entropy in blocks of the vocabulary against plain cross-entropy, some of it in float64."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.objectives.vocabulary import kept_logits
from xlj.objectives.vocabulary.cross_entropy import cross_entropy
from xlj.objectives.vocabulary.logits import choose
from xlj.sharding import devices


def plain(vectors, table, bias, labels):
    logits = vectors @ table.T + bias
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]


def problem(vocabulary):
    keys = jax.random.split(jax.random.key(0), 4)
    vectors = jax.random.normal(keys[0], (23, 16)) * 2
    table = jax.random.normal(keys[1], (vocabulary, 16))
    bias = jax.random.normal(keys[2], (vocabulary,))
    labels = jax.random.randint(keys[3], (23,), 0, vocabulary)
    return vectors, table, bias, labels.at[0].set(0).at[1].set(vocabulary - 1)


@pytest.fixture(params=["cpu", "gpu"])
def platform(request, monkeypatch):
    """Lets functions be traced as on a CPU, and as on a GPU."""
    monkeypatch.setattr(devices, "platform", lambda: request.param)


@pytest.mark.parametrize(
    "vocabulary, block",
    [(100, 7), (100, 50), (100, 99), (100, 100), (7, 64), (100, None), (7, None)],
)
def test_loss_and_gradients_equal_those_of_plain_cross_entropy(vocabulary, block, platform):
    vectors, table, bias, labels = problem(vocabulary)
    weights = jax.random.uniform(jax.random.key(9), (23,))

    def blocked(v, t, b):
        losses, _ = cross_entropy(v, t, b, labels, jnp.dtype("float32"), block)
        return (losses * weights).sum()

    def reference(v, t, b):
        return (plain(v, t, b, labels) * weights).sum()

    loss, gradients = jax.value_and_grad(blocked, (0, 1, 2))(vectors, table, bias)
    expected_loss, expected_gradients = jax.value_and_grad(reference, (0, 1, 2))(
        vectors, table, bias
    )
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    for a, b in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [9, None])
def test_a_label_is_correct_if_its_logit_is_the_largest(platform, block):
    vectors, table, bias, _ = problem(100)
    best = (vectors @ table.T + bias).argmax(1)
    labels = best.at[::2].set((best[::2] + 1) % 100)
    _, correct = cross_entropy(vectors, table, bias, labels, jnp.dtype("float32"), block)
    np.testing.assert_array_equal(correct, np.arange(23) % 2)


@pytest.mark.parametrize("block", [9, None])
def test_large_logits_stay_finite(platform, block):
    vectors, table, bias, labels = problem(100)
    losses, _ = cross_entropy(vectors * 1e3, table, bias, labels, jnp.dtype("float32"), block)
    assert jnp.isfinite(losses).all()


@pytest.mark.parametrize("vocabulary", [100, 128])
def test_bfloat16_rounds_the_same_with_blocks_and_without(vocabulary, platform):
    vectors, table, bias, labels = problem(vocabulary)
    kind = jnp.dtype("bfloat16")

    def total(block, *arrays):
        return cross_entropy(*arrays, labels, kind, block)[0].sum()

    results = [jax.value_and_grad(partial(total, block), (0, 1, 2))(vectors, table, bias)
             for block in (vocabulary, 30, None)]  # fmt: skip
    for others in results[1:]:
        for a, b in zip(*map(jax.tree.leaves, (results[0], others)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def bfloat16(x):
    return np.asarray(jnp.asarray(x, jnp.bfloat16), np.float64)


@pytest.mark.parametrize("block", [30, None])
def test_on_gpus_products_are_rounded_before_the_bias_is_added(block, monkeypatch):
    """Compares losses, correct predictions and gradients with float64. Small biases would be lost
    if they were rounded with the products, and logits of padding would change the sums."""
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    vectors, table, bias, labels = problem(100)
    bias = bias / 64
    weights = np.linspace(0.5, 2, 23)

    def total(*arrays):
        losses, correct = cross_entropy(*arrays, labels, jnp.dtype("bfloat16"), block)
        return (losses * weights).sum(), (losses, correct)

    (_, actual), gradients = jax.value_and_grad(total, (0, 1, 2), has_aux=True)(
        vectors, table, bias
    )
    x, rounded = bfloat16(vectors), bfloat16(table)
    logits = bfloat16(x @ rounded.T) + np.asarray(bias, np.float64)
    at = np.arange(23), np.asarray(labels)
    sums = np.exp(logits).sum(1)
    np.testing.assert_allclose(actual[0], np.log(sums) - logits[at], rtol=1e-5)
    np.testing.assert_array_equal(actual[1], logits[at] == logits.max(1))
    of_logits = np.exp(logits) / sums[:, None]
    of_logits[at] -= 1
    of_logits *= weights[:, None]
    expected = of_logits @ rounded, of_logits.T @ x, of_logits.sum(0)
    for one, other in zip(gradients, expected, strict=True):
        error = np.linalg.norm(one - other) / np.linalg.norm(other)
        assert error < 4e-3, error  # the gradient of logits is rounded to bfloat16


@pytest.mark.parametrize(
    "vectors, dtype, backend, are_kept",
    [
        (10, "float32", "cpu", True),
        (11, "float32", "cpu", False),
        (10, "bfloat16", "cpu", True),  # on CPUs, logits are float32
        (11, "bfloat16", "cpu", False),
        (10, "float32", "gpu", True),
        (11, "float32", "gpu", False),
        (20, "bfloat16", "gpu", True),
        (21, "bfloat16", "gpu", False),
        (1, "bfloat16", "tpu", False),
    ],
)
def test_the_logits_of_few_vectors_are_kept(vectors, dtype, backend, are_kept, monkeypatch):
    monkeypatch.setattr(kept_logits, "MOST", dict.fromkeys(("cpu", "gpu"), 4 * 64 * 10))
    monkeypatch.setattr(devices, "platform", lambda: backend)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((vectors, 8), (64, 8), (64,))]

    def total(*arrays):
        labels = jnp.zeros(vectors, jnp.int32)
        return cross_entropy(*arrays, labels, jnp.dtype(dtype))[0].sum()

    program = str(jax.make_jaxpr(jax.grad(total, (0, 1, 2)))(*shapes))
    # Loops over blocks, forward and backward.
    assert program.count("scan[") == (0 if are_kept else 2)
    assert program.count(" exp ") == (2 if are_kept else 4)


@pytest.mark.parametrize("replica, fsdp, are_kept", [(2, 1, True), (1, 2, False)])
def test_logits_are_not_kept_if_devices_share_the_table(replica, fsdp, are_kept):
    """Each device would have to gather the whole table."""
    mesh_devices = np.array(jax.devices()[:2]).reshape(replica, fsdp)
    mesh = jax.sharding.Mesh(
        mesh_devices, devices.AXES, axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    assert devices.on_mesh(mesh, kept_logits.is_used)(1, 1, jnp.dtype("float32")) == are_kept


@pytest.mark.parametrize("replica", [1, 4])
def test_gradients_of_kept_logits_are_summed_over_replicas(replica):
    vectors, table, bias, labels = problem(100)
    vectors, labels = vectors[:20], labels[:20]
    mesh_devices = np.array(jax.devices()[:replica]).reshape(replica, 1)
    mesh = jax.sharding.Mesh(
        mesh_devices, devices.AXES, axis_types=(jax.sharding.AxisType.Auto,) * 2
    )

    def total(*arrays):
        return cross_entropy(*arrays, labels, jnp.dtype("float32"))[0].sum()

    gradient = jax.jit(devices.on_mesh(mesh, jax.grad(total, (0, 1, 2))))
    expected = jax.grad(lambda *arrays: plain(*arrays, labels).sum(), (0, 1, 2))(
        vectors, table, bias
    )
    specs = devices.ROWS, devices.REPLICATED, devices.REPLICATED
    where = [jax.sharding.NamedSharding(mesh, spec) for spec in specs]
    arrays = jax.device_put((vectors, table, bias), tuple(where))
    for a, b in zip(gradient(*arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [16, None])
@pytest.mark.parametrize("dtype, transposed", [("float32", set()), ("bfloat16", {"bf16"})])
def test_the_gradient_of_the_table_is_computed_without_transposing_it(dtype, transposed, block):
    """Transposing the table took a third of a step on CPUs. Only the rounded gradient of logits, a
    small array, is transposed."""
    vectors, table, bias, labels = problem(64)

    def total(*arrays):
        return cross_entropy(*arrays, labels, jnp.dtype(dtype), block)[0].sum()

    program = str(jax.make_jaxpr(jax.grad(total, (0, 1, 2)))(vectors, table, bias))
    types = re.findall(r":(\w+)\[[\d,]*\] = transpose\[", program)
    assert set(types) == transposed, program


def test_logits_of_the_whole_vocabulary_are_never_in_memory():
    vectors, table, bias, labels = problem(4096)

    def total(v, t, b):
        return cross_entropy(v, t, b, labels, jnp.dtype("float32"), 64)[0].sum()

    jaxpr = str(jax.make_jaxpr(jax.grad(total, (0, 1, 2)))(vectors, table, bias))
    assert "23,64]" in jaxpr and "23,4096]" not in jaxpr


@pytest.mark.parametrize("block", [4, None])
def test_ties_go_to_the_first_token(platform, block):
    vectors, table = jnp.ones((3, 2)), jnp.ones((10, 2))
    labels = jnp.array([0, 1, 9])
    _, correct = cross_entropy(vectors, table, jnp.zeros(10), labels, jnp.dtype("float32"), block)
    assert correct.tolist() == [1, 0, 0]
    best = choose(vectors, table, jnp.zeros(10), jnp.dtype("float32"), block=4)
    assert best.tolist() == [0, 0, 0]
