"""`.ci/run` fails if it is cut short."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path):
    """A folder with only `.ci/run`, and `python3`, whose environments can run no command."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci")
    python = tmp_path / "python3"
    python.write_text(
        "#!/bin/bash\nif [[ $1 == -c ]]; then echo 11; fi\n"
        f"if [[ $2 == venv ]]; then mkdir -p .venv/bin; cp {tmp_path}/activate .venv/bin; fi\n"
    )
    python.chmod(0o755)
    return tmp_path


def run(clone, activate, minutes):
    (clone / "activate").write_text(activate)
    environment = os.environ | {"PYTHON": str(clone / "python3"), "CI_MINUTES": minutes}
    environment.pop("CI_STARTED", None)
    script = ["bash", str(clone / ".ci/run")]
    return subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)


def test_a_stage_that_is_cut_short_fails(clone):
    """The stage would end successfully, and all later commands would do nothing."""
    nothing = "pip() { :; }; pytest() { :; }; ruff() { :; }; mypy() { :; }; export -f pip pytest\n"
    done = run(clone, nothing + "ruff() { echo style begins; sleep 40; }\n", "0.05")
    assert "style begins" in done.stdout and done.returncode == 1, done.stdout
    stages = done.stdout.partition("all stages, in minutes:")[2]
    assert re.search(r"0:0\d  style and types.* \(cut short after 0.05 minutes: failed\)", stages)
    assert "slow tests" not in stages


def test_a_stage_that_fails_ends_the_script(clone):
    done = run(clone, "pip() { :; }; pytest() { exit 3; }; export -f pip pytest\n", "1")
    assert done.returncode == 3
    assert "test command (failed)" in done.stdout and "style" not in done.stdout
