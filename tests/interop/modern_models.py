"""Random ModernBERT, EuroBERT and gte models of transformers; their tensors under xlj's names."""

import contextlib

import numpy as np
import pytest
from references.families import VOCABULARY, options


def config(name):
    """Returns a model's options as keyword arguments of transformers' config."""
    model, kind = options(name), name.partition("-")[0]
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "attn_implementation": "sdpa",
    }
    rope = {"rope_type": "default", "rope_theta": model.rotary_base}
    if model.rotary_factor != 1:
        rope |= {"rope_type": "linear", "factor": model.rotary_factor}
    if kind == "ModernBert":
        periodic = range(0, model.layers, model.full_attention_every)
        full = [int(layer) for layer in model.full_layers] or periodic
        own = {
            "cls_token_id": 2,
            "sep_token_id": 1,
            "norm_eps": model.layer_norm_epsilon,
            "norm_bias": model.norm_type == "layer",
            "attention_bias": "attention" in model.biases,
            "mlp_bias": "inner" in model.biases,
            "classifier_bias": "prediction" in model.biases,
            "local_attention": model.local_attention,
            "layer_types": [
                "full_attention" if layer in full else "sliding_attention"
                for layer in range(model.layers)
            ],
            "rope_parameters": {
                "full_attention": rope,
                "sliding_attention": rope | {"rope_theta": model.rotary_local_base},
            },
        }
    elif kind == "EuroBert":
        own = {
            "num_key_value_heads": model.key_value_heads,
            "rms_norm_eps": model.layer_norm_epsilon,
            "attention_bias": "attention" in model.biases,
            "mlp_bias": "inner" in model.biases,
            "rope_parameters": rope,
        }
    else:
        own = {
            "layer_norm_eps": model.layer_norm_epsilon,
            "type_vocab_size": model.token_types,
            "rope_parameters": rope,
        }
    return common | own


def random_hf_model(name, width=2.4, head="ForMaskedLM", **changes):
    """Returns a model of transformers with random weights, including norms and biases.

    The standard deviation is `width` divided by the square root of the hidden size: 0.3 for a
    width of 2.4 and a hidden size of 64. `changes` are keyword arguments of the config.
    """
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind = name.partition("-")[0]
    hf_config = getattr(transformers, f"{kind}Config")(**config(name) | changes)
    model = getattr(transformers, f"{kind}{head}")(hf_config).eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            mean = float("norm" in part.lower() and part.endswith("weight"))
            noise = torch.randn_like(parameter) * width * hf_config.hidden_size**-0.5
            parameter.copy_(mean + noise)
    return model


@contextlib.contextmanager
def in_float64():
    """Makes transformers compute angles, RMSNorm and queries in float64 instead of float32."""
    torch = pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        yield


def hf_outputs(model, examples):
    """Computes a padded batch of examples with a model of transformers.

    Returns the hidden states [layers + 1, length, hidden] and logits [length, vocabulary] of each
    example.
    """
    import torch

    lengths = [len(example) for example in examples]
    tokens = np.stack([np.pad(row, (0, max(lengths) - len(row))) for row in examples])
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    with torch.no_grad():
        output = model(
            input_ids=torch.tensor(tokens),
            attention_mask=torch.tensor(mask.astype(int)),
            output_hidden_states=True,
        )
    states = np.stack([state.numpy() for state in output.hidden_states])
    return [(states[:, row, :n], output.logits.numpy()[row, :n]) for row, n in enumerate(lengths)]


def assert_close(actual, expected, tolerance):
    """Compares hidden states and logits; the tolerance is relative to the largest value."""
    for (states, logits), (expected_states, expected_logits) in zip(actual, expected, strict=True):
        assert len(states) == len(expected_states)
        for one, other in [*zip(states, expected_states, strict=True), (logits, expected_logits)]:
            assert abs(one - other).max() < tolerance * abs(other).max()


class Tensors:
    """The tensors of a state dict. Each tensor can be read only once."""

    def __init__(self, state):
        self.unread = {name: np.asarray(tensor, np.float64) for name, tensor in state.items()}

    def take(self, name):
        return self.unread.pop(name)

    def take_layers(self, pattern, numbers):
        """Returns one tensor of several layers, stacked."""
        return np.stack([self.take(pattern.format(number)) for number in numbers])

    def parts(self, prefix, numbers, weight):
        """Returns a module's weight under the name `weight`, and its bias if it has one.

        If `prefix` contains {}, the tensors are those of all layers in `numbers`, stacked.
        """

        def read(name):
            return self.take_layers(name, numbers) if "{}" in name else self.take(name)

        params = {weight: read(f"{prefix}.weight")}
        if f"{prefix}.bias".format(*numbers[:1]) in self.unread:
            params["bias"] = read(f"{prefix}.bias")
        return params

    def norm(self, prefix, numbers=()):
        return self.parts(prefix, numbers, "scale")

    def dense(self, prefix, numbers=()):
        params = self.parts(prefix, numbers, "kernel")
        return params | {"kernel": params["kernel"].swapaxes(-1, -2)}

    def split(self, prefix, numbers, names):
        """Splits a dense layer's outputs into one layer per name."""
        whole = self.dense(prefix, numbers)
        parts = {part: np.split(whole[part], len(names), axis=-1) for part in whole}
        return {name: {part: parts[part][at] for part in parts} for at, name in enumerate(names)}


