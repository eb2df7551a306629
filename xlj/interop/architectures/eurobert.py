"""Tensor names and config keys of EuroBERT (multilingual encoders for European and other
languages).

Sources: models/eurobert of transformers 5.24; the released config.json of EuroBERT/EuroBERT-210m.
"""

from collections.abc import Iterator

from xlj.config import ConfigError, Model
from xlj.interop.architectures import rotary_keys
from xlj.interop.architectures.modernbert import activation_of, gated, switched
from xlj.interop.architectures.table import SIZES, SPECIALS, Architecture, Tensor, module, modules
from xlj.interop.architectures.task_heads import classes_of
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

_BIAS_SWITCHES: dict[str, tuple[str, ...]] = {
    "attention_bias": ("attention", "output"),
    "mlp_bias": ("inner", "outer", "vocabulary"),  # vocabulary: the head for masked tokens
}
_DEFAULTS = {
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}

PROJECTIONS = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
}
_LAYER = "layers.{layer}."


def halves(layer: str) -> Iterator[Tensor]:
    """Yields the tensors of a gated layer's two halves, which are one parameter in xlj.

    In this parameter, the half with the activation comes first.
    """
    for number, name in enumerate(("gate_proj", "up_proj")):
        yield from module("layers/feed_forward/inner", f"{layer}mlp.{name}", xlj_share=(number, 2))


_TENSORS = (
    Tensor("embeddings/word", "embed_tokens.weight"),
    *modules(PROJECTIONS, "layers/attention/", _LAYER),
    *module("layers/attention_norm", f"{_LAYER}input_layernorm"),
    *halves(_LAYER),
    *module("layers/feed_forward/outer", f"{_LAYER}mlp.down_proj"),
    *module("layers/feed_forward_norm", f"{_LAYER}post_attention_layernorm"),
    *module("final_norm", "norm"),
    Tensor("prediction_head/word", "lm_head.weight"),  # only in models without tied embeddings
    Tensor("prediction_head/bias", "lm_head.bias"),
    *module("tagging_head/output", "classifier"),
)


def _read_config(config: Record, where: str) -> Record:
    rotary = rotary_keys.read(config, where, "rope_theta")
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    groups, size = config.get("num_key_value_heads"), config.get("head_dim")
    if size is not None and (not isinstance(heads, int) or size * heads != hidden):
        raise ConfigError(
            f"{where}: head_dim is {quoted(size)}; xlj's encoder supports hidden_size / "
            "num_attention_heads only"
        )
    return {
        "key_value_heads": 0 if groups in (None, heads) else groups,
        "family": "eurobert",
        "absolute_positions": False,
        "norm": "pre",
        "norm_type": "rms",
        "feed_forward": gated(config, "hidden_act", where),
        "biases": switched(config, _BIAS_SWITCHES, where),
        "prediction": "linear",
        "tied": config["tie_word_embeddings"],
        "rotary_base": rotary.base,
        "rotary_factor": rotary.factor,
        "dropout": 0.0,
    }


def _write_config(model: Model) -> Record:
    rope = rotary_keys.write(model.rotary_base, model.rotary_factor)
    return {
        "num_key_value_heads": model.groups,
        "hidden_act": activation_of(model),
        **{key: {*names} <= {*model.biases} for key, names in _BIAS_SWITCHES.items()},
        "tie_word_embeddings": model.tied,
        "rope_parameters": rope,
        # transformers 4 reads these two keys.
        "rope_theta": model.rotary_base,
        "rope_scaling": None if model.rotary_factor == 1 else rope,
    }


EUROBERT = Architecture(
    "eurobert",
    "model",
    _TENSORS,
    classes_of("EuroBert", ("", "prediction_head", "tagging_head")),
    {"lm_head.weight": "embeddings/word"},
    first_position=0,
    sizes=SIZES | {"attention_dropout": "attention_dropout", "layer_norm_epsilon": "rms_norm_eps"},
    defaults=_DEFAULTS,
    fixed={},
    options=_read_config,
    config=_write_config,
    specials=SPECIALS | {"mask": -1},
    ignored=((r"dense\.(weight|bias)", "part of a task head that xlj does not support"),),
)
