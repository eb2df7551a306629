"""The import reads every tensor bit for bit, or reports it, on any mesh."""

import dataclasses
import json
import weakref

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from xlj.config import ConfigError
from xlj.interop import from_hugging_face, to_hugging_face
from xlj.io import atomic
from xlj.sharding import meshes, trees
from xlj.sharding.trees import named_leaves


def import_folder(path, mesh=None):
    mesh = mesh or meshes.one_device()
    imported = from_hugging_face.inspect(path)
    return imported, from_hugging_face.load(imported, lambda tree: trees.shardings(tree, mesh))


def assert_equal(actual, expected):
    actual, expected = named_leaves(actual), named_leaves(expected)
    assert actual.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


def change_tensors(folder, change):
    """Rewrites the folder's tensors with `change`."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    return folder


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("token_types", [0, 1, 2])
def test_import_of_an_export_gives_the_same_parameters(folder_of, model, token_types, head):
    model = dataclasses.replace(model, token_types=token_types)
    folder, params = folder_of(model, head)
    imported, imported_params = import_folder(folder)
    assert imported.model == model
    assert bool(imported.missing) == (not head)
    assert ("prediction_head" in imported.report()) == (not head)
    assert_equal(imported_params, params)


def test_export_of_an_import_writes_the_same_files(folder_of, vocabulary, model, tmp_path):
    folder, _ = folder_of(dataclasses.replace(model, token_types=2))
    imported, params = import_folder(folder)
    exported = to_hugging_face.plan(named_leaves(params), imported.model, vocabulary, False)
    with atomic.new_folder(tmp_path / "again") as again:
        to_hugging_face.write(again, exported, named_leaves(params), imported.model, vocabulary)
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes()


def test_each_device_reads_its_part(folder_of, model):
    folder, params = folder_of(dataclasses.replace(model, token_types=1))
    mesh = jax.make_mesh((2, 4), ("replica", "fsdp"), (jax.sharding.AxisType.Auto,) * 2)
    _, imported_params = import_folder(folder, mesh)
    kernel = imported_params["layers"]["feed_forward"]["inner"]["kernel"]
    assert kernel.addressable_shards[0].data.shape == (3, 8, 48)
    assert_equal(imported_params, params)


def test_shards_are_read_like_one_file(folder_of, monkeypatch):
    monkeypatch.setattr(to_hugging_face, "_SHARD_BYTES", 20_000)
    folder, params = folder_of()
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    assert not (folder / "model.safetensors").exists()
    assert_equal(import_folder(folder)[1], params)


@pytest.mark.parametrize("pad, rows", [(0, 43), (1, 42), (3, 40)])
def test_positions_start_after_the_row_of_pad(folder_of, pad, rows):
    folder, params = folder_of()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": pad}))
    imported, imported_params = import_folder(folder)
    assert imported.model.positions == rows
    positions = params["embeddings"]["position"]
    np.testing.assert_array_equal(
        imported_params["embeddings"]["position"][2:], positions[pad + 1 :]
    )


def test_one_parameter_at_a_time_is_in_memory(vocabulary, model, params_of, tmp_path, monkeypatch):
    references = []

    class OnDisk:
        def __init__(self, array):
            self.array, self.shape = array, array.shape

        def __array__(self, dtype=None, copy=None):
            assert all(reference() is None for reference in references)
            loaded_array = self.array.copy()
            references.append(weakref.ref(loaded_array))
            return loaded_array

    params = params_of(model, vocabulary.size)
    leaves = {name: OnDisk(leaf) for name, leaf in named_leaves(params).items()}
    exported = to_hugging_face.plan(leaves, model, vocabulary, headless=False)
    to_hugging_face.write(tmp_path, exported, leaves, model, vocabulary)
    assert len(references) == len(leaves)
    monkeypatch.setattr(from_hugging_face, "_CHUNK", 1000)  # 31 rows of word embeddings at a time
    assert_equal(import_folder(tmp_path)[1], params)


def test_word_embeddings_are_written_in_blocks(folder_of, monkeypatch):
    monkeypatch.setattr(to_hugging_face, "_BLOCK", 1000)
    folder, params = folder_of()
    assert_equal(import_folder(folder)[1], params)


def test_lower_precision_is_read_as_float32(folder_of, model):
    folder, params = folder_of()
    half = change_tensors(
        folder, lambda t: t.update({n: v.astype(np.float16) for n, v in t.items()})
    )
    rounded = jax.tree.map(lambda x: np.asarray(x).astype(np.float16).astype(np.float32), params)
    assert_equal(import_folder(half)[1], rounded)


def test_old_names_of_norms_are_read_and_task_heads_and_poolers_are_ignored(folder_of):
    folder, params = folder_of()

    def change(tensors):
        prefix = "roberta.embeddings.LayerNorm"
        tensors[f"{prefix}.gamma"] = tensors.pop(f"{prefix}.weight")
        tensors[f"{prefix}.beta"] = tensors.pop(f"{prefix}.bias")
        tensors["roberta.pooler.dense.weight"] = np.zeros((32, 32), np.float32)
        tensors["roberta.embeddings.position_ids"] = np.arange(42)[None]
        tensors["classifier.dense.bias"] = np.zeros(3, np.float32)
        tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"]
        tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"]

    imported, imported_params = import_folder(change_tensors(folder, change))
    assert_equal(imported_params, params)
    assert set(imported.ignored) == {
        "roberta.pooler.dense.weight",
        "roberta.embeddings.position_ids",
        "roberta.embeddings.token_type_embeddings.weight",
        "classifier.dense.bias",
        "lm_head.decoder.bias",
        "lm_head.decoder.weight",
    }
    assert all(imported.ignored.values())


LAYER = "roberta.encoder.layer.1"


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda t: t.pop(f"{LAYER}.output.dense.bias"),
            rf"{LAYER}\.output\.dense\.bias is missing",
        ),
        (lambda t: t.pop("lm_head.bias"), r"lm_head.bias is missing, but lm_head.dense.weight of"),
        (
            lambda t: t.update(extra=np.zeros(2, np.float32)),
            "1 tensors are unknown in an encoder.*: extra",
        ),
        (
            lambda t: t.update({f"{LAYER[:-1]}3.output.dense.bias": np.zeros(32, np.float32)}),
            r"are unknown in an encoder with 3 layers: roberta\.encoder\.layer\.3",
        ),
        (
            lambda t: t.update({f"{LAYER}.output.dense.weight": np.zeros((48, 32), np.float32)}),
            r"has shape \[48, 32\]; .* \[32, 48\]",
        ),
        (
            lambda t: t.update({f"{LAYER}.output.dense.bias": np.zeros(32, np.int64)}),
            r"layer\.1\.output\.dense\.bias has type int64",
        ),
        (
            lambda t: t.update({"lm_head.decoder.bias": t["lm_head.bias"] + 1}),
            r"lm_head\.decoder\.bias differs from lm_head\.bias",
        ),
        (
            lambda t: t["roberta.encoder.layer.2.output.dense.bias"].fill(np.nan),
            r"layer\.2\.output\.dense\.bias has values that are not finite",
        ),
        (
            lambda t: t.update({"roberta.embeddings.LayerNorm.gamma": np.ones(32, np.float32)}),
            r"LayerNorm\.(gamma|weight) also exists under its newer name",
        ),
    ],
)
def test_missing_and_wrong_tensors_are_named(folder_of, change, message):
    folder, _ = folder_of()
    with pytest.raises(ConfigError, match=message):
        import_folder(change_tensors(folder, change))


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("model_type", ["bert"], r"model_type is \['bert'\]; xlj supports"),
        ("pad_token_id", None, "pad_token_id is None"),
        ("model_type", "gpt2", "model_type is 'gpt2'; xlj supports xlm-roberta, "),
        ("hidden_act", "relu", "hidden_act is 'relu'"),
        ("vocab_size", 399, "vocab_size is 399, but the tokenizer of .* has 400 ids"),
        ("num_hidden_layers", 2, "are unknown in an encoder with 2 layers"),
        ("num_hidden_layers", 2**31 - 1, r"is 2147483647, but the folder has \d+ tensors only"),
        ("hidden_size", "32", "model.hidden is '32'"),
        ("hidden_size", 2**63, "hidden_size is 9223372036854775808; expected at most"),
        ("hidden_size", "3" * 10_000, r"model.hidden is '3{200,300} \.\.\.$"),
        ("hidden_size", float("inf"), "config.json: its JSON contains 'Infinity'"),
        ("architectures", 7, "architectures is 7; expected a list of class names"),
        ("num_attention_heads", 5, "num_attention_heads"),
        ("max_position_embeddings", None, "max_position_embeddings is None; expected an integer"),
    ],
)
def test_invalid_config_values_are_named(folder_of, key, value, message):
    folder, _ = folder_of()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(ConfigError, match=message):
        import_folder(folder)
