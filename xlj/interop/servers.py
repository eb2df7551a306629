"""Contracts of servers: what each server requires of a Hugging Face folder, by `model_type`.

A contract lists the keys of config.json, the tensors and the classes without which a server does
not start, or computes something else than transformers. It does not list keys that have a default.
`SOURCES` names the files from which the contracts were read.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from xlj.families.modernbert import FULL, LOCAL
from xlj.interop.folder import Folder
from xlj.interop.tokenizer_files import JSON, SENTENCEPIECE
from xlj.io import json_file

SOURCES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "TEI": (
        "huggingface/text-embeddings-inference",
        (
            "0d124dc router/src/lib.rs:122-140,411-432,468-482",
            "0d124dc backends/candle/src/lib.rs:124-154",
            "0d124dc backends/candle/src/layers/layer_norm.rs:11-20",
            "0d124dc backends/candle/src/layers/rotary.rs:5-27",
            "0d124dc backends/candle/src/models/bert.rs:11-30,374-396,428-443,577-690",
            "0d124dc backends/candle/src/models/gte.rs:15-35,192-213,288-320,393-425",
            "0d124dc backends/candle/src/models/modernbert.rs:13-49,408-432,480-533",
        ),
    ),
    "vLLM": (
        "vllm-project/vllm",
        (
            "0002bff vllm/model_executor/models/registry.py:194-228,245-270",
            "d5b3937 vllm/model_executor/models/bert.py:27-48",
            "14a1f94 vllm/model_executor/models/roberta.py:33-54,76-93,96-150",
            "8ae7ba4 vllm/model_executor/models/modernbert.py:65-114,143-150",
            "3340a0d vllm/model_executor/models/bert_with_rope.py:48-55 (SnowflakeGteNewModel)",
            "1936cf3 vllm/model_executor/models/config.py:234-251 (SnowflakeGteNewModelConfig)",
        ),
    ),
    "llama.cpp": (
        "ggml-org/llama.cpp",
        (
            "2ca8afc conversion/bert.py:17,159-200,312,483,512,643-665",
            "e224eb5 src/models/modern-bert.cpp:9,22,36,40-47,73-75,88-97 (one period, no biases)",
            "73b7608 src/models/eurobert.cpp:30-42,65-67,82-93 (no biases)",
        ),
    ),
}
"""The repository of each server, and the commits, files and lines from which its contracts were
read."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a class of transformers needs in addition to the encoder: keys and tensors."""

    keys: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Contract:
    """What a server requires of the folders of one `model_type`.

    Attributes:
      classes: the classes in `architectures` that the server reads, with their needs.
      keys: keys of config.json that must have a value; `a|b` means one of two keys.
      tensors: the tensors of the encoder without their prefix. `{layer}` is the number of a layer,
        from 0, and `{later}` the number of a layer, from 1.
      prefix: the prefix that the encoder's tensors may have.
      refuse: function that takes the folder and returns for which other reason the server does not
        compute what transformers computes; empty if there is none.
    """

    classes: Mapping[str, Needs]
    keys: tuple[str, ...]
    tensors: tuple[str, ...]
    prefix: str
    refuse: Callable[[Folder], str] = lambda folder: ""


def why_not(server: str, folder: Folder) -> str:
    """Returns why a server cannot serve a folder; empty if nothing that it requires is missing.

    Args:
      server: a key of `CONTRACTS`.
    """
    config, names = folder.config, folder.shapes.keys()
    model_type, classes = config.get("model_type", ""), config.get("architectures") or [""]
    contract = CONTRACTS[server].get(model_type)
    if contract is None:
        return f"it has no model_type {model_type}"
    if classes[0] not in contract.classes:
        hint = "; --pooling exports the encoder only" if "ForMaskedLM" in classes[0] else ""
        return f"it reads {', '.join(contract.classes)}, not {classes[0]}{hint}"
    if reason := contract.refuse(folder):
        return reason
    needs = contract.classes[classes[0]]
    keys = [
        key
        for key in (*contract.keys, *needs.keys)
        if all(config.get(one) is None for one in key.split("|"))
    ]
    prefixes = ("", f"{contract.prefix}.")
    tensors = [
        name
        for name in (*_expand(contract.tensors, config["num_hidden_layers"]), *needs.tensors)
        if not any(prefix + name in names for prefix in prefixes)
    ]
    return "; ".join(
        f"{what} {', '.join(missing[:3])}"
        for what, missing in (("config.json lacks", keys), ("the weights lack", tensors))
        if missing
    )


