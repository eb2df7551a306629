"""Extended vocabularies cover new languages, split old text as before, and reuse old rows."""

import io
import itertools
import json

import numpy as np
import pytest
import sentencepiece
from decoding import decode
from tokenizers.implementations import BertWordPieceTokenizer

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.sentencepiece_json import from_sentencepiece
from xlj.interop.vocabulary_extension import add_characters, extend, initial_rows
from xlj.interop.vocabulary_matching import RULES, embeddings


def text(language, start, stop):
    return list(itertools.islice(phrasebook.text_lines(language), start, stop))


@pytest.fixture(scope="module")
def old():
    lines = {"en": text("en", 0, 2000), "fr": text("fr", 0, 2000)}
    return Vocabulary(vocabulary_training.train(lines, {"en": 1, "fr": 1}, 600, 1.0))


@pytest.fixture(scope="module")
def hindi(old):
    return extend(old, text("hi", 0, 1500), 200)


@pytest.fixture(scope="module")
def swahili(old):
    return extend(old, text("sw", 0, 1500), 150)


def unchanged(old, new, lines):
    """Returns the share of old tokens that are in lines whose ids did not change."""
    pairs = zip(old.encode_batch(lines), new.encode_batch(lines), strict=True)
    same = [len(before) * np.array_equal(before, after) for before, after in pairs]
    return sum(same) / len(old.encode(lines).ids)


def test_old_pieces_keep_their_ids_and_scores(old, hindi, tmp_path):
    assert hindi.size == old.size + 200 == len(set(hindi.pieces))
    assert hindi.pieces[: old.size - 1] == old.pieces[:-1]
    assert hindi.pieces[hindi.mask] == "<mask>" == old.pieces[old.mask]
    before, after = (
        sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
        for vocabulary in (old, hindi)
    )
    ids = range(before.get_piece_size())
    assert [before.get_score(i) for i in ids] == [after.get_score(i) for i in ids]
    (tmp_path / "new.model").write_bytes(hindi.model)
    assert Vocabulary.load(tmp_path / "new.model") == hindi


def test_text_in_a_new_script_is_covered_and_old_text_is_split_as_before(old, hindi):
    unseen = text("hi", 1500, 2000)
    assert (old.encode(unseen).ids == UNK).mean() > 0.3
    encoded = hindi.encode(unseen)
    assert (encoded.ids == UNK).mean() < 0.01
    assert len(encoded.ids) < 0.7 * sum(map(len, unseen))  # words, not letters
    assert [decode(hindi, ids) for ids in hindi.encode_batch(unseen[:5])] == unseen[:5]
    for language in ("en", "fr"):
        assert unchanged(old, hindi, text(language, 2000, 2500)) > 0.97


def test_text_in_a_known_script_needs_fewer_tokens(old, swahili):
    unseen = text("sw", 1500, 2000)
    tokens = len(old.encode(unseen).ids)
    assert len(swahili.encode(unseen).ids) < 0.8 * tokens
    for language in ("en", "fr"):
        assert unchanged(old, swahili, text(language, 2000, 2500)) > 0.95


def test_a_larger_share_splits_new_text_less_and_changes_old_text_more(old, swahili):
    smaller, larger = (extend(old, text("sw", 0, 1500), 150, share) for share in (1e-8, 1.0))
    assert smaller.pieces == larger.pieces == swahili.pieces
    unseen, known = text("sw", 1500, 2000), text("fr", 2000, 2500)
    assert len(larger.encode(unseen).ids) < len(smaller.encode(unseen).ids)
    assert unchanged(old, larger, known) < unchanged(old, smaller, known)


def test_new_text_is_normalised_like_the_vocabulary():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text("en", 0, 2000)), model_writer=model, vocab_size=300,
        normalization_rule_name="nmt_nfkc_cf", minloglevel=2,
    )  # fmt: skip
    old = Vocabulary(model.getvalue())
    added = extend(old, text("de", 0, 1500), 100).pieces[old.size - 1 : -1]
    assert len(added) == 100 and all(piece == piece.lower() for piece in added)


def test_new_rows_in_a_known_script_come_from_old_rows(old, swahili):
    matches = initial_rows(old, swahili)
    rules = np.array(RULES)[matches.rules]
    specials = [0, 1, 2, 3, swahili.mask]
    assert set(rules[specials]) == {"special"}
    assert set(rules[4 : old.mask]) == {"exact"} and "pieces" in rules[old.mask :]
    ids = np.split(matches.sources.ids, matches.sources.starts[1:])
    for new_id, (piece, rule) in enumerate(zip(swahili.pieces, rules, strict=True)):
        if rule == "none":
            assert not len(ids[new_id])
        else:  # one old piece, or the old pieces that spell the new one
            assert "".join(old.pieces[i] for i in ids[new_id]) == piece
            assert (len(ids[new_id]) == 1) == (rule != "pieces")
    assert ids[swahili.mask] == [old.mask]

    table = np.random.default_rng(0).normal(size=(old.size, 8)).astype(np.float32)
    rows = embeddings(table, matches, "sampled", 0.02, 0)
    assert (rows[: old.mask] == table[:-1]).all() and (rows[-1] == table[-1]).all()
    several = int(np.flatnonzero(rules == "pieces")[0])
    np.testing.assert_allclose(rows[several], table[ids[several]].mean(0), rtol=1e-5, atol=1e-6)


