"""Imported models compute the same as in transformers, which also loads exported models."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizer_folders import folder_with_tokenizer

from xlj import convert
from xlj.config import Model
from xlj.interop import from_hugging_face
from xlj.models import encoder
from xlj.models.segments import segments
from xlj.objectives.mlm.head import predict
from xlj.sharding import meshes, trees

pytestmark = pytest.mark.parity

SIZES = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "deep": {"hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 3},
    "wide": {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8},
}
KINDS = ("XLMRoberta", "XLMRobertaXL", "Roberta", "Bert")


def random_hf_model(kind, size, vocabulary_size, **options):
    """Returns a model of transformers with random weights, including norms and biases."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(5)
    bert = kind == "Bert"
    config = getattr(transformers, f"{kind}Config")(
        **SIZES[size],
        vocab_size=vocabulary_size,
        intermediate_size=80,
        max_position_embeddings=64 if bert else 66,
        type_vocab_size=2 if bert else 1,
        layer_norm_eps=1e-12 if bert else 1e-5,
        **{"pad_token_id": 0 if bert else 1} | options,
    )
    model = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


@functools.partial(jax.jit, static_argnames="model")
def xlj_outputs(params, inputs, model):
    hidden = encoder.apply(params, model, inputs, all_layers=True)
    vectors, table, bias = predict(
        params["prediction_head"], params["embeddings"]["word"], model, hidden[-1]
    )
    return hidden, jnp.einsum("rlh,vh->rlv", vectors, table, precision="highest") + bias


