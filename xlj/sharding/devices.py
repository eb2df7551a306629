"""What devices compute of their own rows inside a program, and what they exchange for it.

Each device has its part of the rows, and a slice of every kernel and of the word embeddings. As in
ZeRO-3 (Rajbhandari et al., 2020), a product gathers its kernel, in the type that it multiplies in,
and lets it go; the kernel's gradient is summed and scattered at once. Neither memory nor traffic of
a device grows with the number of devices then. XLA left to itself gathers the rows instead.
"""

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from xlj.sharding.rules import AXES, REPLICATED, ROWS, STACKED_KERNEL, rule_of

Given = ParamSpec("Given")
Found = TypeVar("Found")
Shared = TypeVar("Shared")
Sliced = TypeVar("Sliced")
RowsOf = TypeVar("RowsOf")


def on_mesh(mesh: Mesh, function: Callable[Given, Found]) -> Callable[Given, Found]:
    """A function to be jitted, whose arrays lie on a mesh by the rules."""

    @wraps(function)
    def call(*arguments: Given.args, **named: Given.kwargs) -> Found:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*arguments, **named)

    return call


def platform() -> str:
    """The kind of devices that a program is traced for: those of the mesh, which may be described
    and not there; without a mesh, JAX's own."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device is not None else jax.local_devices()[0].platform


def parts(mesh: Mesh | AbstractMesh, axes: str | tuple[str, ...] | None) -> int:
    """How many devices an axis of an array is split over."""
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(mesh.shape[name] for name in names)


def unrolled(turns: int) -> int:
    """How many turns of a loop with collectives stand one after another in the program: one, but
    all of them where CPUs share parameters. XLA's executor on CPUs goes on past a loop before the
    collectives in it have begun; devices that come to them in another order wait for ever."""
    return max(turns, 1) if are_shared() and platform() == "cpu" else 1


def are_shared() -> bool:
    """Whether devices share the parameters, each with a slice of them."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.empty and mesh.shape["fsdp"] > 1


def constrain(x: jax.Array, name: str) -> jax.Array:
    """An activation [rows, ...], and its gradient, where the rule of `activations/NAME` says."""
    spec = _within(rule_of(f"activations/{name}")[1], _free())
    return jax.lax.with_sharding_constraint(x, spec) if _is_sharded((x,), (spec,)) else x


