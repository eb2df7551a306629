"""The exported normaliser equals SentencePiece's, for all code points."""

import io
import random
import sys
import unicodedata

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

from xlj import phrasebook
from xlj.interop import nfkc

RULES = ("nmt_nfkc", "nfkc")


def processor(rule):
    """(a model with this rule, a SentencePiece that does not change spaces)."""
    model = io.BytesIO()
    lines = [line for _, line in zip(range(500), phrasebook.text_lines("en"), strict=False) if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=100, hard_vocab_limit=False,
        normalization_rule_name=rule, minloglevel=2,
    )  # fmt: skip
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    spec = proto.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
    return spec, sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


@pytest.fixture(scope="module", params=RULES)
def both(request):
    """(SentencePiece's normaliser, the exported one, one with the rules only)."""
    spec, sentences = processor(request.param)
    assert spec.name == request.param
    exported = nfkc.normalizer(spec.precompiled_charsmap)
    plain = normalizers.Precompiled(spec.precompiled_charsmap)
    return sentences.normalize, exported.normalize_str, plain.normalize_str


def wrong(both, texts):
    """Returns the texts with errors of the exported normaliser, and the number with errors of the
    plain one."""
    right, exported, plain = both
    return (
        [text for text in texts if exported(text) != right(text)],
        sum(plain(text) != right(text) for text in texts),
    )


def characters():
    """All that has a decomposition, and all of the first plane's first half and of its last 8,192
    that are no surrogates; others stand for themselves."""
    codes = [*range(1, 0x8000), *range(0xE000, 0x10000)]
    others = (c for c in range(0x10000, sys.maxunicode) if unicodedata.decomposition(chr(c)))
    return [chr(c) for c in (*codes, *others)]


def test_single_characters(both):
    assert wrong(both, characters()) == ([], 0)


@pytest.mark.parametrize("form", ["NFD", "NFKD"])
def test_decompositions(both, form):
    whole = [*characters(), *map(chr, range(0xAC00, 0xD7A4))]
    texts = [unicodedata.normalize(form, c) for c in whole]
    found, plain = wrong(both, [text for text in texts if len(text) > 1])
    assert plain > 11_000  # Hangul, and letters with two marks
    # A letter of Unicode 13, which SentencePiece's tables are newer than those of tokenizers for.
    assert set(found) <= {unicodedata.normalize(form, "\U00011938")}


def test_letters_that_are_composed_in_part(both):
    """SentencePiece has whole decompositions only, so it does not compose a further mark."""
    letters, tones = "aăâeêioôơuưyẹọạ", "\u0300\u0301\u0303\u0309\u0323\u0302\u0306"
    texts = [f"x{letter}{tone}y" for letter in letters for tone in tones]
    assert wrong(both, texts)[0] == []
    right = both[0]
    assert right("ô\u0303") == "ô\u0303" and right("o\u0302\u0303") == "ỗ"


def test_marks_in_any_order(both):
    """At most 1 in 100 stacks of random marks differ; no language has such stacks."""
    rng = random.Random(0)
    marks = [chr(c) for c in range(0x300, 0x370)]
    letters = "aeiouAEIOUncszgyơăâêôđ①ﬁａﾊｶ"
    texts = [
        rng.choice(letters) + "".join(rng.choices(marks, k=rng.randint(1, 3))) for _ in range(5000)
    ]
    found, plain = wrong(both, texts)
    assert len(found) <= 50 and plain >= 250
