"""Factors of the learning rate and of weight decay, by regular expression on parameter names."""

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
"""Of a parameter; of the stacked layers also one for each, float32 [layers]."""

Rules = Sequence[tuple[str, Factor]]
"""(regular expression over a parameter's whole name, its factor): the first that matches holds, and
a parameter that none matches has the factor 1."""

_NO_DECAY: Rules = ((r"(.*/)?(bias|scale|table)", 0.0),)
"""Biases and norms do not decay. Of a relative position bias, its `table` is a bias and
`gates/scale` a scale, while `gates/kernel` is a projection and decays as others do (ours; T5 and
XLM-E do not say)."""


def decay_factors(options: Optimizer, params: PyTree) -> PyTree:
    """The factor of each parameter's weight decay; the user's rules come before ours."""
    rules = (*_rules(options, "decay_multipliers"), *_NO_DECAY)
    return _map_named(lambda name, _: _factor(name, rules), params)


def scaled_by_rates(options: Optimizer, updates: Params) -> Params:
    """Updates, each times the factors of its learning rate: the user's, 0 where it is frozen, and
    that of its layer."""
    tables = (*_tables(options), _by_layer(options, updates))

    def scaled(name: str, update: jax.Array) -> jax.Array:
        for factor in (_factor(name, rules) for rules in tables):
            if isinstance(factor, jax.Array):
                factor = factor[len(factor) - len(update) :]  # some have rows for the last layers
                update = update * factor.reshape(-1, *[1] * (update.ndim - 1))
            elif factor != 1:
                update = update * factor if factor else jnp.zeros_like(update)
        return update

    return _map_named(scaled, updates)


def stop_frozen(options: Optimizer, params: Params) -> Params:
    """Parameters, of which those whose learning rate has the factor 0 get no gradient."""
    tables = _tables(options)

    def stopped(name: str, param: jax.Array) -> jax.Array:
        is_frozen = any(_factor(name, rules) == 0 for rules in tables)
        return jax.lax.stop_gradient(param) if is_frozen else param

    return _map_named(stopped, params)


def check(options: Optimizer, params: PyTree) -> None:
    """Raises a `ConfigError` if a user's rule matches none of these parameters, or their shapes."""
    names = list(named_leaves(params))
    for key in ("rate_multipliers", "decay_multipliers"):
        for pattern, factor in _rules(options, key):
            if not any(re.fullmatch(pattern, name) for name in names):
                near = difflib.get_close_matches(pattern, names, n=3, cutoff=0)
                raise ConfigError(
                    f"optimizer.{key}: {pattern}={factor:g} matches the name of no parameter; "
                    f"near it are {', '.join(near)}"
                )


def _tables(options: Optimizer) -> tuple[Rules, Rules]:
    """The user's rules for learning rates, and those of frozen parts."""
    frozen = "|".join(name for part in options.frozen for name in FREEZABLE[part])
    rules = ((rf"({frozen})/.*", 0.0),) if frozen else ()
    return _rules(options, "rate_multipliers"), rules


def _by_layer(options: Optimizer, params: Params) -> Rules:
    """Layer-wise decay of the learning rate: layer l of L (from 1) has decay^(L + 1 - l) times the
    rate of the heads (and of a final norm), the embeddings and a position bias decay^(L + 1).

    Source: ERNIE-M's fine-tuning scripts (Clark et al., 2020, ELECTRA, has one power more
    everywhere below the head).
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
    """A tree of function(name, leaf) for each leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: function(name_of(path), leaf), tree)
