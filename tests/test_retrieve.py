"""The door: accuracy as JSON, and clear errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xlj.config_parsing import parse

ROOT = Path(__file__).parents[1]


def door(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "xlj.retrieve", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text("The cat sleeps.\nGood morning!\nI read a book.\n")
    (tmp_path / "short.txt").write_text("Guten Morgen!\n")
    (tmp_path / "blank.txt").write_text("eins\n\ndrei\n")
    return tmp_path


@pytest.mark.slow
def test_a_file_finds_itself(tiny, store, files):
    from xlj.training import loop

    tiny.train.steps = 1
    loop.train(parse(tiny), files / "run", store)
    code, output, errors = door(
        f"--checkpoint={files / 'run'}", f"--source={files / 'a.txt'}",
        f"--target={files / 'a.txt'}", "--layers=all", "--similarity=margin",
    )  # fmt: skip
    assert code == 0, errors
    found = [json.loads(line) for line in output.splitlines()]
    assert [line["layer"] for line in found] == [0, 1, 2]
    assert all(line["source_to_target"] == line["target_to_source"] == 1.0 for line in found)


@pytest.mark.parametrize(
    "target, message",
    [
        ("short.txt", "has 3 lines but .* has 1"),
        ("blank.txt", r"blank\.txt:2: the line is blank"),
        ("none.txt", r"none\.txt"),
    ],
)
def test_errors_name_the_file_and_the_line(files, target, message):
    import re

    code, output, errors = door(
        f"--checkpoint={files}", f"--source={files / 'a.txt'}", f"--target={files / target}"
    )
    assert code == 2 and not output and "Traceback" not in errors
    assert errors.startswith("error: ") and re.search(message, errors)
