"""Vectors equal those of sentence-transformers; translations and links are found as measured."""

import contextlib
import gzip
import io
import re
from pathlib import Path

import notebooks
import numpy as np
import pytest
from plain_sentences import LINES

import xlj
from xlj.word_alignment import gold_alignments

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def encoder(e5):
    return xlj.load(e5)


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in lines]


def test_vectors_equal_those_of_sentence_transformers(e5, encoder, sentence_transformers):
    """Other comparisons have random weights, whose values are not those of a trained model."""
    texts = ["", *(f"query: {line}" for line in LINES), " ".join(LINES * 2)]
    library = sentence_transformers.SentenceTransformer(str(e5), device="cpu")
    assert len(library.tokenizer(texts[-1])["input_ids"]) > library.max_seq_length
    with pytest.warns(UserWarning, match="sentences truncated .*: 1"):
        vectors = encoder.embed(texts)
    np.testing.assert_allclose(vectors, library.encode(texts), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "language, into_english, from_english",
    [("deu", 98.0, 96.2), ("tha", 93.4, 89.2), ("swh", 73.3, 75.9)],
)
def test_translations_of_tatoeba_are_found(language, into_english, from_english, encoder, data):
    """A mistake that library and xlj share, such as a lost mark of Thai, lowers the accuracy."""
    sides = (
        [f"query: {line}" for line in lines_of(data / f"tatoeba/tatoeba.{language}-eng.{side}.gz")]
        for side in (language, "eng")
    )
    found = encoder.retrieve(*sides)
    gold = np.arange(len(found.targets.indices))[:, None]
    accuracies = [100 * (side.indices == gold).mean() for side in (found.targets, found.sources)]
    assert accuracies == pytest.approx([into_english, from_english], abs=0.3)


def test_words_of_english_and_french_are_aligned(encoder, data):
    """The settings are SimAlign's. With random weights no error rate is much below chance."""
    header, *rows = lines_of(data / "alignment/en-fr.wpt03.test.tsv.gz")
    assert header == "src\ttgt\tgold" and len(rows) == 447
    pairs, golds = [], []
    for row in rows:
        source, target, links = row.split("\t")
        pairs.append((source, target))
        golds.append(gold_alignments.parse(links, "gold"))
    found = encoder.align(pairs, layer=7, method="itermax", together=False)
    scores = gold_alignments.score([np.array(of_pair) for of_pair in found], golds)
    assert 100 * scores.aer == pytest.approx(11.45, abs=0.05)


def test_the_first_example_prints_what_its_comments_say(e5, tmp_path, monkeypatch):
    pages = (Path(__file__).parents[2] / page for page in ("README.md", "docs/index.md"))
    texts = [page.read_text("utf-8").partition("```python\n")[2] for page in pages]
    code, of_home_page = (text.partition("```")[0] for text in texts)
    assert code == of_home_page
    (tmp_path / "e5").symlink_to(e5)
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    expected = re.findall(r"^print\(.*\)  # ([^:\n]*)", code, re.MULTILINE)
    assert printed.getvalue().splitlines() == expected and len(expected) == 2


def test_the_first_notebook_prints_what_its_comments_say(e5, tmp_path):
    (tmp_path / "e5").symlink_to(e5)
    notebooks.check("first_look.ipynb", tmp_path)
