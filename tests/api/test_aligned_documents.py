"""`align_documents` of an encoder whose sentence vectors are counts of letters."""

import re
from pathlib import Path

import numpy as np
import pytest

import xlj
from xlj.api.sentence_encoder import SentenceEncoder
from xlj.config import ConfigError

SENTENCES = [f"The {a} {b}." for a in ("cat", "dog", "man") for b in "sleeps reads eats".split()]
SOURCE = [*SENTENCES[:4], "", *SENTENCES[4:]]
TARGET = [*SENTENCES[:2], *SENTENCES[3:], " "]


class Letters:
    """Counts letters. Texts of more than 40 characters are too long."""

    def __init__(self, layers, pooling, batch_size, prompt):
        self.arguments, self.truncated = (layers, pooling, batch_size, prompt), 0

    def embed(self, texts, show_progress_bar=None):
        self.truncated += sum(len(text) > 40 for text in texts)
        rows = [[text.lower().count(chr(97 + k)) for k in range(26)] for text in texts]
        return np.array([rows], np.float32)


class Encoder(SentenceEncoder):
    layers, device, sentence_modules, digest, source = 3, "cpu:0", None, "", ""

    def embedder(self, layers=(), pooling=None, batch_size=None, prompt=None):
        self.made = Letters(layers, pooling, batch_size, prompt)
        return self.made

    def _check_device(self, device):
        raise NotImplementedError


@pytest.fixture
def model():
    return Encoder()


def test_pairs_have_the_numbers_of_the_given_sentences(model, tmp_path):
    pairs = model.align_documents(iter(SOURCE), TARGET, 2, "text", prompt="query", threshold=0.5)
    assert model.made.arguments == ([2], "text", None, "query")
    assert [(pair.source, pair.target) for pair in pairs] == [
        ([i], [TARGET.index(text)]) for i, text in enumerate(SOURCE) if text in TARGET and text
    ]
    assert pairs.texts == [(SOURCE[i], SOURCE[i]) for (i,), _, _ in pairs]
    assert pairs.report["gaps"]["source_sentences"] == 1 and "documents" not in pairs.report
    file = tmp_path / "source.txt"
    file.write_text("".join(f"{text}\n" for text in SOURCE), "utf-8")
    for path in (file, str(file)):
        assert model.align_documents(path, TARGET, threshold=0.5) == pairs
    assert pairs._repr_html_().startswith("<iframe")


def test_threshold_paragraphs_and_encoded_joins(model):
    pairs = model.align_documents(SOURCE, TARGET[1:])
    threshold = sorted(pair.confidence for pair in pairs)[2]
    best = model.align_documents(SOURCE, TARGET[1:], threshold=threshold)
    assert best == [pair for pair in pairs if pair.confidence >= threshold] != pairs
    assert best.report["left_out"] == len(pairs) - len(best)
    split = model.align_documents([" ".join(SOURCE)], SENTENCES, paragraphs=True)
    assert split == model.align_documents(SENTENCES, SENTENCES)
    with pytest.warns(UserWarning, match="sentences truncated because they are too long .*: 28$"):
        model.align_documents(SENTENCES, SENTENCES, joins="encode")
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = pairs.to_pandas()
    assert table["source_lines"].tolist() == [pair.source for pair in pairs]
    assert list(zip(table["source"], table["target"], strict=True)) == pairs.texts


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"target": [" "]}, "target has no sentence"),
        ({"target": ["b", 2]}, "sentence 1 is 2, not a string"),
        ({"source": "no sentence"}, "no sentence"),
        ({"joins": "mean"}, "joins is 'mean'; it must be one of sum, encode"),
        ({"threshold": 2}, "threshold=2: expected a confidence from 0 to 1"),
        ({"layer": 4}, "layer 4 does not exist"),
    ],
)
def test_wrong_arguments_are_refused(model, arguments, message):
    with pytest.raises(ConfigError, match=message):
        model.align_documents(**{"source": ["a"], "target": ["b"]} | arguments)


def test_code_of_the_page_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/align_documents.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(xlj, "load", lambda path: Encoder(), raising=False)
    names = {"english": SOURCE, "german": TARGET}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    assert (tmp_path / "book.html").read_text("utf-8").count("\n[") > len(names["pairs"]) > 0
