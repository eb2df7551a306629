"""Steps compiled for real chips; skipped if their compilers are not installed.

pip install -e '.[cuda]'      # or '.[tpu]'
pytest -m compilers tests/planning
"""

import json
import os
import re
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

import pytest

from xlj.planning.hlo import Program

ROOT = Path(__file__).resolve().parents[2]
HAS = {
    "h100": any(e.name.startswith("xla_cuda") for e in metadata.entry_points(group="jax_plugins")),
    "v5e": util.find_spec("libtpu") is not None,
}
SMALL = (
    *("--config.model.layers=2", "--config.model.hidden=256", "--config.model.heads=4"),
    *("--config.model.intermediate=1024", "--config.train.accumulation=1"),
    *("--config.data.vocabulary_size=40000", "--config.data.length=128"),
)

pytestmark = [pytest.mark.compilers, pytest.mark.slow]


def planned(tmp_path, recipe, topology, rows, *more, size=SMALL):
    if not HAS[topology.partition(":")[0]]:
        pytest.skip(f"no compiler for {topology} is installed")
    path = tmp_path / "plan.json"
    command = [sys.executable, "-m", "xlj.plan", f"--config=configs/{recipe}.py", *size, *more]
    command += [f"--topology={topology}", f"--json={path}", f"--programs={tmp_path}"]
    command += [f"--config.objectives.{name}.batch_rows={count}" for name, count in rows.items()]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads(path.read_text())["phases"][0], (tmp_path / "phase-0.txt").read_text()


def sent(phase, kind):
    same = [each for each in phase["collectives"] if each["kind"] == kind]
    return sum(each["fast"] for each in same), sum(each["slow"] for each in same)


def test_parameters_are_gathered_within_a_host_of_gpus_and_gradients_scattered(tmp_path):
    phase, text = planned(tmp_path, "xlm_r_base", "h100:2x4", {"mmlm": 32}, "--config.mesh.fsdp=4")
    kernels = 2 * (4 * 256 * 256 + 2 * 256 * 1024) + 256 * 256 + 3 * 16_384 * 256
    fast, slow = sent(phase, "all-gather")
    assert fast == pytest.approx(0.75 * 2 * 2 * kernels, rel=0.1) and slow == 0
    fast, slow = sent(phase, "reduce-scatter")
    assert fast == pytest.approx(0.75 * 4 * kernels, rel=0.1) and slow == 0
    fast, slow = sent(phase, "all-reduce")
    parameters = kernels + (40_000 - 3 * 16_384) * 256
    assert slow == pytest.approx(0.5 * 2 * 4 * parameters / 4, rel=0.1)  # once a step
    assert "reduce-scatter" in text


def test_a_side_of_a_torus_scatters_gradients(tmp_path):
    more = ("--config.mesh.fsdp=4", "--config.model.remat=all")
    phase, text = planned(tmp_path, "xlm_r_base", "v5e:4x4", {"mmlm": 64}, *more)
    kernels = 2 * (4 * 256 * 256 + 2 * 256 * 1024) + 256 * 256 + 3 * 16_384 * 256
    # The compiler pads what it scatters.
    assert sent(phase, "reduce-scatter")[0] == pytest.approx(0.75 * 4 * kernels, rel=0.15)
    assert 0 < phase["mfu"] < 1 and phase["memory"]["fits"]
    # The loop over layers is counted as often as it runs: half the layers, half of their products.
    multiplied = sum(phase["products"].values()) * 16
    assert 1.0 < multiplied / sum(phase["operations"].values()) < 1.6


def test_a_side_of_a_torus_gathers_once_a_step(tmp_path):
    """Three objectives in two microbatches each: kernels in their compute type, the
    table in float32, and one sum of their gradients."""
    more = ("--config.mesh.fsdp=4", "--config.mesh.gather=step", "--config.train.accumulation=2")
    rows = {"mmlm": 64, "tlm": 64, "camlm": 64}
    phase, _ = planned(tmp_path, "ernie_m_base", "v5e:4x4", rows, *more)
    kernels, table = 2 * (4 * 256 * 256 + 2 * 256 * 1024) + 256 * 256, (40_000 + 514) * 256
    fast, _ = sent(phase, "all-gather")
    assert 0.75 * (2 * kernels + 4 * table) < 1.02 * fast < 1.1 * 0.75 * 4 * (kernels + table)
    summed = sent(phase, "reduce-scatter")[0] + sent(phase, "all-reduce")[0]
    assert summed < 4 * 4 * (kernels + table), "more than one sum of all gradients, each way"


def test_products_write_what_is_read_and_sums_of_rows_are_products(tmp_path):
    """On GPUs: column sums of layers would be kernels of their own, and slow. Query, key and value
    are not cut out of one product, and gradients of layers are not put together for one."""
    more = "--config.model.scan_layers=False", "--config.model.dtype=bfloat16"
    phase, text = planned(tmp_path, "xlm_r_base", "h100:1x1", {"mmlm": 32}, *more)
    executed = [instruction for _, instruction, _ in Program(text).executed()]
    assert not [
        found.source for found in executed
        if re.search(r"/Block.*/(query|key|value|output|feed_forward)/\S*reduce_sum$", found.source)
    ]  # fmt: skip
    tokens = 32 * 128
    of_tokens = [
        (found.name, array.dims)
        for found in executed
        for array in found.results
        if array.dims[:1] == (tokens,) and len(array.dims) > 1
    ]
    assert of_tokens and max(dims[-1] for _, dims in of_tokens) <= 1024, of_tokens


WHOLE = ("--config.train.accumulation=1",)


@pytest.mark.parametrize(
    "topology, rows, more, traffic, memory",
    [
        ("h100:1x1", 32, ("--config.model.scan_layers=False",), 75e9, 6),
        ("v5e:4x4", 256, ("--config.mesh.fsdp=16", "--config.model.remat=all"), 50e9, 2),
    ],
)
def test_the_step_of_xlm_r_base_stays_within_its_goals(
    tmp_path, topology, rows, more, traffic, memory
):
    """Bytes moved, GiB beside the state, and half of the chip's speed (docs/benchmarks.md)."""
    phase, text = planned(tmp_path, "xlm_r_base", topology, {"mmlm": rows}, *more, size=WHOLE)
    assert sum(phase["traffic"].values()) < traffic
    assert phase["memory"]["working"] < memory * 2**30 and phase["mfu"] > 0.5
    if topology.startswith("h100"):  # whose logits are kept: no loop copies blocks to their places
        executed = list(Program(text).executed())
        assert all(times == 1 for _, _, times in executed)
        assert not [found for _, found, _ in executed if "dynamic_update_slice" in found.name]


@pytest.mark.parametrize(
    "topology, rows, more", [("h100:1x1", 16, ()), ("v5e:4x4", 128, ("--config.mesh.fsdp=16",))]
)
def test_the_gated_bias_costs_little_traffic(tmp_path, topology, rows, more):
    def traffic(bias):
        flags = "--config.model.remat=all", f"--config.model.position_bias={bias}", *more
        both = {"mrtd": rows, "trtd": rows}
        return sum(
            planned(tmp_path, "xlm_e", topology, both, *flags, size=WHOLE)[0]["traffic"].values()
        )

    without = traffic("none")
    assert without < traffic("gated") < 1.15 * without
