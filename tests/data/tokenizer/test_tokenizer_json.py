"""A tokenizer.json of any layout is converted to ours, and its ids can be restored."""

import json
import os
import pickle

import numpy as np
import pytest
from decoding import decode
from made_tokenizers import BERT, LINES, MADE, XLMR, wordpiece
from tokenizers import Tokenizer

from xlj.config import ConfigError, parse
from xlj.data.rows.preparing import prepare_rows
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.tokenizer_json import convert_errors
from xlj.data.tokenizer.vocabulary import Vocabulary


@pytest.fixture(scope="module", params=MADE)
def markers(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(markers) -> Tokenizer:
    return MADE[markers]()


@pytest.fixture(scope="module")
def vocabulary(tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer.to_str().encode())


def described(tokenizer: Tokenizer) -> dict:
    return json.loads(tokenizer.to_str())


def test_layout(vocabulary, tokenizer, markers):
    assert vocabulary.markers == markers
    assert vocabulary.size == tokenizer.get_vocab_size() == len(vocabulary.pieces)
    assert vocabulary.pieces[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert vocabulary.pieces[vocabulary.mask] == "<mask>" and vocabulary.dtype == np.uint16
    assert vocabulary.native_ids.dtype == np.int32
    assert sorted(vocabulary.native_ids) == list(range(vocabulary.size))
    native = [tokenizer.id_to_token(i) for i in vocabulary.native_ids]
    assert (*native[:4], native[-1]) == vocabulary.native_specials
    assert native[4:-1] == list(vocabulary.pieces[4:-1])
    assert (np.diff(vocabulary.native_ids[4:-1]) > 0).all()  # otherwise in the file's order


def test_weights_come_back_bit_identically(vocabulary):
    table = np.random.default_rng(0).normal(size=(vocabulary.size, 3)).astype(np.float32)
    imported, exported = table[vocabulary.native_ids], np.empty_like(table)
    exported[vocabulary.native_ids] = imported
    assert exported.tobytes() == table.tobytes() != imported.tobytes()


def test_ids_are_the_files_own_permuted(vocabulary, tokenizer):
    ids = [vocabulary.native_ids[line].tolist() for line in vocabulary.encode_batch(LINES)]
    assert ids == [tokenizer.encode(line, add_special_tokens=False).ids for line in LINES]


def test_text_comes_back(vocabulary):
    encoded = vocabulary.encode_batch(LINES[:50])
    wrapped = [[0, *ids, 2, vocabulary.mask, 1] for ids in encoded]
    if vocabulary.markers == "wordpiece":  # which loses the positions of spaces
        squeezed = ["".join(line.split()) for line in LINES[:50]]
        assert ["".join(decode(vocabulary, ids).split()) for ids in wrapped] == squeezed
    else:
        assert [decode(vocabulary, ids) for ids in wrapped] == LINES[:50]
    assert len(vocabulary.encode([]).ids) == 0 == vocabulary.encode(["", "ab"]).lengths[0]


def test_text_never_yields_specials(vocabulary):
    text = " ".join([*XLMR, *BERT, "a<mask>b", "<s>[MASK]", "<ent>"])
    ids = vocabulary.encode([text]).ids
    assert len(ids) > 10 and not set(ids.tolist()) & {0, 1, 2, vocabulary.mask}
    if vocabulary.markers == "byte_bpe":
        assert decode(vocabulary, ids) == text
    if vocabulary.markers == "sentencepiece":  # a Unigram model has specials among its pieces
        assert vocabulary.encode(["<mask>"]).ids[-1] == UNK


def test_nothing_is_cut_or_padded(tokenizer, vocabulary):
    limited = Tokenizer.from_str(tokenizer.to_str())
    limited.enable_truncation(4)
    limited.enable_padding(length=8)
    other = Vocabulary(limited.to_str().encode())
    assert other.digest != vocabulary.digest
    for ours, theirs in zip(
        vocabulary.encode_batch(LINES[:9]), other.encode_batch(LINES[:9]), strict=True
    ):
        assert (ours == theirs).all()


def test_pickled_with_its_bytes_only(vocabulary):
    vocabulary.encode(["a"])
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again == vocabulary and again.digest == vocabulary.digest
    assert (again.encode(LINES[:5]).ids == vocabulary.encode(LINES[:5]).ids).all()


def test_an_added_token_goes_before_a_piece_of_the_other_name():
    content = described(wordpiece())
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
def test_files_that_cannot_be_brought_into_the_layout_are_refused(change, message, tmp_path):
    content = described(wordpiece())
    change(content)
    content["added_tokens"] = []  # they would restore the piece
    (tmp_path / "file").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        Vocabulary.load(tmp_path / "file")


def test_half_a_file_is_refused(tmp_path):
    whole = wordpiece().to_str()
    (tmp_path / "file").write_text(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="file cannot be read as tokenizer.json by tokenizers"):
        Vocabulary.load(tmp_path / "file")


def test_rows_can_be_built_with_it(tiny, tmp_path):
    tokenizer = wordpiece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tiny.data.vocabulary = str(tmp_path / "tokenizer.json")
    tiny.data.cache = str(tmp_path / "rows")
    store = prepare_rows(parse(tiny))
    vocabulary = Vocabulary.load(store.vocabulary_file)
    assert store.manifest.vocabulary_size == vocabulary.size
    assert store.manifest.vocabulary_digest == Vocabulary.load(tiny.data.vocabulary).digest
    rows = store.read("text.de", "train", np.arange(9))
    assert set(np.unique(rows[:, 0])) == {0} and vocabulary.mask not in rows
    text = decode(vocabulary, rows[0])
    assert len(text.split()) > 5 and "[" not in text


@pytest.mark.parametrize(
    "charsmap",
    ["AAAA", "CAAAAP////////8A"],
    ids=["panics when read", "panics at the first text"],
)
def test_what_the_library_panics_on_is_an_error_of_the_file(charsmap, tmp_path):
    content = described(MADE["sentencepiece"]())
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    (tmp_path / "file").write_text(json.dumps(content))
    message = r"^vocabulary \S*/file cannot be read as tokenizer\.json by tokenizers [0-9.]+ \("
    with pytest.raises(ConfigError, match=message) as caught:
        Vocabulary.load(tmp_path / "file")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_model_that_fails_on_unknown_characters_is_refused_at_once(tmp_path):
    content = described(MADE["sentencepiece"]())
    del content["model"]["unk_id"]
    (tmp_path / "file").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="file cannot be read as tokenizer.json .*unk_id"):
        Vocabulary.load(tmp_path / "file")


class PanicException(BaseException):
    """Like that of PyO3, of which each library has its own copy."""


@pytest.mark.parametrize("error", [PanicException("a\n b"), Exception("a b"), ValueError("a b")])
def test_errors_of_the_library_become_one_line(error):
    with pytest.raises(ConfigError, match=r"^is broken \(a b\)$"), convert_errors("is broken"):
        raise error


def test_notes_of_rust_are_not_shown(capfd):
    with convert_errors("is broken"):
        os.write(2, b"thread '<unnamed>' panicked")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ConfigError("mine")])
def test_interrupts_and_our_own_errors_stay_what_they_are(error):
    with pytest.raises(BaseException) as caught, convert_errors("is broken"):
        raise error
    assert type(caught.value) is (error if isinstance(error, type) else ConfigError)
    assert "broken" not in str(caught.value)
