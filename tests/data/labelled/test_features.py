"""Labels stay at their tokens when texts are truncated or split."""

import io
import shutil

import numpy as np
import pytest
import sentencepiece
from modern_tokenizers import modernbert

from xlj import phrasebook
from xlj.data.labelled import features
from xlj.data.labelled.examples import Sentences, Words
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.data.tokenizer.layout import BOS, EOS, PAD, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.finetuning import task_data

LINES = [line for line in phrasebook.text_lines("de") if line][:1500]
LABELS = {"no": 0, "yes": 1}


@pytest.fixture(scope="module")
def vocabulary():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=300, minloglevel=2
    )
    return Vocabulary(model.getvalue())


def test_a_pair_becomes_a_row_with_two_sides(vocabulary):
    texts = ("Die Katze schläft .", "Der Hund läuft .")
    rows = features.of_sentences(
        [Sentences(texts, "yes", "f:1"), Sentences(texts[:1], None, "f:2")], vocabulary, LABELS, 64
    )
    first, second = vocabulary.encode_batch(texts)
    row = [BOS, *first, EOS, *second, EOS]
    assert rows.tokens[0].tolist() == row + [PAD] * (64 - len(row))
    assert rows.tokens[1].tolist() == [BOS, *first, EOS] + [PAD] * (62 - len(first))
    assert rows.labels["labels"].tolist() == [[2], [0]]
    assert rows.cut == {"examples": 0}


@pytest.mark.parametrize("length", [64, 14])
def test_sides_that_are_encoded_separately_are_two_examples_in_one_row(vocabulary, length):
    texts = ("Die Katze schläft .", "Der Hund läuft .")
    rows = features.of_sentences([Sentences(texts, "yes", "")], vocabulary, LABELS, length, True)
    first, second = (ids.tolist() for ids in vocabulary.encode_batch(texts))
    while len(first) + len(second) > length - 4:
        (first if len(first) >= len(second) else second).pop()
    row = [BOS, *first, EOS, BOS, *second, EOS]
    assert rows.tokens.tolist() == [row + [PAD] * (length - len(row))]
    assert rows.cut["examples"] == (length == 14)


@pytest.mark.parametrize("sizes", [(30, 4), (4, 30), (30, 30), (3, 3), (0, 40), (40, 0), (17, 9)])
def test_pairs_that_are_too_long_lose_the_end_of_the_longer_side(vocabulary, sizes):
    word = next(p[1:] for p in vocabulary.pieces[5:] if p.startswith("\u2581") and p[1:].isalpha())
    assert len(vocabulary.encode_batch([f"{word} {word}"])[0]) == 2
    texts = tuple(" ".join([word] * size) for size in sizes)
    rows = features.of_sentences([Sentences(texts, "no", "f:1")], vocabulary, LABELS, 23)
    row = rows.tokens[0]
    ends = np.flatnonzero(row == EOS)
    lengths = [ends[0] - 1, ends[1] - ends[0] - 1]
    # Removes tokens from the longer side (or the first of equal sides), as XTREME's scripts do.
    expected = list(sizes)
    while sum(expected) > 20:
        expected[0 if expected[0] >= expected[1] else 1] -= 1
    assert sorted(lengths) == sorted(expected)
    assert (lengths[0] < lengths[1]) == (expected[0] < expected[1]) or lengths[0] + lengths[1] == 20
    assert rows.cut["examples"] == (sum(sizes) > 20)
    assert len(ends) == 2 and (row[ends[1] + 1 :] == PAD).all()


def test_words_are_labelled_at_their_first_piece_and_no_word_is_lost(vocabulary):
    rng = np.random.default_rng(0)
    words = [word for line in LINES[:300] for word in line.split()]
    examples = []
    for number in range(200):
        size = int(rng.integers(1, 60))
        sentence = tuple(rng.choice(words, size)) + ("\u200b",) * (number % 5 == 0)
        tags = tuple(rng.choice(["no", "yes"], len(sentence)))
        examples.append(Words(sentence, tags, f"f:{number}"))
    rows = features.of_words(examples, vocabulary, LABELS, 24)
    word_tags = [(word, tag) for e in examples for word, tag in zip(e.words, e.tags, strict=True)]
    assert len(rows.positions) == len(word_tags) == np.count_nonzero(rows.labels["labels"])
    assert len({tuple(place) for place in rows.positions}) == len(word_tags)
    for (word, tag), place in zip(word_tags, rows.positions, strict=True):
        row, column = place
        ids = vocabulary.encode_batch([word])[0]
        ids = ids if len(ids) else [UNK]
        column -= int(len(ids) > 1 and vocabulary.pieces[ids[0]] == "\u2581")
        assert rows.tokens[row, column : column + len(ids)].tolist() == list(ids)
        assert rows.labels["labels"][tuple(place)] == 1 + LABELS[tag]
    assert (rows.tokens[:, 0] == BOS).all() and ((rows.tokens == EOS).sum(1) == 1).all()
    # Each sentence begins a new row.
    numbers = np.repeat(np.arange(len(examples)), [len(e.words) for e in examples])
    sentences_of_row = {
        row: set(numbers[rows.positions[:, 0] == row]) for row in range(len(rows.tokens))
    }
    assert all(len(owners) == 1 for owners in sentences_of_row.values())


