"""Tokenizers of ModernBERT, mmBERT and EuroBERT: specials, words, masks and spans equal the
library's."""

import json

import numpy as np
import pytest
from made_tokenizers import LINES
from modern_tokenizers import MODERN, mmbert
from tokenizers import Tokenizer, pre_tokenizers, processors

from xlj.config import ConfigError
from xlj.data.tokenizer.layout import SEPARATOR, SPECIALS, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary

SIZE = {"modernbert": 500, "mmbert": 700, "eurobert": 500}
TEXT = [
    *LINES[:40], "", " ", "  a   b ", "a\tb\nc", "e\u0301 \u00e9", "\u16a0\ue000\U0001f600 x",
    "can't 12345 IT'S", "a  b", "a\u2581b \u2581\u2581", "x <s> y </s>", "[MASK]<mask><|mask|>",
    "<|begin_of_text|>[CLS]<bos>", "a |||IP_ADDRESS||| b", "a[unused1]b", "\n\n\n a", "<0x41>",
]  # fmt: skip


@pytest.fixture(scope="module", params=MODERN)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return MODERN[kind](LINES[:400], SIZE[kind])


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    return Vocabulary(tokenizer.to_str().encode())


@pytest.fixture
def plain(tokenizer):
    """The library's tokenizer, which reads special tokens in text as text."""
    copied = Tokenizer.from_str(tokenizer.to_str())
    copied.encode_special_tokens = True
    return copied


def native(vocabulary, ids):
    return [vocabulary.native_ids[line].tolist() for line in ids]


def test_special_tokens_are_those_of_the_template(kind, tokenizer, vocabulary):
    """`<s>` and `</s>`, which mmBERT has as pieces, are not special. EuroBERT has no <unk>;
    only the configuration in its folder names a padding token."""
    names = {
        "modernbert": ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"),
        "mmbert": ("<bos>", "<pad>", "<eos>", "<unk>", "<mask>"),
        "eurobert": ("<|begin_of_text|>", None, "<|end_of_text|>", None, "<|mask|>"),
    }[kind]
    ids = tuple(name and tokenizer.token_to_id(name) for name in names)
    assert (vocabulary.native_specials, vocabulary.native_special_ids) == (names, ids)
    expected = [-1 if number is None else number for number in ids]
    assert [*vocabulary.native_ids[:4], vocabulary.native_ids[-1]] == expected
    assert vocabulary.native_size == tokenizer.get_vocab_size()
    assert vocabulary.size == vocabulary.native_size + names.count(None)
    known = vocabulary.native_ids[vocabulary.native_ids >= 0]
    assert sorted(known) == list(range(vocabulary.native_size))
    assert vocabulary.separator == ("<|parallel_sep|>" if kind == "eurobert" else "")
    assert (vocabulary.pieces[SEPARATOR] == "<|parallel_sep|>") == (kind == "eurobert")


def test_ids_equal_those_of_the_library(vocabulary, plain):
    actual = native(vocabulary, vocabulary.encode_batch(TEXT))
    assert actual == [one.ids for one in plain.encode_batch(TEXT, add_special_tokens=False)]
    ids = vocabulary.encode(TEXT).ids
    assert not {0, 1, 2, vocabulary.mask} & {*ids.tolist()}
    assert UNK not in ids, "each byte has a piece"


def test_spans_equal_those_of_the_library(vocabulary, plain):
    ids, spans = vocabulary.encode_with_spans(TEXT)
    assert (ids.ids == vocabulary.encode(TEXT).ids).all()
    encodings = plain.encode_batch(TEXT, add_special_tokens=False)
    lines = [
        (line, i) for line, encoding in zip(TEXT, encodings, strict=True) for i in encoding.offsets
    ]
    for (line, (begin, end)), (first, last), number in zip(lines, spans, ids.ids, strict=True):
        if begin < end and number not in vocabulary.marks:
            assert line[first:last] == line[begin:end].strip()


def test_a_character_of_several_pieces_belongs_to_each(vocabulary):
    text = "a \U0001f600b"
    ids, spans = vocabulary.encode_with_spans([text])
    whole = [(2, 3) == tuple(span) for span in spans]
    assert sum(whole) >= 3 and [*spans[-1]] == [3, 4]


