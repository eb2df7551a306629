"""Muon (Jordan et al., 2024) for the kernels of layers; AdamW for all other parameters."""

import re
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from xlj.config import ConfigError, Optimizer
from xlj.contracts.arrays import PyTree
from xlj.optimizers import adamw
from xlj.optimizers.wrappers import Guarded, either
from xlj.sharding import devices
from xlj.sharding.trees import Params, name_of, named_leaves, nested

_STACKED = MuonDimensionNumbers(reduction_axis=1, output_axis=2)
"""Axes of a kernel [layers, inputs, outputs]: the matrix of each layer is orthogonalised."""

RULES: tuple[tuple[str, MuonDimensionNumbers | None], ...] = (
    (r"layers/attention/(query|key|value|output)/kernel", _STACKED),
    (r"layers/feed_forward/(inner|outer)/kernel", _STACKED),
    (r"layers/.*/(bias|scale)|layers/attention/gates/kernel", None),
    (r"embeddings/.*|position_bias/table|final_norm/.*", None),
    (r"(\w+_)?head/.*|sentence/.*", None),
)
"""Pairs (regular expression over a parameter's name, axes for Muon or None for AdamW). The first
match applies. A name may have the prefix `generator/`. As in Jordan's runs, AdamW updates heads,
embeddings, biases and norms."""

_RMS = 0.2
"""Root mean square of Muon's updates. It is about that of AdamW's updates, so Muon and AdamW can
share the learning rate and weight decay (Liu et al., 2025)."""


class MuonState(NamedTuple):
    """The states of Muon and AdamW."""

    steps: jax.Array
    """Number of updates so far, int32 []."""
    mu: Params
    """Moving averages of the gradients, as a nested dict that has only the kernels of Muon."""
    others: optax.OptState
    """State of AdamW, for all other parameters."""


def direction(options: Optimizer) -> Guarded:
    """Returns a transformation: Muon for the kernels of layers, AdamW for all other parameters.

    Muon has the updates of `optax.contrib.muon`, with Nesterov momentum and five Newton-Schulz
    iterations. `RULES` has the axes over which a parameter is orthogonalised.

    Raises:
      ConfigError: from `init`, if no rule matches a parameter.
    """
    adam, beta = adamw.direction(options), options.momentum

    def init(params: Params) -> MuonState:
        kernels, others = _split(params)
        zeros = jax.tree.map(jnp.zeros_like, kernels)
        return MuonState(jnp.zeros((), jnp.int32), zeros, adam.init(others))

    def update(
        gradients: Params, state: MuonState, params: Params, *, finite: jax.Array, **_: object
    ) -> tuple[Params, MuonState]:
        kernels, of_others = _split(gradients)
        mu = either(finite, optax.tree.update_moment(kernels, state.mu, beta, 1), state.mu)
        steps = state.steps + finite.astype(state.steps.dtype)
        now = jnp.maximum(steps, 1)

        def orthogonalise(path: KeyPath, mean: jax.Array, gradient: jax.Array) -> jax.Array:
            mean, gradient = mean / (1 - beta ** (now + 1)), gradient / (1 - beta**now)
            ahead = beta * mean + (1 - beta) * gradient
            of_matrices = partial(_orthogonalise, rule_of(name_of(path)))
            orthogonal = devices.on_whole_matrices(of_matrices, ahead)
            return _RMS * max(mean.shape[1:]) ** 0.5 * orthogonal

        updates = jax.tree_util.tree_map_with_path(orthogonalise, mu, kernels)
        directions, others = adam.update(of_others, state.others, params, finite=finite)
        both = named_leaves(updates) | named_leaves(directions)
        merged = jax.tree.unflatten(
            jax.tree.structure(gradients), [both[name] for name in named_leaves(gradients)]
        )
        return merged, MuonState(steps, mu, others)

    return Guarded(init, update)


def _split(tree: PyTree) -> tuple[PyTree, PyTree]:
    """Divides a tree into leaves for Muon and leaves for AdamW, as nested dicts."""
    groups: tuple[PyTree, PyTree] = ({}, {})
    for name, leaf in named_leaves(tree).items():
        groups[rule_of(name) is None][name] = leaf
    return nested(groups[0]), nested(groups[1])


def _orthogonalise(axes: MuonDimensionNumbers, momentum: jax.Array) -> jax.Array:
    """Orthogonalises the matrices of kernels, float32 [layers, inputs, outputs]."""
    # The momentum of optax is off, since its state could not be guarded before its first use.
    transformation = scale_by_muon(beta=0.0, nesterov=False, weight_dimension_numbers=axes)
    return transformation.update(momentum, transformation.init(momentum))[0]


def rule_of(name: str) -> MuonDimensionNumbers | None:
    """Returns the axes of a parameter for Muon, or None for AdamW.

    Args:
      name: of the parameter, e.g. `layers/attention/query/kernel`.

    Raises:
      ConfigError: if no rule matches the name.
    """
    for rule, axes in RULES:
        if re.fullmatch(rf"(generator/)?({rule})", name):
            return axes
    raise ConfigError(
        f"optimizer.name=muon: no rule of xlj/optimizers/muon.py matches the parameter {name}, so "
        "it belongs to neither Muon nor AdamW. Rename the parameters of your own head to "
        "NAME_head/..., or choose another optimizer"
    )
