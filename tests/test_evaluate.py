"""xlj.evaluate: the scores of XTREME on its mock data, output files, a plot, and clear errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOCK = ROOT.parent / "shared" / "data" / "xtreme_mock"


def run(*arguments, python=()):
    done = subprocess.run(
        [sys.executable, *python, "-m", "xlj.evaluate", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folders(tmp_path):
    for side, labels in (("labels", "0\n1\n"), ("predictions", "1\n1\n")):
        (tmp_path / side / "pawsx").mkdir(parents=True)
        (tmp_path / side / "pawsx/test-en.tsv").write_text(labels)
    return f"--xtreme_labels={tmp_path}/labels", f"--xtreme_predictions={tmp_path}/predictions"


def test_scores_of_xtremes_mock_data_equal_those_of_xtreme():
    """The expected scores are the output of XTREME's evaluate.py, with all its digits."""
    if not MOCK.is_dir():
        pytest.skip(f"there is no mock data of XTREME at {MOCK}")
    code, output, errors = run(
        f"--xtreme_labels={MOCK}/labels", f"--xtreme_predictions={MOCK}/predictions"
    )
    assert code == 0, errors
    results = json.loads(output)
    tasks = results["tasks"]
    assert {
        "pawsx": f"{tasks['pawsx']['accuracy']['average']:.2f}",
        "xnli": f"{tasks['xnli']['accuracy']['average']:.2f}",
        "panx": f"{tasks['panx']['f1']['average']:.2f}",
        "bucc2018": f"{tasks['bucc2018']['f1']['average']:.1f}",
        "tatoeba": f"{tasks['tatoeba']['accuracy']['average']:.2f}",
        "udpos": f"{tasks['udpos']['f1']['average']:.4f}",
    } == {
        "pawsx": "51.43",
        "xnli": "30.67",
        "panx": "57.51",
        "bucc2018": "55.0",
        "tatoeba": "53.61",
        "udpos": "70.2175",
    }
    questions = {
        name: " / ".join(
            f"{tasks[name][metric]['average']:.2f}" for metric in ("exact_match", "f1")
        )
        for name in ("xquad", "mlqa", "tydiqa")
    }
    assert questions == {
        "xquad": "77.27 / 79.96",
        "mlqa": "57.14 / 81.77",
        "tydiqa": "88.89 / 97.22",
    }
    assert tasks["xquad"]["score"] == pytest.approx((77.27 + 79.96) / 2, abs=0.01)
    assert set(results["groups"]) == {"classification", "tagging", "qa", "retrieval"}
    assert results["score"] == pytest.approx(sum(task["score"] for task in tasks.values()) / 9)
    assert "skipped mewslix: not a task of XTREME" in errors


def test_scores_are_written_as_json_and_markdown(folders, tmp_path):
    files = {ending: tmp_path / f"scores.{ending}" for ending in ("json", "md")}
    outputs = [run(*folders, f"--output={file}") for file in files.values()]
    assert [code for code, *_ in outputs] == [0, 0], outputs
    assert outputs[0][1] == outputs[1][1] == files["json"].read_text()
    assert json.loads(outputs[0][1])["tasks"]["pawsx"]["score"] == 50
    assert "| accuracy | 50.0 | 50.0 |" in files["md"].read_text()


def test_scores_are_plotted(folders, tmp_path):
    pytest.importorskip("matplotlib")
    code, _, errors = run(*folders, f"--plot={tmp_path}/scores.svg")
    assert code == 0, errors
    assert "pawsx: accuracy" in (tmp_path / "scores.svg").read_text("utf-8")


def test_scoring_needs_no_jax(folders):
    code, _, errors = run(*folders, python=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip() for line in errors.splitlines()}
    assert code == 0 and "xlj.evaluation.xtreme" in loaded
    assert not {"jax", "flax", "tensorflow", "seqio"} & loaded


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--xtreme_predictions=nowhere", "nowhere is not a folder"),
        ("--output=scores.txt", "--output=scores.txt: the file name must end in .json or .md"),
        ("--output=nowhere/scores.md", "--output=nowhere/scores.md: the folder"),
        ("--plot=scores.nothing", "--plot=scores.nothing: "),
    ],
)
def test_errors_are_one_line(folders, flag, message):
    if flag.startswith("--plot"):
        pytest.importorskip("matplotlib")
    code, _, errors = run(*folders, flag)
    assert code == 2 and "Traceback" not in errors
    assert f"error: {message}" in errors.splitlines()[-1]
