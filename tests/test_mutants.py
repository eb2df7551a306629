"""The lists of `tests/mutants` are of the code as it is; the mutants themselves are a stage of
`.ci/run`."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_each_mutant_that_is_named_or_called_equivalent_is_one_of_the_code():
    mutants = Path(__file__).parent / "mutants"
    listed = subprocess.run(
        [sys.executable, mutants, "--list", "--count=0"], capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert listed.stdout.strip().startswith("0 mutants")
