"""The programs of docs/crawl.md run, if their libraries are installed: `pip install
'datatrove[io,processing]'`, or `opusfilter` on PATH in an environment of its own."""

import gzip
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlj import phrasebook, prepare
from xlj.config import Data
from xlj.data.text import text_tasks, text_units
from xlj.data.text.line_filter import judge

PAGE = (Path(__file__).parents[1] / "docs/crawl.md").read_text("utf-8")
HAS_DATATROVE = importlib.util.find_spec("datatrove") is not None
HAS_OPUSFILTER = shutil.which("opusfilter") is not None


def code(name):
    """Returns the block of the page that begins with the name of a file."""
    return re.search(rf"```\w+\n(# {re.escape(name)}\n.*?)```", PAGE, re.DOTALL)[1]


def run(folder, *command, env=None):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
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


def write_pairs(folder, name, pairs):
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{language}").write_bytes(text.encode())


def read_pairs(folder, name):
    """Reads line-aligned files. Each line, also the last, ends in a line feed."""
    files = [(folder / f"{name}.{language}").read_bytes() for language in ("en", "de")]
    assert all(content.endswith(b"\n") for content in files)
    sides = [content.decode().split("\n")[:-1] for content in files]
    return list(zip(*sides, strict=True))


def prepared_lines(folder, monkeypatch, call):
    """Runs the command of the page that reads the filtered pairs; returns the lines it read."""
    command = re.search(
        r"    opusfilter opusfilter.yaml\n    xlj prepare (.*?)\n\n", PAGE, re.DOTALL
    )
    monkeypatch.chdir(folder)
    printed = call(prepare.main, *shlex.split(command[1].replace("\\\n", " ")))
    rows = re.findall(r"^(\S+\.\S+) +([\d,]+) ", printed.out, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in rows}


@pytest.mark.slow
def test_prepare_reads_files_of_the_form_of_opusfilters_output(tmp_path, monkeypatch, call):
    pairs = list(itertools.islice(phrasebook.pair_lines("en-de"), 240))
    pairs[7] = (
        "a line\u2028in two",
        "eine Zeile\x85in zwei",
    )  # OpusFilter writes these as they are
    write_pairs(tmp_path, "unique", pairs)
    assert read_pairs(tmp_path, "unique") == pairs
    lines = prepared_lines(tmp_path, monkeypatch, call)
    assert lines == {"text.en": 240, "text.de": 240, "pairs.en-de": 240}


@pytest.mark.extra
@pytest.mark.skipif(not HAS_OPUSFILTER, reason="opusfilter is not on PATH")
def test_prepare_reads_what_opusfilter_writes(tmp_path, monkeypatch, call):
    (tmp_path / "opusfilter.yaml").write_text(code("opusfilter.yaml"), "utf-8")
    pairs = list(itertools.islice(phrasebook.pair_lines("en-de"), 300))
    odd = [("a line\u2028in two", "eine Zeile\x85in zwei")]
    dropped = [("", "leer"), ("short", "long " * 50), ("word " * 101, "Wort " * 101)]
    write_pairs(tmp_path, "pairs", [*pairs, *odd, *dropped, *pairs[:10]])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run(tmp_path, "opusfilter", "opusfilter.yaml", env=environment)
    actual = read_pairs(tmp_path, "unique")
    assert len(set(actual)) == len(actual) and set(actual) <= {*pairs, *odd} and len(actual) > 250
    assert odd[0] in actual
    assert set(prepared_lines(tmp_path, monkeypatch, call).values()) == {len(actual)}


PAIRS = [(f"one {k} is here", f"moja {k} iko hapa") for k in range(5)]
EN, SW = zip(*PAIRS, strict=True)
FLORES = ("id", "iso_639_3", "iso_15924", "glottocode", "text", "url", "domain", "topic")
COLLECTIONS = {
    "OPUS, moses zips": (
        "en-sw",
        {"GlobalVoices.en-sw.en": EN, "GlobalVoices.en-sw.sw": SW, "README": ["GlobalVoices"]},
    ),
    "CCMatrix and NLLB of OPUS": (
        "en-sw",
        {"CCMatrix.en-sw.en": EN, "CCMatrix.en-sw.sw": SW, "CCMatrix.en-sw.scores": ["1.06"] * 5},
    ),
    "NLLB, AllenAI's release": (
        "eng_Latn-swh_Latn",
        {
            "eng_Latn-swh_Latn.gz": [
                f"{a}\t{b}\t1.06\t0.99\t0.87\tcrawl-data/CC\thttps://a.b/c\tmono\t_"
                for a, b in PAIRS
            ]
        },
    ),
    "Tatoeba Challenge": (
        "eng-swa",
        {
            "eng-swa/train.src.gz": EN,
            "eng-swa/train.trg.gz": SW,
            "eng-swa/train.id.gz": ["GlobalVoices-v2018q4\teng\tswa"] * 5,
            "eng-swa/dev.src": EN,
        },
    ),
    "FLORES-200, to exclude": (
        "",
        {"flores200_dataset/dev/eng_Latn.dev": EN, "flores200_dataset/devtest/x.devtest": SW},
    ),
    "FLORES+, to exclude (hub, gated)": ("", {"dev/eng_Latn.parquet": EN, "dev/x.parquet": SW}),
}
"""(pair, lines of files) of each line of the table of collections."""


@pytest.mark.parametrize("name", COLLECTIONS)
def test_templates_of_other_collections_read_files_of_their_form(name, tmp_path):
    pair, files = COLLECTIONS[name]
    row = next(line for line in PAGE.split("\n") if line.startswith(f"| {name} | "))
    template = re.findall(r"`([^`]+)`", row)[-1].replace("\\|", "|")
    template = template.removeprefix("hf://datasets/openlanguagedata/flores_plus@main/")
    for file, lines in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{line}\n" for line in lines).encode()
        if file.endswith(".parquet"):
            table = {field: lines if field == "text" else ["x"] * len(lines) for field in FLORES}
            pq.write_table(pa.table(table), tmp_path / file)
        else:
            (tmp_path / file).write_bytes(gzip.compress(text) if file.endswith("gz") else text)
    prefixed = template if "#" in template else template.replace("|", f"|{tmp_path}/")
    path = f"{tmp_path}/{prefixed}"
    if not pair:
        excluded = [line for (line,) in text_units.read_excluded_lines(Data(exclude=(path,)))]
        assert sorted(filter(None, excluded)) == sorted([*EN, *SW])
        return
    data = Data(languages=tuple(pair.split("-")), pairs=(pair,), parallel=(path,))
    (task,) = (task for task in text_tasks.text_tasks(data) if task.name == f"pairs.{pair}")
    (unit,) = task.units(1 << 30)
    (chunk,) = text_units.UnitReader(unit, 0, text_units.ReadOptions("error", "")).chunks()
    assert list(zip(*chunk.columns, strict=True)) == PAIRS
