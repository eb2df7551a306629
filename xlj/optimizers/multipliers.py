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
from xlj.models.encoder import Params
from xlj.models.pattern import layer_count
from xlj.sharding.trees import name_of, named_leaves

Leaf = TypeVar("Leaf")

Factor = float | jax.Array
"""The factor of a parameter; for stacked layers also one for each layer, float32 [layers]."""

Rules = Sequence[tuple[str, Factor]]
"""(regular expression over a parameter's whole name, its factor). The first match applies; a
parameter without a match has the factor 1."""

_NO_DECAY: Rules = ((r"(.*/)?(bias|scale|table)", 0.0),)
"""Biases and norms have no weight decay. In a relative position bias, `table` counts as a bias and
`gates/scale` as a scale. `gates/kernel` is a projection, with weight decay (ours; T5 and XLM-E do
not specify this)."""


def decay_factors(options: Optimizer, params: PyTree) -> PyTree:
    """Returns the factor of each parameter's weight decay; the user's rules precede xlj's."""
    rules = (*_rules(options, "decay_multipliers"), *_NO_DECAY)
    return _map_named(lambda name, _: _factor(name, rules), params)


def scale_by_rates(options: Optimizer, updates: Params) -> Params:
    """Multiplies each update by the factors of its learning rate.

    These are the user's factor, 0 for frozen parameters, and the factor of the layer.
    """
    tables = (*_tables(options), _by_layer(options, updates))

    def scale(name: str, update: jax.Array) -> jax.Array:
        for factor in (_factor(name, rules) for rules in tables):
            if isinstance(factor, jax.Array):
                factor = factor[len(factor) - len(update) :]  # some lack rows for the first layers
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
    """Raises a `ConfigError` if a rule of the user matches none of these parameters (or shapes)."""
    names = list(named_leaves(params))
    for key in ("rate_multipliers", "decay_multipliers"):
        for pattern, factor in _rules(options, key):
            if not any(re.fullmatch(pattern, name) for name in names):
                near = difflib.get_close_matches(pattern, names, n=3, cutoff=0)
                raise ConfigError(
                    f"optimizer.{key}: {pattern}={factor:g} matches no parameter name; similar "
                    f"names are {', '.join(near)}"
                )


def _tables(options: Optimizer) -> tuple[Rules, Rules]:
    """Returns the user's rules for learning rates, and the rules of frozen parts."""
    frozen = "|".join(name for part in options.frozen for name in FREEZABLE[part])
    rules = ((rf"({frozen})/.*", 0.0),) if frozen else ()
    return _rules(options, "rate_multipliers"), rules


def _by_layer(options: Optimizer, params: Params) -> Rules:
    """Returns the rules of layer-wise decay of the learning rate.

    Relative to the heads (and a final norm), the rate of layer l of L (from 1) is decay^(L + 1 -
    l). That of embeddings and position bias is decay^(L + 1).

    Source: ERNIE-M's fine-tuning scripts. (ELECTRA, Clark et al., 2020, has one more power of decay
    everywhere below the head.)
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
    return factors_of(f"optimizer.{key}", getattr(options, key))


def _factor(name: str, rules: Rules) -> Factor:
    return next((factor for pattern, factor in rules if re.fullmatch(pattern, name)), 1.0)


def _map_named(function: Callable[[str, Leaf], object], tree: PyTree) -> PyTree:
    """Returns a tree of function(name, leaf) for each leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: function(name_of(path), leaf), tree)
