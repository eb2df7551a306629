"""The PyTorch module in exported folders equals xlj's encoder.

It also behaves like the models of transformers: it loads, saves, trains and takes new tokens.
"""

import dataclasses
import json
import shutil
from functools import cache, partial
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj.config import Model
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.positions import buckets
from xlj.models.segments import segments
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.sharding.trees import named_leaves

torch = pytest.importorskip("torch", reason="the module is PyTorch's (pip install '.[parity]')")
transformers = pytest.importorskip("transformers", reason="pip install '.[parity]'")
safetensors = pytest.importorskip("safetensors.numpy", reason="pip install '.[parity]'")

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("code_cache")]

CODE = Path(__file__).parents[2] / "xlj" / "interop" / "remote_code"
SIZE = 50
TINY = Model(
    layers=2,
    hidden=32,
    heads=4,
    intermediate=64,
    positions=66,
    token_types=2,
    pair_marks=("types",),
    position_bias="gated",
    position_buckets=8,
    position_distance=16,
)
SIZES = {
    "tiny": TINY,
    "uneven": dataclasses.replace(
        TINY, layers=3, hidden=60, heads=5, intermediate=90, position_buckets=14, token_types=0
    ),
    "defaults": dataclasses.replace(
        TINY, layers=6, hidden=128, heads=2, intermediate=512, positions=514, token_types=1,
        position_buckets=32, position_distance=128
    ),
}  # fmt: skip
LENGTHS = {"tiny": 40, "uneven": 64, "defaults": 200}
"""Lengths of rows. Each exceeds the distance beyond which all distances share a bucket."""

NAMES = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward/inner": "intermediate.dense",
    "feed_forward/outer": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


@cache
def draw_params(model):
    """Draws all parameters of an encoder and of a head for masked tokens at random.

    NumPy draws them, because compiling `init` for every model would take longer than these tests.
    """
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        mean = float(path[-1].key == "scale")
        noise = model.hidden**-0.5 * rng.standard_normal(leaf.shape)
        return jnp.asarray(mean + noise, leaf.dtype)

    def init(key):
        return encoder.init(key, model, SIZE, 1), init_prediction(key, model, SIZE)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(init, jax.random.key(0)))


def state_dict(params, head=None):
    """Returns the parameters of an encoder and a head for masked tokens in XLM-R's layout."""
    params = {name: np.array(leaf) for name, leaf in named_leaves(params).items()}
    embeddings = "embeddings.{}_embeddings.weight"
    zeros = np.zeros((1, params["embeddings/word"].shape[1]), np.float32)
    state = {
        embeddings.format("word"): params["embeddings/word"],
        embeddings.format("token_type"): params.get("embeddings/token_type", zeros),
        "embeddings.LayerNorm.weight": params["embeddings/norm/scale"],
        "embeddings.LayerNorm.bias": params["embeddings/norm/bias"],
    }
    if "embeddings/position" in params:
        state[embeddings.format("position")] = params["embeddings/position"]
    if "position_bias/table" in params:
        state["position_bias.weight"] = params["position_bias/table"]
    for name, leaf in params.items():
        group, _, rest = name.partition("/")
        if group != "layers":
            continue
        for index, value in enumerate(leaf):
            part, _, kind = rest.rpartition("/")
            layer = f"encoder.layer.{index}."
            if part == "attention/gates":
                gates = {"kernel": "gates.weight", "scale": "gate_scale"}
                state[f"{layer}attention.self.{gates[kind]}"] = value.T
            else:
                kind = "bias" if kind == "bias" else "weight"
                state[f"{layer}{NAMES[part]}.{kind}"] = value.T
    if head is not None:
        state = {f"roberta.{name}": value for name, value in state.items()}
        state |= {
            "lm_head.dense.weight": np.array(head["dense"]["kernel"].T),
            "lm_head.dense.bias": np.array(head["dense"]["bias"]),
            "lm_head.layer_norm.weight": np.array(head["norm"]["scale"]),
            "lm_head.layer_norm.bias": np.array(head["norm"]["bias"]),
            "lm_head.bias": np.array(head["bias"]),
        }
    return {name: np.ascontiguousarray(value) for name, value in state.items()}


