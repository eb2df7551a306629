"""Table of optimizers, which users can extend; parses the factors of parameters, `REGEX=FACTOR`."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xlj.config.fields import ConfigError, Unused


class OptimizerEntry(NamedTuple):
    """An entry of the table of optimizers."""

    implementation: str
    """`module:function`, where the function makes an optax transformation from the `optimizer`
    section of a config. Imported when a run starts, so that configs need no JAX."""
    reads: tuple[str, ...] = ()
    """The keys that this optimizer reads in addition to the keys of every optimizer."""


_ADAM = ("optimizer.b1", "optimizer.b2", "optimizer.epsilon")

_REGISTERED = {
    "adamw": OptimizerEntry("xlj.optimizers.adamw:direction", _ADAM),
    "stable_adamw": OptimizerEntry("xlj.optimizers.stable_adamw:direction", _ADAM),
    "muon": OptimizerEntry("xlj.optimizers.muon:direction", (*_ADAM, "optimizer.momentum")),
}


def register_optimizer(name: str, implementation: str, reads: tuple[str, ...] = ()) -> None:
    """Registers an optimizer under a name for `optimizer.name`.

    Args:
      implementation: `module:function`, where the function makes an optax transformation from the
        `optimizer` section of a config.
      reads: the keys that this optimizer reads in addition to the keys of every optimizer.

    Raises:
      ValueError: if a different optimizer is registered under this name.
    """
    entry = OptimizerEntry(implementation, reads)
    if _REGISTERED.setdefault(name, entry) != entry:
        raise ValueError(
            f"an optimizer {name} is already registered: {_REGISTERED[name].implementation}"
        )


def registered_optimizers() -> Mapping[str, OptimizerEntry]:
    """Returns the registered optimizers by name: xlj's optimizers first, then users' optimizers."""
    return _REGISTERED


def read_by_optimizer(config: Any, path: str) -> Unused | None:
    """Checks that the optimizer reads a key, that is, names it in `reads`."""
    name = config.optimizer.name
    if path in _REGISTERED[name].reads:
        return None
    readers = [other for other, entry in _REGISTERED.items() if path in entry.reads]
    return Unused(
        f"optimizer.name is {name!r}, not {' or '.join(readers)}", allowed_in_recipes=True
    )


def factors_of(path: str, entries: Iterable[str]) -> tuple[tuple[str, float], ...]:
    """Parses the entries REGEX=FACTOR of the key at `path` into (regular expression, factor).

    Raises:
      ConfigError: if an entry has another form, its regular expression does not compile, or its
        factor is not a number of at least 0.
    """
    rules = []
    for entry in entries:
        pattern, _, number = entry.rpartition("=")
        try:
            re.compile(pattern)
            factor = float(number)
        except (re.error, ValueError) as error:
            raise ConfigError(f"{path}: {entry!r} is not REGEX=FACTOR: {error}") from None
        if not pattern or not 0 <= factor < math.inf:
            raise ConfigError(f"{path}: {entry!r} must be REGEX=FACTOR with a factor of at least 0")
        rules.append((pattern, factor))
    return tuple(rules)
