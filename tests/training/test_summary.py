"""The summary shows every measure of the last evaluation once."""

import json

from xlj.checkpoints import metrics
from xlj.training.loop import Outcome
from xlj.training.run_flops import Counts
from xlj.training.summary import summary


def summary_lines(workdir, *lines):
    (workdir / metrics.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = Outcome(9, True, workdir, workdir / "checkpoints/9", Counts(1e9, 2e9, 3e9))
    return summary(outcome, "train").split("\n")


def test_losses_are_shown_with_their_accuracies_and_above_other_measures(tmp_path):
    first = {"eval/mmlm/en/loss": 7.0, "eval/mmlm/en/accuracy": 0.0, "eval/probe/en-de/aer": 0.75}
    last = {"eval/mmlm/en/loss": 2.5, "eval/mmlm/en/accuracy": 0.5, "eval/probe/en-de/aer": 0.25}
    last |= {"eval/mmlm/en/perplexity": 12.25, "eval/probe/aer": 0.25}
    lines = summary_lines(
        tmp_path, {"step": 0, **first}, {"step": 4, "train/loss": 1}, {"step": 9, **last}
    )
    for head, words in (
        ("held-out loss", [["mmlm", "en", "7.000", "->", "2.500", "0.0%", "->", "50.0%"]]),
        (
            "other measures",
            [
                ["probe", "en-de", "0.750", "->", "0.250", "aer"],
                ["mmlm", "en", "nan", "->", "12.250", "perplexity"],
                ["probe", "mean", "nan", "->", "0.250", "aer"],
            ],
        ),
    ):
        start = next(k for k, line in enumerate(lines) if line.startswith(head))
        assert [line.split() for line in lines[start + 1 : start + 1 + len(words)]] == words
        assert not lines[start + 1 + len(words)] and "step 0 -> 9" in lines[start]


def test_of_many_languages_the_largest_losses_are_shown_and_the_file_has_all(tmp_path):
    losses = {f"eval/mmlm/x{n}/loss": float(n) for n in range(100)} | {"eval/mmlm/loss": 49.5}
    losses |= {key.replace("loss", "accuracy"): 0.5 for key in losses}
    lines = summary_lines(tmp_path, {"step": 0, **losses}, {"step": 9, **losses})
    shown = [line.split()[1] for line in lines if line.startswith("  mmlm")]
    assert shown == ["mean", *(f"x{n}" for n in range(99, 75, -1))]
    assert "  ... 76 more are in metrics.jsonl; the largest losses are above" in lines


def test_the_summary_of_a_run_without_losses_has_its_measures(tmp_path):
    lines = summary_lines(
        tmp_path, {"step": 0, "eval/dev/en/f1": 0.1}, {"step": 9, "eval/dev/en/f1": 0.5}
    )
    assert any(line.split() == ["dev", "en", "0.100", "->", "0.500", "f1"] for line in lines)
    assert not any(line.startswith("held-out loss") for line in lines)
    assert "operations: 1e+09 in matrix products (ELECTRA's count 2e+09, 6ND 3e+09)" in lines


def test_the_summary_of_a_stopped_run_explains_how_to_resume(tmp_path):
    (tmp_path / metrics.FILE).write_text('{"step": 0, "train/loss": 7.0}\n')
    for step, output in ((0, "before anything was saved"), (3, "the same command resumes from it")):
        folder = tmp_path / f"checkpoints/{step}"
        outcome = Outcome(step, False, tmp_path, folder, Counts(1.0, 2.0, 3.0))
        text = summary(outcome, "train")
        assert output in text.split("\n")[-1] and ("checkpoint:" in text) == (step > 0)