def config_of(model):
    return {
        "model_type": "xlj",
        "vocab_size": SIZE,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": model.positions,
        "type_vocab_size": max(1, model.token_types),
        "layer_norm_eps": model.layer_norm_epsilon,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention_dropout,
        "position_bias": model.position_bias,
        "position_buckets": model.position_buckets,
        "position_distance": model.position_distance,
        "absolute_positions": model.absolute_positions,
        "auto_map": {
            "AutoConfig": "configuration_xlj.XljConfig",
            "AutoModel": "modeling_xlj.XljModel",
            "AutoModelForMaskedLM": "modeling_xlj.XljForMaskedLM",
            "AutoModelForSequenceClassification": "modeling_xlj.XljForSequenceClassification",
            "AutoModelForTokenClassification": "modeling_xlj.XljForTokenClassification",
            "AutoModelForQuestionAnswering": "modeling_xlj.XljForQuestionAnswering",
        },
    }


def write_folder(folder, model, with_head=True):
    """Writes a folder like those of the exporter."""
    folder.mkdir()
    for name in ("configuration_xlj.py", "modeling_xlj.py"):
        shutil.copy(CODE / name, folder)
    (folder / "config.json").write_text(json.dumps(config_of(model)))
    params, head = draw_params(model)
    weights = state_dict(params, head if with_head else None)
    safetensors.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def load(kind, folder, **options):
    """Loads a model in evaluation mode; returns it with its missing and unexpected keys."""
    auto = getattr(transformers, kind)
    model, report = auto.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True, **options
    )
    assert not report["mismatched_keys"], report
    return model, set(report["missing_keys"]), set(report["unexpected_keys"])


def masked_lm(folder):
    model, missing, unexpected = load("AutoModelForMaskedLM", folder)
    assert not missing and not unexpected
    return model


def example(rng, length):
    middle = length // 2
    parts = [0], rng.integers(4, SIZE, middle - 2), [2], rng.integers(4, SIZE, length - middle - 1)
    return np.concatenate([*parts, [2]])


