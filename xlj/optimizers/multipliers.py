"""Factors of the learning rate and of weight decay, by regular expressions on parameter names."""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from xlj.config import FREEZABLE, ConfigError, Optimizer
from xlj.config.optimizers import factors_of
from xlj.contracts.arrays import PyTree
from xlj.models.pattern import layer_count
from xlj.sharding.trees import Params, name_of, named_leaves

Leaf = TypeVar("Leaf")

Factor = float | jax.Array
"""The factor of a parameter: a number, or float32 [layers] for stacked layers."""

Rules = Sequence[tuple[str, Factor]]
"""Pairs (regular expression over a parameter's whole name, factor). The first match applies. A
parameter without a match has the factor 1."""

_NO_DECAY: Rules = ((r"(.*/)?(bias|scale|table)", 0.0),)
"""Biases and norms have no weight decay. In a relative position bias, `table` counts as a bias,
`gates/scale` counts as a scale, and `gates/kernel` has weight decay like all kernels. This choice
is ours; T5 and XLM-E do not specify it."""


def decay_factors(options: Optimizer, params: PyTree) -> PyTree:
    """Returns a tree with the factor of each parameter's weight decay.

    The rules of `optimizer.decay_multipliers` come before `_NO_DECAY`.
    """
    rules = (*_rules(options, "decay_multipliers"), *_NO_DECAY)
    return _map_named(lambda name, _: _factor(name, rules), params)


def scale_by_rates(options: Optimizer, updates: Params) -> Params:
    """Multiplies each update by the factors of its parameter's learning rate.

    There are three factors: the factor of `optimizer.rate_multipliers`, 0 for parameters that
    `optimizer.frozen` freezes, and the factor of the layer (`optimizer.layer_decay`).
    """
    tables = (*_tables(options), _by_layer(options, updates))

    def scale(name: str, update: jax.Array) -> jax.Array:
        for factor in (_factor(name, rules) for rules in tables):
            if isinstance(factor, jax.Array):
                # A norm that the first layer lacks has one row less than the other parameters.
                factor = factor[len(factor) - len(update) :]
                update = update * factor.reshape(-1, *[1] * (update.ndim - 1))
            elif factor != 1:
                update = update * factor if factor else jnp.zeros_like(update)
        return update

    return _map_named(scale, updates)


def stop_frozen(options: Optimizer, params: Params) -> Params:
    """Stops the gradient of parameters whose learning rate has the factor 0."""
    tables = _tables(options)

    def stop(name: str, param: jax.Array) -> jax.Array:
        is_frozen = any(_factor(name, rules) == 0 for rules in tables)
        return jax.lax.stop_gradient(param) if is_frozen else param

    return _map_named(stop, params)


def check(options: Optimizer, params: PyTree) -> None:
    """Checks that each rule in the config matches a parameter.

    Args:
      params: parameters, or their shapes.

    Raises:
      ConfigError: if a rule of `rate_multipliers` or `decay_multipliers` matches no parameter.
    """
    names = list(named_leaves(params))
    for key in ("rate_multipliers", "decay_multipliers"):
        for pattern, factor in _rules(options, key):
            if not any(re.fullmatch(pattern, name) for name in names):
                near = difflib.get_close_matches(pattern, names, n=3, cutoff=0)
                raise ConfigError(
                    f"optimizer.{key}: {pattern}={factor:g} matches no parameter name; use a "
                    f"regular expression that matches a whole name, such as {', '.join(near)}"
                )


def _tables(options: Optimizer) -> tuple[Rules, Rules]:
    """Returns the rules of `optimizer.rate_multipliers`, and the rules of `optimizer.frozen`."""
    frozen = "|".join(name for part in options.frozen for name in FREEZABLE[part])
    rules = ((rf"({frozen})/.*", 0.0),) if frozen else ()
    return _rules(options, "rate_multipliers"), rules


def _by_layer(options: Optimizer, params: Params) -> Rules:
    """Returns the rules of layer-wise decay of the learning rate.

    The factor is decay^(L + 1 - l) for layer l of L layers, counted from 1. It is decay^(L + 1) for
    embeddings and position bias, and 1 for heads and a final norm.

    Source: ERNIE-M's fine-tuning scripts. ELECTRA (Clark et al., 2020) has one more power of decay
    in all parameters but the head's.
    """
    decay = options.layer_decay
    if decay == 1:
        return ()
    layers = layer_count(params["layers"])
    return (
        ("layers/.*", decay ** jnp.arange(layers, 0, -1, dtype=jnp.float32)),
        ("(embeddings|position_bias)/.*", decay ** (layers + 1)),
    )


def _rules(options: Optimizer, key: str) -> Rules:
    """Returns the rules of `optimizer.KEY`."""
    return factors_of(f"optimizer.{key}", getattr(options, key))


def _factor(name: str, rules: Rules) -> Factor:
    """Returns the factor of the first rule that matches a parameter's name, or 1."""
    return next((factor for pattern, factor in rules if re.fullmatch(pattern, name)), 1.0)


def _map_named(function: Callable[[str, Leaf], object], tree: PyTree) -> PyTree:
    """Returns the tree in which function(name, leaf) replaces each leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: function(name_of(path), leaf), tree)
