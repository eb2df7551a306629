"""Products, look-ups and losses on a mesh equal those of one device, and need no more memory."""

import re
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding, PartitionSpec

from xlj.models.dense import matmul
from xlj.models.lookup import look_up, look_up_small
from xlj.objectives.choosing import choose
from xlj.objectives.cross_entropy import cross_entropy
from xlj.sharding import devices, rules
from xlj.sharding.rules import KERNEL, REPLICATED, ROWS, TABLE


def run_on_mesh(function, places, arguments, replica=2, fsdp=4):
    """Returns the result of a function on a mesh of eight devices, and the compiled program."""
    mesh = jax.make_mesh((replica, fsdp), rules.AXES, (AxisType.Auto,) * 2)
    placed = [
        jax.device_put(x, jax.tree.map(lambda spec: NamedSharding(mesh, spec), spec))
        for x, spec in zip(arguments, places, strict=True)
    ]
    program = jax.jit(devices.on_mesh(mesh, function)).lower(*placed).compile()
    return program(*placed), program.as_text()


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def close(found, expected):
    chex.assert_trees_all_close(found, expected, rtol=2e-5, atol=2e-5)


def test_the_platform_is_that_of_the_mesh(monkeypatch):
    one = jax.local_devices()[:1]
    monkeypatch.setattr(jax, "local_devices", lambda: one)
    assert devices.platform() == "cpu"
    device = AbstractDevice("TPU v5 lite", num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1, 1), rules.AXES, abstract_device=device)):
        assert devices.platform() == "tpu"


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_product_and_its_gradients(replica, fsdp):
    x, kernel, pull = normal(0, 16, 5, 24), normal(1, 24, 12), normal(2, 16, 5, 12)

    def both(x, kernel, pull):
        y, back = jax.vjp(lambda x, kernel: matmul(x, kernel, jnp.dtype("float32")), x, kernel)
        return y, *back(pull)

    found, text = run_on_mesh(both, (ROWS, KERNEL, ROWS), (x, kernel, pull), replica, fsdp)
    expected = x @ kernel, pull @ kernel.T, jnp.einsum("rti,rto->io", x, pull)
    close(found, expected)
    shards = [y.sharding.shard_shape(y.shape) for y in found]
    assert shards == [(2, 5, 12), (2, 5, 24), (24 // fsdp, 12)]
    assert (" reduce-scatter(" in text) == (fsdp > 1)
    assert "f32[80,24]" not in text, "the rows of all devices are gathered"


@pytest.mark.parametrize("devices", [1, 2])
def test_two_devices_share_a_kernel_and_one_has_all(devices):
    x, kernel = normal(0, 16, 24), normal(1, 24, 12)
    shares = []

    def product(x, kernel):
        shares.append("shard_map" in str(jax.make_jaxpr(partial(matmul, dtype=x.dtype))(x, kernel)))
        return matmul(x, kernel, x.dtype)

    found, text = run_on_mesh(product, (ROWS, KERNEL), (x, kernel), 1, devices)
    close(found, x @ kernel)
    assert shares[-1] == (" all-gather(" in text) == (devices == 2)
    assert found.sharding.shard_shape(found.shape) == (16 // devices, 12)


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_look_up_and_its_gradient(replica, fsdp):
    table, pull = normal(0, 50, 24), normal(1, 16, 5, 24)
    ids = jnp.asarray(np.random.default_rng(2).integers(0, 50, (16, 5)), jnp.uint32)
    assert len(np.unique(ids)) < ids.size  # a gradient is a sum

    def both(table, ids, pull):
        y, back = jax.vjp(lambda table: look_up(table, ids), table)
        return y, *back(pull)

    found, text = run_on_mesh(both, (TABLE, ROWS, ROWS), (table, ids, pull), replica, fsdp)
    of_table = np.zeros((50, 24), np.float32)
    np.add.at(of_table, np.asarray(ids), np.asarray(pull))
    close(found, (table[ids], of_table))
    shards = [y.sharding.shard_shape(y.shape) for y in found]
    assert shards == [(2, 5, 24), (50, 24 // fsdp)]
    assert "f32[16,5,24]" not in text, "the rows of all devices are gathered"
    assert "f32[50,24]" not in text or fsdp == 1, "a device has the whole table"


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_small_table_is_gathered_and_no_rows_are(replica, fsdp):
    table, pull = normal(0, 7, 24), normal(1, 16, 5, 24)
    ids = jnp.asarray(np.random.default_rng(2).integers(-1, 7, (16, 5)), jnp.int32)  # -1: the last

    def both(table, ids, pull):
        y, back = jax.vjp(lambda table: look_up_small(table, ids), table)
        return y, *back(pull)

    found, text = run_on_mesh(both, (TABLE, ROWS, ROWS), (table, ids, pull), replica, fsdp)
    of_table = np.zeros((7, 24), np.float32)
    np.add.at(of_table, np.asarray(ids), np.asarray(pull))
    close(found, (table[ids], of_table))
    assert [y.sharding.shard_shape(y.shape) for y in found] == [(2, 5, 24), (7, 24 // fsdp)]
    assert "f32[16,5,24]" not in text and " all-to-all(" not in text


def test_ids_of_any_shape_are_looked_up():
    table = normal(0, 50, 24)
    for shape in ((16,), (16, 3, 2)):
        ids = jnp.asarray(np.random.default_rng(2).integers(0, 50, shape), jnp.int32)
        pull = normal(1, *shape, 24)

        def both(table, ids, pull):
            y, back = jax.vjp(lambda table: look_up(table, ids), table)
            return y, *back(pull)

        found, _ = run_on_mesh(both, (TABLE, ROWS, ROWS), (table, ids, pull))
        of_table = np.zeros((50, 24), np.float32)
        np.add.at(of_table, np.asarray(ids), np.asarray(pull))
        close(found, (table[ids], of_table))


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
    found, text = run_on_mesh(all_of_it, (ROWS, TABLE, REPLICATED, ROWS, ROWS, ROWS), arguments)
    close(found, all_of_it(*arguments))
    assert " reduce-scatter(" in text
    assert "[50,24]" not in text, "a device holds the whole table"


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_copies_add_their_sums_up_once(replica, fsdp):
    """The gradients of two products and a look-up, with sharded rows."""
    x, kernel, table = normal(0, 16, 24), normal(1, 24, 24), normal(2, 50, 24)
    ids = jnp.asarray(np.random.default_rng(3).integers(0, 50, 16), jnp.int32)

    def gradients(shared, rows):
        def total(shared):
            kernel, table = shared
            x = devices.constrain(rows["x"] + look_up(table, rows["ids"]), "hidden")
            twice = matmul(jnp.tanh(matmul(x, kernel, x.dtype)), kernel, x.dtype)
            return jnp.square(twice).sum()

        return jax.value_and_grad(total)(shared)

    def by_copy(kernel, table, x, ids):
        return devices.by_copy(gradients)((kernel, table), {"x": x, "ids": ids})

    found, text = run_on_mesh(
        by_copy, (KERNEL, TABLE, ROWS, ROWS), (kernel, table, x, ids), replica, fsdp
    )
    close(found, gradients((kernel, table), {"x": x, "ids": ids}))
    of_kernel, of_table = found[1]
    assert of_kernel.sharding.shard_shape((24, 24)) == (24 // fsdp, 24)
    assert of_table.sharding.shard_shape((50, 24)) == (50, 24 // fsdp)
    results = "".join(re.findall(r" = (.*) all-reduce\(", text))
    summed = re.findall(r"f32\[(\d+,\d+)\]", results)
    wanted = {f"{24 // fsdp},24", f"50,{24 // fsdp}"} if replica > 1 else set()
    assert len(summed) == len(wanted) and set(summed) == wanted


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (1, 8), (8, 1)])
def test_whole_copies_are_gathered_and_their_sums_scattered_once(replica, fsdp):
    x, kernel, table, bias = normal(0, 16, 24), normal(1, 24, 24), normal(2, 50, 24), normal(4, 24)
    ids = jnp.asarray(np.random.default_rng(3).integers(0, 50, 16), jnp.int32)
    lie = {"kernel": KERNEL, "table": TABLE, "bias": REPLICATED}

    def gradients(shared, rows):
        def total(shared):
            x = rows["x"] + look_up(shared["table"], rows["ids"]) + shared["bias"]
            twice = matmul(
                jnp.tanh(matmul(x, shared["kernel"], x.dtype)), shared["kernel"], x.dtype
            )
            return jnp.square(twice).sum(), {"rows": jnp.float32(len(x))}

        return jax.value_and_grad(total, has_aux=True)(shared)

    def by_copy(shared, x, ids):
        spread = devices.by_copy(gradients, True, lie, (REPLICATED, lie))
        return spread(shared, {"x": x, "ids": ids})

    shared = {"kernel": kernel, "table": table, "bias": bias}
    found, text = run_on_mesh(by_copy, (lie, ROWS, ROWS), (shared, x, ids), replica, fsdp)
    close(found, gradients(shared, {"x": x, "ids": ids}))
    shapes = {"kernel": (24 // fsdp, 24), "table": (50, 24 // fsdp), "bias": (24,)}
    assert {n: g.sharding.shard_shape(g.shape) for n, g in found[1].items()} == shapes
    assert "all-to-all" not in text
    gathers, scatters = (
        re.findall(r"f32\[(\d+,\d+)\]", "".join(re.findall(rf" = (.*) {kind}\(", text)))
        for kind in ("all-gather", "reduce-scatter")
    )
    once = {"24,24", "50,24"} if fsdp > 1 else set()
    slices = {f"{24 // fsdp},24", f"50,{24 // fsdp}"} if fsdp > 1 else set()
    assert len(gathers) == len(once) and set(gathers) == once, gathers
    assert len(scatters) == len(slices) and set(scatters) == slices, scatters


def test_rows_that_devices_cannot_share_are_summed_as_on_one():
    x, kernel = normal(0, 3, 24), normal(1, 24, 12)
    function = devices.by_copy(lambda kernel, rows: jnp.square(rows @ kernel).sum())
    found, _ = run_on_mesh(function, (KERNEL, REPLICATED), (kernel, x))
    close(found, jnp.square(x @ kernel).sum())


@pytest.mark.parametrize("rows, width, kernel", [(1, 24, KERNEL), (16, 9, REPLICATED)])
def test_what_devices_cannot_share_is_computed_as_on_one(rows, width, kernel):
    """For example a single vector, or a kernel of a user's objective that no axis divides."""
    x, weights = normal(0, rows, width), normal(1, width, 12)

    def both(x, weights):
        return jax.value_and_grad(lambda w: (matmul(x, w, x.dtype) ** 2).sum())(weights)

    found, _ = run_on_mesh(both, (REPLICATED, kernel), (x, weights))
    close(found, (((x @ weights) ** 2).sum(), 2 * x.T @ (x @ weights)))


def test_on_a_device_alone_nothing_is_split_again():
    """Each device gets its rows and its slice of the kernel, though the sizes could be divided
    again."""
    x, kernel = normal(0, 64, 96), normal(1, 96, 12)

    def of_rows(x, kernel):
        return matmul(devices.constrain(x, "hidden"), kernel, x.dtype)

    all_of_it = devices.per_device(of_rows, (ROWS, KERNEL), ROWS)
    found, _ = run_on_mesh(all_of_it, (ROWS, KERNEL), (x, kernel))
    close(found, x @ kernel)


def test_the_first_rule_that_names_an_array_holds():
    found = {
        name: rules.rule_of(name)
        for name in ("layers/attention/gates/kernel", "layers/attention/query/kernel",
                     "layers/attention/query/bias", "generator/embeddings/word")
    }  # fmt: skip
    per_layer = PartitionSpec(None, "fsdp", None)
    assert [spec for _, spec in found.values()] == [REPLICATED, per_layer, REPLICATED, TABLE]
    assert set(found.values()) <= set(rules.RULES)


def test_an_activation_without_a_rule_is_refused():
    def of(name):
        return lambda x: devices.constrain(x, name)

    x = normal(0, 16, 5, 24)
    for placed in (ROWS, REPLICATED):
        found, _ = run_on_mesh(of("hidden"), (placed,), (x,))
        assert found.sharding.shard_shape(found.shape) == (2, 5, 24)
    np.testing.assert_array_equal(of("hidden")(x), x)  # on no mesh
    with pytest.raises(ValueError, match="no sharding rule matches the array activations/other"):
        run_on_mesh(of("other"), (ROWS,), (x,))


def test_outside_of_what_each_device_computes_there_is_nothing_to_share():
    x = normal(0, 4, 6)
    shared = (
        devices.all_gather(x, 0), devices.reduce_sum(x), devices.reduce_sum(x, 1),
        devices.sum_over_replicas(x), devices.all_to_all(x, 0, 1),
    )  # fmt: skip
    for found in shared:
        np.testing.assert_array_equal(found, x)
