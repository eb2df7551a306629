"""The corpus: sizes, determinism, independence of the languages, errors."""

import hashlib
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from xlj.phrasebook import LANGUAGES, draw, pair_lines, realise, text_lines
from xlj.phrasebook.corpus import PAIRS, SENTENCES
from xlj.phrasebook.drawing import document

GOLDEN: dict[str, str] = {
    "en": "538ebb519f83b9926b7397d3981ae67d20320b3dacdc773cd25a5b01f40b6c87",
    "de": "c186ff00102df66be27528070814594f37b4560be88773ee6a33b01976c7572d",
    "fr": "1987ca1a7186340f6c9dc2bef21f775dbc7fed19c245b456226dfbc450a0f945",
    "es": "1a5ed433562ecb829963157be6cf4aca4213f5cf31217219ac1b67a7f0351f76",
    "sw": "c28a85e3898524fe1333aa030d05236e4824fd15a9ce703cb56e18d35711dec6",
    "tr": "d15c59d2231740eb066435e38a48e2e12bc89699113903db52f56af873cb73f0",
    "hi": "101b1b2cc04997833f9748a4be4d1525225dd45acb921579c2e8fa4c40c7cca9",
    "zh": "184823d2dd28f76c03030d8d42f21c584e4db6d22778c387ae4c818c21f72a3a",
}


def digest(language):
    lines = islice((line for line in text_lines(language) if line), 500)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_text_never_changes(language):
    assert digest(language) == GOLDEN[language]


def test_another_hash_seed_makes_no_difference():
    program = (
        "from test_corpus import LANGUAGES, digest\n"
        "print(*(digest(language) for language in LANGUAGES))"
    )
    here = Path(__file__).parent
    path = os.pathsep.join((str(here), str(here.parents[2])))
    for seed in ("1", "12345"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert run.stdout.split() == [GOLDEN[language] for language in LANGUAGES]


def test_draws_are_pure_and_streams_differ():
    assert draw(1, 7) == draw(1, 7)
    first = [draw(1, index) for index in range(50)]
    assert first != [draw(2, index) for index in range(50)]
    assert len(set(first)) > 45


def test_sizes():
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
    """Names are spelt alike in German and English; those of parallel texts would agree."""
    english, german = (
        [line.split()[0] for line in islice(text_lines(language), 200) if line]
        for language in ("en", "de")
    )
    same = sum(a == b for a, b in zip(english, german, strict=False))
    assert same < 20


def test_documents_are_about_their_hero():
    about = 0
    for index in range(200):
        subjects = [meaning.clauses[0].subject for meaning in document(9, index)]
        named = [p.concept for p in subjects if p and p.kind in ("name", "pronoun")]
        about += len(named) * 2 >= len(subjects)
        for p in subjects:
            if p and p.kind == "name":
                break
            assert not (p and p.kind == "pronoun"), "a pronoun takes up someone already named"
    assert about > 150


def test_pairs_are_translations_in_either_order():
    forward = list(islice(pair_lines("en-de"), 100))
    assert forward == [(e, d) for d, e in islice(pair_lines("de-en"), 100)]
    assert all(e.endswith("?") == d.endswith("?") for e, d in forward)
    assert "?" in "".join(e for e, _ in forward)


@pytest.mark.parametrize("code", ["xx", "", "EN"])
def test_unknown_languages_are_refused_at_once(code):
    with pytest.raises(ValueError, match="en, de, fr, es, sw, tr, hi, zh"):
        text_lines(code)


@pytest.mark.parametrize("code", ["en", "en-en", "en-xx", "en_de", "en-de-fr"])
def test_unknown_pairs_are_refused_at_once(code):
    with pytest.raises(ValueError, match="en, de, fr, es, sw, tr, hi, zh"):
        pair_lines(code)


def test_realise_is_pure():
    meaning = draw(4, 4)
    for language in LANGUAGES:
        assert realise(meaning, language) == realise(meaning, language)
