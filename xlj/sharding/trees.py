"""Trees of arrays on a mesh: names of their leaves, and their shardings by rules of `devices`."""

import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.tree_util import KeyPath

from xlj.config import ConfigError
from xlj.contracts.arrays import Leaf, PyTree, Tree
from xlj.sharding import devices
from xlj.sharding.devices import REPLICATED, ROWS, RULES, Rules, rule_of

Params = dict[str, Any]
"""Parameters by name. A value is an array, or another dict of parameters."""


def shard(tree: PyTree, mesh: Mesh) -> PyTree:
    """Places NumPy arrays on a mesh, with their first axes split over all devices.

    Every process passes whole arrays, and places the parts of its own devices.
    """
    split = NamedSharding(mesh, ROWS)
    return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, split, x.__getitem__), tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of an array that each device has in full."""
    return NamedSharding(mesh, REPLICATED)


def name_of(path: KeyPath) -> str:
    """Returns the name of a leaf: its keys with slashes between them.

    An example is `layers/attention/query/kernel`.
    """
    return "/".join(str(getattr(part, "key", getattr(part, "name", part))) for part in path)


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Returns a dict from the name of each leaf of a tree to the leaf."""
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def nested(leaves: Mapping[str, PyTree]) -> dict[str, Any]:
    """Builds a nested dict from leaves by name; the inverse of `named_leaves`."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


def layout(tree: PyTree, rules: Rules = RULES) -> PyTree:
    """Returns a tree with the partition specification of each array.

    Raises:
      ValueError: if no rule matches an array.
    """
    return jax.tree_util.tree_map_with_path(lambda path, _: rule_of(name_of(path), rules)[1], tree)


def shardings(tree: PyTree, mesh: Mesh, rules: Rules = RULES) -> PyTree:
    """Returns a tree with the sharding of each array: parameters, or an objective's state.

    Args:
      tree: arrays, or their shapes (`jax.eval_shape`).

    Raises:
      ValueError: if no rule matches an array.
      ConfigError: if the number of devices does not divide the size of an axis that is split.
    """

    def of_leaf(path: KeyPath, leaf: Leaf) -> NamedSharding:
        name = name_of(path)
        spec = rule_of(name, rules)[1]
        for size, axes in zip(leaf.shape, spec, strict=False):
            count = devices.count_shards(mesh, axes)
            if size % count:
                raise ConfigError(
                    f"{name} {leaf.shape}: {size} is not divisible by the {count} devices of "
                    f"mesh.{axes if isinstance(axes, str) else ' x mesh.'.join(axes)}; choose a "
                    f"number of devices that divides {size}"
                )
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(of_leaf, tree)


def abstract_like(tree: Tree, where: PyTree) -> Tree:
    """Returns the shape, dtype and sharding of each array of a tree, without its values.

    Args:
      tree: arrays, or their shapes.
      where: a tree of the same structure, with the sharding of each array.
    """
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        tree,
        where,
    )


def bytes_on_device(leaf: jax.Array | jax.ShapeDtypeStruct) -> int:
    """Returns the bytes that an array takes on one device.

    Args:
      leaf: an array, or a shape with a sharding.
    """
    return leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))
