"""Folders of ModernBERT, EuroBERT and gte are read exactly and written back unchanged."""

import dataclasses
import functools
import json
import weakref

import jax
import jax.numpy as jnp
import modern_models
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
from xlj.checkpoints import stored_models
from xlj.config import ConfigError, Model, families
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import exporting, importing
from xlj.io import atomic
from xlj.models import encoder, heads
from xlj.objectives import supervised
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
    """A folder that transformers wrote for a random model, the model, and its vocabulary."""
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
            "rope_scaling": {"type": "ntk", "factor": 8.0},  # equivalent to `Gte-large`
            "position_embedding_type": "rope",
        }
        rewrite(path, **of_hub, rope_parameters=None)
    return mine, model


def rewrite(folder, **changes):
    """Changes keys of a config.json; None removes a key."""
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
    """Computes examples with transformers in float64; logits are ordered by xlj's ids."""
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
def test_the_reference_equals_transformers_on_a_folder(name, tmp_path, vocabulary):
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
def test_xlj_equals_transformers_on_a_folder(name, tmp_path, vocabulary):
    """Small weights, because large ones amplify float32's rounding to 1e-2 in gte."""
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
    "name, names",
    [(name, "native") for name in MODELS]
    + [("Gte-large", "gte, fused"), ("Gte-large", "new, fused")],
)
def test_parameters_are_those_of_transformers_model(name, names, tmp_path, vocabulary):
    """Against the mapping of the references' tests, whose results equal transformers'."""
    mine, model = saved(name, tmp_path / "theirs", vocabulary, names=names)
    state = {part: tensor.numpy() for part, tensor in model.state_dict().items()}
    wanted, wanted["prediction_head"] = modern_models.named(name, state)
    leaves = trees.named_leaves(wanted)
    for leaf in ("embeddings/word", "prediction_head/bias", "prediction_head/word"):
        if leaf in leaves:
            leaves[leaf] = leaves[leaf][mine.native_ids]
    found, params = loaded(tmp_path / "theirs")
    assert bool(params.pop("surplus", None)) == (mine.size < model.config.vocab_size)
    assert_leaves(params, leaves)
    options = {field: getattr(found.model, field) for field in MODELS[name]}
    unlike = {field for field in options if options[field] != MODELS[name][field]}
    assert unlike <= {"dropout", "dropout_parts", "attention_dropout", "biases"}


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
def test_a_folder_is_written_back_bit_for_bit(name, names, way, tmp_path, vocabulary):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
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


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, head, kind, names",
    [
        ("Gte-large", "ForSequenceClassification", "classification", "new, fused"),
        ("Gte-small", "ForTokenClassification", "tagging", "native"),
        ("EuroBert-small", "ForTokenClassification", "tagging", "native"),
    ],
)
def test_task_heads_are_imported_and_exported(name, head, kind, names, tmp_path, vocabulary):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, labels = tmp_path / "theirs", {0: "no", 1: "perhaps", 2: "yes"}
    mine, model = saved(name, path, vocabulary, 1.0, head, names, id2label=labels)
    source = stored_models.find(path)
    assert source.labels == ("no", "perhaps", "yes")
    params = source.params(meshes.one_device())
    tokens = np.arange(4, 64, dtype=np.int32).reshape(2, 30)
    tokens[:, 0] = 0
    logits = supervised.logits(
        kind, params, source.model, jnp.asarray(tokens), jnp.zeros((2, 2), jnp.int32)
    )
    ids = torch.tensor(mine.native_ids[tokens])
    with torch.no_grad():
        wanted = model(ids).logits
    np.testing.assert_allclose(logits, wanted.numpy(), atol=1e-5, rtol=0)
    run("export", f"--checkpoint={path}", f"--output={tmp_path}/again")
    again, report = getattr(transformers, f"AutoModel{head}").from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.config.id2label == labels
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, wanted)


MODERN = {
    "modernbert": {
        **families.options_of("modernbert"), "rotary_local_base": 100.0, "local_attention": 8,
    },
    "eurobert": {**families.options_of("eurobert"), "key_value_heads": 2},
    "untied": {**families.options_of("modernbert"), "tied": False, "local_attention": 8},
    "gte": families.options_of("gte"),
}  # fmt: skip
WRITTEN = [(kind, "") for kind in MODERN] + [("gte", "gte, fused"), ("gte", "new, fused")]