def _expand(patterns: tuple[str, ...], layers: int) -> Iterator[str]:
    for pattern in patterns:
        if "{" not in pattern:
            yield pattern
            continue
        for layer in range("{later}" in pattern, layers):
            yield pattern.format(layer=layer, later=layer)


def _both(*modules: str) -> tuple[str, ...]:
    """Returns the names of the weight and the bias of each module."""
    return tuple(f"{module}.{part}" for module in modules for part in ("weight", "bias"))


_BERT = (
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    *_both("embeddings.LayerNorm"),
    *(
        f"encoder.layer.{{layer}}.{name}"
        for name in _both(
            "attention.self.query", "attention.self.key", "attention.self.value",
            "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
            "output.dense", "output.LayerNorm",
        )
    ),
)  # fmt: skip
_GTE = (
    "embeddings.word_embeddings.weight",
    *_both("embeddings.LayerNorm"),
    "encoder.layer.{layer}.mlp.up_gate_proj.weight",
    *(
        f"encoder.layer.{{layer}}.{name}"
        for name in _both(
            "attention.qkv_proj", "attention.o_proj", "mlp.down_proj", "attn_ln", "mlp_ln"
        )
    ),
)
_MODERNBERT = (
    "embeddings.tok_embeddings.weight",
    "embeddings.norm.weight",
    "layers.{later}.attn_norm.weight",
    *(
        f"layers.{{layer}}.{name}.weight"
        for name in ("attn.Wqkv", "attn.Wo", "mlp_norm", "mlp.Wi", "mlp.Wo")
    ),
    "final_norm.weight",
)
_EUROBERT = (
    "embed_tokens.weight",
    *(
        f"layers.{{layer}}.{name}.weight"
        for name in (
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
            "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
            "mlp.down_proj",
        )
    ),
    "norm.weight",
)  # fmt: skip
_HEADS = {
    "bert": _both("bert.pooler.dense", "classifier"),
    "roberta": _both("classifier.dense", "classifier.out_proj"),
    "gte": _both("pooler.dense", "classifier"),
    "modernbert": ("head.dense.weight", "head.norm.weight", *_both("classifier")),
}
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
          "intermediate_size", "max_position_embeddings")  # fmt: skip


def _has_factor(folder: Folder) -> bool:
    """Returns whether rotary positions are scaled."""
    rope = folder.config.get("rope_parameters") or {}
    return any("factor" in part for part in (rope, *rope.values()) if isinstance(part, dict))


def _is_irregular(folder: Folder) -> bool:
    """Returns whether layers of ModernBERT have a pattern that no period describes."""
    types = {*(folder.config.get("layer_types") or ())}
    return types == {FULL, LOCAL} and folder.config.get("global_attn_every_n_layers") is None


def _refuse_modern(*biases: str) -> Callable[[Folder], str]:
    """Returns the function `refuse` of a server with one period of layers and unscaled positions.

    Args:
      biases: parts of the names of biases that the server does not read.
    """

    def refuse(folder: Folder) -> str:
        if _is_irregular(folder):
            return "it supports only layers of which every n-th has full attention"
        if _has_factor(folder):
            return "it does not support scaled rotary positions"
        unread = [
            name
            for name in folder.shapes
            if name.endswith("bias") and any(part in name for part in biases)
        ]
        return f"it does not read biases such as {min(unread)}" if unread else ""

    return refuse


def _only_gelu(key: str) -> Callable[[Folder], str]:
    """Returns the function `refuse` of a server that ignores the activation in config.json."""

    def refuse(folder: Folder) -> str:
        activation = folder.config.get(key)
        return "" if activation == "gelu" else f"it applies GELU, but {key} is {activation}"

    return refuse


def _refuse_charsmap(folder: Folder) -> str:
    """Returns why llama.cpp cannot read a SentencePiece tokenizer."""
    if (folder.path / SENTENCEPIECE).is_file():
        return ""
    normalizer = json_file.read_object(folder.path / JSON).get("normalizer") or {}
    if "precompiled_charsmap" in normalizer:
        return ""
    return f"it requires {SENTENCEPIECE}, or precompiled_charsmap at the top of {JSON}'s normalizer"


def hash_note(folder: Folder) -> str:
    """Returns a note on BPE tokenizers, which llama.cpp knows by a hash; else an empty text."""
    if json_file.read_object(folder.path / JSON)["model"]["type"] != "BPE":
        return ""
    return (
        "llama.cpp knows a BPE tokenizer by a hash of the ids of a fixed text: it refuses new, "
        "extended and trimmed vocabularies until the hash is added to its converter"
    )


