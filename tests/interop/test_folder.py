"""Damaged Hugging Face folders and files that could run code are errors that name the file."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from xlj.config import ConfigError
from xlj.interop.folder import is_folder, open_folder

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.float16([1.5, -2.0])


@pytest.fixture
def single(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    save_file({"a": A, "b": B}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": A}, tmp_path / "model-1.safetensors")
    save_file({"b": B}, tmp_path / "model-2.safetensors")
    index(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    return tmp_path


def index(path, weight_map):
    text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (path / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize("name", ["a" * 5000, "a-1e" + "i" * 5000])
def test_errors_about_long_names_are_short(sharded, name):
    index(sharded, {name: "model-1.safetensors", "b": "model-2.safetensors"})
    with pytest.raises(
        ConfigError, match="index.json: the tensor a.* is not in model-1.safet"
    ) as error:
        open_folder(sharded)
    assert len(str(error.value)) < 1000
    index(sharded, {"a": name, "b": "model-2.safetensors"})
    with pytest.raises(
        ConfigError, match="index.json: weight_map names 'a.*expected the name of a file in"
    ) as error:
        open_folder(sharded)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("kind", ["single", "sharded"])
def test_tensors_are_read_whole_or_in_part_as_float32(kind, request):
    folder = open_folder(request.getfixturevalue(kind))
    assert folder.shapes == {"a": (3, 4), "b": (2,)}
    np.testing.assert_array_equal(folder.read("a"), A)
    np.testing.assert_array_equal(folder.read("a", (slice(1, 3), slice(0, 2))), A[1:3, :2])
    assert folder.read("b").dtype == np.float32
    np.testing.assert_array_equal(folder.read("b"), B.astype(np.float32))


def test_a_digest_depends_on_the_content_not_on_the_path(sharded, tmp_path_factory):
    copy = tmp_path_factory.mktemp("moved") / "folder"
    shutil.copytree(sharded, copy)
    assert open_folder(copy).digest() == open_folder(sharded).digest()
    save_file({"b": B + 1}, copy / "model-2.safetensors")
    assert open_folder(copy).digest() != open_folder(sharded).digest()


def test_a_missing_shard_is_named(sharded):
    (sharded / "model-2.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model-2\.safetensors is missing"):
        open_folder(sharded)


@pytest.mark.parametrize("size", [0, 5, 30, -4])
def test_a_truncated_file_is_named(single, size):
    file = single / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged"):
        open_folder(single)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**40, 2**40]},
        {"shape": "3" * 10_000},
        {"shape": [-1, 4]},
        {"data_offsets": [0, 2**40]},
        {"data_offsets": [4, 0]},
        {"data_offsets": [0, 8]},
        {"data_offsets": [8, 52]},  # overlapping
        {"dtype": "F99"},
    ],
)
def test_an_impossible_header_gives_a_short_error(single, change):
    file = single / "model.safetensors"
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header["a"] |= change
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged") as caught:
        open_folder(single)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("length", [0, 1, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_an_impossible_header_length_is_an_error(single, length):
    file = single / "model.safetensors"
    file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged"):
        open_folder(single)


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/x.safetensors", "", "a/b.safetensors", "x" * 300]
)
def test_a_shard_outside_the_folder_is_refused(sharded, shard):
    save_file({"b": B}, sharded.parent / "x.safetensors")
    index(sharded, {"a": "model-1.safetensors", "b": shard})
    with pytest.raises(ConfigError, match="expected the name of a file in this folder"):
        open_folder(sharded)


def test_weights_that_link_out_of_the_folder_are_refused(single, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "model.safetensors"
    (single / "model.safetensors").rename(elsewhere)
    (single / "model.safetensors").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="is a link to .*, outside the folder"):
        open_folder(single)


def test_an_index_that_links_out_of_the_folder_is_refused(sharded, tmp_path_factory):
    name = "model.safetensors.index.json"
    elsewhere = tmp_path_factory.mktemp("elsewhere") / name
    (sharded / name).rename(elsewhere)
    (sharded / name).symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="is a link to .*, outside the folder"):
        open_folder(sharded)


def test_a_wrong_index_is_refused(sharded):
    index(sharded, {"a": "model-1.safetensors", "b": "model-1.safetensors"})
    with pytest.raises(ConfigError, match=r"b is not in model-1\.safetensors"):
        open_folder(sharded)
    index(sharded, {})
    with pytest.raises(ConfigError, match="expected weight_map"):
        open_folder(sharded)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model_state.pdparams", "weights.pt"])
def test_pickles_are_refused_with_a_remedy(single, name):
    (single / "model.safetensors").rename(single / name)
    remedy = "python -c" if name.endswith(".bin") else "with the library that wrote them"
    with pytest.raises(ConfigError, match=f"can run any code.*{remedy}"):
        open_folder(single)


def test_training_arguments_are_not_weights(single):
    (single / "training_args.bin").write_bytes(b"")
    open_folder(single)
    (single / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="expected weights in model.safetensors"):
        open_folder(single)


@pytest.mark.parity
def test_the_suggested_command_converts_pickles(single):
    torch = pytest.importorskip("torch")
    tensors = load_file(single / "model.safetensors")
    halves = dict(list(tensors.items())[:1]), dict(list(tensors.items())[1:])
    (single / "model.safetensors").unlink()
    for number, half in enumerate(halves):
        file = single / f"pytorch_model-{number}.bin"
        torch.save({name: torch.tensor(value) for name, value in half.items()}, file)
    (single / "training_args.bin").write_bytes(b"no weights")
    with pytest.raises(ConfigError) as caught:
        open_folder(single)
    line = str(caught.value).partition('python -c "')[2].rstrip('"')
    subprocess.run([sys.executable, "-c", line], cwd=single, check=True)
    again = load_file(single / "model.safetensors")
    assert again.keys() == tensors.keys()
    assert all((again[name] == tensors[name]).all() for name in tensors)
    open_folder(single)


def test_a_folder_without_weights_or_with_unsupported_types_is_refused(single):
    save_file({"a": np.zeros(3, np.int8)}, single / "model.safetensors")
    with pytest.raises(ConfigError, match="a has type I8"):
        open_folder(single)
    (single / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"expected weights in model\.safetensors, or in shards"):
        open_folder(single)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": ', "[" * 100_000])
def test_a_damaged_config_is_named(single, text):
    (single / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        open_folder(single)


def test_a_workdir_is_not_a_hugging_face_folder(single):
    assert is_folder(single)
    (single / "checkpoints").mkdir()
    assert not is_folder(single)
