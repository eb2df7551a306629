"""Memory and traffic of a device in a compiled step do not grow with the number of devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from xla_flags import with_devices

ROOT, SCRIPT = Path(__file__).parents[2], Path(__file__).with_name("compiled_step.py")


def spec(devices, fsdp, names, parts=1, gather="layer", kind="chips"):
    return f"{devices},{fsdp},{gather},{parts},{names},{kind}"


def measure(*specs):
    """Measures several steps in one process."""
    devices = max(int(each.partition(",")[0]) for each in specs)
    environment = dict(os.environ, PYTHONPATH=str(ROOT), XLA_FLAGS=with_devices(devices))
    command = [sys.executable, str(SCRIPT), *specs]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-len(specs) :]]


@pytest.mark.slow
@pytest.mark.parametrize("names", ["mmlm+tlm", "mrtd", "camlm+btmlm", "dwa"])
def test_memory_and_traffic_of_a_device_do_not_grow_with_the_number_of_devices(names):
    few, many = measure(spec(4, 4, names), spec(32, 32, names))
    assert many["state"] < few["state"] / 4
    assert many["memory"] <= 1.05 * few["memory"]
    # A device sends (n - 1) / n of each array: 0.75 of it with 4 devices, 0.97 with 32.
    assert sum(many["sent"].values()) <= 1.35 * sum(few["sent"].values()), (few, many)
    assert many["sent"]["reduce-scatter"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("names", ["mmlm+tlm", "mrtd"])
def test_replicas_communicate_only_to_sum_gradients(names):
    few, many = measure(spec(8, 4, names), spec(32, 4, names))
    assert many["memory"] <= 1.02 * few["memory"]
    # An all-reduce over n replicas sends 2 (n - 1) / n of each slice: 1 with 2, 1.75 with 8.
    assert many["sent"].pop("all-reduce") <= 1.8 * few["sent"].pop("all-reduce")
    assert sum(many["sent"].values()) <= 1.01 * sum(few["sent"].values()), (few, many)


@pytest.mark.extra
def test_replicas_sum_gradients_once_for_any_objectives_and_microbatches():
    """A replica is one device or four. Four devices may send more, since they sum the gradient of
    each head's bias in each microbatch."""
    for fsdp, more in ((1, 1.02), (4, 1.5)):
        specs = (spec(8, fsdp, names, parts) for names, parts in (("mmlm", 1), ("mmlm+tlm", 4)))
        one, others = (measured["sent"]["all-reduce"] for measured in measure(*specs))
        assert one <= others <= more * one, fsdp


@pytest.mark.slow
def test_gathering_once_per_step_limits_traffic_for_any_objectives_and_microbatches():
    """All parameters and gradients are sent once. Replicas exchange slices of them."""
    cases = (("mmlm", 1), ("mmlm+tlm", 4))
    results = measure(*(spec(8, 4, names, parts, "step") for names, parts in cases))
    for (names, parts), measured in zip(cases, results, strict=True):
        for kind, expected in measured["theory"].items():
            assert abs(measured["sent"][kind] - expected) <= 0.1 * expected, (
                names,
                parts,
                kind,
                measured,
            )
        assert set(measured["sent"]) == set(measured["theory"])


@pytest.mark.extra
def test_traffic_equals_theory_from_8_to_512_devices():
    first, *others = measure(*(spec(devices, 8, "mmlm+tlm") for devices in (8, 16, 512)))
    for measured in (first, *others):
        for kind, expected in measured["theory"].items():
            small_arrays = 0 if kind == "all-to-all" else 1e6  # biases, norms and small tables
            assert abs(measured["sent"][kind] - expected) <= 0.1 * expected + small_arrays, (
                kind,
                measured,
            )
    one, two = others
    assert two["memory"] <= 1.02 * one["memory"]
    assert two["state"] == one["state"] == first["state"]


@pytest.mark.parametrize(
    "names, gather",
    [
        pytest.param("dwa+xlco", "layer", marks=pytest.mark.extra),
        pytest.param("btmlm+trtd", "layer", marks=pytest.mark.slow),
        pytest.param("camlm+word_hmm", "layer", marks=pytest.mark.slow),
        pytest.param("xlco", "step", marks=pytest.mark.slow),
    ],
)
def test_on_cpus_no_collective_is_inside_a_loop(names, gather):
    """Other collectives could overtake a collective inside a loop, and devices would deadlock."""
    kinds = ("cpus", "chips") if gather == "step" else ("cpus",)
    on_cpus, *on_chips = measure(*(spec(8, 4, names, 2, gather, kind) for kind in kinds))
    assert on_cpus["inner"] == []
    assert all(measured["inner"] != [] for measured in on_chips)  # chips keep the loops
