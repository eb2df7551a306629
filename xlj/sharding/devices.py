"""Per-device computation inside a program, and the collectives between devices.

Each device has a part of the rows, and a slice of every kernel and of the word embeddings. As in
ZeRO-3 (Rajbhandari et al., 2020), a product gathers its kernel in the dtype of the product and then
frees the gathered kernel. The gradient of the kernel is reduced and scattered as soon as it exists.
So neither the memory nor the traffic of a device grows with the number of devices. By default, XLA
would gather the rows instead of the kernels.

One table has the sharding rules of parameters and activations on a mesh (replica, fsdp).
"""

import math
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

AXES = ("replica", "fsdp")
"""Axes of the mesh: copies of the parameters, and the devices that share one copy."""

ROWS = PartitionSpec(AXES)
"""An array [rows, ...] of a batch, split along the rows over all devices."""

KERNEL = PartitionSpec("fsdp", None)
"""A kernel [inputs, outputs], split along the inputs."""

STACKED_KERNEL = PartitionSpec(None, *KERNEL)
"""The kernels of all layers [layers, inputs, outputs], split along the inputs."""

TABLE = PartitionSpec(None, "fsdp")
"""A table of embeddings [ids, hidden], split along the hidden size."""

REPLICATED = PartitionSpec()
"""An array that each device has in full."""

Rules = tuple[tuple[str, PartitionSpec], ...]
"""Pairs (regular expression over an array's name, its partition specification)."""

RULES: Rules = (
    (r".*(bias|scale)|position_bias/table|.*gates/kernel", REPLICATED),
    (r"embeddings/(word|position|token_type|language)|\w*head/word", TABLE),
    (r"layers/.*/kernel", STACKED_KERNEL),
    (r"\w+_head/.*kernel", KERNEL),
    (r"activations/(hidden|slots)", ROWS),
    (r"activations/microbatches", PartitionSpec(None, *ROWS)),
)
"""Sharding rules for all models; the first match applies. A rule also matches names with a prefix,
such as `generator/layers/...`. Objectives add rules for their own arrays (`Objective.rules`)."""


def rule_of(name: str, rules: Rules = RULES) -> tuple[str, PartitionSpec]:
    """Returns the first rule that matches an array: (regular expression, specification).

    Args:
      name: of the array, e.g. `layers/attention/query/kernel`.

    Raises:
      ValueError: if no rule matches the name.
    """
    for rule, spec in rules:
        if re.fullmatch(rf"(.*/)?({rule})", name):
            return rule, spec
    raise ValueError(
        f"no sharding rule matches the array {name}; add one to the `rules` of its objective"
    )


OTHERS: Rules = ((r".*", REPLICATED),)
"""A last rule that replicates all other arrays, for trees with parameters of unknown objectives."""

STORED: Rules = (*RULES, *OTHERS)
"""The rules for the parameters of a stored model."""


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Shared = TypeVar("Shared")
Sliced = TypeVar("Sliced")
RowsOf = TypeVar("RowsOf")


def on_mesh(mesh: Mesh, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Returns the function with the mesh in its context.

    The result is meant for `jax.jit`. In this context, the functions of this module shard arrays by
    the rules of `sharding/devices.py`.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*arguments, **named)

    return call


def compute_in_the_calling_thread() -> None:
    """Makes CPU devices compute in the calling thread, instead of a thread of XLA.

    `io.own_process.StepMemory` keeps only memory of the calling thread. Call this function before
    the first array exists.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def platform() -> str:
    """Returns the platform for which a program is traced: "cpu", "gpu" or "tpu".

    It is the platform of the mesh in the context, whose devices need not be present. Without a
    mesh, it is the platform of JAX's first device.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device is not None else jax.local_devices()[0].platform


def compute_capability() -> float | None:
    """Returns the compute capability of the NVIDIA GPUs for which a program is traced.

    It is None for other devices, and for GPUs that are not present (`xlj.plan`).
    """
    abstract, present = jax.sharding.get_abstract_mesh().abstract_device, jax.local_devices()[0]
    if present.platform != "gpu" or (abstract and abstract.device_kind != present.device_kind):
        return None
    version = str(getattr(present, "compute_capability", ""))
    return float(version) if re.fullmatch(r"\d+\.\d+", version) else None


AMPERE = 8.0
"""The compute capability of the first NVIDIA GPUs with products of bfloat16."""


def has_bfloat16() -> bool:
    """Returns whether the devices of the traced program compute products of bfloat16."""
    return (compute_capability() or AMPERE) >= AMPERE


def count_shards(mesh: Mesh | AbstractMesh, axes: str | tuple[str, ...] | None) -> int:
    """Returns the number of devices over which an axis of an array is split.

    Args:
      axes: the entry of the axis in a partition specification; None if the axis is not split.
    """
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(mesh.shape[name] for name in names)


