"""Imported models compute what transformers computes, and exported ones are read back by it."""

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
from xlj.interop import importing
from xlj.models import encoder, heads
from xlj.objectives.segments import segments
from xlj.sharding import meshes, trees

pytestmark = pytest.mark.parity

SIZES = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "deep": {"hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 3},
    "wide": {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8},
}
KINDS = ("XLMRoberta", "XLMRobertaXL", "Roberta", "Bert")


def their_model(kind, size, vocabulary_size, **options):
    """A model of transformers with random weights, norms and biases, and its config."""
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
def ours(params, inputs, model):
    every = encoder.apply(params, model, inputs, all_layers=True)
    vectors, table, bias = heads.predict(
        params["prediction_head"], params["embeddings"]["word"], model, every[-1]
    )
    return every, jnp.einsum("rlh,vh->rlv", vectors, table, precision="highest") + bias


def assert_close(found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=0)
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


@pytest.fixture(params=[(k, s) for k in KINDS for s in SIZES], ids="-".join)
def imported(request, tmp_path, vocabulary):
    """(the folder of a random model of transformers, that model)."""
    kind, size = request.param
    pytest.importorskip("transformers")
    mine = folder_with_tokenizer(kind, tmp_path / "theirs", vocabulary)
    model = their_model(kind, size, mine.size)
    model.save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs", model


def loaded(path):
    mesh = meshes.one_device()
    found = importing.inspect(path)
    return found, importing.load(found, lambda tree: trees.shardings(tree, mesh))


def test_hidden_layers_and_logits_agree(imported):
    import torch

    path, theirs = imported
    found, params = loaded(path)
    native, rng = found.vocabulary.native_ids, np.random.default_rng(0)
    lengths = [62 if found.architecture.model_type == "bert" else 64, 3, 17, 40, 2]
    width = lengths[0]
    tokens = np.full((len(lengths) + 1, width), 1, np.int32)
    for row, length in enumerate(lengths):
        middle = rng.integers(3, found.vocabulary.size, length - 2)
        tokens[row, :length] = [0, *middle, 2]
    tokens[-1, :22] = [*tokens[1, :3], *tokens[2, :17], *tokens[4, :2]]  # packed
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    every, logits = ours(params, inputs, found.model)
    with torch.no_grad():
        out = theirs(
            input_ids=torch.tensor(native[tokens[:-1]]),
            attention_mask=torch.tensor((tokens[:-1] != 1).astype(np.int64)),
            output_hidden_states=True,
        )
    real = tokens[:-1] != 1
    assert len(out.hidden_states) == len(every) == found.model.layers + 1
    for mine, other in zip(every, out.hidden_states, strict=True):
        assert_close(mine[:-1][real], other.numpy()[real])
    assert_close(logits[:-1][real], out.logits.numpy()[..., native][real])
    for row, start in ((1, 0), (2, 3), (4, 20)):
        part = slice(start, start + lengths[row])
        assert_close(every[-1, -1, part], out.hidden_states[-1][row, : lengths[row]].numpy())