def assert_close(actual, expected):
    actual, expected = np.asarray(actual), np.asarray(expected)
    np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=0)
    assert np.linalg.norm(actual - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.fixture(params=[(k, s) for k in KINDS for s in SIZES], ids="-".join)
def saved_model(request, tmp_path, vocabulary):
    """The folder of a random model of transformers, and the model."""
    kind, size = request.param
    pytest.importorskip("transformers")
    hf_vocabulary = folder_with_tokenizer(kind, tmp_path / "source", vocabulary)
    model = random_hf_model(kind, size, hf_vocabulary.size)
    model.save_pretrained(tmp_path / "source")
    return tmp_path / "source", model


def import_folder(path):
    mesh = meshes.one_device()
    imported = from_hugging_face.inspect(path)
    return imported, from_hugging_face.load(imported, lambda tree: trees.shardings(tree, mesh))


def test_hidden_states_and_logits_equal_those_of_transformers(saved_model):
    import torch

    path, hf_model = saved_model
    imported, params = import_folder(path)
    native, rng = imported.vocabulary.native_ids, np.random.default_rng(0)
    lengths = [62 if imported.architecture.model_type == "bert" else 64, 3, 17, 40, 2]
    width = lengths[0]
    tokens = np.full((len(lengths) + 1, width), 1, np.int32)
    for row, length in enumerate(lengths):
        middle = rng.integers(3, imported.vocabulary.size, length - 2)
        tokens[row, :length] = [0, *middle, 2]
    tokens[-1, :22] = [*tokens[1, :3], *tokens[2, :17], *tokens[4, :2]]  # packed
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    hidden, logits = xlj_outputs(params, inputs, imported.model)
    with torch.no_grad():
        output = hf_model(
            input_ids=torch.tensor(native[tokens[:-1]]),
            attention_mask=torch.tensor((tokens[:-1] != 1).astype(np.int64)),
            output_hidden_states=True,
        )
    real = tokens[:-1] != 1
    assert len(output.hidden_states) == len(hidden) == imported.model.layers + 1
    for actual, expected in zip(hidden, output.hidden_states, strict=True):
        assert_close(actual[:-1][real], expected.numpy()[real])
    assert_close(logits[:-1][real], output.logits.numpy()[..., native][real])
    for row, start in ((1, 0), (2, 3), (4, 20)):
        part = slice(start, start + lengths[row])
        assert_close(hidden[-1, -1, part], output.hidden_states[-1][row, : lengths[row]].numpy())


def test_logits_equal_those_of_transformers_if_pad_has_another_id(tmp_path, vocabulary):
    """RoBERTa counts positions from the row after the id of `<pad>`."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "source"
    hf_vocabulary = folder_with_tokenizer("Roberta", path, vocabulary, "<pad>", "<s>")
    hf_model = random_hf_model(
        "Roberta", "tiny", hf_vocabulary.size, pad_token_id=0, bos_token_id=1
    )
    hf_model.save_pretrained(path)
    assert hf_vocabulary.native_ids[:2].tolist() == [1, 0]
    run("export", f"--checkpoint={path}", f"--output={tmp_path}/again")
    tokens = np.int32([[0, *range(10, 70), 2]])
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    for folder in (path, tmp_path / "again"):
        imported, params = import_folder(folder)
        _, logits = xlj_outputs(params, inputs, imported.model)
        with torch.no_grad():
            expected = (
                type(hf_model)
                .from_pretrained(folder)(torch.tensor(hf_vocabulary.native_ids[tokens]))
                .logits
            )
        assert_close(logits[0], expected[0].numpy()[:, hf_vocabulary.native_ids])


def test_logits_of_pairs_with_token_types_equal_those_of_transformers(tmp_path, vocabulary):
    torch = pytest.importorskip("torch")
    hf_vocabulary = folder_with_tokenizer("Bert", tmp_path / "source", vocabulary)
    hf_model = random_hf_model("Bert", "tiny", hf_vocabulary.size)
    hf_model.save_pretrained(tmp_path / "source")
    imported, params = import_folder(tmp_path / "source")
    tokens = np.int32([[0, 9, 8, 2, 30, 31, 32, 2, 1, 1]])
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(
        jnp.asarray(tokens), layout.position, layout.segment, layout.segment, None, layout.side
    )
    _, logits = xlj_outputs(params, inputs, imported.model)
    with torch.no_grad():
        expected = hf_model(
            torch.tensor(hf_vocabulary.native_ids[tokens[:, :8]]),
            token_type_ids=torch.tensor(np.asarray(layout.side)[:, :8]),
        ).logits
    assert_close(logits[0, :8], expected[0].numpy()[:, hf_vocabulary.native_ids])


def test_export_of_an_import_is_bit_identical(saved_model, tmp_path):
    from safetensors.numpy import load_file

    path, _ = saved_model
    run("import", f"--source={path}", f"--output={tmp_path}/checkpoint")
    run("export", f"--checkpoint={tmp_path}/checkpoint", f"--output={tmp_path}/again")
    before, after = (load_file(p / "model.safetensors") for p in (path, tmp_path / "again"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.tobytes() == after[name].tobytes(), name
    configs = [json.loads((p / "config.json").read_text()) for p in (path, tmp_path / "again")]
    # vLLM requires this key of BERT, which transformers 5 leaves out.
    configs[0].setdefault("position_embedding_type", "absolute")
    for key in configs[1]:
        assert configs[0][key] == configs[1][key], key


def load_silently(name, folder):
    """Loads a model with an `Auto` class, which must find exactly the tensors that it needs."""
    import transformers

    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    problems = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
    assert not any(report[key] for key in problems), report
    assert json.loads((folder / "config.json").read_text())["architectures"] == [
        type(model).__name__
    ]
    return model.eval()


def test_the_auto_classes_load_an_exported_model(saved_model, tmp_path, capfd):
    import torch
    import transformers

    path, hf_model = saved_model
    kinds = {"head": [], "vectors": ["--pooling=mean"], "layer": ["--layer=1"]}
    if type(hf_model).__name__ == "XLMRobertaXLForMaskedLM":
        del kinds["layer"]  # the norm after the last layer fits no earlier layer
    for name, arguments in kinds.items():
        run("export", f"--checkpoint={path}", f"--output={tmp_path}/{name}", *arguments)
    again = load_silently("AutoModelForMaskedLM", tmp_path / "head")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "head")
    batch = tokenizer(["hello there", "no"], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = hf_model(**batch, output_hidden_states=True)
        assert torch.equal(again(**batch).logits, expected.logits)
        output = load_silently("AutoModel", tmp_path / "vectors")(**batch)
        assert torch.equal(output.last_hidden_state, expected.hidden_states[-1])
        first = output.last_hidden_state[:, 0].tanh()
        np.testing.assert_allclose(output.pooler_output, first, rtol=0, atol=1e-6)
        if "layer" in kinds:
            output = load_silently("AutoModel", tmp_path / "layer")(**batch)
            assert torch.equal(output.last_hidden_state, expected.hidden_states[1])
    library = pytest.importorskip("sentence_transformers")
    capfd.readouterr()
    library.SentenceTransformer(str(tmp_path / "vectors"), device="cpu")
    assert "MISSING" not in (printed := "".join(capfd.readouterr())), printed
    assert "UNEXPECTED" not in printed


def test_an_ernie_m_folder_is_imported_and_exported_as_xlm_r(tmp_path, vocabulary):
    """transformers 5 has no ERNIE-M, so the test builds a folder from XLM-R.

    The layers of both models differ only in the names of their tensors.
    """
    transformers = pytest.importorskip("transformers")
    from safetensors.numpy import load_file, save_file

    hf_model = random_hf_model("XLMRoberta", "tiny", vocabulary.size)
    source = tmp_path / "ernie"
    source.mkdir()
    hf_model.roberta.embeddings.token_type_embeddings.weight.data.zero_()
    hf_model.save_pretrained(tmp_path / "plain")
    renamed = {}
    for name, tensor in load_file(tmp_path / "plain" / "model.safetensors").items():
        for old, new in (
            ("roberta.", ""),
            ("embeddings.LayerNorm", "embeddings.layer_norm"),
            ("encoder.layer.", "encoder.layers."),
            ("attention.self.query", "self_attn.self_attn.q_proj"),
            ("attention.self.key", "self_attn.self_attn.k_proj"),
            ("attention.self.value", "self_attn.self_attn.v_proj"),
            ("attention.output.dense", "self_attn.out_proj"),
            ("attention.output.LayerNorm", "norm1"),
            ("intermediate.dense", "linear1"),
            ("output.dense", "linear2"),
            ("output.LayerNorm", "norm2"),
        ):
            name = name.replace(old, new)
        if not name.startswith("lm_head") and "token_type" not in name:
            renamed[name] = tensor
    save_file(renamed, source / "model.safetensors")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    config |= {"model_type": "ernie_m", "architectures": ["ErnieMModel"]}
    (source / "config.json").write_text(json.dumps(config))
    (source / "sentencepiece.bpe.model").write_bytes(vocabulary.model)
    imported, _ = import_folder(source)
    assert len(imported.missing) == 5 and "prediction_head/bias" in imported.report()
    run("export", f"--checkpoint={source}", f"--output={tmp_path}/out")
    again = transformers.AutoModel.from_pretrained(tmp_path / "out")
    for name, tensor in hf_model.roberta.state_dict().items():
        assert tensor.equal(again.state_dict()[name]), name


def test_a_model_with_a_position_bias_needs_only_the_code_in_its_folder(
    tmp_path, vocabulary, params_of, code_cache
):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from xlj.checkpoints import writing
    from xlj.config import build

    model = Model(
        layers=3, hidden=32, heads=4, intermediate=48, positions=66, position_bias="gated",
        position_distance=40, absolute_positions=False,
    )  # fmt: skip
    params = params_of(model, vocabulary.size)
    config = build({"model": dataclasses.asdict(model)})
    jax_params = jax.tree.map(jnp.asarray, params)
    writing.write_params(tmp_path / "checkpoint", jax_params, config, vocabulary, [])
    run("export", f"--checkpoint={tmp_path}/checkpoint", f"--output={tmp_path}/out")
    hf_model = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "out", trust_remote_code=True
    ).eval()
    tokens = np.random.default_rng(1).integers(4, vocabulary.size, (2, 50)).astype(np.int32)
    tokens[:, 0], tokens[:, -1] = 0, 2
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    hidden, logits = xlj_outputs(jax_params, inputs, model)
    with torch.no_grad():
        output = hf_model(torch.tensor(tokens), output_hidden_states=True)
    for actual, expected in zip(hidden, output.hidden_states, strict=True):
        assert_close(actual, expected.numpy())
    assert_close(logits, output.logits.numpy())


def run(*arguments):
    """Runs `xlj.convert` in this process."""
    assert convert.main(arguments) == 0
