"""Report pages of synthetic workdirs, read with an HTML parser."""

import html.parser
import json
import subprocess
import sys
from pathlib import Path

import pytest

from xlj.config import ConfigError
from xlj.reporting import runs
from xlj.reporting.page import page

ROOT = Path(__file__).parents[1]
EVIL = "<script>alert('&\"')</script>"


class Page(html.parser.HTMLParser):
    """The tags, attributes, text and table rows of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.rows = [], [], "", []
        self.cell = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        self.cell = tag in ("th", "td") or (self.cell and tag not in ("h2", "h3"))

    def handle_endtag(self, tag):
        self.cell = self.cell and tag not in ("th", "td")

    def handle_data(self, data):
        self.text += data
        if self.cell:
            self.rows[-1][-1] += data

    def row(self, name):
        return next(row for row in self.rows if row and row[0] == name)


def write(folder, config=None, lines=(), **files):
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if lines:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def render(*arguments):
    return Page(page(runs.find([str(argument) for argument in arguments]), "report"))


@pytest.fixture
def two_runs(tmp_path):
    """Two pretraining runs; the second has one more objective and the better loss."""
    for name, loss, more in (("a", 3.0, {}), ("b", 2.0, {"eval/tlm/loss": 1.5})):
        evaluated = {"eval/mmlm/en/loss": loss - 1, "eval/mmlm/sw/loss": loss + 1}
        config = {"train": {"steps": 200, "seed": ord(name)}, "data": {"languages": ["en", "sw"]}}
        lines = [
            {"step": 0, "eval/mmlm/loss": 9.0},
            {"step": 100, "train/mmlm/loss": 5.0, "time/seconds": 70.4, "learning_rate": 1e-3},
            {"step": 200, "train/mmlm/loss": loss, "time/seconds": 3725.0}
            | {"time/tokens_per_second": 1234.5, "eval/mmlm/loss": loss, **evaluated, **more}
            | {"eval/retrieval/sw-en/accuracy": 0.25, "eval/retrieval/accuracy": 0.125},
        ]
        write(tmp_path / name, config, lines)
    return tmp_path


def test_the_table_of_runs_has_duration_speed_losses_and_accuracy(two_runs):
    parsed = render(two_runs)
    head = ["run", "steps", "time", "tokens/s", "mmlm loss", "retrieval accuracy", "tlm loss"]
    assert parsed.rows[0] == head
    assert parsed.row("a") == ["a", "200", "1:02:05", "1,234", "3.000", "0.125", "–"]
    assert parsed.row("b")[4:] == ["2.000", "0.125", "1.500"]
    assert parsed.tags.count("b") == 1  # the lower loss is bold


def test_configs_are_compared_by_key(two_runs):
    parsed = render(two_runs)
    assert parsed.row("train.seed") == ["train.seed", "97", "98"]
    compared = parsed.text.partition("Keys that differ from the defaults.")[0]
    assert "data.languages" not in compared and "train.steps" not in compared
    assert "Config differences" not in render(two_runs / "a").text


def test_pretraining_and_fine_tuning_are_not_compared(two_runs, tmp_path):
    for name, length in (("x", 32), ("y", 64)):
        config = {"task": {"kind": "tagging", "length": length}, "train": {"seed": 3}}
        write(tmp_path / name, results={"task": "panx", "config": config})
    parsed = render(two_runs / "a", two_runs / "b", tmp_path / "x", tmp_path / "y")
    assert parsed.row("train.seed") == ["train.seed", "97", "98"]
    assert parsed.row("task.length") == ["task.length", "32", "64"]
    assert "task.kind" not in parsed.text.partition("Keys that differ from the defaults.")[0]


def test_languages_have_bars_and_tables(two_runs):
    parsed = render(two_runs)
    assert (
        "a, sw: 4" in parsed.text and "b, en: 1" in parsed.text and "a, sw-en: 0.25" in parsed.text
    )
    assert ["a", "2.000", "4.000"] in parsed.rows


def test_scores_by_layer_are_means_over_languages(tmp_path):
    write(tmp_path / "a", {}, [{"step": 1}])
    lines = [
        {"language": name, "layer": layer, "source_to_target": value, "sentences": 5}
        for layer in (0, 1)
        for name, value in (("de", 0.5), ("fr", 0.25 + layer), ("average", 0.9))
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "a/tatoeba.jsonl").write_text(text)
    (run,) = runs.find([str(tmp_path / "a")])
    assert run.layers == {"tatoeba source_to_target": {0: 0.375, 1: 0.875}}
    assert "a: 0.875 at 1" in render(tmp_path / "a").text


def test_results_of_tasks_have_averages_deviations_and_baselines(tmp_path):
    deviations = {"deviation_of_average": 1, "deviation_of_transfer_gap": 2}
    for name, more in (("x", {}), ("y", {"deviations": {"en": 0.44}, **deviations})):
        results = {"task": "xnli", "metric": "accuracy", "average": 40, "transfer_gap": 25.5}
        results |= {"languages": {"en": 50.5, "de": 25.04, "zh": None}, **more}
        baseline = {"accuracy": {"en": 33.3, "de": 33.4}, "other": {"en": 1.0}}
        write(tmp_path / name, results=results | {"baseline": baseline})
    parsed = render(tmp_path)
    assert ["", "en", "de", "average", "transfer gap"] in parsed.rows
    assert ["x", "50.5", "25.0", "40.0", "25.5"] in parsed.rows
    assert ["y", "50.5 ± 0.4", "25.0", "40.0 ± 1.0", "25.5 ± 2.0"] in parsed.rows
    assert ["most frequent label", "33.3", "33.4", "33.3", "–"] in parsed.rows
    assert "x, en: 50.5" in parsed.text
    assert parsed.row("x") == ["x", "–", "–", "–", "40.00"]


def test_dev_results_have_a_separate_table_and_different_baselines_name_their_run(tmp_path):
    for name, split, frequent in (("x", "dev", 30), ("y", "test", 30), ("z", "test", 20)):
        results = {"task": "xnli", "metric": "accuracy", "split": split, "languages": {"en": 50}}
        write(tmp_path / name, results=results | {"baseline": {"accuracy": {"en": frequent}}})
    parsed = render(tmp_path)
    assert "xnli accuracy (dev)" in parsed.text
    assert [row[:2] for row in parsed.rows if row[0].startswith("most")] == [
        ["most frequent label", "30.0"],
        ["most frequent label: y", "30.0"],
        ["most frequent label: z", "20.0"],
    ]


def test_fine_tuning_has_a_run_per_seed(tmp_path):
    results = {"task": "xnli", "languages": {"en": 50}, "config": {"fresh": False}}
    folder = write(tmp_path / "xnli", results=results)
    for seed in (0, 1):
        config = {"train": {"seed": seed}}
        write(folder / f"seed-{seed}", config, [{"step": 5, "eval/dev/accuracy": 50 + seed}])
    assert "Config differences" not in render(folder).text  # the task has one config
    assert [run.name for run in runs.find([str(folder)])] == ["xnli", "seed-0", "seed-1"]
    assert [run.name for run in runs.find([str(tmp_path)])] == ["xnli", "seed-0", "seed-1"]
    assert "seed-1: 51 at 5" in render(folder).text


def test_text_of_all_files_is_escaped(tmp_path):
    config = {"init_from": EVIL, EVIL: 1}
    lines = [{"step": 1, f"eval/{EVIL[:8]}/{EVIL[8:12]}/loss": 1.0, f"eval/{EVIL[:8]}/loss": 1.0}]
    results = {"task": EVIL, "metric": EVIL, "languages": {EVIL: 0.5}}
    first = write(tmp_path / "a", config, lines, results=results)
    other = write(tmp_path / "b", {"init_from": "\x00\x1b"}, lines)
    parsed = render(f"{EVIL}={first}", other)
    assert "script" not in parsed.tags and EVIL in parsed.text
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert {"init_from", EVIL} <= {row[0] for row in parsed.rows if row}


def test_the_page_fetches_nothing(two_runs):
    parsed = render(two_runs)
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    assert not {"src", "href"} & {name for name, _ in parsed.attributes}
    text = page(runs.find([str(two_runs)]), "report")
    assert "url(" not in text and "@import" not in text and "http" not in text


def test_damage_is_reported_as_a_note_and_the_rest_is_shown(two_runs):
    good = (two_runs / "a/metrics.jsonl").read_text()
    (two_runs / "a/metrics.jsonl").write_text('broken\n{"step": "x"}\n' + good)
    with (two_runs / "a/metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n{"step": 250, "time/seconds": NaN}\n')
    (two_runs / "a/empty.jsonl").write_text('{"layer": 1}\n')
    (two_runs / "a/layers.jsonl").write_bytes(b'\n{"layer": 1, "aer": 0.5}\n\xff\n[]\n')
    (two_runs / "b/results.json").write_text("[1")
    (two_runs / "b/scores.jsonl").write_text('{"en": 1.5}\n')
    write(two_runs / "c", {"train": {"steps": 9}})
    write(two_runs / "d", lines=[{"step": 1}], sweep={"config": None})
    text = render(two_runs).text
    assert "a: metrics.jsonl:6 is not a line" in text and "a: 0.5 at 1" in text
    assert "a: layers.jsonl:3: the line has no scores of a layer (and 1 more lines)" in text
    for line in (
        "metrics.jsonl:1 is not a line",
        "metrics.jsonl:2 is",
        "empty.jsonl: the file has no",
    ):
        assert f"a: {line}" in text
    assert "b: results.json is damaged" in text and "b: scores.jsonl:1: the line has no" in text
    assert "c: has no metrics.jsonl and no results.json yet" in text
    assert render(two_runs).row("b")[4] == "2.000"


@pytest.mark.parametrize("kind, reason", [("folder", "a directory"), ("loop", "symbolic links")])
def test_unreadable_files_are_reported_as_notes(two_runs, kind, reason):
    names = ("metrics.jsonl", "config.json", "results.json", "sweep.json", "words.jsonl")
    for name in names:
        path = two_runs / "a" / name
        path.unlink(missing_ok=True)
        path.mkdir() if kind == "folder" else path.symlink_to(name)
    write(two_runs / "a/seed-0", {}, [{"step": 1}])  # a folder of workdirs, so that it is read
    run = runs.read(two_runs / "a", "a")
    assert [note.partition(" ")[0] for note in run.notes] == [
        "results.json", "sweep.json", "config.json", "metrics.jsonl", "words.jsonl",
    ]  # fmt: skip
    assert all("cannot be read: " in note and reason in note for note in run.notes)
    (two_runs / "b/words.jsonl").symlink_to("words.jsonl")
    assert (
        "b: words.jsonl cannot be read: Too many levels of symbolic links" in render(two_runs).text
    )


def test_values_that_are_not_numbers_are_not_drawn(tmp_path):
    values = {"eval/x/loss": "high", "eval/y/loss": None, "eval/z/loss": float("nan")}
    write(tmp_path / "a", {}, [{"step": 1, **values}])
    assert "polyline" in render(tmp_path / "a").tags  # the line sample in the table
    assert "circle" not in render(tmp_path / "a").tags


def test_names_are_unique(tmp_path):
    for path in ("x/run", "y/run", "z=1/other"):
        write(tmp_path / path, {}, [{"step": 1}])
    paths = [str(tmp_path / path) for path in ("x/run", "y/run", "z=1/other")]
    assert [run.name for run in runs.find(paths)] == ["x/run", "y/run", "z=1/other"]
    assert [run.name for run in runs.find(paths[1:])] == ["run", "other"]
    assert [run.name for run in runs.find([f"mine={paths[0]}", paths[1]])] == ["mine", "run"]


def test_a_name_belongs_to_one_run(two_runs):
    with pytest.raises(ConfigError, match="give each workdir a different name"):
        runs.find([f"x={two_runs / 'a'}", f"y={two_runs / 'a'}"])
    with pytest.raises(ConfigError, match="give each workdir a different name"):
        runs.find([f"x={two_runs / 'a'}", f"x={two_runs / 'b'}"])
    assert [run.name for run in runs.find([str(two_runs), f"x={two_runs / 'b'}"])] == ["a", "x"]


@pytest.mark.parametrize("path, message", [("none", "no such folder"), (".", "neither a workdir")])
def test_folders_without_runs_are_errors(tmp_path, path, message):
    with pytest.raises(ConfigError, match=message):
        runs.find([str(tmp_path / path)])


def test_the_command_writes_one_file(two_runs, tmp_path):
    output = tmp_path / "out.html"
    command = [sys.executable, "-m", "xlj.report", str(two_runs), f"--output={output}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"report: {output}, 2 runs\n"
    assert output.read_text("utf-8").startswith("<!doctype html>")
    done = subprocess.run(
        [*command[:-1], "--output=no/such/x.html"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("error: --output=no/such/x.html")


def test_the_headline_has_objectives_model_data_duration_and_result(tmp_path):
    config = {
        "data": {"languages": ["en", "yo"], "pairs": ["en-yo"], "length": 64},
        "model": {"layers": 1, "hidden": 96},
        "objectives": {"mmlm": {"batch_size": 8}, "tlm": {"batch_size": 0}},
        "train": {"steps": 20},
    }
    lines = [
        {"step": 0, "eval/mmlm/loss": 7.25, "eval/mmlm/en/loss": 7.0},
        {"step": 20, "eval/mmlm/loss": 2.5, "eval/mmlm/accuracy": 0.25, "time/seconds": 1800.0},
    ]
    machine = {"started": "2026-11-27 04:10", "host": EVIL, "devices": "1 x NVIDIA H100"}
    write(tmp_path / "a", config, lines, machine=machine)
    shown = Page(page(runs.find([str(tmp_path / "a")]), "t"))
    text = " ".join(shown.text.split())
    start = "a: mmlm with 1 layer of size 96; on en, yo and en-yo; 20 steps in 30 minutes"
    assert f"{start}; mmlm loss 7.250 → 2.500.2026-11-27 04:10 · {EVIL} · 1 x NVIDIA H100" in text
    assert "script" not in shown.tags
    assert shown.row("data.length") == ["data.length", "64"]
    for name in "bcde":
        write(tmp_path / name, config, lines)
    many = Page(page(runs.find([str(tmp_path / name) for name in "abcde"]), "t"))
    assert "with 1 layer" not in many.text and "data.length" not in many.text
