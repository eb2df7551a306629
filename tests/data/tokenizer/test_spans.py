"""Spans of pieces are characters of the original line, for every kind of tokenizer."""

import io
import unicodedata

import numpy as np
import pytest
import sentencepiece
from decoding import decode
from hypothesis import example, given
from hypothesis import strategies as st
from made_tokenizers import LINES, TOKENIZERS

from xlj.data.tokenizer.vocabulary import Vocabulary, tidy_spans

ODD = (
    "", " ", "\t\n", "a", "  a   b  ", "a\u00a0b\u3000c ", "\u3000漢\u3000字", "\u200ba\u200b b",
    "ﬁne ½ x", "㍿ a", "½", "ＡＢＣ　１２３…", "ｶﾞｷﾞ", "カ\u3099", "e\u0301tude", "q\u0307\u0323a",
    "\u1112\u1161\u11ab국", "क़ क\u093c", "👩\u200d👩\u200d👧 a 😀", "ﷺ الله", "漢字かな文，。「」",
    "\u2581a \u2581", "a\0b", "x" * 80, "Der Hund. Die Katze!", "\u0120a ##a",
)  # fmt: skip


def sentence_pieces(**settings) -> Vocabulary:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, minloglevel=2, **settings
    )
    return Vocabulary(model.getvalue())


def make_vocabulary(name: str) -> Vocabulary:
    if name in TOKENIZERS:
        return Vocabulary(TOKENIZERS[name]().to_str().encode())
    if name == "unigram":
        return sentence_pieces(vocab_size=300)
    if name == "bytes":
        return sentence_pieces(vocab_size=600, byte_fallback=True)
    return sentence_pieces(vocab_size=300, model_type="bpe", treat_whitespace_as_suffix=True)


@pytest.fixture(scope="module", params=["unigram", "bytes", "suffix_bpe", *TOKENIZERS])
def vocabulary(request) -> Vocabulary:
    return make_vocabulary(request.param)


PARTS = st.sampled_from([*ODD, *LINES[:50]]) | st.text(st.characters(exclude_categories=["Cs"]))
SEVERAL = st.lists(st.lists(PARTS, max_size=6).map("".join), min_size=1, max_size=6)
"""Unusual lines, real lines and lines of any characters."""


def by_line(vocabulary, lines):
    ragged, spans_of_lines = vocabulary.encode_with_spans(lines)
    assert spans_of_lines.dtype == np.int32 and spans_of_lines.shape == (len(ragged.ids), 2)
    parts = np.cumsum(ragged.lengths)[:-1]
    return zip(lines, np.split(ragged.ids, parts), np.split(spans_of_lines, parts), strict=True)


@given(lines=SEVERAL)
@example(lines=[])
@example(lines=[*ODD, *LINES])
def test_ids_equal_those_of_encode(vocabulary, lines):
    ragged, actual = vocabulary.encode_with_spans(lines)
    expected = vocabulary.encode(lines)
    assert ragged.ids.dtype == expected.ids.dtype and (ragged.ids == expected.ids).all()
    assert (ragged.lengths == expected.lengths).all() and len(ragged.lengths) == len(lines)
    assert actual.shape == (len(ragged.ids), 2) and actual.dtype == np.int32


@given(lines=SEVERAL)
@example(lines=[*ODD, *LINES[:100]])
def test_spans_are_in_order_within_the_line_and_cover_its_letters(vocabulary, lines):
    for line, _, actual in by_line(vocabulary, lines):
        begins, ends = actual.T
        assert (0 <= begins).all() and (begins <= ends).all() and (ends <= len(line)).all()
        begins, ends = actual[begins < ends].T
        assert (np.diff(begins) >= 0).all() and (np.diff(ends) >= 0).all()
        covered = set()
        for begin, end in actual.tolist():
            assert line[begin:end] == line[begin:end].strip()
            covered.update(range(begin, end))
        letters = {i for i, c in enumerate(line) if unicodedata.category(c)[0] in "LN"}
        assert letters <= covered, line