def _classes(
    prefix: str, *endings: str, head: str = "", keys: tuple[str, ...] = ()
) -> dict[str, Needs]:
    """Returns the classes with a prefix: those with `endings`, and ForSequenceClassification if
    `head` names its tensors (`_HEADS`)."""
    classes = {prefix + ending: Needs() for ending in endings}
    if head:
        classes[f"{prefix}ForSequenceClassification"] = Needs(keys, _HEADS[head])
    return classes


_LABELS = ("id2label", "label2id")
_TEI_BERT = (*_SIZES, "hidden_act", "hidden_dropout_prob", "type_vocab_size", "initializer_range",
             "layer_norm_eps", "pad_token_id")  # fmt: skip


def _tei_bert(prefix: str, head: str) -> Contract:
    classes = _classes(prefix, "Model", "ForMaskedLM", head=head, keys=_LABELS)
    return Contract(classes, _TEI_BERT, _BERT, head)


_LLAMA_SIZES = (*_SIZES, "layer_norm_eps")

CONTRACTS: Mapping[str, Mapping[str, Contract]] = {
    "TEI": {
        "bert": _tei_bert("Bert", "bert"),
        "roberta": _tei_bert("Roberta", "roberta"),
        "xlm-roberta": _tei_bert("XLMRoberta", "roberta"),
        "gte": Contract(
            _classes("Gte", "Model", "ForMaskedLM", head="gte", keys=_LABELS),
            (*_SIZES, "hidden_act", "type_vocab_size", "layer_norm_type", "layer_norm_eps",
             "position_embedding_type", "rope_theta|rope_parameters"),
            _GTE,
            "new",
            _refuse_modern(),
        ),
        "modernbert": Contract(
            _classes("ModernBert", "Model", "ForMaskedLM", head="modernbert",
                     keys=(*_LABELS, "num_labels")),
            (*_SIZES, "hidden_activation", "initializer_range", "initializer_cutoff_factor",
             "norm_eps", "norm_bias", "pad_token_id", "eos_token_id", "bos_token_id",
             "cls_token_id", "sep_token_id", "global_rope_theta", "attention_bias",
             "attention_dropout", "global_attn_every_n_layers", "local_attention",
             "local_rope_theta", "classifier_activation"),
            _MODERNBERT,
            "model",
            _refuse_modern("norm.bias", "head.dense.bias"),
        ),
    },
    "vLLM": {
        "bert": Contract(
            _classes("Bert", "Model", head="bert") | {
                "BertForTokenClassification": Needs((), _both("classifier"))
            },
            (*_SIZES, "position_embedding_type"),
            _BERT,
            "bert",
        ),
        "roberta": Contract(
            _classes("Roberta", "Model", "ForMaskedLM", head="roberta"), _SIZES, _BERT, "roberta"
        ),
        "xlm-roberta": Contract(
            _classes("XLMRoberta", "Model", head="roberta"), _SIZES, _BERT, "roberta"
        ),
        "gte": Contract(
            _classes("Gte", "Model"),
            (*_SIZES, "position_embedding_type", "rope_theta"),
            _GTE,
            "",
            _only_gelu("hidden_act"),
        ),
        "modernbert": Contract(
            _classes("ModernBert", "Model", head="modernbert") | {
                "ModernBertForTokenClassification": Needs((), _HEADS["modernbert"])
            },
            (*_SIZES, "norm_bias", "local_attention"),
            _MODERNBERT,
            "model",
            _only_gelu("hidden_activation"),
        ),
    },
    "llama.cpp": {
        "bert": Contract(
            _classes("Bert", "Model", "ForMaskedLM", head="bert"),
            _LLAMA_SIZES, _BERT, "bert",
        ),
        "roberta": Contract(
            _classes("Roberta", "Model", head="roberta"),
            _LLAMA_SIZES, _BERT, "roberta",
        ),
        "xlm-roberta": Contract(
            _classes("XLMRoberta", "Model", head="roberta"),
            (*_LLAMA_SIZES, "pad_token_id"), _BERT, "roberta", _refuse_charsmap,
        ),
        "modernbert": Contract(
            _classes("ModernBert", "Model", "ForMaskedLM", head="modernbert"),
            (*_LLAMA_SIZES, "local_attention", "global_attn_every_n_layers"),
            _MODERNBERT, "model", _refuse_modern("norm.bias", "layers.", "head."),
        ),
        "eurobert": Contract(
            _classes("EuroBert", "Model"),
            (*_SIZES, "rms_norm_eps", "num_key_value_heads"),
            _EUROBERT, "model", _refuse_modern("bias"),
        ),
    },
}  # fmt: skip
"""The contracts of each server, by `model_type`."""