def rows(kind, length):
    """Returns token ids [3, length] of sentence pairs.

    A row is one pair of full length, one pair with padding on one side, or several pairs.
    """
    rng = np.random.default_rng(0)
    if kind == "packed":
        sizes = (length // 4, length // 2 - 3, length // 8)
        examples = [np.concatenate([example(rng, cut) for cut in sizes]) for _ in range(3)]
    else:
        lengths = [length] * 3 if kind == "full" else (length, length // 2, 9)
        examples = [example(rng, real) for real in lengths]
    side = (lambda n: (n, 0)) if kind == "left" else (lambda n: (0, n))
    return np.stack([np.pad(row, side(length - len(row)), constant_values=1) for row in examples])


def tensors(**arrays):
    return {name: torch.tensor(np.array(array)).long() for name, array in arrays.items()}


run = jax.jit(partial(encoder.apply, all_layers=True), static_argnames="model")


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)
    assert np.linalg.norm(actual - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "size, bias, absolute",
    [
        ("tiny", "t5", True),
        ("tiny", "gated", False),
        ("uneven", "t5", False),
        ("uneven", "gated", True),
        ("defaults", "t5", False),
        ("defaults", "gated", True),
    ],
)
def test_hidden_states_and_logits_equal_those_of_xlj(tmp_path, size, bias, absolute):
    model = dataclasses.replace(SIZES[size], position_bias=bias, absolute_positions=absolute)
    params, head = draw_params(model)
    torch_model = masked_lm(write_folder(tmp_path / "model", model))
    for kind in ("full", "right", "left", "packed"):
        tokens = rows(kind, LENGTHS[size])
        layout = segments(jnp.asarray(tokens))
        inputs = encoder.Inputs(
            tokens, layout.position, layout.segment, layout.segment, sides=layout.side
        )
        hidden = run(params, model, inputs)
        vectors, table, token_bias = predict(head, params["embeddings"]["word"], model,
                                                   hidden[-1])  # fmt: skip
        logits = np.asarray(vectors) @ np.asarray(table).T + token_bias

        torch_inputs = {"input_ids": tokens, "attention_mask": tokens != 1}
        if kind == "packed":
            torch_inputs["attention_mask"] = layout.segment[:, :, None] == layout.segment[:, None]
            torch_inputs["position_ids"] = layout.position + FIRST_POSITION
        if model.token_types > 1:
            torch_inputs["token_type_ids"] = layout.side
        with torch.no_grad():
            output = torch_model(**tensors(**torch_inputs), output_hidden_states=True)
        real = tokens != 1
        assert len(output.hidden_states) == model.layers + 1
        for actual, expected in zip(output.hidden_states, np.asarray(hidden), strict=True):
            assert_close(actual.numpy()[real], expected[real])
        assert_close(output.logits.numpy()[real], np.asarray(logits)[real])


@pytest.mark.parametrize("count, distance", [(32, 128), (320, 800), (4, 2), (16, 33), (32, 9)])
def test_distances_have_the_same_buckets_as_in_xlj(count, distance):
    from xlj.interop.remote_code.configuration_xlj import XljConfig
    from xlj.interop.remote_code.modeling_xlj import XljPositionBias

    sizes = {"position_buckets": count, "position_distance": distance}
    bias = XljPositionBias(XljConfig(num_attention_heads=1, hidden_size=8, **sizes))
    length = 2 * distance + 2
    with torch.no_grad():
        bias.weight[:, 0] = torch.arange(count)
        actual = bias(length)[0].numpy()
    place = np.arange(length)
    expected = buckets(place[None, :] - place[:, None], count, distance)
    np.testing.assert_array_equal(actual, expected)


def test_every_parameter_of_the_position_bias_changes_the_logits(tmp_path):
    """The logits change by much more than the tolerance of the comparison above."""
    torch_model = masked_lm(write_folder(tmp_path / "model", TINY))
    torch_inputs = tensors(input_ids=rows("full", 40))
    with torch.no_grad():
        expected = torch_model(**torch_inputs).logits
        for name, weight in torch_model.named_parameters():
            if "position_bias" in name or "gate" in name:
                original = weight.clone()
                # Reverses the order of buckets or heads, or swaps the update and reset gates.
                weight[:] = weight.flip(0)
                assert (torch_model(**torch_inputs).logits - expected).abs().max() > 1e-3, name
                weight[:] = original


def test_without_a_position_bias_the_model_equals_xlm_r(tmp_path):
    model = dataclasses.replace(TINY, position_bias="none")
    torch_model = masked_lm(write_folder(tmp_path / "model", model))
    config = {k: v for k, v in config_of(model).items() if k not in ("model_type", "auto_map")}
    xlm_r = transformers.XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**config)).eval()
    xlm_r.load_state_dict(torch_model.state_dict())  # all names are equal
    for kind in ("left", "right"):
        tokens = rows(kind, 40)
        torch_inputs = tensors(input_ids=tokens, attention_mask=tokens != 1, labels=tokens)
        with torch.no_grad():
            actual, expected = torch_model(**torch_inputs), xlm_r(**torch_inputs)
        assert_close(actual.logits.numpy()[tokens != 1], expected.logits.numpy()[tokens != 1])
        torch.testing.assert_close(actual.loss, expected.loss)


def test_without_a_position_bias_question_answering_equals_xlm_r(tmp_path):
    model = dataclasses.replace(TINY, position_bias="none")
    folder = write_folder(tmp_path / "model", model)
    torch_model, missing, _ = load("AutoModelForQuestionAnswering", folder)
    assert missing == {"qa_outputs.weight", "qa_outputs.bias"}
    config = {k: v for k, v in config_of(model).items() if k not in ("model_type", "auto_map")}
    xlm_r = transformers.XLMRobertaForQuestionAnswering(transformers.XLMRobertaConfig(**config))
    xlm_r.eval().load_state_dict(torch_model.state_dict())
    tokens = rows("right", 40)
    torch_inputs = tensors(input_ids=tokens, attention_mask=tokens != 1,
                    start_positions=np.arange(3), end_positions=np.arange(3) + 2)  # fmt: skip
    actual, expected = torch_model(**torch_inputs), xlm_r(**torch_inputs)
    assert_close(actual.start_logits.detach().numpy(), expected.start_logits.detach().numpy())
    assert_close(actual.end_logits.detach().numpy(), expected.end_logits.detach().numpy())
    torch.testing.assert_close(actual.loss, expected.loss)
    assert torch_model(**torch_inputs, return_dict=False)[0] == actual.loss
    actual.loss.backward()
    assert torch_model.qa_outputs.weight.grad.abs().sum() > 0
    del torch_inputs["start_positions"]
    assert torch_model(**torch_inputs).loss is None


