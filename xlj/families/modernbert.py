"""ModernBERT, and its relatives mmBERT, Ettin, MrBERT and Granite embedding R2.

Sources: models/modernbert of transformers 5.24 and 4.57; the released config.json of
answerdotai/ModernBERT-base and jhu-clsp/mmBERT-small.
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
from xlj.families.modern import is_local
from xlj.io.json_file import Record
from xlj.io.quoting import quoted

FULL, LOCAL = "full_attention", "sliding_attention"
_EVERY_KEY = "global_attn_every_n_layers"
_BASE_KEYS_V4 = {FULL: "global_rope_theta", LOCAL: "local_rope_theta"}
_BIAS_SWITCHES = {
    "attention_bias": ("attention", "output"),
    "mlp_bias": ("inner", "outer"),
    "classifier_bias": ("prediction",),
    "decoder_bias": ("vocabulary",),
    "norm_bias": (),  # sets `norm_type`
}
"""Keys of config.json, and the biases (names in `model.biases`) that each key enables."""

_DEFAULTS = {
    "norm_eps": 1e-5,
    "norm_bias": False,
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "hidden_activation": "gelu",
    "attention_bias": False,
    "mlp_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "classifier_pooling": "cls",
    "tie_word_embeddings": True,
}

_POOLINGS = {"first": "cls", "mean": "mean"}
_TASKS = ("classification", "tagging", "question_answering", "multiple_choice")
_LAYER = "layers.{layer}."
_TENSORS = (
    Tensor("embeddings/word", "embeddings.tok_embeddings.weight"),
    *module("embeddings/norm", "embeddings.norm"),
    *(
        tensor
        for number, name in enumerate(("query", "key", "value"))
        for tensor in module(f"layers/attention/{name}", f"{_LAYER}attn.Wqkv", hf_share=(number, 3))
    ),
    # The norm of the embeddings replaces the first layer's attention norm.
    *module("layers/attention_norm", f"{_LAYER}attn_norm", first_layer=1),
    *modules(
        {
            "attention/output": "attn.Wo",
            "feed_forward/inner": "mlp.Wi",  # both halves of the gated layer, in xlj's order
            "feed_forward/outer": "mlp.Wo",
            "feed_forward_norm": "mlp_norm",
        },
        "layers/",
        _LAYER,
    ),
    *module("final_norm", "final_norm"),
    *module("prediction_head/dense", "head.dense"),
    *module("prediction_head/norm", "head.norm"),
    Tensor("prediction_head/word", "decoder.weight"),  # only in models without tied embeddings
    Tensor("prediction_head/bias", "decoder.bias"),
    *(
        tensor
        for task in _TASKS
        for tensor in (
            *module(f"{task}_head/dense", "head.dense"),
            *module(f"{task}_head/norm", "head.norm"),
            *module(f"{task}_head/output", "classifier"),
        )
    ),
)


def _read_config(config: Record, where: str) -> Record:
    layers = _read_layer_types(config, where)
    full = modern.read_rotary(config, where, _BASE_KEYS_V4[FULL], FULL)
    options = layers | {
        "norm_type": "layer" if config["norm_bias"] else "unbiased",
        "feed_forward": modern.gated(config, "hidden_activation", where),
        "biases": modern.switched(config, _BIAS_SWITCHES, where),
        "tied": config["tie_word_embeddings"],
        "rotary_base": full.base,
        "rotary_factor": full.factor,
        "dropout": config["attention_dropout"],
        "rotary_local_base": 0.0,
        "task_pooling": modern.read_pooling(config["classifier_pooling"], _POOLINGS, where),
    }
    if layers["local_attention"]:
        local = modern.read_rotary(config, where, _BASE_KEYS_V4[LOCAL], LOCAL)
        if local.factor != full.factor:
            raise ConfigError(
                f"{where}: rope_parameters has the factor {full.factor} for {FULL} and "
                f"{local.factor} for {LOCAL}; xlj's encoder has one factor for all layers"
            )
        options["rotary_local_base"] = local.base
    return options


def _read_layer_types(config: Record, where: str) -> Record:
    """Returns the options of `Model` that determine which layers are local, and their window."""
    layers, every, types = (config.get(k) for k in ("num_hidden_layers", _EVERY_KEY, "layer_types"))
    if not isinstance(layers, int) or layers < 1:
        raise ConfigError(f"{where}: num_hidden_layers is {quoted(layers)}; expected at least 1")
    if every is not None and (not isinstance(every, int) or every < 1):
        raise ConfigError(f"{where}: {_EVERY_KEY} is {quoted(every)}; expected at least 1")
    regular = None if every is None else _regular_types(layers, every)
    if types is None:
        types = regular
    elif not isinstance(types, list) or len(types) != layers or {*map(str, types)} - {FULL, LOCAL}:
        raise ConfigError(
            f"{where}: layer_types must be a list of {layers} (num_hidden_layers) values {FULL} or "
            f"{LOCAL}"
        )
    elif regular is not None and types != regular:
        raise ConfigError(
            f"{where}: layer_types is {quoted(types)}, but {_EVERY_KEY} is {every}; remove the key "
            "that does not fit the trained model"
        )
    if types is None:
        raise ConfigError(
            f"{where}: expected layer_types or {_EVERY_KEY}, which determine the layers with local "
            "attention"
        )
    if LOCAL not in types:
        return {"local_attention": 0}
    if FULL not in types:
        raise ConfigError(
            f"{where}: layer_types has no {FULL}; xlj's encoder needs at least one "
            "layer of this type"
        )
    window = config.get("local_attention")
    if isinstance(window, bool) or not isinstance(window, int) or window < 2:
        raise ConfigError(
            f"{where}: local_attention is {quoted(window)}; expected the width of the local "
            "attention window in tokens, at least 2"
        )
    every = every or _find_period(types)
    if every:
        return {"local_attention": window, "full_attention_every": every}
    numbers = tuple(str(layer) for layer, kind in enumerate(types) if kind == FULL)
    return {"local_attention": window, "full_layers": numbers}


def _regular_types(layers: int, every: int) -> list[str]:
    return [LOCAL if layer % every else FULL for layer in range(layers)]


def _find_period(types: list[str]) -> int | None:
    """Returns n if every n-th layer, from the first on, has full attention; None if no n fits.

    If several n fit, 3 is preferred, because all released models have it.
    """
    numbers = (3, *range(1, len(types) + 1))
    return next((n for n in numbers if types == _regular_types(len(types), n)), None)


def _write_config(model: Model) -> Record:
    """Returns the keys that transformers 5 reads, and those that transformers 4 reads.

    transformers 4 ignores the keys of version 5. Without its own keys, it would use a local rotary
    base of 10,000. It does not support scaled rotary positions: for a model with these, the keys of
    transformers 4 are null, so that loading fails.
    """
    types = [LOCAL if is_local(model, layer) else FULL for layer in range(model.layers)]
    bases = {FULL: model.rotary_base, LOCAL: model.rotary_local_base or model.rotary_base}
    is_unscaled = model.rotary_factor == 1
    return {
        "hidden_activation": modern.activation_of(model),
        "classifier_activation": "gelu",
        "classifier_pooling": _POOLINGS.get(model.task_pooling, "cls"),
        "norm_bias": model.norm_type == "layer",
        **{key: {*names} <= {*model.biases} for key, names in _BIAS_SWITCHES.items() if names},
        "tie_word_embeddings": model.tied,
        "local_attention": model.local_attention or 128,  # ignored if no layer is local
        "layer_types": types,
        _EVERY_KEY: _find_period(types),
        "rope_parameters": {
            kind: modern.write_rotary(base, model.rotary_factor) for kind, base in bases.items()
        },
        **{_BASE_KEYS_V4[kind]: base if is_unscaled else None for kind, base in bases.items()},
        # text-embeddings-inference requires the first of these keys, candle both.
        "initializer_cutoff_factor": 2.0,
        "layer_norm_eps": model.layer_norm_epsilon,
        "embedding_dropout": model.dropout_of("embeddings"),
        "mlp_dropout": model.dropout_of("feed_forward"),
    }


MODERNBERT = Architecture(
    "modernbert",
    "model",
    _TENSORS,
    "ModernBert",
    {"decoder.weight": "embeddings/word"},
    sizes=SIZES | {"attention_dropout": "attention_dropout", "layer_norm_epsilon": "norm_eps"},
    defaults=_DEFAULTS,
    fixed={"classifier_activation": "gelu"},
    read_config=_read_config,
    write_config=_write_config,
    specials=SPECIALS | {"cls": "bos", "sep": "eos"},
    poolings=_POOLINGS,
    has_shared_head=True,
)


class ModernBert(Family):
    """ModernBERT and its relatives. In mmBERT, local layers have the rotary base of full layers."""

    options = modern.OPTIONS | {
        "norm": "embeddings",
        "norm_type": "unbiased",
        "biases": ("vocabulary",),
        "feed_forward": "geglu",
        "rotary_base": 160_000.0,
        "rotary_local_base": 10_000.0,
        "local_attention": 128,
        "dropout_parts": ("attention",),
        "attention_dropout": 0.0,
        "task_head": "gelu_norm",
    }
    architectures = (MODERNBERT,)
