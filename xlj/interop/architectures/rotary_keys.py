"""Keys of config.json about rotary positions, in transformers 4's words and transformers 5's."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

NEW = "rope_parameters"
OLD_SCALING = "rope_scaling"


class Rotary(NamedTuple):
    """Wave lengths: `rotary_base` and `rotary_factor` of `Model`."""

    base: float
    factor: float


Scaling = Callable[[Rotary], Rotary]
"""Wave lengths of a scaling, from (base, factor of the scaling)."""

_SCALINGS: Mapping[str, Scaling] = {
    "default": lambda given: Rotary(given.base, 1.0),
    "linear": lambda given: given,
}


def read(
    config: Record,
    where: str,
    old: str,
    layers: str = "",
    more: Mapping[str, Scaling] | None = None,
) -> Rotary:
    """The wave lengths that a config.json gives.

    Args:
      old: transformers 4's key of the base, e.g. `rope_theta`.
      layers: the kind of layers that `rope_parameters` lists them by, e.g. `full_attention`.
      more: further kinds of scaling.

    Raises:
      ConfigError: if no key gives the base, two keys contradict each other, or the scaling is of
        another kind. No default stands in for a base: that of the class is not that of the model.
    """
    path, found = NEW, config.get(NEW)
    if layers:
        path = f"{NEW}.{layers}"
        found = found.get(layers) if isinstance(found, dict) else found
    scaling = config.get(OLD_SCALING)
    for name, part in ((path, found), (OLD_SCALING, scaling)):
        if part is not None and not isinstance(part, dict):
            raise ConfigError(f"{where}: {name} is {quoted(part)}; it must be an object")
    found, old_scaling = found or {}, scaling or {}
    base = one_of(where, {f"{path}.rope_theta": found.get("rope_theta"), old: config.get(old)})
    if base is None:
        raise ConfigError(
            f"{where}: neither {path}.rope_theta nor {old} gives the base of rotary positions, and "
            "a default would be a guess: add the base that the model was trained with"
        )
    kinds = {
        f"{path}.rope_type": found.get("rope_type", found.get("type")),
        f"{OLD_SCALING}.type": old_scaling.get("rope_type", old_scaling.get("type")),
    }
    factors = {f"{name}.factor": part.get("factor") for name, part in
               ((path, found), (OLD_SCALING, old_scaling))}  # fmt: skip
    kind, known = one_of(where, kinds) or "default", {**_SCALINGS, **(more or {})}
    named = next((name for name, value in kinds.items() if value is not None), path)
    if not isinstance(kind, str) or kind not in known:
        raise ConfigError(
            f"{where}: {named} is {quoted(kind)}; xlj's encoder has {', '.join(known)} only"
        )
    factor = 1.0 if kind == "default" else one_of(where, factors)
    for name, part in ((path, found), (OLD_SCALING, old_scaling), ("", config)):
        for key, only in (("partial_rotary_factor", 1), ("mixed_b", None)):
            if part.get(key, only) not in (only, None):
                raise ConfigError(
                    f"{where}: {f'{name}.' if name else ''}{key} is {quoted(part[key])}; xlj's "
                    "encoder has no such scaling"
                )
    for name, value in (("base", base), ("factor", factor)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"{where}: the {name} of {path} is {quoted(value)}; not above 0")
    return known[kind](Rotary(float(base), float(factor)))


def one_of(where: str, keys: Mapping[str, Any]) -> Any:
    """The value that keys of a config.json give, None if none does; a ConfigError that names both
    if two differ."""
    there = {name: value for name, value in keys.items() if value is not None}
    first, *others = there or [""]
    for name in others:
        if there[name] != there[first]:
            raise ConfigError(
                f"{where}: {first} is {quoted(there[first])}, but {name} is {quoted(there[name])}; "
                "remove the one that the model was not trained with"
            )
    return there.get(first)


def write(base: float, factor: float) -> Record:
    """The value of `rope_parameters`, or of one kind of layers in it."""
    if factor == 1:
        return {"rope_type": "default", "rope_theta": base}
    return {"rope_type": "linear", "rope_theta": base, "factor": factor}
