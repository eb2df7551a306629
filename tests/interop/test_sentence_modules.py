"""Folders of sentence-transformers: the same vectors as the library, errors, and export."""

import inspect
import json
import shutil

import numpy as np
import pytest
from odd_folders import LINES, NAMES, as_release_5, sentence_folder
from safetensors.numpy import load_file

from xlj import load
from xlj.checkpoints import stored_models
from xlj.config import ConfigError
from xlj.conversion.exporting import export
from xlj.conversion.importing import import_folder

pytestmark = pytest.mark.parity
SENTENCES = LINES[:9]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    root = tmp_path_factory.mktemp("sentence")
    return {name: sentence_folder(name, root / name) for name in NAMES}


@pytest.fixture
def folder(folders, tmp_path):
    """A copy of the folder that is like LaBSE's; tests change it."""
    return shutil.copytree(folders["labse"], tmp_path / "labse")


def library_vectors(path, prompt=None):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu")
    return model.encode(SENTENCES, prompt_name=prompt, show_progress_bar=False)


@pytest.mark.filterwarnings("ignore:sentences truncated")
@pytest.mark.parametrize(
    "name, prompt",
    [
        *((name, None) for name in NAMES if name != "weighted"),
        ("e5", "query"),
        ("instructor", "query"),
    ],
)
def test_vectors_equal_those_of_sentence_transformers(name, prompt, folders, tmp_path):
    path = folders[name]
    expected = library_vectors(path, prompt)
    vectors = load(path).embed(SENTENCES, prompt=prompt)
    assert vectors.shape == expected.shape
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    if name != "pooler":  # release 5 cannot express it
        old = as_release_5(shutil.copytree(path, tmp_path / "old"), name == "instructor")
        np.testing.assert_allclose(
            load(old).embed(SENTENCES, prompt=prompt), library_vectors(old, prompt), atol=1e-5
        )


@pytest.mark.filterwarnings("ignore:sentences truncated")
@pytest.mark.parametrize("name", ["labse", "pooler", "instructor"])
def test_imported_checkpoints_and_exports_have_the_modules(name, folders, tmp_path):
    path = folders[name]
    import_folder(path, tmp_path / "checkpoint")
    np.testing.assert_array_equal(
        load(tmp_path / "checkpoint").embed(SENTENCES), load(path).embed(SENTENCES)
    )
    export(str(tmp_path / "checkpoint"), tmp_path / "again", None, "")
    np.testing.assert_allclose(
        library_vectors(tmp_path / "again"), library_vectors(path), atol=1e-5
    )
    for file in path.glob("*_Dense/model.safetensors"):
        again, first = load_file(tmp_path / "again" / file.relative_to(path)), load_file(file)
        assert again.keys() == first.keys()
        assert all((again[name] == first[name]).all() for name in first)
    options_file = "config_sentence_transformers.json"
    assert json.loads((tmp_path / "again" / options_file).read_text()) == json.loads(
        (path / options_file).read_text()
    )


@pytest.mark.filterwarnings("ignore:sentences truncated")
@pytest.mark.parametrize("name", ["e5", "instructor"])
def test_encode_takes_each_parameter_of_the_library(name, folders, tmp_path):
    from sentence_transformers import SentenceTransformer

    path = shutil.copytree(folders[name], tmp_path / name)
    change(path, "config_sentence_transformers.json", truncate_dim=21)
    library, model = SentenceTransformer(str(path), device="cpu"), load(path)
    parameters = inspect.signature(library.encode).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert {"convert_to_tensor", "precision", "device", "prompt_name"} <= defaults.keys()
    for options in (
        defaults,
        {"prompt_name": "query"},
        {"prompt": "a book ", "prompt_name": "query"},
        {"prompt": "", "normalize_embeddings": True},
        {"prompt": "a book ", "truncate_dim": 7, "normalize_embeddings": True},
        {"truncate_dim": 30},
    ):
        expected = library.encode(SENTENCES, **options)
        np.testing.assert_allclose(model.encode(inputs=SENTENCES, **options), expected, atol=1e-5)
    assert model.encode("a").shape == library.encode("a").shape == (21,)
    np.testing.assert_allclose(model.embed(SENTENCES), library.encode(SENTENCES), atol=1e-5)


def test_embed_with_a_layer_or_pooling_ignores_the_modules(folders):
    model = load(folders["labse"])
    hidden = model.embed(SENTENCES, layer=2, pooling="first")
    dense = load_file(folders["labse"] / "2_Dense" / "model.safetensors")
    expected = np.tanh(hidden @ dense["linear.weight"].T + dense["linear.bias"])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(SENTENCES), expected, atol=1e-5)
    pairs = [(SENTENCES[k], SENTENCES[k + 1]) for k in range(4)]
    np.testing.assert_allclose(model.score(pairs), (expected[:4] * expected[1:5]).sum(1), atol=1e-5)
    with pytest.raises(
        ConfigError, match="unknown prompt 'code'; expected a prompt of the model .document, query"
    ):
        model.embed(SENTENCES, prompt="code")