def unroll_count(turns: int) -> int:
    """Returns how many iterations of a loop with collectives to unroll.

    It is 1, except on CPUs that share parameters. There, XLA may run the operations after a loop
    before the collectives in the loop. Devices that run collectives in different orders deadlock,
    so on these CPUs all iterations are unrolled.

    Args:
      turns: number of iterations of the loop.
    """
    return max(turns, 1) if are_shared() and platform() == "cpu" else 1


def are_shared() -> bool:
    """Returns whether each device has only a slice of the parameters."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.empty and mesh.shape["fsdp"] > 1


def constrain(x: jax.Array, name: str) -> jax.Array:
    """Shards an activation [rows, ...] and its gradient by the rule of `activations/NAME`.

    Without a mesh, and for arrays that the devices cannot divide, it returns x unchanged.
    """
    spec = _within(rule_of(f"activations/{name}")[1], _free())
    return jax.lax.with_sharding_constraint(x, spec) if _is_sharded((x,), (spec,)) else x


def on_whole_matrices(function: Callable[[jax.Array], jax.Array], kernel: jax.Array) -> jax.Array:
    """Applies a function to stacked kernels [layers, m, n], with whole matrices on each device.

    If devices have slices of the matrices, they exchange the slices, so that each device gets the
    whole matrices of some layers. If the number of devices does not divide the number of layers,
    some devices get fewer layers.

    Args:
      function: maps [layers, m, n] -> [layers, m, n] and treats each matrix separately.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape["fsdp"] == 1:
        return function(kernel)
    whole = PartitionSpec("fsdp")
    constrain_to = jax.lax.with_sharding_constraint
    # Both shardings are set before and after the function. Otherwise XLA would exchange the arrays
    # from which `kernel` is computed, or split the matrices inside the function.
    result = function(constrain_to(constrain_to(kernel, STACKED_KERNEL), whole))
    return constrain_to(constrain_to(result, whole), STACKED_KERNEL)


def per_device(
    function: Callable[..., Result], inputs: tuple[PartitionSpec, ...], outputs: object
) -> Callable[..., Result]:
    """Returns a function that each device applies to its own parts of the arguments.

    Inside the function, the collectives of this module (`all_gather`, `reduce_sum`, ...) exchange
    arrays between devices. On one device, and for arrays that the devices cannot divide, the
    function is called directly and the collectives do nothing.

    Args:
      inputs: the partition specification of each argument.
      outputs: the partition specifications of the results; one may apply to a whole tree.
    """

    def call(*arguments: jax.Array | None) -> Result:
        if not _is_sharded(arguments, inputs):
            return function(*arguments)
        return _mapped(function, _free(), inputs, outputs)(*arguments)

    return call


def by_copy(
    function: Callable[[Shared, RowsOf], Result],
    whole: bool = False,
    inputs: object = REPLICATED,
    outputs: object = REPLICATED,
) -> Callable[[Shared, RowsOf], Result]:
    """Returns a function (shared, rows) -> sums over rows, such as gradients.

    The devices that have the same index on the axis `replica` share one copy of the parameters. The
    devices of each copy sum over their own rows, and the sums of the copies are added once at the
    end. Inside `function`, `per_device` divides work over the devices that share a copy.

    Args:
      function: (shared arguments, some rows) -> sums over these rows.
      whole: whether every device first gathers a whole copy of `shared`, and scatters the sums at
        the end.
      inputs: the partition specifications of `shared`; one may apply to a whole tree.
      outputs: the partition specifications of the sums; one may apply to a whole tree.
    """

    def call(shared: Shared, rows: RowsOf) -> Result:
        axes = [axis for axis in _free() if whole or axis == "replica"]
        leaves = jax.tree.leaves(rows)
        if not axes or not _is_sharded(leaves, [ROWS] * len(leaves)):
            return function(shared, rows)

        def of_copy(shared: Shared, rows: RowsOf) -> Result:
            copy = _along_slices(all_gather, inputs, shared)
            return _along_slices(reduce_sum, outputs, _sharing((), function)(copy, rows))

        slices = jax.tree.map(_slices, (inputs, outputs))
        return _mapped(of_copy, axes, (slices[0], ROWS), slices[1])(shared, rows)

    return call


def _slices(spec: PartitionSpec) -> PartitionSpec:
    """Returns a specification with only the axis `fsdp`, of devices that share a copy."""
    return PartitionSpec(*(name if name == "fsdp" else None for name in spec))


def _along_slices(
    exchange: Callable[[jax.Array, int | None], jax.Array], specs: object, tree: Sliced
) -> Sliced:
    """Applies a collective to each array along the axis that is split over `fsdp`, if any.

    Args:
      exchange: `all_gather` or `reduce_sum`: (array, axis or None) -> array.
      specs: the partition specifications of the arrays; one may apply to a whole tree.
    """

    def exchange_leaf(spec: PartitionSpec, part: object) -> object:
        axis = spec.index("fsdp") if "fsdp" in spec else None
        return jax.tree.map(lambda x: exchange(x, axis), part)

    return jax.tree.map(exchange_leaf, specs, tree)


