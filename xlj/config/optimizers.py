"""The table of optimizers, to which a new one is added, and factors by parameter name."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xlj.config.fields import ConfigError, Unused


class OptimizerEntry(NamedTuple):
    """An optimizer in the table."""

    implementation: str
    """`module:function`, where the function makes an optax transformation of the config's section
    `optimizer`. Imported when a run starts, so that a config needs no JAX."""
    reads: tuple[str, ...] = ()
    """The keys that it reads beside those that every optimizer has."""


_ADAM = ("optimizer.b1", "optimizer.b2", "optimizer.epsilon")

_REGISTERED = {
    "adamw": OptimizerEntry("xlj.optimizers.adamw:direction", _ADAM),
    "stable_adamw": OptimizerEntry("xlj.optimizers.stable_adamw:direction", _ADAM),
    "muon": OptimizerEntry("xlj.optimizers.muon:direction", (*_ADAM, "optimizer.momentum")),
}


def register_optimizer(name: str, implementation: str, reads: tuple[str, ...] = ()) -> None:
    """Makes an optimizer that `optimizer.name` may name; the arguments are `OptimizerEntry`'s.

    Raises:
      ValueError: if there is another one of this name.
    """
    entry = OptimizerEntry(implementation, reads)
    if _REGISTERED.setdefault(name, entry) != entry:
        raise ValueError(f"an optimizer {name} is registered: {_REGISTERED[name].implementation}")


def registered_optimizers() -> Mapping[str, OptimizerEntry]:
    """The optimizers there are by name: those of xlj first, then users' own."""
    return _REGISTERED


def read_by_optimizer(config: Any, path: str) -> Unused | None:
    """Says that a key is read by the optimizers whose `reads` name it."""
    name = config.optimizer.name
    if path in _REGISTERED[name].reads:
        return None
    readers = [other for other, entry in _REGISTERED.items() if path in entry.reads]
    return Unused(
        f"optimizer.name is {name!r}, not {' or '.join(readers)}", allowed_in_recipes=True
    )


def factors_of(path: str, entries: Iterable[str]) -> tuple[tuple[str, float], ...]:
    """(regular expression, factor) of each entry REGEX=FACTOR of the key at `path`.

    Raises:
      ConfigError: if an entry has another form, its regular expression does not compile, or its
        factor is not a number from 0 on.
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
