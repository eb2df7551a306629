"""Keys of config.json about rotary positions, as transformers 4 and transformers 5 name them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

NEW = "rope_parameters"
OLD_SCALING = "rope_scaling"


class Rotary(NamedTuple):
    """The wavelengths: `rotary_base` and `rotary_factor` of `Model`."""

    base: float
    factor: float


Scaling = Callable[[Rotary], Rotary]
"""Takes the base and the factor of a scaling in a config.json; returns xlj's base and factor."""

_SCALINGS: Mapping[str, Scaling] = {
    "default": lambda rotary: Rotary(rotary.base, 1.0),
    "linear": lambda rotary: rotary,
}


def read(
    config: Record,
    where: str,
    old: str,
    layers: str = "",
    more: Mapping[str, Scaling] | None = None,
) -> Rotary:
    """Reads the base and factor of rotary positions from a config.json.

    Args:
      where: the path of the config.json, for errors.
      old: transformers 4's key of the base, e.g. `rope_theta`.
      layers: the kind of layers to read from `rope_parameters`, e.g. `full_attention`; empty if it
        has the same values for all layers.
      more: further kinds of scaling.

    Raises:
      ConfigError: if no key has the base, two keys contradict each other, or the kind of scaling is
        not supported. There is no default for the base, because models of one class have different
        ones.
    """
    path, new = NEW, config.get(NEW)
    if layers:
        path = f"{NEW}.{layers}"
        new = new.get(layers) if isinstance(new, dict) else new
    scaling = config.get(OLD_SCALING)
    for name, part in ((path, new), (OLD_SCALING, scaling)):
        if part is not None and not isinstance(part, dict):
            raise ConfigError(f"{where}: {name} is {quoted(part)}; expected an object")
    new, old_scaling = new or {}, scaling or {}
    base = one_of(where, {f"{path}.rope_theta": new.get("rope_theta"), old: config.get(old)})
    if base is None:
        raise ConfigError(
            f"{where}: the base of rotary positions is missing; set {path}.rope_theta or {old} to "
            "the base that the model was trained with"
        )
    kinds = {
        f"{path}.rope_type": new.get("rope_type", new.get("type")),
        f"{OLD_SCALING}.type": old_scaling.get("rope_type", old_scaling.get("type")),
    }
    factors = {f"{name}.factor": part.get("factor") for name, part in
               ((path, new), (OLD_SCALING, old_scaling))}  # fmt: skip
    kind, known = one_of(where, kinds) or "default", {**_SCALINGS, **(more or {})}
    named = next((name for name, value in kinds.items() if value is not None), path)
    if not isinstance(kind, str) or kind not in known:
        raise ConfigError(
            f"{where}: {named} is {quoted(kind)}; xlj's encoder supports {', '.join(known)} only"
        )
    factor = 1.0 if kind == "default" else one_of(where, factors)
    for name, part in ((path, new), (OLD_SCALING, old_scaling), ("", config)):
        for key, only in (("partial_rotary_factor", 1), ("mixed_b", None)):
            if part.get(key, only) not in (only, None):
                raise ConfigError(
                    f"{where}: {f'{name}.' if name else ''}{key} is {quoted(part[key])}; xlj's "
                    "encoder does not support this scaling"
                )
    for name, value in (("base", base), ("factor", factor)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"{where}: the {name} of {path} is {quoted(value)}; expected above 0")
    return known[kind](Rotary(float(base), float(factor)))


def one_of(where: str, keys: Mapping[str, Any]) -> Any:
    """Returns the common value of keys of a config.json; None if no key is set.

    Raises:
      ConfigError: if two keys have different values.
    """
    values = {name: value for name, value in keys.items() if value is not None}
    first, *others = values or [""]
    for name in others:
        if values[name] != values[first]:
            raise ConfigError(
                f"{where}: {first} is {quoted(values[first])}, but {name} is "
                f"{quoted(values[name])}; remove the key that does not fit the trained model"
            )
    return values.get(first)


def write(base: float, factor: float) -> Record:
    """Returns the value of `rope_parameters`, or of one kind of layers in it."""
    if factor == 1:
        return {"rope_type": "default", "rope_theta": base}
    return {"rope_type": "linear", "rope_theta": base, "factor": factor}