def test_positions_agree_where_pad_has_another_id(tmp_path, vocabulary):
    """RoBERTa counts positions from the row after the id of `<pad>`."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "theirs"
    mine = folder_with_tokenizer("Roberta", path, vocabulary, "<pad>", "<s>")
    theirs = their_model("Roberta", "tiny", mine.size, pad_token_id=0, bos_token_id=1)
    theirs.save_pretrained(path)
    assert mine.native_ids[:2].tolist() == [1, 0]
    run("export", f"--checkpoint={path}", f"--output={tmp_path}/again")
    tokens = np.int32([[0, *range(10, 70), 2]])
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    for folder in (path, tmp_path / "again"):
        found, params = loaded(folder)
        _, logits = ours(params, inputs, found.model)
        with torch.no_grad():
            out = type(theirs).from_pretrained(folder)(torch.tensor(mine.native_ids[tokens])).logits
        assert_close(logits[0], out[0].numpy()[:, mine.native_ids])


def test_token_types_of_pairs_agree(tmp_path, vocabulary):
    torch = pytest.importorskip("torch")
    mine = folder_with_tokenizer("Bert", tmp_path / "theirs", vocabulary)
    theirs = their_model("Bert", "tiny", mine.size)
    theirs.save_pretrained(tmp_path / "theirs")
    found, params = loaded(tmp_path / "theirs")
    tokens = np.int32([[0, 9, 8, 2, 30, 31, 32, 2, 1, 1]])
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(
        jnp.asarray(tokens), layout.position, layout.segment, layout.segment, None, layout.side
    )
    _, logits = ours(params, inputs, found.model)
    with torch.no_grad():
        out = theirs(
            torch.tensor(mine.native_ids[tokens[:, :8]]),
            token_type_ids=torch.tensor(np.asarray(layout.side)[:, :8]),
        ).logits
    assert_close(logits[0, :8], out[0].numpy()[:, mine.native_ids])


def test_export_of_import_is_bit_identical(imported, tmp_path):
    from safetensors.numpy import load_file

    path, _ = imported
    run("import", f"--source={path}", f"--output={tmp_path}/ours")
    run("export", f"--checkpoint={tmp_path}/ours", f"--output={tmp_path}/again")
    before, after = (load_file(p / "model.safetensors") for p in (path, tmp_path / "again"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.tobytes() == after[name].tobytes(), name
    configs = [json.loads((p / "config.json").read_text()) for p in (path, tmp_path / "again")]
    for key in configs[1]:
        assert configs[0][key] == configs[1][key], key


def test_the_auto_classes_load_an_exported_model(imported, tmp_path):
    import torch
    import transformers

    path, theirs = imported
    run("export", f"--checkpoint={path}", f"--output={tmp_path}/again", "--pooling=mean")
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert type(again) is type(theirs)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    batch = tokenizer(["hello there", "no"], padding=True, return_tensors="pt")
    with torch.no_grad():
        assert torch.equal(again.eval()(**batch).logits, theirs(**batch).logits)
    encoder_alone = transformers.AutoModel.from_pretrained(tmp_path / "again")
    assert encoder_alone.config.num_hidden_layers == theirs.config.num_hidden_layers


def test_an_ernie_m_folder_is_imported_and_exported_as_xlm_r(tmp_path, vocabulary):
    """transformers 5 has no ERNIE-M: its layers are XLM-R's under other names (facts)."""
    transformers = pytest.importorskip("transformers")
    from safetensors.numpy import load_file, save_file

    theirs = their_model("XLMRoberta", "tiny", vocabulary.size)
    source = tmp_path / "ernie"
    source.mkdir()
    theirs.roberta.embeddings.token_type_embeddings.weight.data.zero_()
    theirs.save_pretrained(tmp_path / "plain")
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
    found, _ = loaded(source)
    assert len(found.missing) == 5 and "prediction_head/bias" in found.report()
    run("export", f"--checkpoint={source}", f"--output={tmp_path}/out")
    again = transformers.AutoModel.from_pretrained(tmp_path / "out")
    for name, tensor in theirs.roberta.state_dict().items():
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
    writing.write_params(tmp_path / "ours", jax_params, config, vocabulary, [])
    run("export", f"--checkpoint={tmp_path}/ours", f"--output={tmp_path}/out")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "out", trust_remote_code=True
    ).eval()
    tokens = np.random.default_rng(1).integers(4, vocabulary.size, (2, 50)).astype(np.int32)
    tokens[:, 0], tokens[:, -1] = 0, 2
    layout = segments(jnp.asarray(tokens))
    inputs = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    every, logits = ours(jax_params, inputs, model)
    with torch.no_grad():
        out = theirs(torch.tensor(tokens), output_hidden_states=True)
    for mine, other in zip(every, out.hidden_states, strict=True):
        assert_close(mine, other.numpy())
    assert_close(logits, out.logits.numpy())


def run(*arguments):
    """Runs `xlj.convert` in this process."""
    assert convert.main(arguments) == 0
