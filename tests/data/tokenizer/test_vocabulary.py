"""Vocabularies have XLM-R's layout and balanced languages, and errors name the reason.

Fertility counts words, pieces and unknown pieces.
"""

import io
import itertools
import math
import random

import numpy as np
import pytest
import sentencepiece
from decoding import decode
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility


def words(seed: int, count: int, letters: str = "abcdefghijklmnoprstuvwz") -> list[str]:
    """Lines of random words that repeat often, like real words."""
    rng = random.Random(seed)
    lexicon = ["".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(400)]
    return [" ".join(rng.choices(lexicon, k=rng.randint(3, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return words(0, 2000)


@pytest.fixture(scope="module")
def vocabulary(lines) -> Vocabulary:
    return Vocabulary(vocabulary_training.train({"en": lines}, {"en": 1}, 400, 1.0))


def test_sums_of_scores_are_exact_in_float32(vocabulary):
    """Otherwise, implementations could resolve ties of splits differently (docs/tokenizers.md)."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    scores = np.array([processor.get_score(i) for i in range(processor.get_piece_size())])
    line = np.random.default_rng(0).choice(scores, 5000)
    assert len(np.unique(scores)) > 30
    assert line.astype(np.float32).cumsum(dtype=np.float32)[-1] == line.sum()
    assert line[::-1].astype(np.float32).cumsum(dtype=np.float32)[-1] == line.sum()


def test_the_vocabulary_has_the_layout_of_xlm_r(vocabulary):
    assert vocabulary.size == 400 == len(vocabulary.pieces)
    assert vocabulary.pieces[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert vocabulary.pieces[vocabulary.mask] == "<mask>" and vocabulary.mask == 399
    assert vocabulary.dtype == np.uint16
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    assert [vocabulary.pieces[i + 1] for i in range(3, 398)] == [
        processor.id_to_piece(i) for i in range(3, 398)
    ]


def test_decoding_restores_the_text(vocabulary, lines):
    ragged = vocabulary.encode(lines)
    encoded = np.split(ragged.ids, ragged.starts[1:])
    assert [decode(vocabulary, ids) for ids in encoded] == lines
    wrapped = [0, *encoded[0], 2, vocabulary.mask, 1, 1]
    assert decode(vocabulary, wrapped) == lines[0]
    assert len(vocabulary.encode([]).ids) == 0 == vocabulary.encode(["", "ab"]).lengths[0]


def test_text_is_never_encoded_as_special_tokens(vocabulary):
    text = "<s> </s> <pad> <mask> 漢 ☃ \0"
    ids = vocabulary.encode([text]).ids
    assert UNK in ids
    assert not set(ids.tolist()) & {0, 1, 2, vocabulary.mask}


def test_files_that_are_not_a_suitable_model_are_refused(tmp_path, lines, monkeypatch):
    (tmp_path / "text").write_text("no model")
    with pytest.raises(
        ConfigError, match="text is neither a SentencePiece model nor a tokenizer.json"
    ):
        Vocabulary.load(tmp_path / "text")
    with pytest.raises(ConfigError, match="No such file"):
        Vocabulary.load(tmp_path / "absent")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        ConfigError, match="text is neither a SentencePiece model nor a tokenizer.json"
    ):
        Vocabulary.load("~/text")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=300, pad_id=0, unk_id=3,
        bos_id=1, eos_id=2, minloglevel=2,
    )  # fmt: skip
    (tmp_path / "other").write_bytes(model.getvalue())
    with pytest.raises(ConfigError, match=r"<unk>, <s>, </s> with the ids \[3, 1, 2\]"):
        Vocabulary.load(tmp_path / "other")


def test_a_model_with_a_piece_that_is_not_utf_8_is_refused(lines, tmp_path):
    raw = vocabulary_training.train({"en": lines}, {"en": 1}, 300, 1.0)
    piece = next(p.piece for p in ModelProto.FromString(raw).pieces[5:] if len(p.piece) > 3)
    (tmp_path / "model").write_bytes(raw.replace(piece.encode(), b"\xff" * len(piece.encode()), 1))
    with pytest.raises(ConfigError, match=r"model is damaged: its piece \d+ is not UTF-8"):
        Vocabulary.load(tmp_path / "model")


BOTH_KINDS = pytest.mark.parametrize("kind", ["unigram", "bpe"])


@BOTH_KINDS
def test_too_large_a_size_names_the_largest_possible(kind):
    few = words(1, 150)
    with pytest.raises(ConfigError, match="at most") as error:
        vocabulary_training.train({"en": few}, {"en": 1}, 100_000, 1.0, kind)
    largest = int(str(error.value).split("at most ")[1].split()[0])
    vocabulary = Vocabulary(vocabulary_training.train({"en": few}, {"en": 1}, largest, 1.0, kind))
    assert vocabulary.size == largest
    with pytest.raises(ConfigError, match="at most"):
        vocabulary_training.train({"en": few}, {"en": 1}, largest + 1, 1.0, kind)


@BOTH_KINDS
def test_too_small_a_size_names_the_smallest_possible(kind):
    text = {"en": words(1, 150)}
    with pytest.raises(ConfigError, match="at least") as error:
        vocabulary_training.train(text, {"en": 1}, 10, 1.0, kind)
    least = int(str(error.value).split("at least ")[1].split()[0])
    vocabulary = Vocabulary(vocabulary_training.train(text, {"en": 1}, least, 1.0, kind))
    assert vocabulary.size == least


def test_bpe_joins_the_most_frequent_pairs():
    text = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    vocabulary = Vocabulary(vocabulary_training.train({"en": text}, {"en": 1}, 20, 1.0, "bpe"))
    # e+s and s+t occur 9 times, then es+t: the paper's example (Sennrich et al., 2016)
    assert {"es", "est", "lo"} <= set(vocabulary.pieces)  # a unigram vocabulary lacks `es` and `lo`
    trainer = ModelProto.FromString(vocabulary.model).trainer_spec
    assert trainer.model_type == trainer.BPE


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("lines", [1000, 100_000, 10_000_000])
def test_balance_reaches_the_requested_shares_of_characters(alpha, lines):
    sentences = {"a": 1_000_000, "b": 50_000, "c": 900}
    characters = {"a": 90_000_000, "b": 1_500_000, "c": 45_000}
    taken, weights = vocabulary_training.balance(sentences, characters, alpha, lines)
    assert sum(taken.values()) <= lines + len(taken)
    assert all(taken[name] <= sentences[name] for name in taken)
    assert sum(taken.values()) >= 0.9 * min(lines, sum(sentences.values()))
    amounts = {n: taken[n] * weights[n] * characters[n] / sentences[n] for n in taken}
    total = sum(v**alpha for v in characters.values())
    for name in taken:
        share = amounts[name] / sum(amounts.values())
        assert share == pytest.approx(characters[name] ** alpha / total, rel=0.35)


def test_balance_counts_the_whole_text_if_only_a_part_was_measured():
    sentences, characters = {"a": 10_000, "b": 10_000}, {"a": 300_000, "b": 300_000}
    taken, weights = vocabulary_training.balance(
        sentences, characters, 0.5, 3000, {"a": 0.01, "b": 0.16}
    )
    assert taken == {"a": 2400, "b": 600} and weights == {"a": 1, "b": 1}


def test_weights_reach_the_trainer():
    rare, common = words(4, 300, "αβγδεζη"), words(5, 300, "abcdefg")

    def greek(weights) -> int:
        model = vocabulary_training.train({"el": rare, "en": common}, weights, 300, 1.0)
        return sum(any(c in "αβγδεζη" for c in piece) for piece in Vocabulary(model).pieces)

    assert greek({"el": 20, "en": 1}) > greek({"el": 1, "en": 20}) + 20


def test_long_lines_are_split_and_not_dropped():
    long = " ".join(words(6, 300))
    parts = list(vocabulary_training.split(long))
    assert len(parts) > 1 and " ".join(parts) == long
    unbroken = "漢字" * 5000
    parts = list(vocabulary_training.split(unbroken))
    assert "".join(parts) == unbroken and max(len(p.encode()) for p in parts) <= 4000
    vocabulary_training.train({"en": [long] * 5}, {"en": 1}, 100, 1.0)  # nothing else to train on


def test_lines_are_encoded_as_sentencepiece_does(vocabulary, lines):
    """Compares with SentencePiece's public method, which encodes one line at a time."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    for some in (lines[:50], ["", " ", "ünbekannt 漢字 \u0000 x", "<s> </s> <mask>", ""], []):
        expected = [processor.encode(line) for line in some]
        actual = vocabulary.encode(some)
        assert actual.lengths.tolist() == [len(ids) for ids in expected]
        flat = [n + 1 if n else UNK for ids in expected for n in ids]
        assert actual.ids.tolist() == flat


def test_words_pieces_and_unknown_pieces_are_counted():
    lines = {"en": list(itertools.islice(phrasebook.text_lines("en"), 300))}
    vocabulary = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 200, 1.0))
    text = ["the cook opens the door", "Ж 我们今天", ""]
    counts = measure_fertility(vocabulary, text)
    pieces = [len(ids) for ids in vocabulary.encode_batch(text)]
    assert counts.words == 5 + 3
    assert counts.pieces == sum(pieces)
    assert counts.unknown == 2  # runs of unknown characters
    assert counts.pieces_per_word == sum(pieces) / 8
    assert counts.unknown_share == 2 / sum(pieces)


def test_no_text_has_no_fertility():
    vocabulary = Vocabulary(vocabulary_training.train({"en": ["a b c"] * 9}, {"en": 1}, 9, 1.0))
    counts = measure_fertility(vocabulary, [])
    assert math.isnan(counts.pieces_per_word)
    assert counts.unknown_share == 0
