"""Meshes of devices, and the trees that lie on them by the rules of `models/sharding.py`."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.tree_util import KeyPath

from xlj.config import Config, ConfigError
from xlj.contracts.arrays import Leaf, PyTree, Tree
from xlj.models import sharding
from xlj.models.sharding import AXES, REPLICATED, ROWS, RULES, Rules, rule_of

OTHERS: Rules = ((r".*", REPLICATED),)
"""The last rule where objectives may be unknown that parameters belong to."""
STORED: Rules = (*RULES, *OTHERS)
"""The rules for the parameters of a stored model."""

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
    parts = config.train.accumulation
    for active in config.objectives_by_phase:
        for name, options in active.items():
            rows = options.batch_rows // parts
            if rows % mesh.size:
                fits = max(n for n in range(1, mesh.size) if rows % n == 0)
                raise ConfigError(
                    f"{options.path(name)}.batch_rows={options.batch_rows} / train.accumulation="
                    f"{parts} = {rows} rows are not divisible by {mesh.size} devices; {fits} of "
                    "them would do, or another number of rows in a new run"
                )


def compiler_options(mesh: Mesh) -> dict[str, Any]:
    """XLA's options for the programs that make and change a state on this mesh.

    A CPU alone computes in the order that holds least memory, which takes no longer. Several
    devices keep XLA's own order, since their collectives wait for each other.
    """
    alone = mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"
    return dict(_LEAST_MEMORY) if alone and _is_known() else {}


@functools.cache
def _is_known() -> bool:
    """Whether this release of XLA has the option."""
    try:
        jax.jit(lambda: 0, compiler_options=_LEAST_MEMORY).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def one_device() -> Mesh:
    """A mesh of the first device alone."""
    return _mesh(1, jax.local_devices()[:1])


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


def shard(tree: PyTree, mesh: Mesh) -> PyTree:
    """NumPy arrays on a mesh, their leading axes split over its devices.

    Every process has the whole of each array, and places the parts of its own devices.
    """
    split = NamedSharding(mesh, ROWS)
    return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, split, x.__getitem__), tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of an array of which each device has all."""
    return NamedSharding(mesh, REPLICATED)


def name_of(path: KeyPath) -> str:
    """The name of a leaf of a nested dict, e.g. layers/attention/query/kernel."""
    return "/".join(str(getattr(part, "key", getattr(part, "name", part))) for part in path)


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by name."""
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def layout(tree: PyTree, rules: Rules = RULES) -> PyTree:
    """The specification of each array."""
    return jax.tree_util.tree_map_with_path(lambda path, _: rule_of(name_of(path), rules)[1], tree)


def shardings(tree: PyTree, mesh: Mesh, rules: Rules = RULES) -> PyTree:
    """The sharding of each parameter, or array of an objective's state.

    Args:
      tree: arrays, or their shapes (`jax.eval_shape`).

    Raises:
      ValueError: if no rule names an array.
      ConfigError: if an axis does not divide over the devices it is split over.
    """

    def of_leaf(path: KeyPath, leaf: Leaf) -> NamedSharding:
        name = name_of(path)
        spec = rule_of(name, rules)[1]
        for size, axes in zip(leaf.shape, spec, strict=False):
            count = sharding.parts(mesh, axes)
            if size % count:
                raise ConfigError(
                    f"{name} {leaf.shape}: {size} is not divisible by the {count} devices of "
                    f"mesh.{axes if isinstance(axes, str) else ' x mesh.'.join(axes)}"
                )
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(of_leaf, tree)


def abstract_like(tree: Tree, where: PyTree) -> Tree:
    """Shapes and types of arrays, with the shardings that they are to have."""
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        tree,
        where,
    )


def bytes_on_device(leaf: jax.Array | jax.ShapeDtypeStruct) -> int:
    """What a device has of an array, or of its shape with a sharding."""
    return leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))