@pytest.fixture
def written(tmp_path, vocabulary, params_of):
    """(options, set of names, surplus rows) -> a folder that xlj wrote, its model, its leaves."""

    def make(kind, names="", surplus=0):
        model = Model(layers=3, hidden=32, heads=4, intermediate=24, positions=42, **MODERN[kind])
        leaves = trees.named_leaves(params_of(model, vocabulary.size))
        rng = np.random.default_rng(3)
        for name in [name for name in leaves if name.split("/")[-1] in ("word", "bias")]:
            leaf = leaves[name]
            if surplus and len(leaf) == vocabulary.size:
                rows = rng.normal(size=(surplus, *leaf.shape[1:])).astype(np.float32)
                leaves[f"surplus/{name}"] = rows
        plan = exporting.plan(leaves, model, vocabulary, False, names=names)
        with atomic.new_folder(tmp_path / "written") as folder:
            exporting.write(folder, plan, leaves, model, vocabulary)
        return tmp_path / "written", model, leaves

    return make


def assert_leaves(params, leaves):
    found = trees.named_leaves(params)
    assert found.keys() == leaves.keys()
    for name in leaves:
        np.testing.assert_array_equal(found[name], leaves[name], err_msg=name)


@pytest.mark.parametrize("kind, names", WRITTEN)
def test_import_of_export_is_the_same_on_any_mesh(kind, names, written, monkeypatch):
    monkeypatch.setattr(exporting, "_SHARD_BYTES", 20_000)
    folder, model, leaves = written(kind, names)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    found, params = loaded(folder)
    assert found.model == dataclasses.replace(
        model, dropout=found.model.dropout, dropout_parts=found.model.dropout_parts
    )
    assert found.architecture.names == names and not found.ignored
    assert_leaves(params, leaves)
    mesh = jax.make_mesh((2, 4), ("replica", "fsdp"), (jax.sharding.AxisType.Auto,) * 2)
    assert_leaves(loaded(folder, mesh)[1], leaves)

    def outputs(leaf):  # shares of outputs are read by parts, too
        axes = [None] * (leaf.ndim - 1) + ["fsdp" if leaf.shape[-1] % 4 == 0 else None]
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))

    params = importing.load(found, lambda tree: jax.tree.map(outputs, tree))
    inner = params["layers"]["feed_forward"]["inner"]["kernel"]
    assert inner.addressable_shards[0].data.shape == (3, 32, 12)
    assert_leaves(params, leaves)


@pytest.mark.parametrize("names", ["", "new, fused"])
def test_one_parameter_at_a_time_is_in_memory(names, written, tmp_path, vocabulary):
    _, model, leaves = written("gte", names)
    taken = []

    class OnDisk:
        def __init__(self, array):
            self.array, self.shape = array, array.shape

        def __array__(self, dtype=None, copy=None):
            assert all(one() is None for one in taken)
            made = self.array.copy()
            taken.append(weakref.ref(made))
            return made

    on_disk = {name: OnDisk(leaf) for name, leaf in leaves.items()}
    plan = exporting.plan(on_disk, model, vocabulary, False, names=names)
    exporting.write(tmp_path, plan, on_disk, model, vocabulary)
    assert len(taken) == len(leaves)
    assert (tmp_path / "model.safetensors").read_bytes() == (
        tmp_path / "written/model.safetensors"
    ).read_bytes()


def test_lower_precision_is_read_as_float32(written):
    """bfloat16, as EuroBERT is released."""
    folder, _, leaves = written("eurobert")
    bfloat16 = jnp.dtype("bfloat16")
    file = folder / "model.safetensors"
    save_file({name: leaf.astype(bfloat16) for name, leaf in load_file(file).items()}, file)
    rounded = {name: leaf.astype(bfloat16).astype(np.float32) for name, leaf in leaves.items()}
    assert_leaves(loaded(folder)[1], rounded)


@pytest.mark.parametrize("kind, names", WRITTEN)
def test_a_tensor_of_another_shape_is_named(kind, names, written):
    folder, _, _ = written(kind, names)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = next(n for n in tensors if "qkv" in n or "Wqkv" in n or "up_proj" in n)
    save_file(tensors | {name: np.concatenate([tensors[name]] * 2)}, file)
    with pytest.raises(ConfigError, match=f"{name} has shape .*imply"):
        importing.inspect(folder)


