"""A tokenizer.json of any layout is converted to xlj's layout, and its own ids can be restored."""

import json
import os
import pickle

import numpy as np
import pytest
from decoding import decode
from made_tokenizers import BERT, LINES, TOKENIZERS, XLMR, wordpiece
from tokenizers import Tokenizer

from xlj.config import ConfigError, parse
from xlj.data.rows.preparing import prepare_rows
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.tokenizer_json import convert_errors
from xlj.data.tokenizer.vocabulary import Vocabulary


@pytest.fixture(scope="module", params=TOKENIZERS)
def markers(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(markers) -> Tokenizer:
    return TOKENIZERS[markers]()


@pytest.fixture(scope="module")
def vocabulary(tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer.to_str().encode())


def content_of(tokenizer: Tokenizer) -> dict:
    return json.loads(tokenizer.to_str())


def test_the_vocabulary_has_the_layout_of_xlj(vocabulary, tokenizer, markers):
    assert vocabulary.markers == markers
    assert vocabulary.size == tokenizer.get_vocab_size() == len(vocabulary.pieces)
    assert vocabulary.pieces[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert vocabulary.pieces[vocabulary.mask] == "<mask>" and vocabulary.dtype == np.uint16
    assert vocabulary.native_ids.dtype == np.int32
    assert sorted(vocabulary.native_ids) == list(range(vocabulary.size))
    native = [tokenizer.id_to_token(i) for i in vocabulary.native_ids]
    assert (*native[:4], native[-1]) == vocabulary.native_specials
    assert native[4:-1] == list(vocabulary.pieces[4:-1])
    assert (np.diff(vocabulary.native_ids[4:-1]) > 0).all()  # in the order of the file


def test_weights_are_restored_bit_by_bit(vocabulary):
    table = np.random.default_rng(0).normal(size=(vocabulary.size, 3)).astype(np.float32)
    imported, exported = table[vocabulary.native_ids], np.empty_like(table)
    exported[vocabulary.native_ids] = imported
    assert exported.tobytes() == table.tobytes() != imported.tobytes()


def test_native_ids_equal_the_ids_of_the_file(vocabulary, tokenizer):
    ids = [vocabulary.native_ids[line].tolist() for line in vocabulary.encode_batch(LINES)]
    assert ids == [tokenizer.encode(line, add_special_tokens=False).ids for line in LINES]


def test_decoding_restores_the_text(vocabulary):
    encoded = vocabulary.encode_batch(LINES[:50])
    wrapped = [[0, *ids, 2, vocabulary.mask, 1] for ids in encoded]
    if vocabulary.markers == "wordpiece":  # which loses the positions of spaces
        squeezed = ["".join(line.split()) for line in LINES[:50]]
        assert ["".join(decode(vocabulary, ids).split()) for ids in wrapped] == squeezed
    else:
        assert [decode(vocabulary, ids) for ids in wrapped] == LINES[:50]
    assert len(vocabulary.encode([]).ids) == 0 == vocabulary.encode(["", "ab"]).lengths[0]


def test_text_is_never_encoded_as_special_tokens(vocabulary):
    text = " ".join([*XLMR, *BERT, "a<mask>b", "<s>[MASK]", "<ent>"])
    ids = vocabulary.encode([text]).ids
    assert len(ids) > 10 and not set(ids.tolist()) & {0, 1, 2, vocabulary.mask}
    if vocabulary.markers == "byte_bpe":
        assert decode(vocabulary, ids) == text
    if vocabulary.markers == "sentencepiece":  # a Unigram model has specials among its pieces
        assert vocabulary.encode(["<mask>"]).ids[-1] == UNK


def test_truncation_and_padding_of_the_file_are_ignored(tokenizer, vocabulary):
    limited = Tokenizer.from_str(tokenizer.to_str())
    limited.enable_truncation(4)
    limited.enable_padding(length=8)
    other = Vocabulary(limited.to_str().encode())
    assert other.digest != vocabulary.digest
    for expected, actual in zip(
        vocabulary.encode_batch(LINES[:9]), other.encode_batch(LINES[:9]), strict=True
    ):
        assert (expected == actual).all()


def test_a_pickled_vocabulary_is_restored(vocabulary):
    vocabulary.encode(["a"])
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again == vocabulary and again.digest == vocabulary.digest
    assert (again.encode(LINES[:5]).ids == vocabulary.encode(LINES[:5]).ids).all()


def test_an_added_token_takes_precedence_over_a_piece_with_the_other_name():
    content = content_of(wordpiece())
    ids = content["model"]["vocab"]
    last = max(ids, key=ids.get)
    ids["<s>"] = ids.pop(last)
    vocabulary = Vocabulary(json.dumps(content).encode())
    assert vocabulary.native_specials == ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")


def missing(content):
    del content["model"]["vocab"]["[MASK]"]


def gap(content):
    content["model"]["vocab"]["[MASK]"] = 100_000


def twice(content):
    content["model"]["vocab"]["[unused]"] = 0


def unknown_markers(content):
    content["model"]["continuing_subword_prefix"] = "@@"


def broken(content):
    content["model"]["type"] = "None"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing, r"file has no <mask> or \[MASK\] among its 299 pieces"),
        (gap, "file has 300 pieces, but none or two with id 5; ids must run from 0"),
        (twice, "file has 300 pieces, but none or two with id 0"),
        (unknown_markers, "file has a WordPiece model with an unknown marker of words"),
        (broken, "file cannot be read as tokenizer.json by tokenizers [0-9.]+"),
    ],
)
def test_files_that_cannot_be_converted_to_the_layout_are_refused(change, message, tmp_path):
    content = content_of(wordpiece())
    change(content)
    content["added_tokens"] = []  # they would restore the piece
    (tmp_path / "file").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        Vocabulary.load(tmp_path / "file")


