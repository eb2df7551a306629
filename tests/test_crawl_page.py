"""The programs of docs/crawl.md run, if their libraries are installed: `pip install
'datatrove[io,processing]'`, or `opusfilter` on PATH in an environment of its own."""

import gzip
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlj import phrasebook
from xlj.data.text.line_filter import judge

PAGE = (Path(__file__).parents[1] / "docs/crawl.md").read_text("utf-8")
HAS_DATATROVE = importlib.util.find_spec("datatrove") is not None
HAS_OPUSFILTER = shutil.which("opusfilter") is not None


def code(name):
    """Returns the block of the page that begins with the name of a file."""
    return re.search(rf"```\w+\n(# {re.escape(name)}\n.*?)```", PAGE, re.DOTALL)[1]


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_hook_for_fasttext_returns_a_language_and_a_score(monkeypatch):
    predicted = (("__label__swh_Latn",), [0.75])
    model = SimpleNamespace(predict=lambda line: predicted)
    fasttext = SimpleNamespace(load_model=lambda path: model)
    monkeypatch.setitem(sys.modules, "fasttext", fasttext)
    module: dict = {}
    exec(code("own_lid.py"), module)
    (verdict,) = judge(module["language"], [("habari",)], ("yo",), 0.5, True).others.items()
    assert verdict == ("swh_Latn", 1)
    assert not judge(module["language"], [("habari",)], ("sw",), 0.5, True).others


@pytest.mark.extra
@pytest.mark.skipif(not HAS_DATATROVE, reason="datatrove is not installed")
def test_the_pipeline_of_datatrove_writes_what_a_template_reads(tmp_path):
    (tmp_path / "clean.py").write_text(code("clean.py"), "utf-8")
    lines = list(itertools.islice(phrasebook.text_lines("en"), 300))
    (tmp_path / "crawl/en").mkdir(parents=True)
    pq.write_table(pa.table({"text": lines}), tmp_path / "crawl/en/0.parquet")
    run(tmp_path, sys.executable, "clean.py", "crawl", "clean", "en")
    (file,) = (tmp_path / "clean/en").glob("*.jsonl.gz")
    with gzip.open(file, "rt", encoding="utf-8") as records:
        texts = [json.loads(record)["text"] for record in records]
    assert texts == [line for line in lines if len(line) >= 20]


@pytest.mark.extra
@pytest.mark.skipif(not HAS_OPUSFILTER, reason="opusfilter is not on PATH")
def test_opusfilter_reads_the_steps_and_writes_aligned_files(tmp_path):
    (tmp_path / "opusfilter.yaml").write_text(code("opusfilter.yaml"), "utf-8")
    pairs = list(itertools.islice(phrasebook.pair_lines("en-de"), 300))
    for side, name in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in [*pairs, *pairs[:10]])
        (tmp_path / f"pairs.{name}").write_text(text, "utf-8")
    run(tmp_path, "opusfilter", "opusfilter.yaml")
    sides = [(tmp_path / f"unique.{name}").read_text("utf-8").split("\n") for name in ("en", "de")]
    actual = list(zip(*sides, strict=True))[:-1]
    assert len(set(actual)) == len(actual) and set(actual) <= set(pairs) and len(actual) > 250
