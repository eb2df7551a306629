"""Reads and writes config.json's keys for rotary positions, in transformers 4 and 5."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from xlj.config import ConfigError
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

PARAMETERS = "rope_parameters"
SCALING_V4 = "rope_scaling"


class Rotary(NamedTuple):
    """The base of rotary positions, and the factor by which positions are divided.

    These are `rotary_base` and `rotary_factor` of `Model`.
    """

    base: float
    factor: float


Scaling = Callable[[Rotary], Rotary]
"""Takes the base and the factor in a config.json; returns the equivalent base and factor of xlj."""

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

    The base has no default, because models of one class have different bases.

    Args:
      where: the path of the config.json, for errors.
      old: the key that transformers 4 has for the base, e.g. `rope_theta`.
      layers: the type of layers to read from `rope_parameters`, e.g. `full_attention`; empty if
        `rope_parameters` has one entry for all layers.
      more: kinds of scaling that are supported in addition to `default` and `linear`, by name.

    Raises:
      ConfigError: if the base is missing, two keys contradict each other, a value is invalid, or
        the kind of scaling is not supported.
    """
    path, new = PARAMETERS, config.get(PARAMETERS)
    if layers:
        path = f"{PARAMETERS}.{layers}"
        new = new.get(layers) if isinstance(new, dict) else new
    scaling = config.get(SCALING_V4)
    for name, part in ((path, new), (SCALING_V4, scaling)):
        if part is not None and not isinstance(part, dict):
            raise ConfigError(f"{where}: {name} is {quoted(part)}; expected an object")
    new, old_scaling = new or {}, scaling or {}
    base = one_of(where, {f"{path}.rope_theta": new.get("rope_theta"), old: config.get(old)})
    if base is None:
        raise ConfigError(
            f"{where}: the base of rotary positions is missing; set {path}.rope_theta or {old} to "
            "the base that the model was trained with"
        )
    type_values = {
        f"{path}.rope_type": new.get("rope_type", new.get("type")),
        f"{SCALING_V4}.type": old_scaling.get("rope_type", old_scaling.get("type")),
    }
    factors = {f"{name}.factor": part.get("factor") for name, part in
               ((path, new), (SCALING_V4, old_scaling))}  # fmt: skip
    kind, known = one_of(where, type_values) or "default", {**_SCALINGS, **(more or {})}
    type_key = next((name for name, value in type_values.items() if value is not None), path)
    if not isinstance(kind, str) or kind not in known:
        raise ConfigError(
            f"{where}: {type_key} is {quoted(kind)}; xlj's encoder supports {', '.join(known)} only"
        )
    factor = 1.0 if kind == "default" else one_of(where, factors)
    for name, part in ((path, new), (SCALING_V4, old_scaling), ("", config)):
        for key, supported in (("partial_rotary_factor", 1), ("mixed_b", None)):
            if part.get(key, supported) not in (supported, None):
                raise ConfigError(
                    f"{where}: {f'{name}.' if name else ''}{key} is {quoted(part[key])}; xlj's "
                    "encoder does not support this scaling"
                )
    for name, value in (("base", base), ("factor", factor)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(
                f"{where}: the {name} of {path} is {quoted(value)}; expected a number above 0"
            )
    return known[kind](Rotary(float(base), float(factor)))


def one_of(where: str, keys: Mapping[str, Any]) -> Any:
    """Returns the value of a setting that several keys of a config.json may have.

    Args:
      where: the path of the config.json, for errors.
      keys: the keys' names with their values; None for a key that is not set.

    Returns:
      The value, or None if no key is set.

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
    """Returns the value of `rope_parameters`, or its entry for one type of layers."""
    if factor == 1:
        return {"rope_type": "default", "rope_theta": base}
    return {"rope_type": "linear", "rope_theta": base, "factor": factor}
