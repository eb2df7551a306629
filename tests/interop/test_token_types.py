"""The second sentence of a pair gets the token type that the folder's tokenizer gives it."""

import json
import shutil

import numpy as np
import pytest
from odd_folders import LINES, bert, minilm

from xlj import load
from xlj.config import ConfigError
from xlj.interop import from_hugging_face
from xlj.models import encoder
from xlj.models.segments import whole_examples

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    """A folder with BERT's layout and BERT's tokenizer."""
    pytest.importorskip("transformers")
    return bert(tmp_path_factory.mktemp("types") / "bert")


def change_copy(folder, path, **keys):
    path = shutil.copytree(folder, path)
    file = path / "tokenizer_config.json"
    config = json.loads(file.read_text()) | keys
    config = {key: value for key, value in config.items() if value is not None}
    file.write_text(json.dumps(config))
    return path


def without_types(path):
    """Changes the template of the folder so that the second sentence has token type 0."""
    file = path / "tokenizer.json"
    file.write_text(file.read_text().replace('"type_id": 1', '"type_id": 0'))
    return path


def library_gives_types(path):
    from transformers import AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(path)("a book", "the cat")
    return 1 in encoded.get("token_type_ids", [])


_NAMES = ["input_ids", "attention_mask"]
_TYPED = [*_NAMES, "token_type_ids"]


@pytest.mark.parametrize(
    "keys, typed",
    [
        ({}, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": None}, False),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": _TYPED}, True),
        ({"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": _NAMES}, False),
        ({"tokenizer_class": "XLMRobertaTokenizer", "model_input_names": None}, False),
        ({"tokenizer_class": None, "model_input_names": None}, True),
    ],
    ids=str,
)
def test_tokenizer_class_and_input_names_determine_whether_pairs_have_types(
    bert_folder, tmp_path, keys, typed
):
    path = change_copy(bert_folder, tmp_path / "folder", **keys)
    assert from_hugging_face.inspect(path).model.pair_marks == (("types",) if typed else ())
    if keys.get("tokenizer_class") != "XLMRobertaTokenizer":  # that class cannot read WordPiece
        assert library_gives_types(path) == typed


def test_the_template_determines_the_types_of_pairs(bert_folder, tmp_path):
    keys = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": _TYPED}
    path = change_copy(bert_folder, tmp_path / "folder", **keys)
    without_types(path)
    assert not from_hugging_face.inspect(path).model.pair_marks
    assert not library_gives_types(path)
    file = path / "tokenizer.json"
    file.write_text(file.read_text().replace('"type_id": 0', '"type_id": 1'))
    with pytest.raises(ConfigError, match="gives a sentence the token types .* and a pair"):
        from_hugging_face.inspect(path)


@pytest.mark.parametrize("name", ["XLMRobertaTokenizer", None])
def test_pairs_in_berts_layout_with_xlm_rs_tokenizer_equal_transformers(tmp_path, vocabulary, name):
    """As in Multilingual-MiniLM, the embeddings have two types, and the tokenizer uses one."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "minilm"
    hf_model = minilm(path, vocabulary, name)
    xlj_model = load(path)
    assert not xlj_model.pretrained.model.pair_marks
    first, second = vocabulary.encode_batch(LINES[:2])
    tokens = np.array([[0, *first, 2, *second, 2]])
    with torch.no_grad():
        encoded = torch.tensor(tokens)
        expected = hf_model(encoded, token_type_ids=torch.zeros_like(encoded)).last_hidden_state
    params, sizes = xlj_model.pretrained.params, xlj_model.pretrained.model
    hidden = encoder.apply(params, sizes, whole_examples(sizes, tokens, np.full((1, 2), -1)))
    np.testing.assert_allclose(hidden, expected.numpy(), atol=1e-5)
