"""Options, config keys and tensors that ModernBERT, EuroBERT and gte share."""

from collections.abc import Iterator

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


def activation_of(model: Model) -> str:
    """Returns the name that config.json has for the activation of a gated feed-forward layer."""
    return "silu" if model.feed_forward == "swiglu" else "gelu"
