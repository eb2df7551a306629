"""The corpus is deterministic, has the right sizes, and is not parallel across languages."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from itertools import combinations, islice
from pathlib import Path

import pytest

from xlj.phrasebook import LANGUAGES, draw, pair_lines, realise, text_lines
from xlj.phrasebook.corpus import PAIRS, SENTENCES, VERSION
from xlj.phrasebook.drawing import document

DIGESTS: dict[int, dict[str, str]] = {
    1: {
        "en": "b65da9cf99dd0e28",
        "de": "44f01b2bdab421f8",
        "fr": "ace64806ea5f2c74",
        "es": "98e5c890e7a5ef57",
        "sw": "2421bd5285154423",
        "tr": "4e0ebc1020d692f6",
        "hi": "7c6cef1554345be5",
        "zh": "041d5b976ca24e14",
    },
}
"""Digests of the text by version. The digests of a version never change; changed text needs a new
version."""


def digest(language, lines):
    """Returns a digest of the sizes, the first lines of the text, and the first sentences of the
    language in each of its pairs."""
    hashed = hashlib.sha256(repr((SENTENCES[language], PAIRS)).encode())
    for line in islice(text_lines(language), lines):
        hashed.update(f"{line}\n".encode())
    for first, second in combinations(LANGUAGES, 2):
        if language in (first, second):
            name = f"{first}-{second}"
            count = 2 * lines // 3 if name in PAIRS else lines // 10
            for sides in first_pairs(name, count):
                hashed.update(f"{sides[language == second]}\n".encode())
    return hashed.hexdigest()[:16]


@cache
def first_pairs(name, count):
    return tuple(islice(pair_lines(name), count))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_text_of_a_version_never_changes(language):
    actual = digest(language, 3000)
    assert DIGESTS.get(VERSION, {}).get(language) == actual, (
        "the text of the phrasebook changed: raise VERSION in xlj/phrasebook/corpus.py, and add "
        f"the digests of the new version here ({language}: {actual})"
    )


def test_the_text_does_not_depend_on_the_hash_seed():
    program = (
        "from test_corpus import LANGUAGES, digest\n"
        "print(*(digest(language, 300) for language in LANGUAGES))"
    )
    here = Path(__file__).parent
    path = os.pathsep.join((str(here), str(here.parents[1])))
    for seed in ("1", "12345"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert run.stdout.split() == [digest(language, 300) for language in LANGUAGES]


def test_draws_are_deterministic_and_streams_differ():
    assert draw(1, 7) == draw(1, 7)
    first = [draw(1, index) for index in range(50)]
    assert first != [draw(2, index) for index in range(50)]
    assert len(set(first)) > 45


def test_texts_and_pairs_have_their_sizes():
    assert max(SENTENCES.values()) >= 10 * min(SENTENCES.values())
    assert set(SENTENCES) == set(LANGUAGES) and sum(SENTENCES.values()) == 120_000
    for language in ("sw", "hi"):
        lines = list(text_lines(language))
        sentences = [line for line in lines if line]
        assert len(sentences) == SENTENCES[language]
        assert lines[0] and lines[-1], "no empty line at either end"
        assert all(a or b for a, b in zip(lines, lines[1:], strict=False))
        assert 2 <= len(sentences) / (lines.count("") + 1) <= 6
    assert len(list(pair_lines("en-sw"))) == PAIRS["en-sw"]
    assert len(list(pair_lines("zh-tr"))) == 3000


def test_text_is_not_parallel_across_languages():
    """Names have the same spelling in German and English, so names in parallel text would agree."""
    english, german = (
        [line.split()[0] for line in islice(text_lines(language), 200) if line]
        for language in ("en", "de")
    )
    same = sum(a == b for a, b in zip(english, german, strict=False))
    assert same < 20


def test_most_documents_are_about_a_person():
    about_person = 0
    for index in range(200):
        subjects = [meaning.clauses[0].subject for meaning in document(9, index)]
        named = [p.concept for p in subjects if p and p.kind in ("name", "pronoun")]
        about_person += len(named) * 2 >= len(subjects)
        for p in subjects:
            if p and p.kind == "name":
                break
            assert not (p and p.kind == "pronoun"), "a pronoun needs an earlier name"
    assert about_person > 150


def test_pairs_are_the_same_translations_in_either_order():
    forward = list(islice(pair_lines("en-de"), 100))
    assert forward == [(e, d) for d, e in islice(pair_lines("de-en"), 100)]
    assert all(e.endswith("?") == d.endswith("?") for e, d in forward)
    assert "?" in "".join(e for e, _ in forward)


@pytest.mark.parametrize("code", ["xx", "", "EN"])
def test_unknown_languages_are_refused_immediately(code):
    with pytest.raises(ValueError, match="en, de, fr, es, sw, tr, hi, zh"):
        text_lines(code)


@pytest.mark.parametrize("code", ["en", "en-en", "en-xx", "en_de", "en-de-fr"])
def test_unknown_pairs_are_refused_immediately(code):
    with pytest.raises(ValueError, match="en, de, fr, es, sw, tr, hi, zh"):
        pair_lines(code)


def test_realise_is_deterministic():
    meaning = draw(4, 4)
    for language in LANGUAGES:
        assert realise(meaning, language) == realise(meaning, language)
