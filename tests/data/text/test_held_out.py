"""No sentence that is held out, alone or in a pair, is trained on in the same language."""

import itertools
import random
import unicodedata
from collections import Counter

import numpy as np
import pytest

from xlj.data.text import held_out
from xlj.data.text.cleaning import HASHES, clean, line_hashes
from xlj.data.text.held_out import Rule


def corpus(seed: int) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """Text and pairs of four languages, and records of three texts in one language, which share
    many sentences, written in several ways."""
    rng = random.Random(seed)
    ways = (str, str.upper, str.title, lambda line: line.replace(" ", "\u3000"), lambda line: "")

    def line(language: str, number: int) -> str:
        return rng.choice(ways)(f"{language if number % 9 else 'all'} sentence {number}")

    tasks: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for language in ("en", "de", "fr", "sw"):
        numbers = [rng.randrange(3000) for _ in range(2000)]
        tasks[language,] = [(line(language, n),) for n in numbers]
    for pair in (("en", "de"), ("en", "fr"), ("sw", "en"), ("de", "fr")):
        numbers = [(n := rng.randrange(3000), n + rng.randrange(2)) for _ in range(3000)]
        tasks[pair] = [(line(pair[0], a), line(pair[1], b)) for a, b in numbers]
    triples = [[rng.randrange(3000) for _ in range(3)] for _ in range(2000)]
    tasks["sw", "sw", "sw"] = [tuple(line("sw", n) for n in numbers) for numbers in triples]
    return tasks