def test_a_truncated_file_is_refused(tmp_path):
    whole = wordpiece().to_str()
    (tmp_path / "file").write_text(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="file cannot be read as tokenizer.json by tokenizers"):
        Vocabulary.load(tmp_path / "file")


def test_rows_can_be_built_with_a_tokenizer_json(tiny, tmp_path):
    tokenizer = wordpiece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tiny.data.vocabulary = str(tmp_path / "tokenizer.json")
    tiny.data.cache = str(tmp_path / "rows")
    store = prepare_rows(parse(tiny))
    vocabulary = Vocabulary.load(store.vocabulary_file)
    assert store.manifest.vocabulary_size == vocabulary.size
    assert store.manifest.vocabulary_digest == Vocabulary.load(tiny.data.vocabulary).digest
    rows = store.read("text.de", "train", np.arange(9))["tokens"]
    assert set(np.unique(rows[:, 0])) == {0} and vocabulary.mask not in rows
    text = decode(vocabulary, rows[0])
    assert len(text.split()) > 5 and "[" not in text


@pytest.mark.parametrize(
    "charsmap",
    ["AAAA", "CAAAAP////////8A"],
    ids=["panics when read", "panics at the first text"],
)
def test_a_panic_of_the_library_is_reported_as_an_error_of_the_file(charsmap, tmp_path):
    content = content_of(TOKENIZERS["sentencepiece"]())
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    (tmp_path / "file").write_text(json.dumps(content))
    message = r"^vocabulary \S*/file cannot be read as tokenizer\.json by tokenizers [0-9.]+ \("
    with pytest.raises(ConfigError, match=message) as caught:
        Vocabulary.load(tmp_path / "file")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_model_that_fails_on_unknown_characters_is_refused_at_once(tmp_path):
    content = content_of(TOKENIZERS["sentencepiece"]())
    del content["model"]["unk_id"]
    (tmp_path / "file").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="file cannot be read as tokenizer.json .*unk_id"):
        Vocabulary.load(tmp_path / "file")


class PanicException(BaseException):
    """Like the exception of PyO3; each library has its own copy of that class."""


@pytest.mark.parametrize("error", [PanicException("a\n b"), Exception("a b"), ValueError("a b")])
def test_errors_of_the_library_become_one_line(error):
    with pytest.raises(ConfigError, match=r"^is broken \(a b\)$"), convert_errors("is broken"):
        raise error


def test_messages_of_rust_on_standard_error_are_hidden(capfd):
    with convert_errors("is broken"):
        os.write(2, b"thread '<unnamed>' panicked")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ConfigError("mine")])
def test_interrupts_and_config_errors_are_not_converted(error):
    with pytest.raises(BaseException) as caught, convert_errors("is broken"):
        raise error
    assert type(caught.value) is (error if isinstance(error, type) else ConfigError)
    assert "broken" not in str(caught.value)