def test_a_word_longer_than_a_row_keeps_its_label(vocabulary):
    word = "Donaudampfschifffahrtsgesellschaftskapitän" * 3
    rows = features.of_words([Words(("Der", word), ("no", "yes"), "f:1")], vocabulary, LABELS, 16)
    assert len(vocabulary.encode_batch([word])[0]) > 14
    assert rows.cut == {"words": 1} and rows.tokens.shape == (2, 16)
    assert sorted(rows.labels["labels"][1]) == [0] * 15 + [2]


def test_the_row_store_has_tokens_and_labels_and_is_reused(vocabulary, tmp_path):
    rows_by_language = {
        language: features.of_sentences(
            [Sentences((line,), "yes", "f") for line in LINES[:n]],
            vocabulary, LABELS, 32,
        )
        for language, n in (("de", 20), ("en", 7))
    }  # fmt: skip
    store = task_data.write_rows(tmp_path, "classification", rows_by_language, vocabulary)
    reused = task_data.write_rows(tmp_path, "classification", rows_by_language, vocabulary)
    assert store.path == reused.path and len(list(tmp_path.iterdir())) == 1
    assert store.manifest.languages == ["de", "en"]
    for language, rows in rows_by_language.items():
        actual = RowStore(store.path).read(
            f"classification.{language}", "train", np.arange(len(rows.tokens))
        )
        assert actual.keys() == {"tokens", "labels"} and actual["labels"].dtype == np.int32
        assert np.array_equal(actual["tokens"], rows.tokens)
        assert np.array_equal(actual["labels"], rows.labels["labels"])
    fewer = task_data.write_rows(
        tmp_path, "classification", {"de": rows_by_language["de"]}, vocabulary
    )
    assert fewer.path != store.path

    # A damaged store names the folder to delete; then the same call writes the store again.
    store.file("classification.de", 0).unlink()
    remedy = f"is missing; delete {store.path} and run the command again"
    with pytest.raises(RowStoreError, match=remedy):
        task_data.write_rows(tmp_path, "classification", rows_by_language, vocabulary)
    shutil.rmtree(store.path)
    rebuilt = task_data.write_rows(tmp_path, "classification", rows_by_language, vocabulary)
    assert rebuilt.manifest == store.manifest


def test_a_label_is_at_the_first_piece_that_has_characters(vocabulary):
    word = "\u732b"  # Chinese: a German vocabulary gives a word marker, then <unk>
    ids = vocabulary.encode_batch([word])[0].tolist()
    assert [vocabulary.pieces[i] for i in ids] == ["\u2581", "<unk>"]
    rows = features.of_words([Words((word,), ("yes",), "f:1")], vocabulary, LABELS, 16)
    labels = rows.labels["labels"][0]
    assert rows.positions.tolist() == [[0, 2]] and labels.nonzero()[0].tolist() == [2]
    rows = features.of_words([Words((word,), ("yes",), "f:1")], vocabulary, LABELS, 16, True)
    labels = rows.labels["labels"][0]
    assert rows.positions.tolist() == [[0, 1]] and labels.nonzero()[0].tolist() == [1]


def test_words_keep_the_space_before_them():
    """ModernBERT's tokenizer does not mark the first word of a line, so a word that is encoded
    separately would lose its space."""
    tokenizer = modernbert(LINES[:300], 450)
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    words = ("Die", "Katze", "sieht", "12", "H\u00e4user", ".")
    rows = features.of_words([Words(words, ("yes",) * 6, "f:1")], vocabulary, LABELS, 64)
    joined = tokenizer.encode(" " + " ".join(words), add_special_tokens=False).ids
    ids = rows.tokens[0][rows.tokens[0] != PAD]
    assert vocabulary.native_ids[ids[1:-1]].tolist() == joined
    pieces = [vocabulary.pieces[i] for i in ids]
    starts = [i + (p == "\u0120") for i, p in enumerate(pieces) if p.startswith("\u0120")]
    assert starts == np.flatnonzero(rows.labels["labels"][0]).tolist()
