"""Folders of ModernBERT, EuroBERT and gte: read exactly, written as they were."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from modern_models import assert_close, in_float64, their_model, theirs
from references.encoder import encode
from references.families import MODELS
from references.heads import prediction
from references.layout import of_lengths
from safetensors.numpy import load_file, save_file
from tokenizer_folders import folder_with_tokenizer

from xlj import convert
from xlj.interop import importing
from xlj.models import encoder, heads
from xlj.sharding import meshes, trees

PACKED = ((300,), (130, 129), (65, 64, 5))
"""The lengths of the examples of each row: inside the window of 64 to each side, at its edge and
beyond."""

LENGTH = 300
TOKENIZERS = {"ModernBert": "Roberta", "EuroBert": "Roberta", "Gte": "XLMRoberta"}
SURPLUS = {"ModernBert": 0, "EuroBert": 0, "Gte": 46}


def run(*arguments):
    """Runs `xlj.convert` in this process."""
    assert convert.main(arguments) == 0


def saved(name, path, vocabulary, width=2.4, head="ForMaskedLM", names="native", **changes):
    """A folder that transformers wrote of a random model, that model, and its vocabulary."""
    kind = name.partition("-")[0]
    mine = folder_with_tokenizer(TOKENIZERS[kind], path, vocabulary)
    rows = mine.size + SURPLUS[kind]
    changes = {"vocab_size": rows, "max_position_embeddings": LENGTH} | changes
    model = their_model(name, width, head, **changes)
    model.save_pretrained(path, save_original_format=names != "native")
    if names == "new, fused":
        file = path / "model.safetensors"
        tensors = {n.replace("gte.", "new."): tensor for n, tensor in load_file(file).items()}
        save_file(tensors, file, {"format": "pt"})
        of_hub = {
            "model_type": "new",
            "architectures": [f"New{head}"],
            "rope_theta": 20000.0,
            "rope_scaling": {"type": "ntk", "factor": 8.0},  # what `Gte-large` comes to
            "position_embedding_type": "rope",
        }
        rewrite(path, **of_hub, rope_parameters=None)
    return mine, model


def rewrite(folder, **changes):
    """Changes keys of a config.json; None takes a key away."""
    config = json.loads((folder / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))


def loaded(path, mesh=None):
    mesh = mesh or meshes.one_device()
    found = importing.inspect(path)
    return found, importing.load(found, lambda tree: trees.shardings(tree, mesh))


def packed(vocabulary):
    """Tokens of ours [rows, length], their places, and each example as (row, where, native ids)."""
    places = of_lengths(PACKED, LENGTH)
    ids = np.random.default_rng(0).integers(4, vocabulary.size - 1, places[0].shape)
    tokens = np.where(places[0], ids, 1)
    where = [(row, places[0][row] == n) for row, some in enumerate(PACKED) for n in
             range(1, len(some) + 1)]  # fmt: skip
    return tokens, places, where, [vocabulary.native_ids[tokens[row, at]] for row, at in where]


def split(every, logits, where):
    return [(every[:, row, at], logits[row, at]) for row, at in where]


@functools.partial(jax.jit, static_argnames="model")
def computed(params, inputs, model):
    every = encoder.apply(params, model, inputs, all_layers=True)
    vectors, table, bias = heads.predict(
        params["prediction_head"], params["embeddings"]["word"], model, every[-1]
    )
    return every, jnp.einsum("rlh,vh->rlv", vectors, table, precision="highest") + bias


def wanted(model, vocabulary, examples):
    """What transformers computes of examples, in float64; logits by the ids of ours."""
    with in_float64():
        exact = type(model)(model.config).double().eval()
        exact.load_state_dict(model.state_dict())
        found = theirs(exact, examples)
    return [(states, logits[:, vocabulary.native_ids]) for states, logits in found]


SIZES = [
    pytest.param(name, marks=() if name.endswith("small") else pytest.mark.slow) for name in MODELS
]


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("name", MODELS)
def test_the_reference_computes_of_a_folder_what_transformers_does(name, tmp_path, vocabulary):
    mine, model = saved(name, tmp_path / "theirs", vocabulary)
    found, params = loaded(tmp_path / "theirs")
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    tokens, places, where, examples = packed(mine)
    every = encode(params, found.model, tokens, places=places)
    word = params["embeddings"]["word"]
    logits = prediction(params["prediction_head"], word, found.model, every[-1])
    assert_close(split(every, logits, where), wanted(model, mine, examples), 1e-10)


@pytest.mark.parity
@pytest.mark.parametrize("name", SIZES)
def test_xlj_computes_of_a_folder_what_transformers_does(name, tmp_path, vocabulary):
    """Narrower weights, since wide ones amplify float32's rounding to 1e-2 in gte."""
    mine, model = saved(name, tmp_path / "theirs", vocabulary, width=1.0)
    found, params = loaded(tmp_path / "theirs")
    tokens, places, where, examples = packed(mine)
    segment, position, ids = (
        jnp.asarray(array.astype(np.int32)) for array in (places[0], places[2], tokens)
    )
    inputs = encoder.Inputs(ids, position, segment, segment)
    every, logits = map(np.asarray, computed(params, inputs, found.model))
    assert_close(split(every, logits, where), wanted(model, mine, examples), 1e-5)


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, names, way",
    [
        ("ModernBert-large", "native", "checkpoint"),
        ("EuroBert-medium", "native", "checkpoint"),
        ("Gte-medium", "native", "checkpoint"),
        ("Gte-small", "gte, fused", "folder"),
        ("Gte-large", "new, fused", "checkpoint"),
    ],
)
def test_a_folder_comes_back_bit_for_bit(name, names, way, tmp_path, vocabulary):
    import torch
    import transformers

    path, out = tmp_path / "theirs", tmp_path / "again"
    mine, model = saved(name, path, vocabulary, names=names)
    if way == "checkpoint":
        run("import", f"--source={path}", f"--output={tmp_path}/ours")
        run("export", f"--checkpoint={tmp_path}/ours", f"--output={out}", "--pooling=mean")
    else:
        run("export", f"--checkpoint={path}", f"--output={out}")
    before, after = (load_file(p / "model.safetensors") for p in (path, out))
    assert before.keys() == after.keys()
    for tensor in before:
        assert before[tensor].tobytes() == after[tensor].tobytes(), tensor
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor(mine.native_ids[np.arange(3, 203).reshape(2, 100)])
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, model(ids).logits)
    config = json.loads((path / "config.json").read_text())
    if names != "new, fused":
        written = json.loads((out / "config.json").read_text())
        differ = {key for key in written if key in config and written[key] != config[key]}
        assert differ <= {
            f"{name}_token_id" for name in ("bos", "eos", "pad", "cls", "sep", "mask")
        }
