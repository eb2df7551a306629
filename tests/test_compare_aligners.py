"""docs/compare_aligners.py gathers text and gold, combines directions, and prints a table."""

import gzip
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    file = ROOT / "docs/compare_aligners.py"
    spec = importlib.util.spec_from_file_location("compare_aligners", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_gzip(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()))


def test_text_is_gathered_by_pair_and_gold_gets_the_direction_of_the_text(script, tmp_path, capsys):
    write_gzip(
        tmp_path / "parallel/a/train/en-de.tsv.gz", "one\teins\nempty\t \nThree\tdrei\tmore\n"
    )
    write_gzip(tmp_path / "parallel/b/dev/en-de.tsv.gz", "four\tvier\n")
    write_gzip(tmp_path / "parallel/b/dev/en-zh-CN.tsv.gz", "five\t五\n")
    gold = "src\ttgt\tgold\nein Haus\ta house\t0-0 1p0 1-1\n"
    write_gzip(tmp_path / "alignment/de-en.some.test.tsv.gz", gold)
    script.gather(tmp_path, "*", tmp_path / "out")
    files = {p.name: p.read_text("utf-8") for p in (tmp_path / "out").rglob("*.tsv")}
    assert files == {
        "en-de.tsv": "one\teins\nThree\tdrei\nfour\tvier\na house\tein Haus\n",
        "en-zh.tsv": "five\t五\n",
        "en-de.some.test.tsv": "a house\tein Haus\t0-0 0p1 1-1\n",
    }
    assert "en-de: 4 pairs, 1 with an empty side left out" in capsys.readouterr().out


def test_gold_of_a_pair_without_text_is_left_out(script, tmp_path):
    write_gzip(tmp_path / "parallel/a/train/en-de.tsv.gz", "one\teins\n")
    write_gzip(tmp_path / "alignment/fr-en.some.test.tsv.gz", "src\ttgt\tgold\nun\tone\t0-0\n")
    script.gather(tmp_path, "a", tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").rglob("*.tsv")] == ["en-de.tsv"]


def test_links_of_two_directions_are_combined(script):
    forward = [[(0, 0), (1, 1), (1, 2), (5, 5)]]
    backward = [[(0, 0), (1, 1), (2, 2), (5, 0)]]
    combined = {
        method: links[0].tolist()
        for method, links in script.combine_directions(forward, backward).items()
    }
    assert combined["intersection"] == [[0, 0], [1, 1]]
    # Adds neighbours of links for words without a link; (5, 5) and (5, 0) have no neighbour.
    assert combined["grow-diag"] == [[0, 0], [1, 1], [1, 2], [2, 2]]
    assert combined["union"] == [[0, 0], [1, 1], [1, 2], [2, 2], [5, 0], [5, 5]]


def test_the_table_has_the_combination_that_is_best_on_one_gold_set(script):
    error_rates = {
        "eflomal": {
            script.CHOSEN_ON: {"intersection": 0.3, "union": 0.2},
            "other": {"intersection": 0.1, "union": 0.25},
        },
        "runs/all": {script.CHOSEN_ON: {"": 0.125}},
    }
    table = script.table(error_rates, ["runs/all"]).splitlines()
    assert table[0] == "| gold | eflomal union | runs/all |"
    assert table[2:] == ["| en-fr.golden.test | 20.0 | 12.5 |", "| other | 25.0 |  |"]
