"""Options, config keys and tensors that ModernBERT, EuroBERT and gte share.

These are the keys of config.json for rotary positions, in transformers 4 and 5, and the layers with
local attention.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from xlj.config import ConfigError, Model
from xlj.config.fields import Value
from xlj.config.sections import BIASES
from xlj.families.interface import Tensor, module
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

OPTIONS: dict[str, Value] = {
    "absolute_positions": False,
    "position_bias": "none",
    "pair_marks": (),
    "key_value_heads": 0,
    "rotary_factor": 1.0,
    "task_head": "tanh",
    "task_pooling": "first",
}
"""Options of `model`. `families.options_of` returns only options that a family lists, and the
export compares a model with them. So options with XLM-R's value are listed too."""

PROJECTIONS = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
}
_GATED_TYPES = {"gelu": "geglu", "silu": "swiglu"}


def halves(layer: str) -> Iterator[Tensor]:
    """Yields the tensors of a gated layer's two halves, which are one parameter in xlj.

    In this parameter, the half with the activation comes first.
    """
    for number, name in enumerate(("gate_proj", "up_proj")):
        yield from module("layers/feed_forward/inner", f"{layer}mlp.{name}", xlj_share=(number, 2))


def switched(config: Record, switches: dict[str, tuple[str, ...]], where: str) -> tuple[str, ...]:
    """Returns the value of `model.biases` for a config.json.

    Args:
      switches: keys of config.json, and the biases that each key enables.
    """
    for key in switches:
        if not isinstance(config[key], bool):
            raise ConfigError(f"{where}: {key} is {quoted(config[key])}; expected true or false")
    enabled = {name for key, names in switches.items() if config[key] for name in names}
    return tuple(name for name in BIASES if name in enabled)


def gated(config: Record, key: str, where: str) -> str:
    """Returns the value of `model.feed_forward` for the activation in a config.json."""
    activation = config[key]
    if not isinstance(activation, str) or activation not in _GATED_TYPES:
        raise ConfigError(
            f"{where}: {key} is {quoted(activation)}; xlj supports the activations "
            f"{' and '.join(_GATED_TYPES)} only"
        )
    return _GATED_TYPES[activation]


def read_pooling(pooling: Any, poolings: Mapping[str, str], where: str) -> str:
    """Returns the value of `model.task_pooling` for `classifier_pooling` in a config.json.

    Args:
      poolings: `Architecture.poolings`.
    """
    names = {name: value for value, name in poolings.items()}
    if not isinstance(pooling, str) or pooling not in names:
        raise ConfigError(
            f"{where}: classifier_pooling is {quoted(pooling)}; expected {' or '.join(names)}"
        )
    return names[pooling]


def activation_of(model: Model) -> str:
    """Returns the name that config.json has for the activation of a gated feed-forward layer."""
    return "silu" if model.feed_forward == "swiglu" else "gelu"


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


def read_rotary(
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


def write_rotary(base: float, factor: float) -> Record:
    """Returns the value of `rope_parameters`, or its entry for one type of layers."""
    if factor == 1:
        return {"rope_type": "default", "rope_theta": base}
    return {"rope_type": "linear", "rope_theta": base, "factor": factor}


def is_local(model: Model, layer: int) -> bool:
    """Returns whether attention of a layer, counted from 0, is limited to a window.

    Without `model.local_attention`, no layer is local. Otherwise the layers in `model.full_layers`
    are not local. If `full_layers` is empty, every n-th layer is not local, from layer 0 on, where
    n is `full_attention_every`.
    """
    if not model.local_attention:
        return False
    if model.full_layers:
        return str(layer) not in model.full_layers
    return layer % model.full_attention_every != 0
