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
from xlj.sharding.rules import AXES

QUICK = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0}
"""XLA options for programs that rarely run. By default XLA tries dozens of kernels for each product
on GPUs, which takes most of a minute in float32; with these options it uses cuBLAS. They have no
effect on other platforms.
"""

_SEPARATE_PRODUCTS = {"xla_gpu_dot_merger_threshold_mb": 0}
"""Keeps products with a common factor separate on GPUs. By default XLA merges query, key and value
into one product and slices it, and merges the bias gradients of all layers, copying their
factors."""

_LEAST_MEMORY = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def make_mesh(config: Config, devices: Sequence[jax.Device] = ()) -> Mesh:
    """Returns the mesh of some devices, or of all, with axes (replica, fsdp).

    Raises:
      ConfigError: if the configured mesh does not use all of the devices.
    """
    devices = devices or jax.devices()
    count, fsdp = len(devices), config.mesh.fsdp
    replica = config.mesh.replica or max(1, count // fsdp)
    if replica * fsdp != count:
        raise ConfigError(
            f"mesh.replica={config.mesh.replica or 'rest'} x mesh.fsdp={fsdp} does not use all "
            f"{count} devices of this run"
        )
    return _mesh(fsdp, devices)


def check_batches(config: Config, mesh: Mesh) -> None:
    """Refuses microbatches that cannot be divided over the devices.

    Raises:
      ConfigError: names the key.
    """
    batches = [(p.parts, *item) for p in config.schedule for item in p.active().items()]
    for parts, name, options in batches:
        rows = options.batch_rows // parts
        if rows % mesh.size:
            fits = max(n for n in range(1, mesh.size) if rows % n == 0)
            raise ConfigError(
                f"{options.path(name)}.batch_rows={options.batch_rows} / train.accumulation="
                f"{parts} = {rows} rows are not divisible by {mesh.size} devices; use {fits} "
                "devices, or another number of rows in a new run"
            )


def compiler_options(mesh: Mesh) -> dict[str, Any]:
    """Returns XLA options for the programs that initialise and update a state on this mesh.

    A single CPU computes in the order with the least memory, which is as fast. Several devices keep
    XLA's default order, since their collectives wait for each other. On GPUs products with a common
    factor are not merged.
    """
    if mesh.devices.flat[0].platform == "gpu":
        return dict(_SEPARATE_PRODUCTS)
    alone = mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"
    return dict(_LEAST_MEMORY) if alone and has_memory_order() else {}


@functools.cache
def has_memory_order() -> bool:
    """Whether this release of XLA can order operations on a CPU for the least memory."""
    try:
        jax.jit(lambda: 0, compiler_options=_LEAST_MEMORY).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def one_device(name: str | None = None) -> Mesh:
    """Returns a mesh of one device: the first, or a named one such as `cpu`, `gpu` or `cuda:1`.

    Raises:
      ConfigError: if there is no such device.
    """
    if name is None:
        return _mesh(1, jax.local_devices()[:1])
    platform, _, number = name.partition(":")
    try:
        return _mesh(1, [jax.local_devices(backend=platform)[int(number or 0)]])
    except (RuntimeError, ValueError, IndexError):
        known = ", ".join(f"{device.platform}:{device.id}" for device in jax.local_devices())
        raise ConfigError(
            f"device={name!r}: there is no such device; the devices are {known}"
        ) from None


def _mesh(fsdp: int, devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(_arrange(fsdp, devices), AXES, axis_types=(AxisType.Auto,) * 2)


def _arrange(fsdp: int, devices: Sequence[jax.Device]) -> np.ndarray:
    """Arranges devices as [all / fsdp, fsdp], so that parameters are gathered over fast links if
    possible: within a slice of TPUs, or within a host."""
    fast: dict[int, list[jax.Device]] = {}
    for device in devices:
        fast.setdefault(_group(device), []).append(device)
    groups = list(fast.values())
    if any(len(group) % fsdp for group in groups):
        groups = [sum(groups, [])]
    return np.concatenate(
        [
            mesh_utils.create_device_mesh(
                (len(group) // fsdp, fsdp), group, allow_split_physical_axes=True
            )
            for group in groups
        ]
    )


def crosses_hosts(mesh: Mesh) -> bool:
    """Whether parameters are gathered over slow links: between hosts, or slices of TPUs."""
    return any(len({_group(device) for device in row}) > 1 for row in mesh.devices)


def _group(device: jax.Device) -> int:
    """Returns the group of devices with fast links to this one: its slice of TPUs, or its host."""
    of_slice = getattr(device, "slice_index", 0 if device.platform == "tpu" else None)
    return device.process_index if of_slice is None else of_slice


def mesh_of(tree: PyTree) -> Mesh:
    """Returns the mesh of the arrays, or the mesh of the first device if they have none."""
    mesh = getattr(jax.tree.leaves(tree)[0].sharding, "mesh", None)
    return mesh if isinstance(mesh, Mesh) else one_device()
