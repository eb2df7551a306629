"""Products, look-ups and losses on a mesh equal those of one device, and need no more memory."""

import re
from functools import partial
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding, PartitionSpec

from xlj.models.dense import matmul
from xlj.models.embeddings import look_up, look_up_small
from xlj.objectives.vocabulary.cross_entropy import cross_entropy
from xlj.objectives.vocabulary.logits import choose
from xlj.sharding import devices
from xlj.sharding.devices import KERNEL, REPLICATED, ROWS, TABLE


def run_on_mesh(function, specs, arguments, replica=2, fsdp=4):
    """Returns the result of a function on a mesh of eight devices, and the compiled program."""
    mesh = jax.make_mesh((replica, fsdp), devices.AXES, (AxisType.Auto,) * 2)
    placed = [
        jax.device_put(x, jax.tree.map(lambda spec: NamedSharding(mesh, spec), spec))
        for x, spec in zip(arguments, specs, strict=True)
    ]
    program = jax.jit(devices.on_mesh(mesh, function)).lower(*placed).compile()
    return program(*placed), program.as_text()


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_close(actual, expected):
    chex.assert_trees_all_close(actual, expected, rtol=2e-5, atol=2e-5)


def test_the_platform_is_that_of_the_mesh(monkeypatch):
    one = jax.local_devices()[:1]
    monkeypatch.setattr(jax, "local_devices", lambda: one)
    assert devices.platform() == "cpu"
    device = AbstractDevice("TPU v5 lite", num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1, 1), devices.AXES, abstract_device=device)):
        assert devices.platform() == "tpu"


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_product_and_its_gradients_equal_those_of_one_device(replica, fsdp):
    x, kernel, pull = normal(0, 16, 5, 24), normal(1, 24, 12), normal(2, 16, 5, 12)

    def both(x, kernel, pull):
        y, back = jax.vjp(lambda x, kernel: matmul(x, kernel, jnp.dtype("float32")), x, kernel)
        return y, *back(pull)

    actual, text = run_on_mesh(both, (ROWS, KERNEL, ROWS), (x, kernel, pull), replica, fsdp)
    expected = x @ kernel, pull @ kernel.T, jnp.einsum("rti,rto->io", x, pull)
    assert_close(actual, expected)
    shards = [y.sharding.shard_shape(y.shape) for y in actual]
    assert shards == [(2, 5, 12), (2, 5, 24), (24 // fsdp, 12)]
    assert (" reduce-scatter(" in text) == (fsdp > 1)
    assert "f32[80,24]" not in text, "the rows of all devices are gathered"


@pytest.mark.parametrize("devices", [1, 2])
def test_a_kernel_is_gathered_on_two_devices_and_whole_on_one(devices):
    x, kernel = normal(0, 16, 24), normal(1, 24, 12)
    shares = []

    def product(x, kernel):
        shares.append("shard_map" in str(jax.make_jaxpr(partial(matmul, dtype=x.dtype))(x, kernel)))
        return matmul(x, kernel, x.dtype)

    actual, text = run_on_mesh(product, (ROWS, KERNEL), (x, kernel), 1, devices)
    assert_close(actual, x @ kernel)
    assert shares[-1] == (" all-gather(" in text) == (devices == 2)
    assert actual.sharding.shard_shape(actual.shape) == (16 // devices, 12)


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_look_up_and_its_gradient_equal_those_of_one_device(replica, fsdp):
    table, pull = normal(0, 50, 24), normal(1, 16, 5, 24)
    ids = jnp.asarray(np.random.default_rng(2).integers(0, 50, (16, 5)), jnp.uint32)
    assert len(np.unique(ids)) < ids.size  # a gradient is a sum

    def both(table, ids, pull):
        y, back = jax.vjp(lambda table: look_up(table, ids), table)
        return y, *back(pull)

    actual, text = run_on_mesh(both, (TABLE, ROWS, ROWS), (table, ids, pull), replica, fsdp)
    of_table = np.zeros((50, 24), np.float32)
    np.add.at(of_table, np.asarray(ids), np.asarray(pull))
    assert_close(actual, (table[ids], of_table))
    shards = [y.sharding.shard_shape(y.shape) for y in actual]
    assert shards == [(2, 5, 24), (50, 24 // fsdp)]
    assert "f32[16,5,24]" not in text, "the rows of all devices are gathered"
    assert "f32[50,24]" not in text or fsdp == 1, "a device has the whole table"


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_a_small_table_is_gathered_and_no_rows_are(replica, fsdp):
    table, pull = normal(0, 7, 24), normal(1, 16, 5, 24)
    ids = jnp.asarray(np.random.default_rng(2).integers(-1, 7, (16, 5)), jnp.int32)  # -1: last row

    def both(table, ids, pull):
        y, back = jax.vjp(lambda table: look_up_small(table, ids), table)
        return y, *back(pull)

    actual, text = run_on_mesh(both, (TABLE, ROWS, ROWS), (table, ids, pull), replica, fsdp)
    of_table = np.zeros((7, 24), np.float32)
    np.add.at(of_table, np.asarray(ids), np.asarray(pull))
    assert_close(actual, (table[ids], of_table))
    assert [y.sharding.shard_shape(y.shape) for y in actual] == [(2, 5, 24), (7, 24 // fsdp)]
    assert "f32[16,5,24]" not in text and " all-to-all(" not in text


def test_ids_of_any_shape_are_looked_up():
    table = normal(0, 50, 24)
    for shape in ((16,), (16, 3, 2)):
        ids = jnp.asarray(np.random.default_rng(2).integers(0, 50, shape), jnp.int32)
        pull = normal(1, *shape, 24)

        def both(table, ids, pull):
            y, back = jax.vjp(lambda table: look_up(table, ids), table)
            return y, *back(pull)

        actual, _ = run_on_mesh(both, (TABLE, ROWS, ROWS), (table, ids, pull))
        of_table = np.zeros((50, 24), np.float32)
        np.add.at(of_table, np.asarray(ids), np.asarray(pull))
        assert_close(actual, (table[ids], of_table))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_losses_and_chosen_tokens_equal_those_of_one_device(dtype):
    dtype = jnp.dtype(dtype)
    vectors, table, bias = normal(0, 16, 24), normal(1, 50, 24), normal(2, 50)
    labels = jnp.asarray(np.random.default_rng(3).integers(0, 50, 16), jnp.int32)
    pull, rngs = normal(4, 16), jax.random.split(jax.random.key(5), 16)

    def compute(vectors, table, bias, labels, pull, rngs):
        def loss(vectors, table, bias):
            losses, correct = cross_entropy(vectors, table, bias, labels, dtype, 16)
            return (losses * pull).sum(), correct

        value = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(vectors, table, bias)
        likeliest = choose(vectors, table, bias, dtype, block=16)
        return value, likeliest, choose(vectors, table, bias, dtype, rngs, 0.7, 16)

    arguments = vectors, table, bias, labels, pull, rngs
    actual, text = run_on_mesh(compute, (ROWS, TABLE, REPLICATED, ROWS, ROWS, ROWS), arguments)
    assert_close(actual, compute(*arguments))
    assert " reduce-scatter(" in text
    assert "[50,24]" not in text, "a device holds the whole table"


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (8, 1), (1, 8)])
def test_replicas_sum_their_gradients_once(replica, fsdp):
    """The gradients are those of two products and a look-up, with sharded rows."""
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

    actual, text = run_on_mesh(
        by_copy, (KERNEL, TABLE, ROWS, ROWS), (kernel, table, x, ids), replica, fsdp
    )
    assert_close(actual, gradients((kernel, table), {"x": x, "ids": ids}))
    of_kernel, of_table = actual[1]
    assert of_kernel.sharding.shard_shape((24, 24)) == (24 // fsdp, 24)
    assert of_table.sharding.shard_shape((50, 24)) == (50, 24 // fsdp)
    results = "".join(re.findall(r" = (.*) all-reduce\(", text))
    summed = re.findall(r"f32\[(\d+,\d+)\]", results)
    expected = {f"{24 // fsdp},24", f"50,{24 // fsdp}"} if replica > 1 else set()
    assert len(summed) == len(expected) and set(summed) == expected


@pytest.mark.parametrize("replica, fsdp", [(2, 4), (1, 8), (8, 1)])
def test_parameters_are_gathered_once_and_gradients_scattered_once(replica, fsdp):
    x, kernel, table, bias = normal(0, 16, 24), normal(1, 24, 24), normal(2, 50, 24), normal(4, 24)
    ids = jnp.asarray(np.random.default_rng(3).integers(0, 50, 16), jnp.int32)
    specs = {"kernel": KERNEL, "table": TABLE, "bias": REPLICATED}

    def gradients(shared, rows):
        def total(shared):
            x = rows["x"] + look_up(shared["table"], rows["ids"]) + shared["bias"]
            twice = matmul(
                jnp.tanh(matmul(x, shared["kernel"], x.dtype)), shared["kernel"], x.dtype
            )
            return jnp.square(twice).sum(), {"rows": jnp.float32(len(x))}

        return jax.value_and_grad(total, has_aux=True)(shared)

    def by_copy(shared, x, ids):
        function = devices.by_copy(gradients, True, specs, (REPLICATED, specs))
        return function(shared, {"x": x, "ids": ids})

    shared = {"kernel": kernel, "table": table, "bias": bias}
    actual, text = run_on_mesh(by_copy, (specs, ROWS, ROWS), (shared, x, ids), replica, fsdp)
    assert_close(actual, gradients(shared, {"x": x, "ids": ids}))
    shapes = {"kernel": (24 // fsdp, 24), "table": (50, 24 // fsdp), "bias": (24,)}
    assert {n: g.sharding.shard_shape(g.shape) for n, g in actual[1].items()} == shapes
    assert "all-to-all" not in text
    gathers, scatters = (
        re.findall(r"f32\[(\d+,\d+)\]", "".join(re.findall(rf" = (.*) {kind}\(", text)))
        for kind in ("all-gather", "reduce-scatter")
    )
    once = {"24,24", "50,24"} if fsdp > 1 else set()
    slices = {f"{24 // fsdp},24", f"50,{24 // fsdp}"} if fsdp > 1 else set()
    assert len(gathers) == len(once) and set(gathers) == once, gathers
    assert len(scatters) == len(slices) and set(scatters) == slices, scatters


def test_rows_that_devices_cannot_share_are_summed_as_on_one_device():
    x, kernel = normal(0, 3, 24), normal(1, 24, 12)
    function = devices.by_copy(lambda kernel, rows: jnp.square(rows @ kernel).sum())
    actual, _ = run_on_mesh(function, (KERNEL, REPLICATED), (kernel, x))
    assert_close(actual, jnp.square(x @ kernel).sum())


@pytest.mark.parametrize("rows, width, kernel", [(1, 24, KERNEL), (16, 9, REPLICATED)])
def test_arrays_that_devices_cannot_share_are_computed_as_on_one_device(rows, width, kernel):
    """For example a single vector, or a kernel of a user's objective that no axis divides."""
    x, weights = normal(0, rows, width), normal(1, width, 12)

    def both(x, weights):
        return jax.value_and_grad(lambda w: (matmul(x, w, x.dtype) ** 2).sum())(weights)

    actual, _ = run_on_mesh(both, (REPLICATED, kernel), (x, weights))
    assert_close(actual, (((x @ weights) ** 2).sum(), 2 * x.T @ (x @ weights)))


def test_nothing_is_split_again_within_a_device():
    """Each device gets its rows and its slice of the kernel. Their sizes could be divided again."""
    x, kernel = normal(0, 64, 96), normal(1, 96, 12)

    def of_rows(x, kernel):
        return matmul(devices.constrain(x, "hidden"), kernel, x.dtype)

    on_each_device = devices.per_device(of_rows, (ROWS, KERNEL), ROWS)
    actual, _ = run_on_mesh(on_each_device, (ROWS, KERNEL), (x, kernel))
    assert_close(actual, x @ kernel)


def test_the_first_rule_that_matches_an_array_is_used():
    matches = {
        name: devices.rule_of(name)
        for name in ("layers/attention/gates/kernel", "layers/attention/query/kernel",
                     "layers/attention/query/bias", "generator/embeddings/word")
    }  # fmt: skip
    per_layer = PartitionSpec(None, "fsdp", None)
    assert [spec for _, spec in matches.values()] == [REPLICATED, per_layer, REPLICATED, TABLE]
    assert set(matches.values()) <= set(devices.RULES)


def test_an_activation_without_a_rule_is_refused():
    def of(name):
        return lambda x: devices.constrain(x, name)

    x = normal(0, 16, 5, 24)
    for placed in (ROWS, REPLICATED):
        actual, _ = run_on_mesh(of("hidden"), (placed,), (x,))
        assert actual.sharding.shard_shape(actual.shape) == (2, 5, 24)
    np.testing.assert_array_equal(of("hidden")(x), x)  # without a mesh
    with pytest.raises(ValueError, match="no sharding rule matches the array activations/other"):
        run_on_mesh(of("other"), (ROWS,), (x,))


def test_collectives_outside_of_a_mesh_change_nothing():
    x = normal(0, 4, 6)
    shared = (
        devices.all_gather(x, 0), devices.reduce_sum(x), devices.reduce_sum(x, 1),
        devices.sum_over_replicas(x), devices.all_to_all(x, 0, 1),
    )  # fmt: skip
    for actual in shared:
        np.testing.assert_array_equal(actual, x)


@pytest.mark.parametrize(
    "kind, version, expected",
    [("Tesla T4", "7.5", 7.5), ("another GPU", "7.5", None), ("Tesla T4", "gfx942", None)],
)
def test_the_compute_capability_is_that_of_the_present_gpus(kind, version, expected, monkeypatch):
    """A program for other GPUs, and a GPU of AMD, have none."""
    present = SimpleNamespace(platform="gpu", device_kind="Tesla T4", compute_capability=version)
    monkeypatch.setattr(jax, "local_devices", lambda: [present])
    abstract = AbstractDevice(kind, num_cores=None, platform="gpu")
    mesh = AbstractMesh((1, 1), devices.AXES, (AxisType.Auto,) * 2, abstract_device=abstract)
    with jax.sharding.use_abstract_mesh(mesh):
        assert devices.compute_capability() == expected
        assert devices.has_bfloat16() == (expected is None)


def test_cpus_have_no_compute_capability():
    assert devices.compute_capability() is None
