"""Exact match and F1 equal values by hand, and a plain version of the rules on random answers."""

import itertools
import random
import string
import unicodedata

import pytest

from xlj.evaluation import metrics


@pytest.mark.parametrize(
    "answer, compared",
    [
        ("The  Cat's 9 lives!", "cats 9 lives"),
        ("An a-b Theory, THE end", "ab theory end"),
        ("«the» „x“", "« » „x“"),  # removes only ASCII punctuation
        ("der Hund", "der hund"),
        ("a\u00a0b\u3000c", "b c"),
        ("the", ""),
    ],
)
def test_squad_normalises_answers_as_by_hand(answer, compared):
    assert metrics.normalise_squad(answer) == compared


@pytest.mark.parametrize(
    "language, answer, compared",
    [
        ("en", "«The» cat’s", "cats"),
        ("de", "Der Hund, the Hund und das", "hund the hund und"),
        ("es", "Los “años” del el", "años del"),
        ("vi", "Những con mèo của tôi", "con mèo tôi"),
        ("ar", "الكتاب والكتاب", "كتاب و كتاب"),
        ("hi", "का the।", "का the"),
        ("zh", "在 1994年，the USA的", "在 1994 年 the usa 的"),
        ("fr", "« Le » chat, the 年", "le chat the 年"),  # not a language of MLQA: keeps articles
    ],
)
def test_mlqa_normalises_answers_as_by_hand(language, answer, compared):
    assert metrics.normalise_mlqa(answer, language) == compared


def test_scores_equal_values_by_hand():
    questions = [("1", ["the cat", "a big dog"]), ("2", ["x y z"]), ("3", ["left out"])]
    scores = metrics.answer_scores({"1": "Dog", "2": "y, x", "4": "unknown"}, questions)
    # dog against "big dog": 2 * 1 / 3; x y against x y z: 2 * 2 / 5; the third has no answer: 0.
    assert scores.exact_match == 0
    assert scores.f1 == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)
    assert metrics.answer_scores({"1": "A cat!"}, questions[:1]) == (1, 1)


def test_two_empty_answers_are_an_exact_match_with_an_f1_of_0():
    assert metrics.answer_scores({"1": "the"}, [("1", ["a"])]) == (1, 0)


def test_repeated_words_count_as_often_as_both_answers_have_them():
    assert metrics.answer_scores({"1": "x x x"}, [("1", ["x x y"])]).f1 == pytest.approx(2 / 3)


def test_questions_need_gold_answers():
    with pytest.raises(ValueError, match="no questions"):
        metrics.answer_scores({}, [])
    with pytest.raises(ValueError, match="question '7' has no gold answer"):
        metrics.answer_scores({}, [("7", [])])


ARTICLES = {
    "en": "a an the", "es": "un una unos unas el la los las", "vi": "của là cái chiếc những",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "hi": "", "zh": "", "ar": "", "sw": "",
}  # fmt: skip


def plain_words(answer, language, every_script):
    """Applies the rules one after the other, character by character; returns the words."""

    def is_punctuation(character):
        if every_script and unicodedata.category(character)[0] == "P":
            return True
        return character in string.punctuation

    text = "".join(c for c in answer.lower() if not is_punctuation(c))
    if language == "ar":
        text = " ".join(text.split("ال"))
    articles = ARTICLES[language].split()
    runs = ("".join(run) for _, run in itertools.groupby(text, str.isalnum))
    text = "".join(" " if run in articles else run for run in runs)
    words = text.split()
    if language == "zh":
        words = []
        for word in text.split():
            run = ""
            for character in word:
                if 0x4E00 <= ord(character) <= 0x9FA5:
                    words += [run, character]
                    run = ""
                else:
                    run += character
            words.append(run)
    return [word for word in words if word]


def plain_scores(answer, golds, language, every_script):
    exact, best = 0.0, 0.0
    answer_words = plain_words(answer, language, every_script)
    for gold in golds:
        gold_words = plain_words(gold, language, every_script)
        exact = max(exact, float(answer_words == gold_words))
        common = sum(
            min(answer_words.count(word), gold_words.count(word)) for word in set(answer_words)
        )
        if common:
            best = max(best, 2 * common / (len(answer_words) + len(gold_words)))
    return exact, best


WORDS = (
    "the a An der die das el las của những là الكتاب ال والال x y z 1994 3,5 U.S. cat's o’clock "
    "年 在1月 中文the A的 का हिन्दी। «x» “y” — € the€ a_b İx ß"
).split()
SEPARATORS = (" ", " ", " ", "", "  ", "\u00a0", "\u3000", "-", ", ", "，", "\n")


@pytest.mark.parametrize("rules", ["squad", "ar", "de", "en", "es", "hi", "vi", "zh", "sw"])
def test_scores_equal_a_plain_version_of_the_rules(rules):
    rng = random.Random(rules)
    every_script = rules != "squad"
    language = rules if every_script else "en"

    def normalise(answer):
        return (
            metrics.normalise_mlqa(answer, language)
            if every_script
            else metrics.normalise_squad(answer)
        )

    def draw(words):
        return "".join(
            word + rng.choice(SEPARATORS) for word in rng.choices(words, k=rng.randint(0, 5))
        )

    exact = partial = 0
    for _ in range(2000):
        words = rng.sample(WORDS, 4)
        answer, golds = draw(words), [draw(words) for _ in range(rng.randint(1, 3))]
        scores = metrics.answer_scores({"q": answer}, [("q", golds)], normalise)
        expected = plain_scores(answer, golds, language, every_script)
        assert scores == pytest.approx(expected, abs=1e-12), (answer, golds)
        exact += expected[0]
        partial += 0 < expected[1] < 1
    assert exact > 50 and partial > 500
