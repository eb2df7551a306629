"""Files of semantic textual similarity are read in their published layouts."""

import json

import pytest

from xlj.config import ConfigError
from xlj.evaluation import sts

PAIRS = [("A man, tall.", "A boy."), ("It rains.", 'She "sings".'), ("One", "Two")]
SCORES = [4.2, 0.0, 2.5]


def written(layout):
    """Returns the content of a file with `PAIRS` in a published layout."""
    rows = [(f"{score}", *pair) for score, pair in zip(SCORES, PAIRS, strict=True)]
    if layout == "header":
        lines = [f"{s}\timages\t{a}\t{b}" for s, a, b in rows]
        return "\n".join(["score\tgenre\tsentence1\tsentence2", *lines]) + "\n"
    if layout == "three columns":
        return "".join(f"{a}\t{b}\t{s}\n" for s, a, b in rows)
    if layout == "benchmark":
        return "".join(
            f"main-news\t{name}\t2012\t0{k}\t{s}\t{a}\t{b}\n"
            for k, (name, (s, a, b)) in enumerate(
                zip(("MSRvid", "images", "images"), rows, strict=True)
            )
        )
    if layout == "SICK":
        lines = [f"{k}\t{a}\t{b}\t{s}\tNEUTRAL" for k, (s, a, b) in enumerate(rows)]
        head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
        return "\n".join([head, *lines]) + "\n"
    if layout == "CSV":
        quoted = [[x.replace('"', '""') for x in row] for row in rows]
        return "".join(f'"{a}","{b}",{s}\n' for s, a, b in quoted)
    keys = ("score", "sentence1", "sentence2")
    lines = [json.dumps(dict(zip(keys, (float(row[0]), *row[1:]), strict=True))) for row in rows]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    "layout, name, genres",
    [
        ("header", "de.tsv", {"images": 3}),
        ("three columns", "de.tsv", {}),
        ("benchmark", "sts-test.csv", {"MSRvid": 1, "images": 2}),
        ("SICK", "SICK.txt", {}),
        ("CSV", "stsb-de-test.csv", {}),
        ("JSON lines", "test.jsonl", {}),
    ],
)
def test_published_layouts(tmp_path, layout, name, genres):
    (tmp_path / name).write_text(written(layout), "utf-8")
    assert sts.read(tmp_path / name) == (PAIRS, SCORES, genres)


def test_parts_of_the_benchmark_have_a_warning():
    def rated(count, genres):
        return sts.RatedPairs([("a", "b")] * count, [1.0] * count, genres)

    warning = rated(625, {"images": 250, "headlines": 375}).warning
    assert warning.startswith(
        "625 pairs of images, headlines: not a whole file of the STS benchmark"
    )
    assert rated(1379, {"MSRvid": 1379}).warning == "" == rated(625, {}).warning


def test_correlations_by_hand():
    """The ranks of the scores differ in one exchange: 1 - 6 * 2 / (3 * 8) = 0.5."""
    spearman, pearson = sts.correlate([0.1, 0.3, 0.2], [1.0, 2.0, 3.0])
    assert spearman == pytest.approx(0.5) == pearson
    spearman, pearson = sts.correlate([0.0, 0.0, 9.0], [1.0, 1.0, 2.0])
    assert spearman == pytest.approx(1) == pearson


@pytest.mark.parametrize(
    "content, message",
    [
        ("score\tsentence1\tsentence2\n1\ta\tb\n\ta\tb\n", r"x\.tsv:3: expected two sentences and"),
        (
            "score\tsentence1\tsentence2\n1\ta\tb\n1\ta\t \n",
            r"x\.tsv:3: expected two sentences and",
        ),
        ("a\tb\t1\na\tb\thigh\n", r"x\.tsv:2: the score is 'high'; expected a number"),
        ("a\tb\t1\n", r"x\.tsv has fewer than two pairs"),
        ("a\t1\na\t1\n", r"x\.tsv:1: expected two sentences and a score"),
    ],
)
def test_errors_name_the_line(tmp_path, content, message):
    (tmp_path / "x.tsv").write_text(content)
    with pytest.raises(ConfigError, match=message):
        sts.read(tmp_path / "x.tsv")