def test_pieces_in_a_new_script_match_no_old_row(old, hindi):
    rules = np.array(RULES)[initial_rows(old, hindi).rules]
    native = [any("\u0900" <= letter < "\u0980" for letter in piece) for piece in hindi.pieces]
    assert sum(native) > 150 and set(rules[native]) == {"none"}


ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
GREEK = ["αβγ αβ α", "βα γα", "α"]
"""6 alphas, 3 betas, 2 gammas, 3 spaces."""


@pytest.mark.parametrize("form", ["sentencepiece", "tokenizer.json", "bpe"])
def test_characters_get_pieces_however_little_text_there_is(old, form):
    before = old
    if form == "bpe":
        lines = {"en": text("en", 0, 500)}
        before = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 400, 1.0, "bpe"))
    elif form == "tokenizer.json":
        before = Vocabulary(from_sentencepiece(old.model, old.pieces, ROBERTA))
    assert (before.encode(GREEK).ids == UNK).any()
    new, count = add_characters(before, [*GREEK, "the"])
    assert count == 3 and new.size - before.size == 3
    assert sorted(set(new.pieces) - set(before.pieces)) == ["α", "β", "γ"]
    assert [decode(new, ids) for ids in new.encode_batch(GREEK)] == GREEK
    assert unchanged(before, new, text("en", 500, 600)) == 1
    same, count = add_characters(before, text("en", 0, 100))
    assert count == 0 and same.pieces == before.pieces
    if form == "sentencepiece":
        model = sentencepiece.SentencePieceProcessor(model_proto=new.model)
        scores = [model.get_score(model.piece_to_id(letter)) for letter in "αβγ"]
        shares = np.array([6, 3, 2]) / 17  # of 17 characters, with "the"
        np.testing.assert_allclose(scores, np.log(0.01 * shares), atol=1 / 256)


def test_an_unchanged_vocabulary_keeps_its_rows(old):
    matches = initial_rows(old, old)
    assert (matches.sources.lengths == 1).all()
    assert (matches.sources.ids == np.arange(old.size)).all()


def test_too_many_or_too_few_pieces_are_refused(old):
    with pytest.raises(
        ConfigError, match="--pieces=100000: this text does not yield 100,000 new pieces.*at most"
    ):
        extend(old, text("sw", 0, 300), 100_000)
    with pytest.raises(
        ConfigError, match="--pieces=10: this text does not yield 10 new pieces.*at least"
    ):
        extend(old, text("zh", 0, 300), 10)


def character_model():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text("en", 0, 500)), model_writer=model, vocab_size=200,
        model_type="char", hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return Vocabulary(model.getvalue())


def wordpiece_model():
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(text("en", 0, 100), vocab_size=90)
    return Vocabulary(tokenizer.to_str().encode())


@pytest.mark.parametrize(
    "make, message",
    [
        (character_model, "expected a SentencePiece model or a tokenizer.json with a unigram or"),
        (
            wordpiece_model,
            "the tokenizer.json has a WordPiece model, which xlj cannot extend",
        ),
    ],
)
def test_unsupported_vocabularies_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        extend(make(), ["a b"], 1)


@pytest.fixture(scope="module", params=["mask in the model", "mask added"])
def of_json(old, request):
    """The vocabulary as a tokenizer.json, the form of most unigram folders."""
    content = from_sentencepiece(old.model, old.pieces, ROBERTA)
    description = json.loads(content)
    if request.param == "mask added":  # after the model's pieces, with its own id
        assert description["model"]["vocab"].pop()[0] == "<mask>"
        description["added_tokens"].append(
            {**description["added_tokens"][-1], "content": "[SEP2]", "id": old.size}
        )
    return Vocabulary(json.dumps(description).encode())


@pytest.mark.parametrize("language, share", [("hi", None), ("sw", 0.2)])
def test_a_tokenizer_json_is_extended_like_its_sentencepiece_model(of_json, old, language, share):
    lines = text(language, 0, 600)
    new, expected = extend(of_json, lines, 60, share), extend(old, lines, 60, share)
    assert new.size == of_json.size + 60
    assert set(new.pieces) - set(of_json.pieces) == set(expected.pieces) - set(old.pieces)
    has_id = of_json.native_ids >= 0
    places = {piece: i for piece, i in zip(new.pieces, new.native_ids, strict=True)}
    before = dict(zip(of_json.pieces, of_json.native_ids, strict=True))
    assert has_id.all() and all(places[piece] == i for piece, i in before.items())
    for line in (*text(language, 600, 650), *text("fr", 2000, 2050)):
        result = [new.pieces[i] for i in new.encode_batch([line])[0]]
        assert result == [expected.pieces[i] for i in expected.encode_batch([line])[0]]

    def initial_sources(vocabulary, base):
        matches = initial_rows(base, vocabulary)
        ids = np.split(matches.sources.ids, matches.sources.starts[1:])
        return {
            piece: ([base.pieces[i] for i in row], rule)
            for piece, row, rule in zip(vocabulary.pieces, ids, matches.rules, strict=True)
        }

    result = initial_sources(new, of_json)
    result.pop("[SEP2]", None)
    assert result == initial_sources(expected, old)