def columns(rows: list[tuple[str, ...]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


SHARE = 0.05


def rules(tasks, folder) -> dict[str, Rule]:
    companions: dict[str, list] = {name: [] for languages in tasks for name in languages}
    for languages, rows in tasks.items():
        if len(languages) > 1:
            for part in (rows[:1000], rows[1000:]):
                hashes = [line_hashes(column) for column in columns(part)]
                part_hashes = held_out.find_companions(languages, hashes, Rule(SHARE))
                deciding = held_out.deciding_column(languages)
                for name in {*languages[:deciding], *languages[deciding + 1 :]}:
                    companions[name].append(part_hashes)
    assert not companions["en"]
    return {
        name: Rule(SHARE, held_out.write_hashes(folder, parts))
        for name, parts in companions.items()
    }


def outcomes(tasks, by_language):
    """Yields the outcome of each line or pair, and its sentences as (language, sentence)."""
    for languages, rows in tasks.items():
        hashes = [line_hashes(column) for column in columns(rows)]
        out, sharing = held_out.split(languages, hashes, [by_language[name] for name in languages])
        assert not (out & sharing).any() and (len(languages) > 1 or not sharing.any())
        for row, is_out, is_sharing in zip(rows, out, sharing, strict=True):
            sides = zip(languages, row, strict=True)
            sentences = [(name, " ".join(side.casefold().split())) for name, side in sides if side]
            yield "held out" if is_out else "dropped" if is_sharing else "trained on", sentences


@pytest.mark.parametrize("seed", range(3))
def test_held_out_and_training_share_no_sentence_of_a_language(seed, tmp_path):
    tasks = corpus(seed)
    sentences_of: dict[str, list] = {"held out": [], "dropped": [], "trained on": []}
    for outcome, sentences in outcomes(tasks, rules(tasks, tmp_path)):
        sentences_of[outcome].append(sentences)
    held_out_sentences, training_sentences = (
        set(itertools.chain(*sentences_of[o])) for o in ("held out", "trained on")
    )
    assert not held_out_sentences & training_sentences
    assert (
        {name for name, _ in held_out_sentences}
        == {name for name, _ in training_sentences}
        == {"en", "de", "fr", "sw"}
    )
    assert sentences_of["dropped"]


def test_a_fixed_order_of_languages_determines_the_deciding_side_of_a_pair():
    assert [
        held_out.deciding_column(pair) for pair in (("de", "en"), ("en", "sw"), ("sw", "fr"))
    ] == [
        1,
        0,
        1,
    ]
    english = (("deu_Latn", "eng_Latn"), ("arb", "eng"), ("de", "en-GB"), ("aeb_Arab", "EN"))
    assert [held_out.deciding_column(pair) for pair in english] == [1] * 4
    assert held_out.deciding_column(("fr", "enm")) == 1  # Middle English is before fr
    lines = [f"line {number}" for number in range(2000)]
    others = [f"zeile {line}" if number % 3 else "" for number, line in enumerate(lines)]
    threshold = Rule(SHARE).threshold
    low, other = (line_hashes(column) < threshold for column in (lines, others))
    assert 60 < low.sum() < 140
    hashes = [line_hashes(others), line_hashes(lines)]
    out, sharing = held_out.split(("de", "en"), hashes, [Rule(SHARE)] * 2)
    assert np.array_equal(out, low)
    assert np.array_equal(sharing, other & ~low)
    actual = held_out.find_companions(("de", "en"), hashes, Rule(SHARE))
    assert np.array_equal(actual, hashes[0][low & ~other])


def test_text_in_many_languages_is_not_lost(tmp_path):
    tasks = {("en", f"x{i}"): [(f"say {n}", f"x{i} {n}") for n in range(2000)] for i in range(40)}
    counts = Counter(outcome for outcome, _ in outcomes(tasks, rules(tasks, tmp_path)))
    assert counts["held out"] == pytest.approx(80_000 * 0.05, rel=0.2)
    assert counts["trained on"] > 80_000 * 0.88


def test_blank_lines_are_never_held_out():
    hashes = line_hashes(["", "word", ""])
    assert hashes.tolist()[0] == HASHES - 1 == hashes.tolist()[2]
    out, sharing = held_out.split(["en"], [hashes], [Rule(0.999)])
    assert out.tolist() == [False, True, False] and not sharing.any()


def test_copies_have_equal_hashes_and_hashes_never_change():
    copies = line_hashes(["Straße  ﬁne", "STRASSE fine", "strasse fine", "strasse fin"])
    assert len(np.unique(copies)) == 2
    assert line_hashes(["你好，世界", "你好,世界"]).tolist() == [2554958421314430741] * 2
    assert line_hashes(["hello"]).tolist() == [6522412817294056242]
    assert line_hashes([]).shape == (0,)


def test_the_hash_of_a_line_does_not_depend_on_other_lines():
    rng = random.Random(0)
    lines = [
        "".join(rng.choices("ab çŁ你，\u0301", k=rng.choice([0, 1, 30, 40_000]))) for _ in range(60)
    ]
    lines = [clean(line) for line in lines]
    alone = np.concatenate([line_hashes([line]) for line in lines])
    assert np.array_equal(line_hashes(lines), alone)
    texts = [unicodedata.normalize("NFKC", line).casefold().replace(" ", "") for line in lines]
    assert len(set(texts)) == len(set(alone.tolist())) > 30


def test_copies_have_equal_hashes_in_every_script():
    """Compares with Unicode's normalization, for every letter and for marks in any order."""
    letters = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000 and chr(i).strip()]
    letters = [letter for letter in letters if letter.isprintable()]

    def folded(text):
        for _ in range(2):
            text = unicodedata.normalize("NFKD", text.casefold())
        return text.replace(" ", "")

    for texts in (
        letters,
        [f"{a}\u0323{b}\u0301" for a, b in zip(letters, letters[7:], strict=False)],
    ):
        hashes = line_hashes(texts).tolist()
        hashes_of: dict[str, set[int]] = {}
        for text, number in zip(texts, hashes, strict=True):
            hashes_of.setdefault(folded(unicodedata.normalize("NFKC", text)), set()).add(number)
        assert all(len(numbers) == 1 for numbers in hashes_of.values())
        assert len(hashes_of) == len(set(hashes))
