"""The scripts of docs/ that measure time, memory and accuracy by size."""

import argparse
import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)

    def script(name):
        spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return script


def test_exponents_are_those_of_power_laws(script):
    measured = {
        n: {"prepare:s": 2.0 * n, "prepare:MB": 300, "metrics:bytes": n**2} for n in (10, 20, 100)
    }
    del measured[10]["metrics:bytes"]
    *_, prepare, metrics = script("measure_languages").table(measured).splitlines()
    assert prepare == (
        "| prepare | 20.0 s, 300 MB | 40.0 s, 300 MB | 200.0 s, 300 MB | 1.00, 0.00 | 1.00, 0.00 |"
    )
    assert metrics == "| metrics |  | 400 bytes | 10,000 bytes |  | 2.00 |"


def test_shorter_documents_are_the_beginning_of_the_stored_documents(script, tmp_path, monkeypatch):
    measure = script("measure_document_aligner")
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefghijkl", k=draw.randint(30, 60))) for _ in range(90)]
    calls = []

    def embed(texts):
        calls.append(len(texts))
        rows = [[text.lower().count(chr(97 + k)) for k in range(12)] for text in texts]
        return np.array(rows, np.float32)

    monkeypatch.setattr(measure, "embed_with", lambda checkpoint: embed)
    flags = argparse.Namespace(folder=tmp_path, checkpoint="", seed=1)
    pairs = [(text, text.upper()) for text in texts]
    for _ in range(2):
        measure.store(tmp_path / "stored", pairs, flags, 150)
    assert len(calls) == 2  # each side once
    short, long = (measure.measure(tmp_path / "stored", count) for count in (60, 150))
    assert short["lines"] == 60 and 50 < short["target_lines"] < 70 and long["lines"] == 150
    assert short["strict"] > 0.9 and long["lax"] > 0.95
    assert short["peak_mb"] >= short["peak_mb_before"] > 10
