"""Wrong command lines cause one line of error and exit code 2, before any work.

Tests call commands in this process. Tests of what only a process has start one: its streams, its
environment, its exit code after a bug.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xlj import bench, train
from xlj.cli import command, distributed_flags

ROOT = Path(__file__).parents[1]


def run(*arguments, name="train"):
    command = [sys.executable, "-m", f"xlj.{name}", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name a recipe with --config=NAME or --config=FILE.py"),
        (["--config=configs/none.py"], "--config=configs/none.py: there is no such file"),
        (["--config=configs/quickstart.py:huge"], "there is no variant 'huge'"),
        (
            ["--config=configs/quickstart.py", "--config.train.stepz=5"],
            "unknown config key train.stepz; did you mean train.steps?",
        ),
        (["--config=configs/quickstart.py", "--config.train.steps=many"], "train.steps"),
        (["--config=configs/quickstart.py", "--config.train.steps"], "with an equals sign"),
        (["--config=configs/quickstart.py", "--workdri=/tmp/x"], "did you mean --workdir?"),
        (["--config=configs/quickstart.py", "extra"], "cannot read 'extra'"),
        (
            ["--config=configs/quickstart.py", "--config.mesh.fsdp=3"],
            "mesh.fsdp=3 make a mesh of 6 devices, but",
        ),
        (
            # One layer, so that 8 copies of the model fit into memory.
            ["--config=configs/xlm_r_base.py", "--config.model.layers=1"],
            "data.mono=data/cc100/{language}.txt.xz matches none of the 100 data.languages; "
            "tried data/cc100/af.txt.xz, data/cc100/am.txt.xz ... data/cc100/zh-Hant.txt.xz; there "
            "is no folder data/cc100\n",
        ),
        (
            ["--config=configs/xlm.py"],
            "data.parallel=data/parallel/{pair}.tsv.gz matches none of the 14 data.pairs; "
            "tried data/parallel/en-ar.tsv.gz, data/parallel/en-bg.tsv.gz ... data/parallel/en-zh",
        ),
        (
            [
                "--config=configs/quickstart.py",
                "--config.evaluation.alignment.source=none/{pair}.tsv",
            ],
            "evaluation.alignment.source has no file for en-de; tried none/en-de.tsv; there is no "
            "folder none.",
        ),
        (["--config=configs/xlm_align.py"], "checkpoints/xlm_r_base contains no model"),
        (
            ["--config=configs/meta_xlm.py:kd,tiny"],
            "runs/roberta_base_matched contains no model; expected",
        ),
        (["--config=configs/xlm_e.py:without_trtd,big"], "without_trtd, mmlm_tlm, modern, tiny"),
    ],
)
def test_errors_are_one_clear_line(arguments, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    code = train.main([*arguments, f"--workdir={tmp_path / 'run'}"])
    check_error(code, capsys.readouterr(), message)


def test_a_process_ends_with_one_clear_line():
    code, output, errors = run("--config=configs/quickstart.py", "--config.mesh.fsdp=3")
    check_error(code, (output, errors), "mesh.fsdp=3 make a mesh of 6 devices, but")


def check_error(code, printed, message):
    output, errors = printed
    assert code == 2 and not output
    assert errors.startswith("error: ") and message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["--length=513"],
            "length=513 is too long: model.positions=66 allows 64",
        ),
        (["--length=31"], "--length: 31 is below 32"),  # sentences have at least 8 tokens
        (
            ["--what=step,sleep"],
            "--what=step,sleep: the names are peak, step, objectives, profile, attention, links",
        ),
        (["--objectives=mmlm,xml"], "--objectives=mmlm,xml: the names are mmlm, tlm, camlm"),
        (["--json=/nowhere/b.json"], "--json=/nowhere/b.json: the folder /nowhere does not exist"),
    ],
)
def test_bench_refuses_what_it_cannot_measure(arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    code = bench.main(["--config=configs/quickstart.py", *arguments])
    check_error(code, capsys.readouterr(), message)


@pytest.mark.slow
def test_damaged_rows_cause_one_clear_line(tmp_path, tiny, store):
    shutil.copytree(store.path.parent, tmp_path / "rows")
    tiny.data.rows = str(tmp_path / "rows" / store.path.name)
    config = tmp_path / "mine.py"
    config.write_text(
        f"import json, ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict(json.loads({tiny.to_json()!r}))\n"
    )
    damaged = tmp_path / "rows" / store.path.name / store.task("text.en").folder / "00000.rows"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for name, flags in (
        ("prepare", ()),
        ("bench", ("--what=read",)),
        ("train", (f"--workdir={tmp_path}/run",)),
    ):
        code, output, errors = run(f"--config={config}", *flags, name=name)
        last = errors.strip().split("\n")[-1]
        assert code == 2 and not output
        assert last.startswith("error: data.rows=") and f"{damaged} has " in last
        assert f"delete {damaged} and run python -m xlj.prepare again" in last
        assert "Traceback" not in errors


def test_a_typo_in_a_config_file_names_the_file_and_the_key(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "from xlj import config as schema\n\n\ndef get_config():\n"
        "    config = schema.default()\n    config.train.stepz = 3\n    return config\n"
    )
    code, printed = train.main([f"--config={file}"]), capsys.readouterr()
    check_error(code, printed, "stepz")
    assert str(file) in printed.err


def test_a_bug_in_a_config_file_is_reported_with_the_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n    return undefined_name\n")
    code, _, errors = run(f"--config={file}")
    assert code and "undefined_name" in errors and "mine.py" in errors


def test_help_lists_flags_and_keys():
    code, output, _ = run("--help")
    assert code == 0
    for text in ("--workdir", "--distributed", "--config.data.mono", "--config.train.steps"):
        assert text in output


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--help"),
        ("embed", "--help"),
        ("train", "--config=configs/quickstart.py", "--check"),
    ],
)
def test_a_closed_output_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does after its lines
    command = [sys.executable, "-m", f"xlj.{arguments[0]}", *arguments[1:]]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=writer, stderr=subprocess.PIPE, timeout=120
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk_causes_one_line_of_error():
    command = [sys.executable, "-m", "xlj.train", "--config=configs/quickstart.py", "--check"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, timeout=120)
    message = b"error: cannot write the output: No space left on device\n"
    assert (result.returncode, result.stderr) == (2, message)


@pytest.mark.parametrize(
    "name, recipe, key",
    [("train", "quickstart.py", "train.steps"), ("finetune", "finetune/xnli.py", "train.steps")],
)
def test_check_prints_the_config_and_does_nothing(tmp_path, name, recipe, key):
    arguments = [f"--config=configs/{recipe}", "--check", f"--workdir={tmp_path / 'w'}"]
    arguments += [f"--config.{key}=7", "--config.init_from=runs/some"]
    code, output, errors = run(*reversed(arguments), name=name)  # --config need not come first
    assert code == 0 and not errors
    assert json.loads(output)["train"][key.removeprefix("train.")] == 7
    assert not (tmp_path / "w").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has glibc")
@pytest.mark.parametrize("tunables", ["", "glibc.malloc.check=0"])
def test_huge_pages_are_enabled_unless_the_user_sets_glibc_tunables(
    tmp_path, monkeypatch, tunables
):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if tunables:
        monkeypatch.setenv("GLIBC_TUNABLES", tunables)
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        "import os\nfrom configs import quickstart\n\ndef get_config(variant=''):\n"
        "    config = quickstart.get_config()\n"
        "    config.data.cache = os.environ['GLIBC_TUNABLES']\n    return config\n"
    )
    code, output, errors = run(f"--config={recipe}", "--check")
    assert (code, errors) == (0, "")
    assert json.loads(output)["data"]["cache"] == (tunables or "glibc.malloc.hugetlb=1")


def test_the_recorded_command_lacks_flags_of_a_single_run():
    words = ["--config=c.py", "--workdir", "runs/a", "--config.init_from=x", "--workdir=b"]
    shown = command.line(
        "train", [*words, "--config.train.steps=5"], ["workdir", "config.init_from"]
    )
    assert shown == "python -m xlj.train --config=c.py --config.train.steps=5"
    words = ["--distributed", "--config=c.py", "--process", "1", "--config.train.steps=5"]
    assert command.line("train", words, distributed_flags.FLAGS) == shown