def on_whole_matrices(function: Callable[[jax.Array], jax.Array], kernel: jax.Array) -> jax.Array:
    """A function of stacked kernels [layers, m, n] that takes each matrix by itself. Devices that
    have slices of the matrices exchange them: each gets whole matrices of its share of the layers.
    Some get fewer layers where the devices do not divide them."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape["fsdp"] == 1:
        return function(kernel)
    whole = PartitionSpec("fsdp")
    place = jax.lax.with_sharding_constraint
    # Both layouts at both ends: XLA would exchange what the kernel is computed from, or cut the
    # matrices in the middle of the function.
    result = function(place(place(kernel, STACKED_KERNEL), whole))
    return place(place(result, whole), STACKED_KERNEL)


def per_device(
    function: Callable[..., Found], inputs: tuple[PartitionSpec, ...], outputs: object
) -> Callable[..., Found]:
    """Returns a function that each device applies to its own rows. Inside it, `all_gather` and
    `reduce_sum` exchange arrays between devices. On one device, and for arrays that cannot be
    sharded, the function is called directly.

    Args:
      inputs, outputs: how its arguments and results lie.
    """

    def call(*arguments: jax.Array | None) -> Found:
        if not _is_sharded(arguments, inputs):
            return function(*arguments)
        return _mapped(function, _free(), inputs, outputs)(*arguments)

    return call


def by_copy(
    function: Callable[[Shared, RowsOf], Found],
    whole: bool = False,
    inputs: object = REPLICATED,
    outputs: object = REPLICATED,
) -> Callable[[Shared, RowsOf], Found]:
    """A function (shared, rows) -> sums over rows, such as gradients: each copy of the parameters
    takes the sums of its own rows, and they are added up once, at the end. Inside, `per_device` is
    of the devices that share a copy.

    Args:
      whole: whether every device gathers a copy for itself first, and scatters the sums at the end.
      inputs, outputs: how what is shared and the sums lie; specifications may stand for trees.
    """

    def call(shared: Shared, rows: RowsOf) -> Found:
        axes = [axis for axis in _free() if whole or axis == "replica"]
        leaves = jax.tree.leaves(rows)
        if not axes or not _is_sharded(leaves, [ROWS] * len(leaves)):
            return function(shared, rows)

        def of_copy(shared: Shared, rows: RowsOf) -> Found:
            copy = _along_slices(all_gather, inputs, shared)
            return _along_slices(reduce_sum, outputs, _sharing((), function)(copy, rows))

        slices = jax.tree.map(_slices, (inputs, outputs))
        return _mapped(of_copy, axes, (slices[0], ROWS), slices[1])(shared, rows)

    return call


def _slices(spec: PartitionSpec) -> PartitionSpec:
    """What a specification says of the devices that share a copy of the parameters."""
    return PartitionSpec(*(name if name == "fsdp" else None for name in spec))


def _along_slices(
    exchange: Callable[[jax.Array, int | None], jax.Array], specs: object, tree: Sliced
) -> Sliced:
    """`all_gather` or `reduce_sum` along the axis that each array is sliced along, if it is."""

    def exchanged_of(spec: PartitionSpec, part: object) -> object:
        axis = spec.index("fsdp") if "fsdp" in spec else None
        return jax.tree.map(lambda x: exchange(x, axis), part)

    return jax.tree.map(exchanged_of, specs, tree)


_shared: ContextVar[tuple[str, ...]] = ContextVar("shared", default=())
"""The axes that the innermost `per_device` shares its work out over."""


def _mapped(
    function: Callable[..., Found], axes: Sequence[str], inputs: object, outputs: object
) -> Callable[..., Found]:
    """A function that each part of some axes of the mesh computes of its own, and that gathers and
    sums over these."""
    mesh = jax.sharding.get_abstract_mesh()
    # Axes of one device too: a TPU's kernels must find none that is left.
    alone = [axis for axis in AXES if mesh.shape[axis] == 1 and axis not in mesh.manual_axes]

    inputs, outputs = (
        jax.tree.map(lambda spec: _within(spec, axes), specs) for specs in (inputs, outputs)
    )
    return jax.shard_map(
        _sharing(axes, function),
        in_specs=inputs,
        out_specs=outputs,
        axis_names={*axes, *alone},
        check_vma=False,
    )


def _sharing(axes: Sequence[str], function: Callable[Given, Found]) -> Callable[Given, Found]:
    """A function in which `all_gather` and the like are over these axes."""

    def call(*arguments: Given.args, **named: Given.kwargs) -> Found:
        before = _shared.set(tuple(axes))
        try:
            return function(*arguments, **named)
        finally:
            _shared.reset(before)

    return call


def _free() -> list[str]:
    """The axes of more than one device that work can still be shared out over."""
    mesh = jax.sharding.get_abstract_mesh()
    return [a for a in AXES if not mesh.empty and mesh.shape[a] > 1 and a not in mesh.manual_axes]


def _within(spec: PartitionSpec, axes: Sequence[str]) -> PartitionSpec:
    """What a specification says of some axes."""

    def kept(names: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        left = tuple(n for n in ((names,) if isinstance(names, str) else names or ()) if n in axes)
        return left if len(left) > 1 else left[0] if left else None

    return PartitionSpec(*map(kept, spec))


def all_gather(x: jax.Array, axis: int | None) -> jax.Array:
    """Of a device's slice along `axis`, the array (all-gather); inside `per_device`."""
    if axis is None or "fsdp" not in _shared.get():
        return x
    return jax.lax.all_gather(x, "fsdp", axis=axis, tiled=True)


def reduce_sum(x: jax.Array, axis: int | None = None) -> jax.Array:
    """The sum of what devices have (all-reduce), or a device's slice of it along `axis`
    (reduce-scatter); inside `per_device`."""
    axes = list(_shared.get())
    if axis is not None and "fsdp" in axes:
        axes.remove("fsdp")
        x = jax.lax.psum_scatter(x, "fsdp", scatter_dimension=axis, tiled=True)
    return jax.lax.psum(x, axes) if axes else x


def sum_over_replicas(x: jax.Array) -> jax.Array:
    """The sum of what the devices have that hold copies of one slice; inside `per_device`."""
    return jax.lax.psum(x, "replica") if "replica" in _shared.get() else x


def all_to_all(x: jax.Array, split: int, joined: int) -> jax.Array:
    """Each device's array is split along `split`, a part for each device that shares a copy of the
    parameters; what a device gets is joined along `joined` (all-to-all). Inside `per_device`."""
    if "fsdp" not in _shared.get():
        return x
    return jax.lax.all_to_all(x, "fsdp", split, joined, tiled=True)


def _is_sharded(arrays: Sequence[jax.Array | None], specs: Sequence[PartitionSpec]) -> bool:
    """Whether work can be shared out, and the arrays so specified."""
    mesh, free = jax.sharding.get_abstract_mesh(), _free()
    return bool(free) and not any(
        size % parts(mesh, axes)
        for array, spec in zip(arrays, specs, strict=True)
        if array is not None
        for size, axes in zip(array.shape, _within(spec, free), strict=False)
    )
