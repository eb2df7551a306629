"""docs/compare_link_training.py keeps English sentences of all sets in one fold, and leaves out
near-duplicates of test pairs."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from xlj.word_alignment import gold_alignments
from xlj.word_alignment.sentence_pairs import Pair

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    file = ROOT / "docs/compare_link_training.py"
    spec = importlib.util.spec_from_file_location("compare_link_training", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines_of(file):
    return file.read_text("utf-8").splitlines()[1:]


def sentences(file, column):
    return {line.split("\t")[column] for line in lines_of(file)}


@pytest.fixture
def data(tmp_path):
    """Two sets with the same English sentences, one of them with English as the target."""
    (tmp_path / "alignment").mkdir()
    english = [f"the {a} {b} sees a {c} ." for a in "ab" for b in "cdef" for c in "ghijk"]
    for name, is_source in (("en-fr.wpt03", True), ("de-en.rwth", False)):
        rows = []
        for k, text in enumerate(english):
            other = f"le {k} ." if is_source else f"der {k} x y z ."
            sides = (text, other) if is_source else (other, text)
            rows.append("\t".join([*sides, "0-0 1p1"]))
        content = "src\ttgt\tgold\n" + "\n".join(rows) + "\n"
        file = tmp_path / "alignment" / f"{name}.test.tsv.gz"
        file.write_bytes(gzip.compress(content.encode()))
    return tmp_path


def test_english_sentences_are_in_one_fold_of_all_sets(script, data, tmp_path, capsys):
    folder, sets = tmp_path / "out", ("en-fr.wpt03", "de-en.rwth")
    script.split(data, folder, sets, script.Options(joined=(3,)))
    total = 0
    for fold in range(5):
        part = folder / f"fold-{fold}"
        tests = [
            sentences(part / f"test.{name}.tsv", column)
            for name, column in zip(sets, (0, 1), strict=True)
        ]
        assert tests[0] == tests[1]
        total += len(tests[0])
        for pair, column in (("en-fr", 0), ("de-en", 1)):
            rest = sentences(part / f"train.{pair}.tsv", column)
            dev = sentences(part / f"dev.{pair}.tsv", column)
            assert dev and not rest & dev and not (rest | dev) & tests[0]
    assert total == 40
    script.split(data, tmp_path / "more", sets, script.Options(augment=3))
    train, more = (lines_of(tmp_path / name / "fold-0/train.en-fr.tsv") for name in ("out", "more"))
    assert more[: len(train)] == train and len(more) == len(train) + -(-len(train) // 3)
    counts = json.loads((folder / "duplicates.json").read_text())
    assert list(counts) == [f"fold-{k}" for k in range(5)]
    for languages in ("en-fr", "de-en"):
        for of_part in (part[languages] for part in counts.values()):
            assert of_part.pop("near-duplicates") == 0 and sum(of_part.values()) == 40
    assert script.fold_of("The CAT !".split()) == script.fold_of(["the", "cat"])


def test_sets_that_are_only_tested_have_no_training_pairs(script, data, tmp_path):
    script.split(data, tmp_path / "out", ["en-fr.wpt03"], script.Options(), ["de-en.rwth"])
    for fold in range(5):
        part = tmp_path / f"out/fold-{fold}"
        assert script.names_in(part, "train") == script.names_in(part, "dev") == ["en-fr"]
        assert sorted(script.names_in(part, "test")) == ["de-en.rwth", "en-fr.wpt03"]


def test_near_duplicates_share_n_grams_on_both_sides_of_one_pair(script):
    tests = [Pair("", "a b c d e f".split(), "A B C D E F".split()), Pair("", ["x"], ["y"])]
    pairs = [
        Pair("", "a b c d e z".split(), "a b c d e f".split()),
        Pair("", "a b c d e z".split(), "q b c d z f".split()),
        Pair("", ["X"], ["y"]),
        Pair("", ["x"], "A B C D E F".split()),
        Pair("", "a b c d".split(), "a b c d".split()),
    ]
    assert script.near_duplicates(pairs, tests).tolist() == [True, False, True, False, False]


def test_joined_pairs_have_the_links_of_their_parts(script):
    gold = gold_alignments.Gold(frozenset({(0, 1)}), frozenset({(0, 0)}))
    pairs = [Pair("f:1", ["a"], ["b", "c"], gold)] * 3
    joined = script.join(pairs, 2)
    assert [(len(p.source), len(p.target)) for p in joined] == [(2, 4), (1, 2)]
    assert joined[0].gold == ({(0, 1), (1, 3)}, {(0, 0), (1, 2)}, 0)


def test_the_table_merges_the_folds_of_a_set(script, tmp_path):
    """The counts of several seeds are added by pair."""

    def write(fold, seed, links):
        part = tmp_path / f"text/fold-{fold}"
        part.mkdir(parents=True, exist_ok=True)
        count = links.count("\n")
        (part / "test.en-fr.wpt03.tsv").write_text("src\ttgt\tgold\n" + "a b\tx y\t0-0\n" * count)
        predictions = tmp_path / f"runs/fold-{fold}/seed-{seed}/predictions"
        predictions.mkdir(parents=True)
        (predictions / "test-en-fr.wpt03.links").write_text(links)

    def rows():
        return script.table(tmp_path / "text", tmp_path / "runs", None).splitlines()[2:]

    write(0, 0, "0-0\n0-1\n")
    write(1, 0, "0-0\n")
    (row,) = rows()
    assert row.startswith("| folds | en-fr.wpt03 | 3 | seed-0 | 33.3 | 0.0 to 100.0 |")
    write(0, 1, "0-0\n0-0\n")
    assert len(rows()) == 2
    write(1, 1, "0-1\n")
    assert [row.split(" | ")[3:5] for row in rows()] == [
        ["2 seeds", "33.3"], ["seed-0", "33.3"], ["seed-1", "33.3"]
    ]  # fmt: skip