def test_spans_select_the_text_of_the_pieces(vocabulary):
    compared = pieces = 0
    for line, ids, actual in by_line(vocabulary, LINES):
        for i, (begin, end) in zip(ids.tolist(), actual.tolist(), strict=True):
            text = vocabulary.pieces[i].strip("\u2581").removeprefix("##")
            if vocabulary.markers == "byte_bpe":
                text = decode(vocabulary, [i]).strip()
            is_comparable = text != "<unk>" and "\ufffd" not in text and not text.startswith("<0x")
            if is_comparable:
                assert line[begin:end] == text
            compared, pieces = compared + is_comparable, pieces + 1
    assert pieces > 10_000 and compared > 0.97 * pieces


def test_a_character_of_several_pieces_is_in_the_span_of_each():
    """½ becomes 1, U+2044 and 2; each byte piece of SentencePiece has the span of its whole
    character."""
    vocabulary = make_vocabulary("bytes")
    ((_, ids, actual),) = by_line(vocabulary, ["ab 漢 ½"])
    pieces = [vocabulary.pieces[i] for i in ids]
    spans_of = dict(zip(range(len(pieces)), actual.tolist(), strict=True))
    han = [i for i, piece in enumerate(pieces) if piece in ("<0xE6>", "<0xBC>", "<0xA2>")]
    slash = [i for i, piece in enumerate(pieces) if piece in ("<0xE2>", "<0x81>", "<0x84>")]
    assert len(han) == len(slash) == 3
    assert all(spans_of[i] == [3, 4] for i in han) and all(spans_of[i] == [5, 6] for i in slash)
    assert spans_of[len(pieces) - 1] == [5, 6] and (actual[:, 1] <= 6).all()


def test_tidy_corrects_the_spans_that_a_tokenizer_reports():
    lines = ["  ab c\u3000", "", "½"]
    as_reported = [(1, 4), (4, 5), (4, 5), (5, 7), (6, 7), (0, 1), (0, 0), (0, 1)]
    markers = np.array([False, False, True, False, False, True, False, False])
    expected = [(2, 4), (5, 5), (4, 4), (5, 6), (7, 7), (0, 0), (0, 1), (0, 1)]
    actual = tidy_spans(lines, np.array([5, 0, 3]), np.array(as_reported, np.int32), markers)
    assert actual.dtype == np.int32 and actual.tolist() == [list(span) for span in expected]


BLANKS = " \t\u3000\u200b\ufeff"


@st.composite
def reported_spans(draw):
    """(line, [begin, end, is_marker] of its pieces), as a tokenizer may report them."""
    line = draw(st.text(f"ab½漢😀{BLANKS}", max_size=12))
    count = draw(st.integers(0, 6))
    places = [st.lists(st.integers(0, len(line)), min_size=count, max_size=count)] * 2
    begins, ends = (sorted(draw(some)) for some in places)
    markers = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return line, [(min(b, e), e, m) for b, e, m in zip(begins, ends, markers, strict=True)]


def tidied(line, pieces):
    """The spans of a line's pieces, computed one by one."""
    pieces = [(begin, begin if marker else end, marker) for begin, end, marker in pieces]
    for number, (begin, end, marker) in enumerate(pieces):
        following = next((p for p in pieces[number:] if p[0] < p[1]), None)
        if following and following[0] == begin and not marker:
            end = following[1]
        lead = len(line[begin:end]) - len(line[begin:end].lstrip(BLANKS))
        yield begin + lead, begin + max(lead, len(line[begin:end].rstrip(BLANKS)))


@given(st.lists(reported_spans(), max_size=5))
def test_tidy_equals_a_loop(lines):
    every = np.array([piece for _, pieces in lines for piece in pieces], np.int32).reshape(-1, 3)
    lengths = np.array([len(pieces) for _, pieces in lines], np.int64)
    actual = tidy_spans([line for line, _ in lines], lengths, every[:, :2], every[:, 2] == 1)
    assert [*map(tuple, actual.tolist())] == [span for line in lines for span in tidied(*line)]
