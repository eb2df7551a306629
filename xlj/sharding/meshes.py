"""Meshes of devices with axes (replica, fsdp), and what is checked and chosen for them."""

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
"""XLA's options for programs that run seldom: on a GPU it would try dozens of kernels for each
product, in float32 for most of a minute. Products are cuBLAS' then. They have no effect elsewhere.
"""

_APART = {"xla_gpu_dot_merger_threshold_mb": 0}
"""Products that share a factor stay apart on GPUs: of query, key and value XLA would make one, and
cut them out of it; of biases' gradients one of all layers, whose factors it would first copy."""

_LEAST_MEMORY = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def make_mesh(config: Config, devices: Sequence[jax.Device] = ()) -> Mesh:
    """The mesh of some devices, or all, with axes (replica, fsdp).

    Raises:
      ConfigError: if the devices do not divide up as configured.
    """
    devices = devices or jax.devices()
    count, fsdp = len(devices), config.mesh.fsdp
    replica = config.mesh.replica or max(1, count // fsdp)
    if replica * fsdp != count:
        raise ConfigError(
            f"mesh.replica={config.mesh.replica or 'rest'} x mesh.fsdp={fsdp} does not use the "
            f"{count} devices of this run"
        )
    return _mesh(fsdp, devices)


def check_batches(config: Config, mesh: Mesh) -> None:
    """Refuses microbatches that do not divide over the devices.

    Raises:
      ConfigError: it names the key.
    """
    batches = [(p.parts, *item) for p in config.schedule for item in p.active().items()]
    for parts, name, options in batches:
        rows = options.batch_rows // parts
        if rows % mesh.size:
            fits = max(n for n in range(1, mesh.size) if rows % n == 0)
            raise ConfigError(
                f"{options.path(name)}.batch_rows={options.batch_rows} / train.accumulation="
                f"{parts} = {rows} rows are not divisible by {mesh.size} devices; {fits} of them "
                "would do, or another number of rows in a new run"
            )


def compiler_options(mesh: Mesh) -> dict[str, Any]:
    """XLA's options for the programs that make and change a state on this mesh.

    A CPU alone computes in the order that holds least memory, which takes no longer. Several
    devices keep XLA's own order, since their collectives wait for each other. On GPUs each product
    is written where it is read.
    """
    if mesh.devices.flat[0].platform == "gpu":
        return dict(_APART)
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
    """A mesh of one device: the first, or that of a name such as `cpu`, `gpu` or `cuda:1`.

    Raises:
      ConfigError: if there is no such device.
    """
    if name is None:
        return _mesh(1, jax.local_devices()[:1])
    platform, _, number = name.partition(":")
    try:
        return _mesh(1, [jax.local_devices(backend=platform)[int(number or 0)]])
    except (RuntimeError, ValueError, IndexError):
        there = ", ".join(f"{device.platform}:{device.id}" for device in jax.local_devices())
        raise ConfigError(f"device={name!r}: there is no such device; there are {there}") from None


def _mesh(fsdp: int, devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(_laid_out(fsdp, devices), AXES, axis_types=(AxisType.Auto,) * 2)


def _laid_out(fsdp: int, devices: Sequence[jax.Device]) -> np.ndarray:
    """The devices [all / fsdp, fsdp]: parameters are gathered over fast links where they can be,
    within a slice of TPUs, or a host of others."""
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
    """Which devices this one has fast links to: its slice of TPUs, or its host."""
    of_slice = getattr(device, "slice_index", 0 if device.platform == "tpu" else None)
    return device.process_index if of_slice is None else of_slice


def mesh_of(tree: PyTree) -> Mesh:
    """The mesh that arrays live on; of the first device alone, if they are on none."""
    mesh = getattr(jax.tree.leaves(tree)[0].sharding, "mesh", None)
    return mesh if isinstance(mesh, Mesh) else one_device()
