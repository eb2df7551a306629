"""Products, look-ups and losses on a mesh are those of one device, and no device holds more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding

from xlj.models import sharding
from xlj.models.dense import matmul
from xlj.models.sharding import COPIED, KERNEL, ROWS, TABLE
from xlj.objectives.choosing import choose
from xlj.objectives.cross_entropy import cross_entropy


def on_mesh(function, places, arguments, replica=2, fsdp=4):
    """Its result for arguments that lie on a mesh of eight devices, and the compiled program."""
    mesh = jax.make_mesh((replica, fsdp), sharding.AXES, (AxisType.Auto,) * 2)
    placed = [
        jax.device_put(x, NamedSharding(mesh, spec))
        for x, spec in zip(arguments, places, strict=True)
    ]
    program = jax.jit(sharding.on(mesh, function)).lower(*placed).compile()
    return program(*placed), program.as_text()


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def close(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_product_and_its_gradients(replica, fsdp):
    x, kernel, pull = normal(0, 16, 5, 24), normal(1, 24, 12), normal(2, 16, 5, 12)

    def both(x, kernel, pull):
        y, back = jax.vjp(lambda x, kernel: matmul(x, kernel, jnp.dtype("float32")), x, kernel)
        return y, *back(pull)

    found, text = on_mesh(both, (ROWS, KERNEL, ROWS), (x, kernel, pull), replica, fsdp)
    expected = x @ kernel, pull @ kernel.T, jnp.einsum("rti,rto->io", x, pull)
    close(found, expected)
    shards = [y.sharding.shard_shape(y.shape) for y in found]
    assert shards == [(2, 5, 12), (2, 5, 24), (24 // fsdp, 12)]
    assert (" reduce-scatter(" in text) == (fsdp > 1)
    assert "f32[80,24]" not in text, "the rows of all devices are gathered"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_loss_and_the_choice_of_tokens(dtype):
    dtype = jnp.dtype(dtype)
    vectors, table, bias = normal(0, 16, 24), normal(1, 50, 24), normal(2, 50)
    labels = jnp.asarray(np.random.default_rng(3).integers(0, 50, 16), jnp.int32)
    pull, rngs = normal(4, 16), jax.random.split(jax.random.key(5), 16)

    def all_of_it(vectors, table, bias, labels, pull, rngs):
        def loss(vectors, table, bias):
            losses, correct = cross_entropy(vectors, table, bias, labels, dtype, 16)
            return (losses * pull).sum(), correct

        value = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(vectors, table, bias)
        likeliest = choose(vectors, table, bias, dtype, block=16)
        return value, likeliest, choose(vectors, table, bias, dtype, rngs, 0.7, 16)

    arguments = vectors, table, bias, labels, pull, rngs
    found, text = on_mesh(all_of_it, (ROWS, TABLE, COPIED, ROWS, ROWS, ROWS), arguments)
    close(found, all_of_it(*arguments))
    assert " reduce-scatter(" in text
    assert "[50,24]" not in text, "a device holds the whole table"


@pytest.mark.parametrize("rows, width, kernel", [(1, 24, KERNEL), (16, 9, COPIED)])
def test_what_devices_cannot_share_is_computed_as_on_one(rows, width, kernel):
    """A single vector, say, or a kernel of an objective of one's own that no axis divides."""
    x, weights = normal(0, rows, width), normal(1, width, 12)

    def both(x, weights):
        return jax.value_and_grad(lambda w: (matmul(x, w, x.dtype) ** 2).sum())(weights)

    found, _ = on_mesh(both, (COPIED, kernel), (x, weights))
    close(found, (((x @ weights) ** 2).sum(), 2 * x.T @ (x @ weights)))


def test_an_activation_without_a_rule_is_refused():
    def of(name):
        return lambda x: sharding.constrained(x, name)

    x = normal(0, 16, 5, 24)
    found, _ = on_mesh(of("hidden"), (ROWS,), (x,))
    assert found.sharding.shard_shape(found.shape) == (2, 5, 24)
    with pytest.raises(ValueError, match="no partitioning rule names the array activations/other"):
        on_mesh(of("other"), (ROWS,), (x,))
