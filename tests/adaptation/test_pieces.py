"""How many pieces a new language gets, and the reason why it gets no more."""

import itertools
import json
import random

import pytest

from xlj import phrasebook
from xlj.adaptation import pieces
from xlj.config import ConfigError
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary, measure_fertility


def text(language, count):
    return list(itertools.islice(phrasebook.text_lines(language), count))


@pytest.fixture(scope="module")
def english():
    lines = {"en": text("en", 2000)}
    return Vocabulary(vocabulary_training.train(lines, {"en": 1}, 700, 1.0))


@pytest.fixture(scope="module")
def swahili():
    return text("sw", 4000)


def test_a_language_gets_at_most_one_piece_per_forty_words(english, swahili):
    old = {"de": text("de", 300), "en": text("en", 300)}
    vocabulary, (choice,) = pieces.choose(english, {"sw": swahili}, old)
    best = measure_fertility(english, old["en"]).pieces_per_word
    assert choice.language == "sw"
    assert choice.before == measure_fertility(english, swahili[::10]).pieces_per_word > 2
    assert choice.after == measure_fertility(vocabulary, swahili[::10]).pieces_per_word
    words = measure_fertility(english, [x for i, x in enumerate(swahili) if i % 10]).words
    assert choice.pieces == words // 40
    assert choice.reason == "its text has only 40 words per new piece"
    assert choice.after > 1.1 * best
    assert vocabulary.size == english.size + choice.pieces
    assert vocabulary.pieces[: english.size - 1] == english.pieces[:-1]


def test_pieces_stop_near_the_best_old_language(english, swahili):
    easy = {"old": ["xqz " * 4] * 3}  # 4 pieces per word
    vocabulary, (choice,) = pieces.choose(english, {"sw": swahili}, easy)
    best = measure_fertility(english, easy["old"]).pieces_per_word
    assert best * 1.25 < choice.before
    assert (choice.pieces, choice.after <= 1.1 * best) == (250, True)
    assert choice.reason == (
        f"at most 1.1 times the {best:.2f} pieces per word of the best old language"
    )


def test_a_language_with_few_pieces_per_word_gets_no_new_pieces(english):
    lines = {"en2": text("en", 500)}
    vocabulary, (choice,) = pieces.choose(english, lines, {"en": text("en", 300)})
    assert vocabulary is english
    assert choice.pieces == 0
    assert choice.reason.startswith("at most 1.25 times the 1.")


def test_few_pieces_per_word_do_not_suffice_if_characters_are_unknown(english):
    greek = ["Ω" * 4 + " η"] * 9000  # two words, two pieces
    assert measure_fertility(english, greek).pieces_per_word <= 2
    vocabulary, (choice,) = pieces.choose(english, {"el": greek}, {"old": ["αβγ αβγ"]})
    assert "at most" not in choice.reason
    assert (choice.unknown_before, choice.unknown_after) == (0.5, 0) and choice.pieces == 2
    assert set(vocabulary.pieces) - set(english.pieces) == {"Ω", "η"}


def test_unknown_characters_get_pieces_however_little_text_there_is(english):
    """Words of one unknown piece have few pieces. With letters they have more."""
    lines = ["ωη ωηη"] * 5 + ["the cat"] * 5
    vocabulary, (choice,) = pieces.choose(english, {"el": lines}, {"en": text("en", 100)})
    assert choice.reason == "too little text for other pieces: 250 pieces need 10,000 words"
    assert choice.pieces == 2 and choice.after > choice.before
    assert choice.unknown_before > 0.3 and choice.unknown_after == 0
    assert vocabulary.size == english.size + 2


def test_all_unknown_characters_get_pieces_even_if_they_are_many(english):
    """A Han-like script: 400 characters, and text for 300 pieces."""
    letters, draw = [chr(0x4E00 + i) for i in range(400)], random.Random(0)
    words = ["".join(draw.choices(letters, k=2)) for _ in range(13_400)]
    lines = [" ".join(words[k : k + 10]) for k in range(0, len(words), 10)]
    vocabulary, (choice,) = pieces.choose(english, {"han": lines}, {"en": text("en", 100)})
    assert set(letters) <= set(vocabulary.pieces) and choice.pieces >= 400
    assert choice.unknown_after == 0
    # 250 pieces, the first trial otherwise, are too few for the letters.
    assert choice.reason == "its text has only 40 words per new piece"


def test_too_little_text_gives_no_pieces(english):
    vocabulary, (choice,) = pieces.choose(english, {"sw": text("sw", 100)}, {})
    assert vocabulary is english
    assert choice.reason == "too little text: 250 pieces need 10,000 words"


def test_each_language_gets_the_requested_number_of_pieces(english, swahili):
    new = {"sw": swahili[:800], "tr": text("tr", 800)}
    vocabulary, choices = pieces.choose(english, new, {}, 60)
    assert vocabulary.size == english.size + 120
    assert sorted(choice.language for choice in choices) == ["sw", "tr"]
    assert choices[0].before >= choices[1].before
    assert {(choice.pieces, choice.reason) for choice in choices} == {(60, "as requested")}
    same, choices = pieces.choose(english, new, {}, 0)
    assert same is english
    assert {choice.pieces for choice in choices} == {0}


def test_a_wordpiece_vocabulary_keeps_its_pieces(swahili):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocabulary = Vocabulary(json.dumps(wordpiece(words)).encode())
    same, (choice,) = pieces.choose(vocabulary, {"sw": swahili}, {})
    assert same is vocabulary
    assert choice.reason == (
        "the tokenizer.json has a WordPiece model, to which xlj cannot add pieces; expected "
        "Unigram or BPE"
    )
    with pytest.raises(ConfigError, match="WordPiece"):
        pieces.choose(vocabulary, {"sw": swahili}, {}, 10)


def wordpiece(words):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(words[:5])
    return json.loads(tokenizer.to_str())
