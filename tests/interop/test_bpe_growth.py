"""Extended BPE vocabularies: new pieces have merges, and old pieces are only joined further.

The rows of a new piece come from the old pieces that it was split into.
"""

import io
import itertools
import json

import numpy as np
import pytest
import sentencepiece
from decoding import decode
from modern_tokenizers import MODERN
from real_text import LANGUAGES, lines_of
from tokenizers import Tokenizer

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.vocabulary_extension import extend, initial_rows
from xlj.interop.vocabulary_matching import RULES

SIZE = {"modernbert": 500, "mmbert": 700, "eurobert": 500}
KINDS = [*MODERN, "sentencepiece"]
NEW = 120
NEW_LANGUAGES = ("yo", "sw")


def text(language, start, stop):
    return list(itertools.islice(phrasebook.text_lines(language), start, stop))


def train_sentencepiece(lines, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type="bpe",
        minloglevel=2,
    )  # fmt: skip
    return Vocabulary(model.getvalue())


def train(kind, lines, size):
    if kind == "sentencepiece":
        return train_sentencepiece(lines, size)
    return Vocabulary(MODERN[kind](lines, size).to_str().encode())


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def old(kind):
    return train(kind, text("en", 0, 500) + text("fr", 0, 500), SIZE.get(kind, 300))


@pytest.fixture(scope="module")
def new(old):
    return extend(old, text("sw", 0, 500) + text("hi", 0, 300), NEW)


def added(old, new):
    return new.pieces[old.mask : new.mask]


def split_by_library(vocabulary, piece):
    """Splits a piece with the library's model alone, without normalisation."""
    if vocabulary.model.startswith(b"{"):
        model = Tokenizer.from_str(vocabulary.model.decode()).model
        return [token.value for token in model.tokenize(piece)]
    proto = sentencepiece.sentencepiece_model_pb2.ModelProto.FromString(vocabulary.model)
    proto.normalizer_spec.Clear()
    proto.normalizer_spec.add_dummy_prefix = False
    literal = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return literal.encode(piece, out_type=str)


def test_old_pieces_keep_their_ids(old, new):
    assert new.size == old.size + NEW and not {*old.pieces} & {*added(old, new)}
    assert new.pieces[: old.mask] == old.pieces[:-1]
    assert new.native_specials == old.native_specials
    if old.model.startswith(b"{"):
        assert new.native_special_ids == old.native_special_ids
        assert (new.native_ids[: old.mask] == old.native_ids[:-1]).all()
        expected = np.arange(old.native_size, new.native_size)
        assert (new.native_ids[old.mask : new.mask] == expected).all()
        one, other = (Tokenizer.from_str(v.model.decode()) for v in (old, new))
        assert one.get_vocab().items() <= other.get_vocab().items()
        assert one.encode("a", "b").ids == other.encode("a", "b").ids


def test_the_library_produces_each_new_piece(old, new):
    for piece in added(old, new):
        assert split_by_library(new, piece) == [piece]
        assert len(split_by_library(old, piece)) > 1 or piece not in old.pieces


def test_no_new_piece_crosses_words(old, new):
    assert not [piece for piece in added(old, new) if "\u2581" in piece[1:].lstrip("\u2581")]
    assert not [piece for piece in added(old, new) if "<0x" in piece or "\u0120" in piece[1:]]


def test_text_that_spells_a_special_token_does_not_become_a_special_token(old):
    """The same holds for byte pieces. Some characters are too rare to get a piece."""
    names = ("[MASK]", "<s>", "<mask>", "<|mask|>", "<0x41>")
    around = zip("abcdefgh", "hgfedcba", strict=True)
    spelled = [f"{one}{name}{other}" for one, other in around for name in names]
    lines = [*spelled * 9, *text("sw", 0, 60), *["\U0001f600 \U0001f601"] * 2]
    with pytest.raises(ConfigError) as caught:
        extend(old, lines, 50_000)
    most = int(str(caught.value).split("at most ")[1].split()[0].replace(",", ""))
    new = extend(old, lines, most)
    assert new.size == old.size + most > old.size + 100
    unseen = [f"q{name}u" for name in names]
    assert UNK not in new.encode([*spelled, *unseen]).ids
    assert not [piece for piece in added(old, new) if piece.startswith("<0xF0>")]
    for piece in added(old, new)[-20:]:
        assert split_by_library(new, piece) == [piece]


