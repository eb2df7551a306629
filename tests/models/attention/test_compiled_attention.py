"""Fused attention compiles for chips that are not installed, and never has all pairs in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT, SCRIPT = Path(__file__).parents[3], Path(__file__).with_name("compiled_attention.py")
LENGTH = 1536  # no other axis of the program is as long


def programs(topology, length, *sizes):
    """Returns properties of compiled programs, by head size, dtype, bias and window."""
    process = subprocess.run(
        [sys.executable, str(SCRIPT), topology, *map(str, (length, *sizes))],
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path])),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    reports = json.loads(process.stdout.splitlines()[-1])
    if "missing" in reports:
        pytest.skip(reports["missing"])
    assert len(reports) == 6 * len(sizes)
    return reports


@pytest.mark.compilers
@pytest.mark.slow
@pytest.mark.parametrize(
    "topology", ["h100:1x1", "h100:1x2", "a100:1x1", "b200:1x1", "v5e:2x2", "v6e:2x2"]
)
def test_fused_attention_compiles(topology):
    """Compiles forward and backward passes with dropout, in both dtypes: without bias, with the
    gated bias, and with the gated bias and a window."""
    gpu = topology[0] in "ahb"
    for name, program in programs(topology, LENGTH, 64).items():
        assert program["pairs"] == [], name
        gated = name.endswith("gated")
        assert program["kernels"] == (3 + gated if gpu else 2), name
        # The plan finds the cost of each kernel that the compiler calls.
        assert program["operations"] == pytest.approx(program["stated"], rel=1e-6), name
        # One matrix of float32 scores, for all rows and heads, has 75 MB.
        assert program["memory"] < (40e6 if gated else 20e6), (name, program["memory"])


@pytest.mark.compilers
@pytest.mark.slow
@pytest.mark.parametrize("topology", ["h100:1x1", "a100:1x1", "b200:1x1"])
@pytest.mark.parametrize("size", [16, 32, 128, 256])
def test_every_head_size_fits_into_shared_memory(size, topology):
    """The compiler refuses a kernel that needs more memory than its chip has."""
    for name, program in programs(topology, 128, size).items():
        assert program["kernels"] == 3 + name.endswith("gated"), name
