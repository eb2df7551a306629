"""Tokenizer folders like ModernBERT's, mmBERT's and EuroBERT's: special tokens, import, export."""

import json

import jax
import numpy as np
import pytest
from modern_tokenizers import CONFIGS, MODERN, write_folder
from tokenizers import AddedToken, Tokenizer

from xlj import phrasebook
from xlj.config import Model, families
from xlj.data.tokenizer.layout import PAD, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import from_hugging_face, to_hugging_face, tokenizer_files
from xlj.models import encoder
from xlj.sharding.trees import named_leaves

LINES = [line for _, line in zip(range(300), phrasebook.text_lines("fr"), strict=False) if line]
SIZE = {"modernbert": 500, "mmbert": 700, "eurobert": 400}


@pytest.fixture(scope="module")
def trained_tokenizers():
    return {kind: make(LINES, SIZE[kind]) for kind, make in MODERN.items()}


@pytest.fixture(params=MODERN)
def kind(request):
    return request.param


@pytest.fixture
def folder(kind, trained_tokenizers, tmp_path):
    return write_folder(tmp_path / "folder", kind, trained_tokenizers[kind])


def set_config(folder, **values):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values))


def test_a_tokenizer_that_is_read_and_written_stays_the_same(
    kind, trained_tokenizers, folder, tmp_path, capsys
):
    vocabulary = tokenizer_files.read(folder)
    assert capsys.readouterr().err == ""
    unstated = kind == "eurobert"  # only the folder names its padding token
    assert (vocabulary.model == (folder / "tokenizer.json").read_bytes()) == (not unstated)
    out = tmp_path / "out"
    out.mkdir()
    tokenizer_files.write(vocabulary, out, 77)
    assert tokenizer_files.read(out) == vocabulary
    after = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert after.get_vocab() == trained_tokenizers[kind].get_vocab()
    for text in (
        ("a b",),
        ("a", "b c"),
        (f"x {CONFIGS[kind]['eos_token']} y",) if unstated else ("",),
    ):
        one, other = trained_tokenizers[kind].encode(*text), after.encode(*text)
        assert (one.ids, one.type_ids) == (other.ids, other.type_ids)
    named = json.loads((out / "tokenizer_config.json").read_bytes())
    assert ("unk_token" in named) == (not unstated), (
        "a tokenizer without an unknown token gets none"
    )
    if unstated:
        assert named["pad_token"] == named["eos_token"]


def test_a_padding_token_that_equals_the_end_token_has_its_own_row(trained_tokenizers, tmp_path):
    vocabulary = tokenizer_files.read(
        write_folder(tmp_path, "eurobert", trained_tokenizers["eurobert"])
    )
    eos = trained_tokenizers["eurobert"].token_to_id("<|end_of_text|>")
    assert vocabulary.native_special_ids[1:3] == (eos, eos)
    assert vocabulary.native_ids[PAD] == -1 == vocabulary.native_ids[UNK]
    assert list(vocabulary.native_ids).count(eos) == 1


@pytest.mark.parametrize("template", [True, False])
def test_the_folder_names_special_tokens_that_tokenizer_json_does_not_name(template, tmp_path):
    """The names are unusual, so only the folder gives them. The vocabulary stores them."""
    tokenizer = MODERN["eurobert"](LINES, 400)
    names = ["{bos}", "{eos}", "{pad}", "{mask}", "{unk}", "<mask>"]
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    if not template:
        content = json.loads(tokenizer.to_str()) | {"post_processor": None}
        tokenizer = Tokenizer.from_str(json.dumps(content))
    folder = write_folder(tmp_path / "folder", "eurobert", tokenizer)
    named = {f"{role}_token": f"{{{role}}}" for role in ("bos", "eos", "pad", "unk", "mask")}
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    vocabulary = tokenizer_files.read(folder)
    ends = ("<|begin_of_text|>", "<|end_of_text|>") if template else ("{bos}", "{eos}")
    assert vocabulary.native_specials == (ends[0], "{pad}", ends[1], "{unk}", "{mask}")
    alone = Vocabulary(vocabulary.model)
    assert alone.native_specials == vocabulary.native_specials
    library = Tokenizer.from_str(vocabulary.model.decode())
    for text in (("a b",), ("a", "b c")):
        one, other = tokenizer.encode(*text), library.encode(*text)
        assert (one.ids, one.type_ids) == (other.ids, other.type_ids)
    # tokenizer_config.json has priority over special_tokens_map.json.
    set_config(folder, mask_token="<mask>")
    assert tokenizer_files.read(folder).native_specials[-1] == "<mask>"