def test_text_is_split_into_fewer_pieces_and_decoded_unchanged(old, new):
    for language in ("sw", "hi"):
        unseen = text(language, 500, 600)
        encoded = new.encode(unseen)
        if UNK not in (before := old.encode(unseen).ids):
            assert len(encoded.ids) < 0.9 * len(before)
        assert (encoded.ids == UNK).mean() < 0.02
        if not (encoded.ids == UNK).any():
            decoded = [decode(new, ids).strip() for ids in new.encode_batch(unseen[:9])]
            assert decoded == unseen[:9]
    # New pieces join old ones; no old piece is split.
    known = text("fr", 500, 600)
    for before, after in zip(old.encode_batch(known), new.encode_batch(known), strict=True):
        ends = [
            np.cumsum([len(v.pieces[i]) for i in ids]) for v, ids in ((old, before), (new, after))
        ]
        if UNK not in before:
            assert {*ends[1]} <= {*ends[0]}


def test_new_rows_come_from_old_pieces(old, new):
    matches = initial_rows(old, new)
    rules = np.array(RULES)[matches.rules]
    sources = np.split(matches.sources.ids, matches.sources.starts[1:])
    assert [source.tolist() for source in sources[: old.mask]] == [[i] for i in range(old.mask)]
    assert sources[-1].tolist() == [old.mask] and rules[-1] == "special"
    for number, piece in enumerate(added(old, new), old.mask):
        expected = [old.pieces[i] for i in sources[number]]
        if rules[number] == "none":
            assert not expected and old.markers == "sentencepiece"
        else:
            assert rules[number] == "pieces" and expected == split_by_library(old, piece)


def test_the_same_text_gives_the_same_vocabulary(kind, old, new):
    if kind == "eurobert":
        assert extend(old, text("sw", 0, 500) + text("hi", 0, 300), NEW) == new


def test_too_many_or_too_few_pieces_are_refused(kind, old):
    with pytest.raises(ConfigError, match="--pieces=90000: this text yields at most .* new pieces"):
        extend(old, text("sw", 0, 20), 90_000)
    if kind in ("mmbert", "sentencepiece"):
        with pytest.raises(
            ConfigError, match=r"--pieces=3 is too small: .* has \d+ characters without a piece"
        ):
            extend(old, text("hi", 0, 300), 3)
    with pytest.raises(
        ConfigError,
        match="--share=0.5 has no effect on a BPE vocabulary, whose pieces have no prob",
    ):
        extend(old, text("sw", 0, 20), 3, share=0.5)


def test_merges_that_are_written_as_text_are_read(old, new):
    """Releases of the tokenizers library before 0.20 wrote merges as text."""
    if not old.model.startswith(b"{"):
        return
    content = json.loads(old.model)
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    older = Vocabulary(json.dumps(content).encode())
    lines = text("sw", 0, 500) + text("hi", 0, 300)
    assert extend(older, lines, NEW).pieces == new.pieces


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_per_word_of_real_text(kind):
    """Prints the pieces per word that docs/experiments/tokenizers.md reports.

    A vocabulary of 28 languages gets 1,000 pieces of a new language from 2,000 lines. The pieces
    per word are counted in the next 1,000 lines.
    """
    others = [
        line for name in LANGUAGES if name not in NEW_LANGUAGES for line in lines_of(name, 0, 500)
    ]
    old = train(kind, others, 16_000)
    for name in NEW_LANGUAGES:
        new = extend(old, lines_of(name, 0, 2000), 1000)
        unseen = lines_of(name, 2000, 3000)
        words = sum(len(line.split()) for line in unseen)
        before, after = (len(v.encode(unseen).ids) / words for v in (old, new))
        print(f"{kind} {name}: {before:.2f} -> {after:.2f} pieces per word")
        assert after < 0.8 * before