@pytest.mark.parametrize("kind", ["gte", "untied", "xlm_r"])
def test_surplus_rows_are_restored_unless_the_model_was_trained(
    kind, written, tmp_path, vocabulary, monkeypatch, capsys
):
    monkeypatch.setitem(MODERN, "xlm_r", {"norm": "pre"})  # XLM-R XL, of 250,880 rows
    monkeypatch.setattr(importing, "_CHUNK", 1000)
    monkeypatch.setattr(exporting, "_BLOCK", 1000)
    folder, _, leaves = written(kind, surplus=46)
    found, params = loaded(folder)
    assert len(params["embeddings"]["word"]) == vocabulary.size
    assert "46 embedding rows have no id in the tokenizer" in found.report()
    assert_leaves(params, leaves)
    run("import", f"--source={folder}", f"--output={tmp_path}/ours")
    run("export", f"--checkpoint={tmp_path}/ours", f"--output={tmp_path}/again")
    assert "446 (46 more than the tokenizer has ids)" in capsys.readouterr().out
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes()

    trained = {name: leaf for name, leaf in leaves.items() if not name.startswith("surplus/")}
    plan = exporting.plan(trained, found.model, vocabulary, False)
    exporting.write(tmp_path, plan, trained, found.model, vocabulary)
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == vocabulary.size
    assert_leaves(loaded(tmp_path)[1], trained)


@pytest.mark.parametrize(
    "kind, names", [("modernbert", ""), ("eurobert", ""), ("gte", "new, fused")]
)
def test_a_folder_without_a_head_is_written_back_without_one(kind, names, written, tmp_path):
    folder, _, _ = written(kind, names, surplus=46)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    prefix = next(name for name in tensors if "embed" in name).partition(".")[0] + "."
    bare = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    assert len(bare) < len(tensors)
    save_file(bare, file)
    run("import", f"--source={folder}", f"--output={tmp_path}/ours")
    for number, source in enumerate([folder, tmp_path / "ours"]):
        run("export", f"--checkpoint={source}", f"--output={tmp_path}/{number}")
        again = load_file(tmp_path / f"{number}/model.safetensors")
        assert again.keys() == bare.keys()
        assert all(again[name].tobytes() == bare[name].tobytes() for name in bare)


def test_a_tied_head_without_a_bias_is_refused(written):
    folder, _, _ = written("eurobert")
    rewrite(folder, tie_word_embeddings=True)
    with pytest.raises(ConfigError, match=r"config\.json: tie_word_embeddings is true and the"):
        importing.inspect(folder)


@pytest.mark.parametrize("rows", [399, True, None, 10**9])
def test_an_impossible_number_of_rows_is_named(rows, written):
    folder, _, _ = written("gte")
    rewrite(folder, vocab_size=rows)
    with pytest.raises(ConfigError, match=f"vocab_size is {rows}, "):
        importing.inspect(folder)


def test_ids_without_a_row_in_the_folder_have_zeros_and_are_not_written(
    written, tmp_path, vocabulary
):
    """An internal row of a special token that the model lacks (-1 among `native_ids`)."""
    folder, model, leaves = written("eurobert", surplus=5)
    lacking = Vocabulary(vocabulary.model)
    lacking.native_ids = np.concatenate([[0, -1, 1, -1], np.arange(2, 398)]).astype(np.int32)
    lacking.native_special_ids = (0, None, 1, None, 397)
    found = dataclasses.replace(importing.inspect(folder), vocabulary=lacking)
    params = importing.load(found, lambda tree: trees.shardings(tree, meshes.one_device()))
    for name in ("embeddings/word", "prediction_head/word"):
        wanted = leaves[name][lacking.native_ids]
        wanted[[1, 3]] = 0
        np.testing.assert_array_equal(trees.named_leaves(params)[name], wanted)
    trained = {name: leaf for name, leaf in leaves.items() if not name.startswith("surplus/")}
    plan = exporting.plan(trained, model, lacking, False)
    exporting.write(tmp_path, plan, trained, model, lacking)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["vocab_size"], config["pad_token_id"], config["eos_token_id"]) == (398, 1, 1)
    table = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    np.testing.assert_array_equal(table, leaves["prediction_head/word"][[0, 2, *range(4, 400)]])


def test_a_task_head_is_not_read_as_the_head_for_masked_tokens(written):
    """ModernBERT's task heads share tensors with the head for masked tokens."""
    folder, _, leaves = written("modernbert")
    rewrite(folder, architectures=["ModernBertForSequenceClassification"])
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("decoder.bias")
    save_file(tensors | {"classifier.bias": np.zeros(3, np.float32)}, file)
    found, params = loaded(folder)
    assert found.missing == ("prediction_head/dense/kernel", "prediction_head/norm/scale",
                             "prediction_head/bias")  # fmt: skip
    assert found.ignored["head.dense.weight"] == "part of a task head that xlj does not support"
    assert_leaves(params, {n: leaf for n, leaf in leaves.items() if "prediction" not in n})
