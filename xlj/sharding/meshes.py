"""Meshes of devices with axes (replica, fsdp), their checks and compiler options."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from xlj.config import Config, ConfigError
from xlj.contracts.arrays import PyTree
from xlj.sharding.devices import AXES

QUICK = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0}
"""XLA options that shorten compilation on GPUs, for programs that rarely run.

By default XLA tries dozens of kernels for each product, which takes most of a minute in float32.
With these options XLA uses cuBLAS. The options have no effect on other platforms.
"""

_SEPARATE_PRODUCTS = {"xla_gpu_dot_merger_threshold_mb": 0}
"""XLA options that keep products with a common factor separate on GPUs.

By default XLA merges such products. It would compute queries, keys and values in one product and
then slice the result. It would also merge the products that compute the gradients of the biases of
all layers, and copy the factors of these products to do so.
"""

_LEAST_MEMORY = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""XLA options that order the operations of a CPU program for the least memory."""


def make_mesh(config: Config, devices: Sequence[jax.Device] = ()) -> Mesh:
    """Builds the mesh of a run, with axes (replica, fsdp).

    Args:
      config: `mesh.replica` and `mesh.fsdp` are the sizes of the axes. With `mesh.replica=0`, the
        size of the axis `replica` is the number of devices divided by `mesh.fsdp`.
      devices: of the mesh; empty for all devices.

    Raises:
      ConfigError: if replica times fsdp is not the number of devices.
    """
    devices = devices or jax.devices()
    count, fsdp = len(devices), config.mesh.fsdp
    replica = config.mesh.replica or max(1, count // fsdp)
    if replica * fsdp != count:
        raise ConfigError(
            f"mesh.replica={config.mesh.replica} and mesh.fsdp={fsdp} make a mesh of "
            f"{replica * fsdp} devices, but this run has {count}; set mesh.replica=0 and mesh.fsdp "
            f"to a divisor of {count}"
        )
    return _mesh(fsdp, devices)


def check_batches(config: Config, mesh: Mesh) -> None:
    """Checks that the rows of each microbatch can be divided over the devices.

    Raises:
      ConfigError: if they cannot; the message names the key of the objective's rows.
    """
    batches = [
        (p.accumulation_steps, *item) for p in config.schedule for item in p.active().items()
    ]
    for microbatches, name, options in batches:
        rows = options.batch_size // microbatches
        if rows % mesh.size:
            fits = max(n for n in range(1, mesh.size) if rows % n == 0)
            raise ConfigError(
                f"{options.path(name)}.batch_size={options.batch_size} / "
                f"train.gradient_accumulation_steps={microbatches} = {rows} rows are not divisible "
                f"by {mesh.size} devices; use {fits} devices, or another number of rows in a "
                "new run"
            )


def compiler_options(mesh: Mesh) -> dict[str, Any]:
    """Returns XLA options for the programs that initialise and update a state on this mesh.

    - GPUs: products with a common factor stay separate.
    - One CPU device: operations have the order with the least memory, which is as fast as the
      default order.
    - Several CPU devices, and TPUs: the default order. Collectives of several devices wait for each
      other, so another order could be slow.
    """
    if mesh.devices.flat[0].platform == "gpu":
        return dict(_SEPARATE_PRODUCTS)
    alone = mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"
    return dict(_LEAST_MEMORY) if alone and has_memory_order() else {}


@functools.cache
def has_memory_order() -> bool:
    """Returns whether this release of XLA can order operations on a CPU for the least memory."""
    try:
        jax.jit(lambda: 0, compiler_options=_LEAST_MEMORY).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def one_device(name: str | None = None) -> Mesh:
    """Returns a mesh of one device.

    Args:
      name: of the device, such as `cpu`, `gpu` or `cuda:1`; None for the first device.

    Raises:
      ConfigError: if there is no device of this name.
    """
    if name is None:
        return _mesh(1, jax.local_devices()[:1])
    platform, _, number = name.partition(":")
    try:
        return _mesh(1, [jax.local_devices(backend=platform)[int(number or 0)]])
    except (RuntimeError, ValueError, IndexError):
        known = ", ".join(f"{device.platform}:{device.id}" for device in jax.local_devices())
        raise ConfigError(
            f"device={name!r}: there is no such device; choose one of {known}"
        ) from None


def local_devices() -> Mesh:
    """Returns a mesh of all devices of this process, each with a copy of the parameters."""
    return _mesh(1, jax.local_devices())


def _mesh(fsdp: int, devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(_arrange(fsdp, devices), AXES, axis_types=(AxisType.Auto,) * 2)


def _arrange(fsdp: int, devices: Sequence[jax.Device]) -> np.ndarray:
    """Arranges devices as an array [devices / fsdp, fsdp].

    If possible, each row of the array has devices with fast links: devices of one slice of TPUs, or
    of one host. Then parameters are gathered over fast links only.
    """
    fast: dict[int, list[jax.Device]] = {}
    for device in devices:
        fast.setdefault(_group(device), []).append(device)
    groups = list(fast.values())
    if any(len(group) % fsdp for group in groups):
        groups = [sum(groups, [])]  # no arrangement has fast links only: one group of all devices
    return np.concatenate(
        [
            mesh_utils.create_device_mesh(
                (len(group) // fsdp, fsdp), group, allow_split_physical_axes=True
            )
            for group in groups
        ]
    )


def crosses_hosts(mesh: Mesh) -> bool:
    """Returns whether parameters are gathered over slow links: between hosts, or slices of TPUs."""
    return any(len({_group(device) for device in row}) > 1 for row in mesh.devices)


def _group(device: jax.Device) -> int:
    """Returns the number of the slice of TPUs, or else of the host, that a device belongs to.

    Devices of one group have fast links. TPUs without a slice index are one slice.
    """
    of_slice = getattr(device, "slice_index", 0 if device.platform == "tpu" else None)
    return device.process_index if of_slice is None else of_slice


def mesh_of(tree: PyTree) -> Mesh:
    """Returns the mesh of a tree's arrays, or a mesh of the first device if they have no mesh."""
    mesh = getattr(jax.tree.leaves(tree)[0].sharding, "mesh", None)
    return mesh if isinstance(mesh, Mesh) else one_device()
