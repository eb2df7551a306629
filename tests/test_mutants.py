"""The lists of `tests/mutants` are of the code as it is; the mutants themselves are a stage of
`.ci/run`."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_named_and_equivalent_mutants_exist():
    mutants = Path(__file__).parent / "mutants"
    listed = subprocess.run(
        [sys.executable, mutants, "--list", "--count=0"], capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert listed.stdout.strip().startswith("0 mutants")
