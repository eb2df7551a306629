"""The command of word alignment: files in, links and scores out, clear errors."""

import functools
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xlj import align, phrasebook
from xlj.config import ConfigError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def gold(tmp_path_factory):
    """A TSV file of 10 phrasebook pairs with their gold links, and the pairs."""
    pairs = [phrasebook.pair(phrasebook.draw(7, k), "en", "de") for k in range(10)]
    file = tmp_path_factory.mktemp("gold") / "gold.tsv.gz"
    lines = ["src\ttgt\tgold"]
    for pair in pairs:
        sides = [" ".join(word.form for word in side.words) for side in (pair.source, pair.target)]
        links = " ".join(f"{i}-{j}" for i, j in sorted(pair.alignment))
        lines.append("\t".join([*sides, links]))
    file.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    return file, pairs


@pytest.fixture
def run(checkpoint, call):
    """Runs the command in this process; returns what it prints."""
    return functools.partial(call, align.main, f"--checkpoint={checkpoint}")


def test_a_line_of_sorted_links_for_each_pair(run, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one two three\teins zwei drei\n\n\tonly\nonly\t\nfour\tvier\n")
    output = tmp_path / "links.txt"
    run(f"--input={pairs}", f"--output={output}")
    lines = output.read_text().split("\n")
    assert len(lines) == 6 and lines[1:4] == ["", "", ""] and lines[4:] == ["0-0", ""]
    links = [tuple(map(int, link.split("-"))) for link in lines[0].split()]
    assert links and links == sorted(set(links)) and max(map(max, links)) < 3
    assert run(f"--input={pairs}", "--output=-").out == output.read_text()
    reader, writer = os.pipe()  # which can be read only once
    os.write(writer, pairs.read_bytes())
    os.close(writer)
    assert run(f"--input=/dev/fd/{reader}", "--output=-").out == output.read_text()
    os.close(reader)


def test_scores_are_those_of_the_links_written(run, gold, tmp_path):
    file, pairs = gold
    output, links_file = tmp_path / "links.txt", tmp_path / "gold.txt"
    printed = json.loads(run(f"--input={file}", "--gold", f"--output={output}", "--layer=1").out)
    assert printed["pairs"] == 10 and printed["layer"] == 1
    found = [{tuple(map(int, x.split("-"))) for x in y.split()} for y in output.open()]
    hits = sum(len(links & pair.alignment) for links, pair in zip(found, pairs, strict=True))
    total, sure = sum(map(len, found)), sum(len(pair.alignment) for pair in pairs)
    assert printed["aer"] == pytest.approx(1 - 2 * hits / (total + sure), abs=1e-6)
    assert printed["precision"] == pytest.approx(hits / total, abs=1e-6)
    assert printed["recall"] == pytest.approx(hits / sure, abs=1e-6)

    lines = (" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs)
    links_file.write_text("\n".join(lines) + "\n")
    again = run(f"--input={file}", f"--gold={links_file}", "--layer=1").out
    assert json.loads(again) == printed
    links_file.write_text(
        "".join(f"{k} {i + 1} {j + 1}\n" for k, p in enumerate(pairs) for i, j in p.alignment)
    )
    again = run(f"--input={file}", f"--gold={links_file}", "--layer=1").out
    assert json.loads(again) == printed


def test_all_layers_make_a_table_and_a_plot(run, gold, tmp_path):
    plot = tmp_path / "aer.svg"
    files = f"--plot={plot}", f"--scores={tmp_path / 'aer.jsonl'}"
    printed = run(f"--input={gold[0]}", "--gold", "--layers=all", *files).out
    rows = [line.split() for line in printed.splitlines()]
    assert rows[0] == ["layer", "AER", "P", "R", "F1"] and [row[0] for row in rows[1:]] == [*"0123"]
    assert printed.count("lowest AER") == 1
    one = json.loads(run(f"--input={gold[0]}", "--gold", "--layer=2").out)
    np.testing.assert_allclose(float(rows[3][1]), 100 * one["aer"], atol=0.006)
    assert plot.read_text().startswith("<?xml")
    written = [json.loads(line) for line in (tmp_path / "aer.jsonl").read_text().splitlines()]
    assert [line["layer"] for line in written] == [0, 1, 2, 3]
    assert written[2]["aer"] == pytest.approx(one["aer"], abs=1e-6)


def test_without_matplotlib_there_is_a_table_and_a_hint(run, gold, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    printed = run(f"--input={gold[0]}", "--gold", "--layers=all", f"--plot={tmp_path / 'aer.png'}")
    assert "lowest AER" in printed.out and "pip install -e '.[plots]'" in printed.err


def test_long_pairs_are_reported(run, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\teins\n" + " ".join(["word"] * 60) + "\tWort\n")
    printed = run(f"--input={pairs}", f"--output={tmp_path / 'links.txt'}").err
    assert "1 of 2 pairs were too long for the model" in printed


def test_no_output_is_left_after_an_error(run, tmp_path, monkeypatch):
    from xlj.word_alignment import aligner

    monkeypatch.setattr(aligner, "MOST_PIECES", 20)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("one\teins\n" + "word " * 30 + "\tWort\n")
    with pytest.raises(ConfigError, match=r"pairs\.tsv:2: a sentence of"):
        run(f"--input={pairs}", f"--output={tmp_path / 'links.txt'}")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "say where the links go with --output=FILE, or score them with --gold"),
        (["--layers=all"], "--layers=all only scores: it needs --gold"),
        (["--gold", "--layers=all", "--layer=1"], "--layers=all only scores"),
        (["--gold", "--scores=x.jsonl"], "--scores=x.jsonl needs --layers=all"),
        (["--gold", "--layer=4"], "--layer=4: this model has layers 0 (embeddings) to 3"),
        (["--output=/none/links.txt"], "--output=/none/links.txt: there is no such folder"),
        (["--gold", "--layers=all", "--plot=/none/x.png"], "--plot=/none/x.png: there is no such"),
        (["--gold=/none.txt"], "/none.txt: cannot read it"),
        (["--gold", "--method=best"], "argument --method: invalid choice: 'best'"),
        (["--gold", "--layer=two"], "argument --layer: invalid int value: 'two'"),
        (["--gold", "--lay=2"], "unrecognized arguments: --lay=2"),
    ],
)
def test_errors_say_what_to_do(run, gold, arguments, message):
    with pytest.raises(ConfigError) as error:
        run(f"--input={gold[0]}", *arguments)
    assert message in str(error.value)


def test_gold_of_another_number_of_pairs(run, gold, tmp_path):
    file = tmp_path / "gold.txt"
    file.write_text("0-0\n")
    with pytest.raises(ConfigError, match="has links of 1 sentence pairs, but .* has 10 pairs"):
        run(f"--input={gold[0]}", f"--gold={file}")


def test_from_the_command_line_errors_are_one_line():
    command = [sys.executable, "-m", "xlj.align", "--input=none.tsv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "error: the following arguments are required: --checkpoint\n"
