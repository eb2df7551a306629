"""The lists in `tests/mutants` match the current code. `.ci/run` tests the mutants themselves."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_named_and_equivalent_mutants_exist():
    mutants = Path(__file__).parent / "mutants"
    process = subprocess.run(
        [sys.executable, mutants, "--list", "--count=0"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.strip().startswith("0 mutants")
