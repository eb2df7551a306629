"""Pieces of the three marker conventions are read as the same words."""

import itertools
import unicodedata

import pytest
from marked_pieces import MarkedPieces

from xlj.interop.vocabulary_matching import Word, folded, is_spaceless, specials, unaccented, words


def read(markers, *pieces):
    all_words = words(MarkedPieces(pieces, markers))
    assert all_words[:4] == [None] * 4 and all_words[-1] is None
    return all_words[4:-1]


def test_special_tokens_come_first_and_the_mask_last():
    assert specials(9) == [0, 1, 2, 3, 8]


def test_the_three_conventions_give_the_same_words():
    expected = [Word("the", True), Word("ing", False), Word("über", True), Word("#1", True)]
    assert read("sentencepiece", "▁the", "ing", "▁über", "▁#1") == expected
    assert read("byte_bpe", "Ġthe", "ing", "ĠÃ¼ber", "Ġ#1") == expected
    assert read("wordpiece", "the", "##ing", "über", "#1") == expected


def test_pieces_of_spaces_are_words_and_parts_of_characters_are_not():
    assert read("sentencepiece", "▁", "▁▁▁", "a▁b") == [
        Word("", True),
        Word("  ", True),
        Word("a b", False),
    ]
    assert read("byte_bpe", "Ġ", "ĠĠĠ", "aĠb") == read("sentencepiece", "▁", "▁▁▁", "a▁b")
    assert read("byte_bpe", "Ċ") == [Word("\n", False)]
    assert read("byte_bpe", "Â", "ĠÃ", "é", "中") == [None] * 4


def test_wordpieces_of_punctuation_and_chinese_characters_start_no_words():
    assert read(
        "wordpiece",
        ",",
        "##,",
        "中",
        "##中",
        "##",
        "###",
        "...",
        "##°",
        "°",
        "か",
        "$",
        "##$",
        "##x",
    ) == [
        Word(",", False),
        None,  # never trained
        Word("中", False),
        None,
        Word("##", True),
        None,
        Word("...", True),
        Word("°", False),  # a symbol, which BERT does not split
        Word("°", True),
        Word("か", True),
        Word("$", False),  # ASCII, but not punctuation in Unicode
        None,
        Word("x", False),
    ]


@pytest.mark.parity
def test_the_byte_alphabet_equals_that_of_tokenizers():
    tokenizers = pytest.importorskip("tokenizers")
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    # One letter for each byte that UTF-8 can have.
    letters = "".join(chr(k) for k in range(0x800)) + "\u0800\u4e2d\ud7ff\ue000\U00010000\U0010ffff"
    text = "".join(f"x{letter} " for letter in letters)
    words_of_pieces = read("byte_bpe", *(piece for piece, _ in split(text)))
    assert None not in words_of_pieces
    assert "".join(" " * word.starts_word + word.text for word in words_of_pieces) == text


@pytest.mark.parity
def test_separate_characters_are_those_that_bert_splits_off():
    tokenizers = pytest.importorskip("tokenizers")
    normalise = tokenizers.normalizers.BertNormalizer(False, True, False, False).normalize_str
    split = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    ranges = (range(0x21, 0x2000), range(0x2010, 0xD800), range(0xF900, 0xFFF0))
    letters = [letter for letter in map(chr, itertools.chain.from_iterable(ranges))
               if unicodedata.category(letter)[0] in "LNPS"]  # fmt: skip
    separate = [word is None for word in read("wordpiece", *(f"##{letter}" for letter in letters))]
    split_off = [len(split(normalise(f"a{letter}b"))) == 3 for letter in letters]
    wrong = [
        letter
        for letter, one, other in zip(letters, separate, split_off, strict=True)
        if one != other
    ]
    assert sum(separate) > 20_000 and len(wrong) <= 50, wrong  # versions of Unicode differ


def test_folded_and_unaccented_forms():
    assert folded("ＡＢＣ") == "abc" and folded("Straße") == "strasse" and folded(" ﬁ ") == "fi"
    assert folded("é") == "é" == folded("E\u0301")
    assert unaccented("Élève") == "eleve" and unaccented("Việt") == "viet"
    assert unaccented("हिन्दी") == folded("हिन्दी") and unaccented("한국") == "한국"
    assert unaccented("\u0301") == ""
    for text in ("İstanbul", "ǅ", "ΐ", "①", "한", "ß", "क़"):
        assert folded(folded(text)) == folded(text)
        assert unaccented(unaccented(text)) == unaccented(text)


def test_scripts_without_spaces_are_recognised():
    assert all(map(is_spaceless, ("中国", "カタ", "ไทย", "ລາວ", "မြန်", "ខ្មែរ", "བོད")))
    assert not any(map(is_spaceless, ("", "a中", "한국", "हिन्दी", "ქართ", "1")))