def test_the_digest_depends_on_the_modules(folder, folders):
    before = stored_models.find(folder).digest()
    assert before == stored_models.find(folders["labse"]).digest()
    change(folder, "2_Dense/config.json", activation_function="torch.nn.modules.linear.Identity")
    assert stored_models.find(folder).digest() != before


def change(folder, name, **keys):
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


@pytest.mark.parametrize(
    "name, keys, message",
    [
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"},
         "the pooling mode is 'weightedmean'"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "expected each mode once, in"),
        ("1_Pooling/config.json", {"embedding_dimension": 31},
         "the encoder's hidden vectors have 32"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.CELU"}, "activation_function"),
        ("2_Dense/config.json", {"activation_function": "own.Tanh"}, "activation_function"),
        ("2_Dense/config.json", {"in_features": 64}, "in_features is 64, .* has 32 outputs"),
        ("2_Dense/config.json", {"out_features": 31}, "linear.* has shape"),
        ("2_Dense/config.json", {"bias": False}, "missing or unexpected tensors: linear.bias"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task"),
        ("sentence_bert_config.json", {"module_output_name": "scores"}, "module_output_name"),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "max_seq_length is 2"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type"),
        ("config_sentence_transformers.json", {"prompts": {"a": 1}},
         "prompts must be an object that maps names to"),
        ("config_sentence_transformers.json", {"default_prompt_name": "a"}, "expected a name in"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim is 0; expected"),
    ],
)  # fmt: skip
def test_unsupported_options_are_refused(folder, name, keys, message):
    change(folder, name, **keys)
    with pytest.raises(ConfigError, match=message) as caught:
        load(folder)
    assert str(folder / name.partition("/")[0]) in str(caught.value)


@pytest.mark.parametrize(
    "kind, path, message",
    [
        (
            "sentence_transformers.models.WordEmbeddings",
            "1_Pooling",
            "WordEmbeddings'; xlj supports",
        ),
        ("sentence_transformers.models.CNN", "1_Pooling", "CNN'; xlj supports"),
        ("sentence_transformers.base.modules.router.Router", "1_Pooling", "Router'; xlj supports"),
        ("custom_code.Pooling", "1_Pooling", "module 1 is 'custom_code.Pooling'"),
        (
            "sentence_transformers.models.Pooling",
            "../1_Pooling",
            "expected the name of a folder next to",
        ),
        ("sentence_transformers.models.Dense", "1_Pooling", "expected a Pooling module after"),
        (3, "1_Pooling", "module 1 must have a type and a path"),
    ],
)
def test_unsupported_modules_are_refused(folder, kind, path, message):
    modules = json.loads((folder / "modules.json").read_text())
    modules[1] |= {"type": kind, "path": path}
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match=message):
        load(folder)


def test_an_encoder_in_a_subfolder_and_links_into_a_cache_are_read(folders, tmp_path):
    """Early releases put the encoder into 0_Transformer; a download cache consists of links."""
    source, hub = folders["labse"], tmp_path / "models--a--b"
    (hub / "blobs").mkdir(parents=True)
    snapshot = hub / "snapshots" / "1234"
    inner = snapshot / "0_Transformer"
    for number, file in enumerate(sorted(f for f in source.rglob("*") if f.is_file())):
        name = file.relative_to(source)
        outer = len(name.parts) > 1 or name.name in (
            "modules.json",
            "config_sentence_transformers.json",
        )
        link = (snapshot if outer else inner) / name
        link.parent.mkdir(parents=True, exist_ok=True)
        blob = hub / "blobs" / str(number)
        blob.write_bytes(file.read_bytes())
        if name.name == "modules.json":
            modules = json.loads(file.read_text())
            modules[0]["path"] = "0_Transformer"
            blob.write_text(json.dumps(modules))
        link.symlink_to(blob)
    expected = load(source).embed(SENTENCES)
    np.testing.assert_array_equal(load(snapshot).embed(SENTENCES), expected)
    linked = tmp_path / "linked"  # a user's folder with links into the cache
    for file in (file for file in snapshot.rglob("*") if file.is_file()):
        (linked / file.relative_to(snapshot)).parent.mkdir(parents=True, exist_ok=True)
        (linked / file.relative_to(snapshot)).symlink_to(file)
    np.testing.assert_array_equal(load(linked).embed(SENTENCES), expected)
    dense = linked / "2_Dense" / "model.safetensors"
    dense.unlink()
    shutil.copy(source / "2_Dense" / "model.safetensors", tmp_path / "elsewhere")
    dense.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link to .*, outside the folder"):
        load(linked)