def test_words_are_encoded_as_within_a_sentence(vocabulary, plain):
    words = ["Haus", "h", "12345", "\u00e9t\u00e9", "\U0001f600", "don't"]
    for word, ids in zip(words, vocabulary.encode_words(words), strict=True):
        encoding = plain.encode(f"h {word}", add_special_tokens=False)
        first = next(i for i, (_, end) in enumerate(encoding.offsets) if end > 1)
        assert vocabulary.native_ids[ids].tolist() == encoding.ids[first:]


def test_words_of_modernbert_equal_those_with_add_prefix_space():
    tokenizer = MODERN["modernbert"](LINES[:200], 400)
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    words = ["Haus", "(a)", "b", "x-y"]
    ids = np.concatenate(vocabulary.encode_words(words))
    expected = tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False)
    assert vocabulary.native_ids[ids].tolist() == expected.ids


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_words_of_mmbert_have_a_space_for_any_prepend_scheme(scheme):
    tokenizer = mmbert(LINES[:200], 650, scheme)
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    expected = tokenizer.encode("x h", add_special_tokens=False).ids
    (ids,) = vocabulary.encode_words(["h"])
    assert vocabulary.native_ids[ids].tolist() == expected[-len(ids) :]
    assert vocabulary.pieces[ids[0]].startswith("\u2581")
    alone = vocabulary.pieces[vocabulary.encode(["h"]).ids[0]]
    assert alone.startswith("\u2581") == (scheme != "never")


@pytest.mark.parametrize("text", ["a <mask> b", "a<mask>b", "<mask> a", "a  <mask>  <mask>", "a"])
def test_masks_in_text_are_recognized_as_by_the_library(vocabulary, tokenizer, text):
    """ModernBERT's mask includes the space before it. Other special tokens stay text."""
    name = vocabulary.native_specials[-1]
    expected = tokenizer.encode(text.replace("<mask>", name), add_special_tokens=False)
    assert vocabulary.native_ids[vocabulary.encode_masked(text)].tolist() == expected.ids
    first = vocabulary.native_specials[0]
    ids = vocabulary.encode_masked(f"{first}{text}{first}")
    assert not {0, 1, 2} & {*ids.tolist()} and (ids == vocabulary.mask).sum() == text.count("<m")


# Files that define fewer or other special tokens.


def changed(tokenizer, change):
    content = json.loads(tokenizer.to_str())
    change(content)
    return json.dumps(content).encode()


def test_pieces_are_shown_as_text(vocabulary, plain):
    for index in range(len(SPECIALS), len(vocabulary.pieces) - 1):
        shown, piece = vocabulary.text_of(index), vocabulary.pieces[index]
        text = plain.decode([int(vocabulary.native_ids[index])], skip_special_tokens=False)
        part = vocabulary.markers == "byte_bpe" and "\ufffd" in text
        if not (part or piece.startswith("<0x")):
            assert shown.strip() == text.strip()
        else:
            assert shown == piece.lstrip("\u0120")


def test_without_a_template_special_flags_take_precedence_over_well_known_names(tokenizer):
    actual = Vocabulary(changed(tokenizer, lambda content: content.pop("post_processor")))
    assert actual.native_specials == Vocabulary(tokenizer.to_str().encode()).native_specials


def test_only_a_model_with_all_bytes_may_lack_unk():
    def change(content):
        content["model"] |= {"unk_token": None, "byte_fallback": False}
        del content["model"]["vocab"]["<unk>"]
        content["model"]["vocab"]["unknown"] = 3
        content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != "<unk>"]

    with pytest.raises(ConfigError, match=r"has no <unk> or \[UNK\] .* set unk_token in"):
        Vocabulary(changed(mmbert(LINES[:200], 650), change))


def test_an_unk_that_is_also_another_special_token_gets_an_internal_row():
    def change(content):
        content["model"]["unk_token"] = "<|end_of_text|>"
        added = {token["content"]: token["id"] for token in content["added_tokens"]}
        content["model"]["vocab"] |= added

    actual = Vocabulary(changed(MODERN["eurobert"](LINES[:200], 400), change))
    assert actual.native_specials[3] == "<|end_of_text|>" and actual.native_ids[UNK] == -1


def test_one_token_at_both_ends_is_refused(tokenizer):
    def change(content):
        frame = processors.BertProcessing(("a", 400), ("a", 400))
        other = Tokenizer.from_str(tokenizer.to_str())
        other.post_processor = frame
        content["post_processor"] = json.loads(other.to_str())["post_processor"]

    with pytest.raises(
        ConfigError, match="one token, .*, for both the start and the end of a text"
    ):
        Vocabulary(changed(tokenizer, change))