_shared: ContextVar[tuple[str, ...]] = ContextVar("shared", default=())
"""The mesh axes over which collectives exchange arrays, as the innermost `_sharing` sets them."""


def _mapped(
    function: Callable[..., Result], axes: Sequence[str], inputs: object, outputs: object
) -> Callable[..., Result]:
    """Returns a function that each device runs on its part of the arrays.

    Args:
      axes: the axes of the mesh along which arrays are split. The collectives inside the function
        are over these axes.
      inputs, outputs: partition specifications; names of other axes are ignored.
    """
    mesh = jax.sharding.get_abstract_mesh()
    # Axes of size 1 are mapped too, since Pallas kernels on TPUs accept no automatic axes.
    single = [axis for axis in AXES if mesh.shape[axis] == 1 and axis not in mesh.manual_axes]

    inputs, outputs = (
        jax.tree.map(lambda spec: _within(spec, axes), specs) for specs in (inputs, outputs)
    )
    return jax.shard_map(
        _sharing(axes, function),
        in_specs=inputs,
        out_specs=outputs,
        axis_names={*axes, *single},
        check_vma=False,
    )


def _sharing(
    axes: Sequence[str], function: Callable[Arguments, Result]
) -> Callable[Arguments, Result]:
    """Returns the function with `all_gather` and the other collectives set to these axes."""

    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        before = _shared.set(tuple(axes))
        try:
            return function(*arguments, **named)
        finally:
            _shared.reset(before)

    return call


def _free() -> list[str]:
    """Returns the axes with more than one device over which no enclosing function divides work."""
    mesh = jax.sharding.get_abstract_mesh()
    return [a for a in AXES if not mesh.empty and mesh.shape[a] > 1 and a not in mesh.manual_axes]


def _within(spec: PartitionSpec, axes: Sequence[str]) -> PartitionSpec:
    """Returns a specification with only these axes of the mesh."""

    def restrict(names: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        selected = tuple(
            n for n in ((names,) if isinstance(names, str) else names or ()) if n in axes
        )
        return selected if len(selected) > 1 else selected[0] if selected else None

    return PartitionSpec(*map(restrict, spec))


def all_gather(x: jax.Array, axis: int | None) -> jax.Array:
    """Returns the whole array from the slices of the devices; use it inside `per_device`.

    Args:
      x: the slice of this device.
      axis: the axis that is split; None returns x.
    """
    if axis is None or "fsdp" not in _shared.get():
        return x
    return jax.lax.all_gather(x, "fsdp", axis=axis, tiled=True)


def gather_rows(x: jax.Array) -> jax.Array:
    """Returns the rows of all devices in their order; use it inside `per_device`.

    Args:
      x: the rows of this device, [rows, ...], split as `ROWS`.
    """
    axes = _shared.get()
    return jax.lax.all_gather(x, axes, axis=0, tiled=True) if axes else x


def reduce_sum(x: jax.Array, axis: int | None = None) -> jax.Array:
    """Sums an array over devices; use it inside `per_device`.

    Args:
      axis: the axis along which the sum is split, so that each device gets a slice
        (reduce-scatter); None returns the whole sum on each device (all-reduce).
    """
    axes = list(_shared.get())
    if axis is not None and "fsdp" in axes:
        axes.remove("fsdp")
        x = jax.lax.psum_scatter(x, "fsdp", scatter_dimension=axis, tiled=True)
    return jax.lax.psum(x, axes) if axes else x


def sum_over_replicas(x: jax.Array) -> jax.Array:
    """Sums an array over the devices that have the same slice of the parameters.

    Use it inside `per_device`.
    """
    return jax.lax.psum(x, "replica") if "replica" in _shared.get() else x


def all_to_all(x: jax.Array, split: int, joined: int) -> jax.Array:
    """Exchanges parts of an array between the devices that share a copy of the parameters.

    Use it inside `per_device`.

    Args:
      split: the axis along which each device splits its array into a part for each device.
      joined: the axis along which each device joins the parts that it receives.
    """
    if "fsdp" not in _shared.get():
        return x
    return jax.lax.all_to_all(x, "fsdp", split, joined, tiled=True)


def _is_sharded(arrays: Sequence[jax.Array | None], specs: Sequence[PartitionSpec]) -> bool:
    """Returns whether there are several devices, and they can divide the arrays as specified."""
    mesh, free = jax.sharding.get_abstract_mesh(), _free()
    return bool(free) and not any(
        size % count_shards(mesh, axes)
        for array, spec in zip(arrays, specs, strict=True)
        if array is not None
        for size, axes in zip(array.shape, _within(spec, free), strict=False)
    )
