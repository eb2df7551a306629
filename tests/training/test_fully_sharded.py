"""What a device holds and sends does not grow with the number of devices: of compiled steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT, SCRIPT = Path(__file__).parents[2], Path(__file__).with_name("compiled_step.py")


def measured(devices, names):
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}",
    )
    command = [sys.executable, str(SCRIPT), str(devices), names]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("names", ["mmlm,tlm", "mrtd", "camlm,btmlm", "dwa"])
def test_neither_memory_nor_traffic_of_a_device_grows(names):
    few, many = measured(4, names), measured(32, names)
    assert many["state"] < few["state"] / 4
    assert many["memory"] <= 1.05 * few["memory"]
    assert sum(many["sent"].values()) <= 1.1 * sum(few["sent"].values()), (few, many)
    assert many["sent"]["reduce-scatter"] > 0
