"""`xlj.sweep`, with a stub instead of the training command.

Tests call the command in this process; the test of a signal starts a process.
"""

import json
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xlj import sweep as command
from xlj.tools.sweeping.definition import make_runs

ROOT = Path(__file__).parents[1]

STUB = """
import json, pathlib, sys, time

given = dict(argument.lstrip("-").partition("=")[::2] for argument in sys.argv[1:])
workdir = pathlib.Path(given["workdir"])
if "config.typo" in given:
    sys.exit("error: unknown config key typo")
if "check" in given:
    seed = int(given.get("config.train.seed", 0))
    steps = "5ep" if given.get("config.do") == "finetune" else 3
    config = {"train": {"seed": seed, "steps": steps}, "recipe": given["config"]}
    if given.get("config.do") == "rows":
        config |= {"data": {"rows": "r", "alpha": 0.7, "languages": [], "vocabulary": ""}}
    if given.get("config.do") == "start":
        config |= {"init_from": "x", "data": {"vocabulary": ""}}
    print(json.dumps(config))
    sys.exit()
with open(workdir / "calls", "a") as file:
    file.write("called\\n")
do = given.get("config.do")
if do == "crash":
    sys.exit("boom")
if do == "wait":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    (workdir / "waiting").touch()
    time.sleep(60)
if do == "kill":
    import os
    os.kill(os.getpid(), 9)
if do == "folder":
    (workdir / "metrics.jsonl").mkdir()
elif do == "damage":
    (workdir / "metrics.jsonl").write_bytes(b"\\xff\\n{}\\n")
elif do == "broken":
    (workdir / "results.json").write_text('{"runs": []}')
elif do == "finetune":
    scores = [{"accuracy": {"en": english, "de": 60}} for english in (80, 83)]
    of_seeds = [{"dev": found, "test": {}} for found in scores]
    results = {"metric": "accuracy", "runs": of_seeds}
    (workdir / "results.json").write_text(json.dumps(results))
elif do == "stop":
    sys.exit(75)
else:
    losses, train = [1.5, 1.375, 1.25], {"steps": 3}
    if do == "early":
        losses, train = [1.25, 1.5], train | {"best_metric": "-eval/mmlm/loss", "patience": 1}
    (workdir / f"checkpoints/{len(losses)}").mkdir(parents=True)
    (workdir / "config.json").write_text(json.dumps({"train": train, "phases": {}}))
    lines = [json.dumps({"step": n, "eval/mmlm/loss": x}) for n, x in enumerate(losses, 1)]
    (workdir / "metrics.jsonl").write_text("\\n".join([*lines, ""]))
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch, capfd):
    """Calls `xlj.sweep` with a sweep of these runs: returns exit code, output and errors. The stub
    is a module beside the sweep file."""
    (tmp_path / "stub.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")

    def call(runs, *arguments):
        capfd.readouterr()
        code = command.main(call.arguments(runs, *arguments))
        return code, *capfd.readouterr()

    def arguments(runs, *others):
        file = tmp_path / "mine.py"
        file.write_text(
            "from xlj.tools.sweeping import Sweep\n\n\ndef get_sweep(folder):\n"
            f"    return Sweep('c.py', {runs!r}, command='stub')\n"
        )
        return [f"--config={file}", *others, f"--folder={tmp_path / 'runs'}"]

    call.runs, call.arguments = tmp_path / "runs", arguments
    return call


def calls(folder):
    file = folder / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_other_runs_continue_after_a_crash_and_finished_runs_are_not_repeated(sweep):
    runs = [
        {"name": name, "do": name}
        for name in ("good", "crash", "kill", "stop", "damage", "folder", "broken", "early", "last")
    ]
    code, output, _ = sweep(runs)
    assert code == 1
    lines = {line.split()[0]: line for line in output.splitlines()}
    assert "finished" in lines["good"] and "mmlm 1.250" in lines["good"]
    log = sweep.runs / "crash/log.txt"
    assert f"exit code 1, {log}: boom" in lines["crash"] and "boom" in log.read_text()
    assert "killed by SIGKILL" in lines["kill"] and "stopped" in lines["stop"]
    assert "metrics.jsonl:1 is not a line of metrics" in lines["damage"]
    assert "folder/metrics.jsonl: cannot be read (Is a directory)" in lines["folder"]
    assert "broken/results.json is damaged: it has no scores" in lines["broken"]
    assert "finished" in lines["early"] and "finished" in lines["last"]
    code, output, _ = sweep([runs[0], {**runs[1], "do": "good"}, *runs[-2:]])
    assert code == 0 and output.count("finished before") == 3
    assert [calls(sweep.runs / name) for name in ("good", "crash", "early", "last")] == [1, 2, 1, 1]


def test_a_run_with_a_damaged_config_is_not_finished(sweep):
    """The run itself reports the damage; the other runs go on."""
    runs = [{"name": name, "do": "good"} for name in ("half", "empty", "whole")]
    sweep(runs)
    (sweep.runs / "half/config.json").write_text('{"train": {')
    (sweep.runs / "empty/config.json").write_text("{}")
    assert sweep(runs)[1].count("finished before") == 1
    assert [calls(sweep.runs / run["name"]) for run in runs] == [2, 2, 1]


def test_fine_tuning_is_finished_if_its_results_exist(sweep):
    runs = [{"name": "a", "do": "finetune"}]
    assert "finished" in sweep(runs)[1]
    _, output, _ = sweep(runs)
    assert "finished before" in output and "dev accuracy 70.75" in output
    assert "test" not in output and calls(sweep.runs / "a") == 1


@pytest.mark.parametrize(
    "runs, arguments, message",
    [
        ([{"name": "a"}, {"name": "b", "typo": 1}], [], "run b: unknown config key typo"),
        ([{"name": "a"}, {"name": "a", "x": 1}], [], "2 runs are named a"),
        ([{"name": "a"}], ["--only=b*"], "--only=b* matches no run of"),
        ([{"name": "a"}], ["--submit=sbatch x.sh"], "the command needs {command} or {arguments}"),
        ([{"name": "a"}], ["--submit='{command}"], "No closing quotation"),
        ([{"name": "a"}], ["--submit=nowhere {command}"], "the program nowhere does not exist"),
        (
            [{"train.seed": 0}, {"train.seed": 1}],
            ["--config.train.seed=7"],
            "--config.train.seed=7: the runs of this sweep set train.seed",
        ),
        ([{"name": "a"}], ["--config.x"], "cannot read '--config.x'"),
        ([{"name": "a"}, 3], [], "the settings of a run are 3; expected a dict"),
    ],
)
def test_errors_come_before_any_work(sweep, runs, arguments, message):
    code, output, errors = sweep(runs, *arguments)
    assert code == 2 and not output and not sweep.runs.exists()
    assert errors.startswith("error: ") and message in errors and "Traceback" not in errors


def test_a_folder_that_cannot_be_created_causes_one_line_of_error(sweep):
    sweep.runs.symlink_to(sweep.runs.parent / "gone/runs")  # fails, as on a read-only file system
    code, _, errors = sweep([{"name": "a"}])
    assert code == 2 and "Traceback" not in errors
    assert f"error: cannot write {sweep.runs / 'a'}: " in errors


def test_a_bug_in_the_sweep_file_is_reported_with_its_line(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def get_sweep(folder):\n    a = 1\n    return unknown\n")
    assert command.main([f"--config={file}"]) == 2
    message = f"error: {file}:3: NameError: name 'unknown' is not defined\n"
    assert capsys.readouterr().err == message


def test_a_workdir_of_another_config_is_refused(sweep):
    assert sweep([{"name": "a"}])[0] == 0
    code, _, errors = sweep([{"name": "a", "train.seed": 7}])
    assert code == 2 and "a was started with another config: train.seed was 0 and is 7;" in errors
    (sweep.runs / "a/sweep.json").unlink()  # as if xlj.train started the run
    (sweep.runs / "a/config.json").write_text('{"train": {"seed": 0, "steps": 3}}')
    code, _, errors = sweep([{"name": "a", "train.seed": 7}])
    assert code == 2 and "a was started with another config: train.seed was 0 and is 7;" in errors
    (sweep.runs / "a/sweep.json").write_text('{"config": null}')
    code, _, errors = sweep([{"name": "a"}])
    assert code == 2 and "a/sweep.json is damaged: config is not a JSON object" in errors
    (sweep.runs / "a/sweep.json").unlink()
    (sweep.runs / "a/sweep.json").mkdir()
    code, _, errors = sweep([{"name": "a"}])
    assert code == 2 and "a/sweep.json: cannot read this file (Is a directory)" in errors
    assert sweep([{"name": "b", "do": "crash"}])[0] == 1
    (sweep.runs / "b/calls").unlink()  # the log is all that the run left
    assert sweep([{"name": "b", "train.seed": 7}])[0] == 0


def test_the_recorded_vocabulary_of_init_from_is_not_another_config(sweep):
    """Training records it in config.json, even if the config leaves it empty."""
    runs = [{"name": "a", "do": "start"}]
    assert sweep(runs)[0] == 0
    (sweep.runs / "a/sweep.json").unlink()
    recorded = {
        "init_from": "x",
        "data": {"vocabulary": "v.model"},
        "train": {"seed": 0, "steps": 3},
    }
    (sweep.runs / "a/config.json").write_text(json.dumps(recorded))
    assert "finished before" in sweep(runs)[1]


def test_the_recorded_languages_of_rows_are_not_another_config(sweep):
    """Training records them in config.json, regardless of the config."""
    runs = [{"name": "a", "do": "rows"}]
    assert sweep(runs)[0] == 0
    (sweep.runs / "a/sweep.json").unlink()
    recorded_data = {
        "rows": "r",
        "alpha": 0.7,
        "languages": ["en"],
        "vocabulary": "r/vocabulary.model",
    }
    recorded = {"data": recorded_data, "train": {"seed": 0, "steps": 3}}
    (sweep.runs / "a/config.json").write_text(json.dumps(recorded))
    assert "finished before" in sweep(runs)[1]
    recorded["data"] = {**recorded_data, "rows": "other"}
    (sweep.runs / "a/config.json").write_text(json.dumps(recorded))
    code, _, errors = sweep(runs)
    assert code == 2 and "data.rows was 'other' and is 'r'" in errors


def test_print_prints_a_command_for_each_unfinished_run(sweep):
    sweep([{"name": "a"}])
    code, output, _ = sweep([{"name": "a"}, {"name": "b", "data": "it's {x}"}], "--print")
    assert code == 0 and not (sweep.runs / "b").exists()
    arguments = ["--config=c.py", "--config.data=it's {x}", f"--workdir={sweep.runs / 'b'}"]
    assert [shlex.split(line) for line in output.splitlines()] == [
        ["python", "-m", "stub", *arguments]
    ]


def test_submit_quotes_arguments_with_spaces(sweep, tmp_path):
    show = tmp_path / "show.py"
    show.write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    runs = [{"name": "b", "data": "it's $x {name}"}]
    template = f"{sys.executable} {show} -J {{name}} {{arguments}} --wrap={{command}}"
    code, output, _ = sweep(runs, f"--submit={template}")
    submitted = json.loads(output.partition("submitted ")[2])
    arguments = ["--config=c.py", "--config.data=it's $x {name}", f"--workdir={sweep.runs / 'b'}"]
    assert code == 0 and submitted[:-1] == ["-J", "b", *arguments]
    wrapped = shlex.split(submitted[-1].removeprefix("--wrap="))
    assert wrapped == ["python", "-m", "stub", *arguments]
    assert sweep(runs, "--submit=false {command}")[0] == 1


def test_sigterm_stops_the_current_run_and_starts_no_other(sweep):
    arguments = sweep.arguments([{"name": "a", "do": "wait"}, {"name": "b"}])
    child = subprocess.Popen(
        [sys.executable, "-m", "xlj.sweep", *arguments], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not (sweep.runs / "a/waiting").exists():
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    output, _ = child.communicate(timeout=30)
    assert child.returncode == 0 and "stopped; run the same command to resume" in output
    assert not (sweep.runs / "b").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", sorted((ROOT / "configs/sweeps").glob("*.py")), ids=lambda f: f.stem
)
def test_the_sweeps_of_the_repository_are_valid(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    sweep = runpy.run_path(str(file))["get_sweep"](tmp_path)
    name = make_runs(sweep, tmp_path)[-1].name
    arguments = [f"--config={file}", "--print", f"--only={name}", f"--folder={tmp_path}"]
    arguments += ["--config.init_from=runs/start"] * file.stem.startswith("finetune")
    assert command.main(arguments) == 0, capsys.readouterr().err
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert f"python -m xlj.sweep --config=configs/sweeps/{file.name}" in file.read_text()
