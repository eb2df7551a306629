"""How arrays lie on a mesh (replica, fsdp): one table of rules for parameters and activations.

Each device has its part of the rows, and a slice of every kernel and of the word embeddings. As in
ZeRO-3 (Rajbhandari et al., 2020), a product gathers its kernel, in the type that it multiplies in,
and lets it go; the kernel's gradient is summed and scattered at once. Neither memory nor traffic of
a device grows with the number of devices then. XLA left to itself gathers the rows instead.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

AXES = ("replica", "fsdp")
ROWS = PartitionSpec(AXES)
"""The leading axis of every batch is split over all devices."""

KERNEL = PartitionSpec("fsdp", None)
"""A kernel [inputs, outputs], split along the inputs."""
TABLE = PartitionSpec(None, "fsdp")
"""A table of embeddings [ids, hidden], split along the hidden size."""
REPLICATED = PartitionSpec()
"""An array of which each device has all."""

Rules = tuple[tuple[str, PartitionSpec], ...]

RULES: Rules = (
    (r".*(bias|scale)|position_bias/table|.*gates/kernel", REPLICATED),
    (r"embeddings/(word|position|token_type|language)", TABLE),
    (r"layers/.*/kernel", PartitionSpec(None, *KERNEL)),
    (r"\w+_head/.*kernel", KERNEL),
    (r"activations/hidden", ROWS),
)
"""(regular expression over an array's name, its axes); the first that matches holds. A name may
have any parts before: the generator's layers are named as the encoder's are. An objective adds
rules of its own."""


def rule_of(name: str, rules: Rules = RULES) -> tuple[str, PartitionSpec]:
    """The rule that names an array.

    Raises:
      ValueError: if none does.
    """
    for rule, spec in rules:
        if re.fullmatch(rf"(.*/)?({rule})", name):
            return rule, spec
    raise ValueError(f"no partitioning rule names the array {name}")


def on_mesh(mesh: Mesh, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function to be jitted, whose arrays lie on a mesh by the rules."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*arguments)

    return call


def platform() -> str:
    """The kind of devices that a program is traced for: those of the mesh, which may be described
    and not there; without a mesh, JAX's own."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device is not None else jax.local_devices()[0].platform


def parts(mesh: Any, axes: str | tuple[str, ...] | None) -> int:
    """How many devices an axis of an array is split over."""
    names = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(mesh.shape[name] for name in names)


def constrained(x: jax.Array, name: str) -> jax.Array:
    """An activation [rows, ...], and its gradient, where the rule of `activations/NAME` says."""
    spec = rule_of(f"activations/{name}")[1]
    return jax.lax.with_sharding_constraint(x, spec) if _is_sharded((x,), (spec,)) else x


def per_device(function: Callable[..., Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
    """A function of rows as each device computes it of its own rows; for what devices share it uses
    `gathered` and `summed`. It is itself on one device, and for arrays that devices cannot share.

    Args:
      inputs, outputs: how its arguments and results lie.
    """

    def call(*arguments: Any) -> Any:
        if not _is_sharded(arguments, inputs):
            return function(*arguments)
        mapped = jax.shard_map(function, in_specs=inputs, out_specs=outputs, check_vma=False)
        return mapped(*arguments)

    return call


def gathered(x: jax.Array, axis: int) -> jax.Array:
    """Of a device's slice along `axis`, the array (all-gather); inside `per_device`."""
    if "fsdp" not in _shared():
        return x
    return jax.lax.all_gather(x, "fsdp", axis=axis, tiled=True)


def summed(x: jax.Array, axis: int | None = None) -> jax.Array:
    """The sum of what devices have (all-reduce), or a device's slice of it along `axis`
    (reduce-scatter); inside `per_device`."""
    axes = _shared()
    if axis is not None and "fsdp" in axes:
        axes.remove("fsdp")
        x = jax.lax.psum_scatter(x, "fsdp", scatter_dimension=axis, tiled=True)
    return jax.lax.psum(x, axes) if axes else x


def summed_over_replicas(x: jax.Array) -> jax.Array:
    """The sum of what the devices have that hold copies of one slice; inside `per_device`."""
    return jax.lax.psum(x, "replica") if "replica" in _shared() else x


def exchanged(x: jax.Array, split: int, joined: int) -> jax.Array:
    """Each device's array is split along `split`, a part for each device that shares a copy of the
    parameters; what a device gets is joined along `joined` (all-to-all). Inside `per_device`."""
    if "fsdp" not in _shared():
        return x
    return jax.lax.all_to_all(x, "fsdp", split, joined, tiled=True)


def _is_sharded(arrays: Sequence[Any], specs: Sequence[PartitionSpec]) -> bool:
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1 or mesh.manual_axes:
        return False
    return not any(
        size % parts(mesh, axes)
        for array, spec in zip(arrays, specs, strict=True)
        if array is not None
        for size, axes in zip(array.shape, spec, strict=False)
    )


def _shared() -> list[str]:
    """The axes of more than one device, inside `per_device`; none outside."""
    mesh = jax.sharding.get_abstract_mesh()
    return [axis for axis in mesh.manual_axes if mesh.shape[axis] > 1]