def test_contradictions_are_reported_and_the_tokenizers_value_is_used(
    trained_tokenizers, tmp_path, capsys
):
    folder = write_folder(tmp_path / "folder", "mmbert", trained_tokenizers["mmbert"])
    set_config(folder, cls_token="<s>", sep_token="</s>", unk_token="<oov>")
    ids = {"cls_token_id": 1, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(ids))
    vocabulary = tokenizer_files.read(folder)
    assert vocabulary.native_specials == ("<bos>", "<pad>", "<eos>", "<unk>", "<mask>")
    assert vocabulary.native_special_ids == (2, 0, 1, 3, 4)
    warnings = capsys.readouterr().err.splitlines()
    assert warnings == [
        f"warning: {folder}/tokenizer_config.json: cls_token is '<s>', but the tokenizer has "
        "'<bos>'; xlj uses the tokenizer's value",
        f"warning: {folder}/tokenizer_config.json: sep_token is '</s>', but the tokenizer has "
        "'<eos>'; xlj uses the tokenizer's value",
        f"warning: {folder}/tokenizer_config.json: unk_token is '<oov>', but the tokenizer has "
        "'<unk>'; xlj uses the tokenizer's value",
        f"warning: {folder}/config.json: cls_token_id is 1, but the tokenizer has '<bos>' (2); "
        "xlj uses the tokenizer's value",
    ]


@pytest.mark.parametrize(
    "kind, single, frame",
    [
        ("modernbert", slice(0, 2), "'[CLS] ...', but xlj encodes it as '[CLS] ... [SEP]'"),
        ("mmbert", slice(0, 0), "'...', but xlj encodes it as '<bos> ... <eos>'"),
    ],
)
def test_a_template_that_differs_from_xljs_rows_is_reported(
    kind, single, frame, trained_tokenizers, tmp_path, capsys
):
    folder = write_folder(tmp_path / "folder", kind, trained_tokenizers[kind])
    file = folder / "tokenizer.json"
    content = json.loads(file.read_bytes())
    template = content["post_processor"]
    template["single"] = template["single"][single]
    if not template["single"]:
        content["post_processor"] = None
    file.write_text(json.dumps(content))
    vocabulary = tokenizer_files.read(folder)
    assert (
        vocabulary.native_specials
        == Vocabulary(trained_tokenizers[kind].to_str().encode()).native_specials
    )
    (warning,) = capsys.readouterr().err.splitlines()
    start = (
        f"warning: {file}: post_processor encodes a sentence as {frame}, so xlj's vectors differ"
    )
    assert warning.startswith(start)


@pytest.mark.parametrize("marks", [(), ("separator",)])
def test_pairs_are_exported_in_the_format_of_xljs_rows(trained_tokenizers, marks, tmp_path):
    vocabulary = tokenizer_files.read(
        write_folder(tmp_path / "in", "eurobert", trained_tokenizers["eurobert"])
    )
    tokenizer_files.write(vocabulary, tmp_path, 77, marks, pairs_as_rows=True)
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    between = "<|parallel_sep|>" if marks else "<|end_of_text|>"
    expected = ["<|begin_of_text|>", "a", between, "b", "<|end_of_text|>"]
    encoded = library.encode("a", "b")
    assert encoded.tokens == expected and set(encoded.type_ids) == {0}
    assert library.encode("a").tokens == [*expected[:2], expected[-1]]
    again = tokenizer_files.read(tmp_path)
    assert again.native_specials == vocabulary.native_specials
    assert tokenizer_files.pair_marks(tmp_path, again, has_types=False) == marks
    assert library.encode("a b").offsets == trained_tokenizers["eurobert"].encode("a b").offsets


def test_internal_rows_are_not_exported(trained_tokenizers, tmp_path):
    vocabulary = tokenizer_files.read(
        write_folder(tmp_path / "in", "eurobert", trained_tokenizers["eurobert"])
    )
    eos = vocabulary.native_special_ids[2]
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 8, "positions": 50}
    model = Model(**families.options_of("eurobert") | sizes)
    shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), model, vocabulary.size, 0))
    draw = np.random.default_rng(0).standard_normal
    params = {name: draw(leaf.shape, "f4") for name, leaf in named_leaves(shapes).items()}
    exported = to_hugging_face.plan(params, model, vocabulary, False)
    out = tmp_path / "out"
    out.mkdir()
    to_hugging_face.write(out, exported, params, model, vocabulary)
    config = json.loads((out / "config.json").read_bytes())
    assert config["vocab_size"] == vocabulary.native_size == vocabulary.size - 2
    assert config["pad_token_id"] == config["eos_token_id"] == eos
    imported = from_hugging_face.inspect(out)
    assert imported.vocabulary == vocabulary
    table = from_hugging_face.read(imported, "embeddings/word")
    has_native_id = vocabulary.native_ids >= 0
    assert table.shape == (vocabulary.size, 8)
    np.testing.assert_array_equal(table[has_native_id], params["embeddings/word"][has_native_id])
    assert not table[~has_native_id].any() and (~has_native_id).sum() == 2
