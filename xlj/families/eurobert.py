"""EuroBERT: multilingual encoders for European and other languages.

Sources: models/eurobert of transformers 5.24; the released config.json of EuroBERT/EuroBERT-210m.
"""

from xlj.config import ConfigError, Model
from xlj.families import modern
from xlj.families.interface import (
    SIZES,
    SPECIALS,
    Architecture,
    Family,
    Tensor,
    module,
    modules,
)
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

_POOLINGS = {"first": "bos", "mean": "mean", "late": "late"}
_LAYER = "layers.{layer}."
_TENSORS = (
    Tensor("embeddings/word", "embed_tokens.weight"),
    *modules(modern.PROJECTIONS, "layers/attention/", _LAYER),
    *module("layers/attention_norm", f"{_LAYER}input_layernorm"),
    *modern.halves(_LAYER),
    *module("layers/feed_forward/outer", f"{_LAYER}mlp.down_proj"),
    *module("layers/feed_forward_norm", f"{_LAYER}post_attention_layernorm"),
    *module("final_norm", "norm"),
    Tensor("prediction_head/word", "lm_head.weight"),  # only in models without tied embeddings
    Tensor("prediction_head/bias", "lm_head.bias"),
    *module("classification_head/dense", "dense"),
    *module("classification_head/output", "classifier"),
    *module("tagging_head/output", "classifier"),
)


def _read_config(config: Record, where: str) -> Record:
    rotary = modern.read_rotary(config, where, "rope_theta")
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    groups, size = config.get("num_key_value_heads"), config.get("head_dim")
    if size is not None and (not isinstance(heads, int) or size * heads != hidden):
        raise ConfigError(
            f"{where}: head_dim is {quoted(size)}; xlj's encoder supports hidden_size / "
            "num_attention_heads only"
        )
    # `clf_pooling` is the key of the code on the Hugging Face Hub.
    poolings = {key: config.get(key) for key in ("classifier_pooling", "clf_pooling")}
    pooling = modern.one_of(where, poolings) or "late"  # transformers' default
    return {
        "key_value_heads": 0 if groups in (None, heads) else groups,
        "feed_forward": modern.gated(config, "hidden_act", where),
        "biases": modern.switched(config, _BIAS_SWITCHES, where),
        "tied": config["tie_word_embeddings"],
        "rotary_base": rotary.base,
        "rotary_factor": rotary.factor,
        "task_pooling": modern.read_pooling(pooling, _POOLINGS, where),
    }


def _write_config(model: Model) -> Record:
    rope = modern.write_rotary(model.rotary_base, model.rotary_factor)
    return {
        "num_key_value_heads": model.groups,
        "hidden_act": modern.activation_of(model),
        **{key: {*names} <= {*model.biases} for key, names in _BIAS_SWITCHES.items()},
        "tie_word_embeddings": model.tied,
        "classifier_pooling": _POOLINGS[model.task_pooling],
        "rope_parameters": rope,
        # transformers 4 reads these two keys.
        "rope_theta": model.rotary_base,
        "rope_scaling": None if model.rotary_factor == 1 else rope,
    }


EUROBERT = Architecture(
    "eurobert",
    "model",
    _TENSORS,
    "EuroBert",
    {"lm_head.weight": "embeddings/word"},
    sizes=SIZES | {"attention_dropout": "attention_dropout", "layer_norm_epsilon": "rms_norm_eps"},
    defaults=_DEFAULTS,
    fixed={},
    read_config=_read_config,
    write_config=_write_config,
    specials=SPECIALS | {"mask": "mask"},
    poolings=_POOLINGS,
    ignored=((r"dense\.(weight|bias)", "part of a task head that xlj does not support"),),
)


class EuroBert(Family):
    """EuroBERT. It reads a sentence and its translation as `<s> A <|parallel_sep|> B </s>`."""

    options = modern.OPTIONS | {
        "norm": "pre",
        "norm_type": "rms",
        "biases": (),
        "feed_forward": "swiglu",
        "rotary_base": 250_000.0,
        "prediction": "linear",
        "tied": False,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "task_head": "gelu",
        "task_pooling": "late",
    }
    architectures = (EUROBERT,)
    separator = "<|parallel_sep|>"
