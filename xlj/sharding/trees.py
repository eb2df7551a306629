"""Trees of arrays on a mesh: names of their leaves, and where each lies by `sharding/rules.py`."""

import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.tree_util import KeyPath

from xlj.config import ConfigError
from xlj.contracts.arrays import Leaf, PyTree, Tree
from xlj.sharding import devices
from xlj.sharding.rules import REPLICATED, ROWS, RULES, Rules, rule_of


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


def nested(leaves: Mapping[str, PyTree]) -> dict[str, Any]:
    """The nested dict of leaves by name, of which `named_leaves` makes these again."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


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
            count = devices.parts(mesh, axes)
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
