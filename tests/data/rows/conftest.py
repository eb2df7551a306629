"""Synthetic text, a config that reads it, and its rows."""

import sys
from pathlib import Path

import pytest
from made_rows import LINES, OBJECTIVES, sentences

from xlj.config import Config, Data
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.store import RowStore
from xlj.data.text.cleaning import clean
from xlj.data.tokenizer import vocabulary_training


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A folder with text in xx and yy, pairs of both that share lines with it, and a vocabulary."""
    folder = tmp_path_factory.mktemp("text")
    lines = {language: sentences(language, LINES) for language in ("xx", "yy")}
    for language, content in lines.items():
        documents = [line if i % 50 else f"\n{line}" for i, line in enumerate(content)]
        (folder / f"{language}.txt").write_text("\n".join([*documents, *content[:200]]) + "\n")
    shared = [lines[language][:1000] + sentences(f"{language}2", LINES) for language in lines]
    shared[0][7] = shared[0][7].upper().replace(" ", "\u00a0 ")  # still the same sentence
    pairs = [f"{a}\t{b}" for a, b in zip(*shared, strict=True)] + ["\u200b\tno first side"]
    (folder / "xx-yy.tsv").write_text("\n".join(pairs))
    sampled = {language: content[:4000] for language, content in lines.items()}
    sampled["xx"] += [clean(shared[0][7]), "abcdefghijklmnopqrstuvwxyz"]
    model = vocabulary_training.train(sampled, {"xx": 1, "yy": 1}, 500, 1.0)
    (folder / "v.model").write_bytes(model)
    return folder


@pytest.fixture(scope="session")
def config(text):
    def of(cache: Path, **fields) -> Config:
        fields = {
            "languages": ("xx", "yy"),
            "mono": (f"{text}/{{language}}.txt",),
            "pairs": ("xx-yy",),
            "parallel": (f"{text}/{{pair}}.tsv",),
            "vocabulary": f"{text}/v.model",
            "length": 64,
            "pair_length": 256,
            "workers": 1,
            "unit_bytes": 40_000,
            "cache": str(cache),
            **fields,
        }
        return Config(data=Data(**fields), objectives=OBJECTIVES)

    return of


@pytest.fixture(scope="session")
def built(config, tmp_path_factory) -> RowStore:
    store = prepare_rows(config(tmp_path_factory.mktemp("built")))
    assert "tensorflow" not in sys.modules and "seqio" not in sys.modules
    return store