def convert_state_dict(name, state, model=None):
    """Returns the parameters of the encoder and of the head in a state dict of transformers.

    `model` has the options of the model; by default, these are `options(name)`.
    """
    model, tensors = model or options(name), Tensors(state)
    read = {"ModernBert": _modernbert, "EuroBert": _eurobert, "Gte": _gte}
    params, head = read[name.partition("-")[0]](model, tensors, range(model.layers))
    assert not tensors.unread, f"tensors not read: {', '.join(tensors.unread)}"
    return params, head


def separate(state):
    """Returns the tensors of a gte model in any layout with the separate names.

    The rows of `qkv_proj` are query, key and value. Those of `up_gate_proj` are up, then gate.
    """
    if not any("qkv_proj" in name for name in state):
        return state
    prefix = next(name for name in state if "embeddings" in name).partition(".")[0]
    parts = {
        "attention.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.up_gate_proj": ("mlp.up_proj", "mlp.gate_proj"),
    }
    names = {
        f"{prefix}.encoder.layer.": "gte.layers.",
        f"{prefix}.embeddings": "gte.embeddings",
        "attention.o_proj": "self_attn.o_proj",
        "attn_ln": "post_attention_layernorm",
        "mlp_ln": "post_mlp_layernorm",
        "lm_head.norm": "lm_head.layer_norm",
    }
    if not any(name.startswith("lm_head") for name in state):  # the model has a task head
        del names["lm_head.norm"]
    assert all(any(part in name for name in state) for part in (*parts, *names))
    result = {}
    for name, tensor in state.items():
        name = name.replace(f"{prefix}.pooler", "gte.pooler")
        for old, new in names.items():
            name = name.replace(old, new)
        fused = next((part for part in parts if part in name), None)
        if fused is None:
            result[name] = tensor
        else:
            pieces = np.split(tensor, len(parts[fused]))
            for new, piece in zip(parts[fused], pieces, strict=True):
                result[name.replace(fused, new)] = piece
    return result


def _modernbert(model, tensors, numbers):
    of_layer = "model.layers.{}."
    attention = tensors.split(of_layer + "attn.Wqkv", numbers, ("query", "key", "value"))
    attention["output"] = tensors.dense(of_layer + "attn.Wo", numbers)
    feed_forward = {
        "inner": tensors.dense(of_layer + "mlp.Wi", numbers),
        "outer": tensors.dense(of_layer + "mlp.Wo", numbers),
    }
    params = {
        "embeddings": {
            "word": tensors.take("model.embeddings.tok_embeddings.weight"),
            "norm": tensors.norm("model.embeddings.norm"),
        },
        "layers": {
            "attention": attention,
            "attention_norm": tensors.norm(of_layer + "attn_norm", numbers[1:]),
            "feed_forward": feed_forward,
            "feed_forward_norm": tensors.norm(of_layer + "mlp_norm", numbers),
        },
        "final_norm": tensors.norm("model.final_norm"),
    }
    head = {
        "dense": tensors.dense("head.dense"),
        "norm": tensors.norm("head.norm"),
        "bias": tensors.take("decoder.bias"),
    }
    np.testing.assert_array_equal(tensors.take("decoder.weight"), params["embeddings"]["word"])
    return params, head


def _eurobert(model, tensors, numbers):
    of_layer = "model.layers.{}."
    params = {
        "embeddings": {"word": tensors.take("model.embed_tokens.weight")},
        "layers": {
            "attention": _projections(tensors, of_layer, numbers),
            "attention_norm": tensors.norm(of_layer + "input_layernorm", numbers),
            "feed_forward": _gated(tensors, of_layer, numbers),
            "feed_forward_norm": tensors.norm(of_layer + "post_attention_layernorm", numbers),
        },
        "final_norm": tensors.norm("model.norm"),
    }
    head = tensors.parts("lm_head", (), "word")
    if "bias" in head:  # `mlp_bias` of transformers adds this bias too
        assert "inner" in model.biases
    return params, head


def _gte(model, tensors, numbers):
    of_layer = "gte.layers.{}."
    table = {
        "word": tensors.take("gte.embeddings.word_embeddings.weight"),
        "norm": tensors.norm("gte.embeddings.LayerNorm"),
    }
    if model.token_types:
        table["token_type"] = tensors.take("gte.embeddings.token_type_embeddings.weight")
    params = {
        "embeddings": table,
        "layers": {
            "attention": _projections(tensors, of_layer, numbers),
            "attention_norm": tensors.norm(of_layer + "post_attention_layernorm", numbers),
            "feed_forward": _gated(tensors, of_layer, numbers),
            "feed_forward_norm": tensors.norm(of_layer + "post_mlp_layernorm", numbers),
        },
    }
    head = {
        "dense": tensors.dense("lm_head.dense"),
        "norm": tensors.norm("lm_head.layer_norm"),
        "bias": tensors.take("lm_head.decoder.bias"),
    }
    np.testing.assert_array_equal(tensors.take("lm_head.decoder.weight"), table["word"])
    return params, head


def _projections(tensors, of_layer, numbers):
    names = {"query": "q", "key": "k", "value": "v", "output": "o"}
    return {
        name: tensors.dense(f"{of_layer}self_attn.{letter}_proj", numbers)
        for name, letter in names.items()
    }


def _gated(tensors, of_layer, numbers):
    gate, up, down = (
        tensors.dense(f"{of_layer}mlp.{word}_proj", numbers) for word in ("gate", "up", "down")
    )
    inner = {part: np.concatenate([gate[part], up[part]], axis=-1) for part in gate}
    return {"inner": inner, "outer": down}