@pytest.mark.parametrize("with_head", [True, False])
def test_auto_model_loads_the_encoder_alone(tmp_path, with_head):
    folder = write_folder(tmp_path / "model", TINY, with_head)
    torch_model, missing, unexpected = load("AutoModel", folder)
    assert not missing
    assert all(name.startswith("lm_head.") for name in unexpected)
    tokens = rows("right", 40)
    whole = masked_lm(write_folder(tmp_path / "whole", TINY))
    torch_inputs = tensors(input_ids=tokens, attention_mask=tokens != 1)
    with torch.no_grad():
        output = torch_model(**torch_inputs)
        expected = whole(**torch_inputs, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(output.last_hidden_state, expected, rtol=0, atol=0)
        assert output.hidden_states is None and output.attentions is None

        first, weights = torch_model(**torch_inputs, output_attentions=True, return_dict=False)
        assert len(weights) == 2 and weights[0].shape == (3, 4, 40, 40)
        torch.testing.assert_close(weights[0].sum(-1), torch.ones(3, 4, 40))
        assert (weights[0][1, :, :, 20:] == 0).all()  # no query attends to padding
        torch.testing.assert_close(first, expected, rtol=0, atol=0)

        # With vectors instead of ids, positions are counted from the start of the row.
        full = tensors(input_ids=rows("full", 40))["input_ids"]
        vectors = torch_model.get_input_embeddings()(full)
        embedded = torch_model(inputs_embeds=vectors).last_hidden_state
        torch.testing.assert_close(embedded, torch_model(full).last_hidden_state, rtol=0, atol=0)


def test_a_saved_model_has_the_same_code_and_weights_and_loads_again(tmp_path):
    torch_model = masked_lm(write_folder(tmp_path / "model", TINY))
    torch_model.save_pretrained(tmp_path / "saved")
    for name in ("configuration_xlj.py", "modeling_xlj.py"):
        assert (tmp_path / "saved" / name).read_bytes() == (CODE / name).read_bytes()
    saved = safetensors.load_file(tmp_path / "saved" / "model.safetensors")
    expected = state_dict(*draw_params(TINY))
    chex.assert_trees_all_equal(saved, expected)
    again = masked_lm(tmp_path / "saved")
    torch_inputs = tensors(input_ids=rows("full", 40))
    with torch.no_grad():
        torch.testing.assert_close(
            again(**torch_inputs).logits, torch_model(**torch_inputs).logits, rtol=0, atol=0
        )


def test_token_embeddings_can_be_resized(tmp_path):
    torch_model = masked_lm(write_folder(tmp_path / "model", TINY))
    torch_inputs = tensors(input_ids=rows("full", 40))
    with torch.no_grad():
        before = torch_model(**torch_inputs).logits
        torch_model.resize_token_embeddings(SIZE + 6)
        after = torch_model(**torch_inputs).logits
    assert after.shape[-1] == SIZE + 6
    torch.testing.assert_close(after[..., :SIZE], before)
    torch_model.save_pretrained(tmp_path / "saved")
    again = masked_lm(tmp_path / "saved")
    assert again.lm_head.decoder.weight is again.get_input_embeddings().weight
    assert again.lm_head.bias.shape == (SIZE + 6,)
    with torch.no_grad():
        torch.testing.assert_close(again(**torch_inputs).logits, after, rtol=0, atol=0)


@pytest.mark.parametrize(
    "task", ["MaskedLM", "SequenceClassification", "TokenClassification"]
)  # fmt: skip
def test_the_model_can_be_fine_tuned(tmp_path, task):
    options = {} if task == "MaskedLM" else {"num_labels": 3}
    torch.manual_seed(0)
    folder = write_folder(tmp_path / "model", TINY)
    torch_model, missing, _ = load(f"AutoModelFor{task}", folder, **options)
    assert all(name.startswith("classifier.") for name in missing)
    tokens = rows("right", 40)
    labels = {
        "MaskedLM": np.where(tokens % 3, -100, tokens),
        "SequenceClassification": np.arange(3),
        "TokenClassification": np.where(tokens == 1, -100, tokens % 3),
    }[task]
    torch_inputs = tensors(input_ids=tokens, attention_mask=tokens != 1, labels=labels)

    output = torch_model(**torch_inputs)
    flat = output.logits.flatten(0, -2)
    expected = torch.nn.functional.cross_entropy(flat, torch_inputs["labels"].flatten())
    torch.testing.assert_close(output.loss, expected)
    assert torch_model(**torch_inputs, return_dict=False)[0] == output.loss
    assert torch_model(**torch_inputs).loss == output.loss
    torch_model.train()
    assert torch_model(**torch_inputs).loss != torch_model(**torch_inputs).loss  # dropout

    optimizer = torch.optim.Adam(torch_model.parameters(), 3e-3)
    for step in range(20):
        loss = torch_model(**torch_inputs).loss
        loss.backward()
        if not step:
            partly_read = ("position_embeddings", "token_type_embeddings")
            for name, weight in torch_model.named_parameters():
                assert weight.grad is not None and weight.grad.isfinite().all(), name
                if "key.bias" not in name and not any(part in name for part in partly_read):
                    assert weight.grad.abs().sum() > 0, name
        optimizer.step()
        optimizer.zero_grad()
    torch_model.eval()
    assert torch_model(**torch_inputs).loss < 0.9 * output.loss


def test_bfloat16_and_rows_of_padding_give_finite_logits(tmp_path):
    torch_model = masked_lm(write_folder(tmp_path / "model", TINY)).to(torch.bfloat16)
    tokens = rows("left", 40)
    tokens[2] = 1
    torch_inputs = tensors(input_ids=tokens, attention_mask=tokens != 1)
    with torch.no_grad():
        assert torch_model(**torch_inputs).logits.isfinite().all()


def test_missing_parameters_are_initialised(tmp_path):
    """For example gates, which T5's bias lacks: their scale would be uninitialised memory."""
    model = dataclasses.replace(TINY, position_bias="t5")
    folder = write_folder(tmp_path / "model", model)
    config = config_of(model) | {"position_bias": "gated"}
    (folder / "config.json").write_text(json.dumps(config))
    torch_model, missing, _ = load("AutoModelForMaskedLM", folder)
    gates = {f"roberta.encoder.layer.{i}.attention.self.gate" for i in range(2)}
    assert missing == {gate + rest for gate in gates for rest in ("_scale", "s.weight")}
    for layer in torch_model.roberta.encoder["layer"]:
        attention = layer.attention["self"]
        assert (attention.gate_scale == 1).all()
        assert 0.01 < attention.gates.weight.std() < 0.04


def test_a_missing_head_is_initialised(tmp_path):
    """An XLM-E discriminator has no head for masked tokens."""
    folder = write_folder(tmp_path / "model", TINY, with_head=False)
    torch_model, missing, unexpected = load("AutoModelForMaskedLM", folder)
    assert missing and all(name.startswith("lm_head.") for name in missing) and not unexpected
    head = torch_model.lm_head
    assert head.decoder.weight is torch_model.get_input_embeddings().weight
    assert head.decoder.bias is head.bias and (head.bias == 0).all()
    assert (head.layer_norm.weight == 1).all() and head.dense.weight.std() < 0.04


def test_an_unknown_bias_is_refused(tmp_path):
    folder = write_folder(tmp_path / "model", TINY)
    config = config_of(TINY) | {"position_bias": "rotary"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="rotary"):
        load("AutoModel", folder)
