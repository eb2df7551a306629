"""Exact match and F1 by hand, and against a plain transcription of the rules on random answers."""

import itertools
import random
import string
import unicodedata

import pytest

from xlj.evaluation.metrics import answers


@pytest.mark.parametrize(
    "answer, compared",
    [
        ("The  Cat's 9 lives!", "cats 9 lives"),
        ("An a-b Theory, THE end", "ab theory end"),
        ("«the» „x“", "« » „x“"),  # only ASCII punctuation goes
        ("der Hund", "der hund"),
        ("a\u00a0b\u3000c", "b c"),
        ("the", ""),
    ],
)
def test_squad_by_hand(answer, compared):
    assert answers.squad(answer) == compared


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
        ("fr", "« Le » chat, the 年", "le chat the 年"),  # none of MLQA's
    ],
)
def test_mlqa_by_hand(language, answer, compared):
    assert answers.mlqa(answer, language) == compared


def test_scores_by_hand():
    questions = [("1", ["the cat", "a big dog"]), ("2", ["x y z"]), ("3", ["left out"])]
    found = answers.score({"1": "Dog", "2": "y, x", "4": "unknown"}, questions)
    # dog against "big dog": 2 * 1 / 3; x y against x y z: 2 * 2 / 5; the third counts 0.
    assert found.exact_match == 0
    assert found.f1 == pytest.approx((2 / 3 + 4 / 5 + 0) / 3)
    assert answers.score({"1": "A cat!"}, questions[:1]) == (1, 1)


def test_nothing_equals_nothing_but_has_no_words_in_common():
    assert answers.score({"1": "the"}, [("1", ["a"])]) == (1, 0)


def test_words_count_as_often_as_both_have_them():
    assert answers.score({"1": "x x x"}, [("1", ["x x y"])]).f1 == pytest.approx(2 / 3)


def test_questions_need_gold_answers():
    with pytest.raises(ValueError, match="no questions"):
        answers.score({}, [])
    with pytest.raises(ValueError, match="question '7' has no gold answer"):
        answers.score({}, [("7", [])])


ARTICLES = {
    "en": "a an the", "es": "un una unos unas el la los las", "vi": "của là cái chiếc những",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "hi": "", "zh": "", "ar": "", "sw": "",
}  # fmt: skip


def plain(answer, language, every_script):
    """The rules one after the other, character by character."""

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
    mine = plain(answer, language, every_script)
    for gold in golds:
        theirs = plain(gold, language, every_script)
        exact = max(exact, float(mine == theirs))
        both = sum(min(mine.count(word), theirs.count(word)) for word in set(mine))
        if both:
            best = max(best, 2 * both / (len(mine) + len(theirs)))
    return exact, best


WORDS = (
    "the a An der die das el las của những là الكتاب ال والال x y z 1994 3,5 U.S. cat's o’clock "
    "年 在1月 中文the A的 का हिन्दी। «x» “y” — € the€ a_b İx ß"
).split()
BETWEEN = (" ", " ", " ", "", "  ", "\u00a0", "\u3000", "-", ", ", "，", "\n")


@pytest.mark.parametrize("rules", ["squad", "ar", "de", "en", "es", "hi", "vi", "zh", "sw"])
def test_scores_equal_a_plain_transcription(rules):
    rng = random.Random(rules)
    every_script = rules != "squad"
    language = rules if every_script else "en"

    def normalise(answer):
        return answers.mlqa(answer, language) if every_script else answers.squad(answer)

    def draw(words):
        return "".join(
            word + rng.choice(BETWEEN) for word in rng.choices(words, k=rng.randint(0, 5))
        )

    exact = partial = 0
    for _ in range(2000):
        words = rng.sample(WORDS, 4)
        answer, golds = draw(words), [draw(words) for _ in range(rng.randint(1, 3))]
        found = answers.score({"q": answer}, [("q", golds)], normalise)
        expected = plain_scores(answer, golds, language, every_script)
        assert found == pytest.approx(expected, abs=1e-12), (answer, golds)
        exact += expected[0]
        partial += 0 < expected[1] < 1
    assert exact > 50 and partial > 500
