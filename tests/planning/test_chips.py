"""Steps compiled for real chips have the expected communication, products and memory traffic.

The tests are skipped if the compilers are not installed. To run them:

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
    *("--config.model.intermediate=1024", "--config.train.gradient_accumulation_steps=1"),
    *("--config.data.vocabulary_size=40000", "--config.data.length=128"),
)

pytestmark = [pytest.mark.compilers, pytest.mark.slow]


def plan(tmp_path, recipe, topology, rows, *flags, size=SMALL):
    if not HAS[topology.partition(":")[0]]:
        pytest.skip(f"no compiler for {topology} is installed")
    path = tmp_path / "plan.json"
    command = [sys.executable, "-m", "xlj.plan", f"--config=configs/{recipe}.py", *size, *flags]
    command += [f"--topology={topology}", f"--json={path}", f"--programs={tmp_path}"]
    command += [f"--config.objectives.{name}.batch_size={count}" for name, count in rows.items()]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert process.returncode in (0, 1), process.stderr[-2000:]
    return json.loads(path.read_text())["phases"][0], (tmp_path / "phase-0.txt").read_text()


def bytes_sent(phase, kind):
    same = [each for each in phase["collectives"] if each["kind"] == kind]
    return sum(each["fast"] for each in same), sum(each["slow"] for each in same)


def test_gpus_gather_parameters_and_scatter_gradients_within_a_host(tmp_path):
    phase, text = plan(tmp_path, "xlm_r_base", "h100:2x4", {"mmlm": 32}, "--config.mesh.fsdp=4")
    kernels = 2 * (4 * 256 * 256 + 2 * 256 * 1024) + 256 * 256 + 3 * 16_384 * 256
    fast, slow = bytes_sent(phase, "all-gather")
    assert fast == pytest.approx(0.75 * 2 * 2 * kernels, rel=0.1) and slow == 0
    fast, slow = bytes_sent(phase, "reduce-scatter")
    assert fast == pytest.approx(0.75 * 4 * kernels, rel=0.1) and slow == 0
    fast, slow = bytes_sent(phase, "all-reduce")
    parameters = kernels + (40_000 - 3 * 16_384) * 256
    assert slow == pytest.approx(0.5 * 2 * 4 * parameters / 4, rel=0.1)  # once per step
    assert "reduce-scatter" in text


def test_an_axis_of_a_torus_scatters_gradients(tmp_path):
    more = ("--config.mesh.fsdp=4", "--config.model.remat=all")
    phase, text = plan(tmp_path, "xlm_r_base", "v5e:4x4", {"mmlm": 64}, *more)
    kernels = 2 * (4 * 256 * 256 + 2 * 256 * 1024) + 256 * 256 + 3 * 16_384 * 256
    # The compiler pads the arrays that it scatters.
    assert bytes_sent(phase, "reduce-scatter")[0] == pytest.approx(0.75 * 4 * kernels, rel=0.15)
    assert 0 < phase["mfu"] < 1 and phase["memory"]["fits"]
    # The loop over the two layers counts twice. Otherwise half of their products would be missing.
    multiplied = sum(phase["products"].values()) * 16
    assert 1.0 < multiplied / sum(phase["operations"].values()) < 1.6


def test_an_axis_of_a_torus_gathers_parameters_once_per_step(tmp_path):
    """Three objectives in two microbatches each: kernels are gathered in their compute type, the
    table in float32, and gradients are summed once."""
    more = ("--config.mesh.fsdp=4", "--config.mesh.gather=step", "--config.train.gradient_accumulation_steps=2")
    rows = {"mmlm": 64, "tlm": 64, "camlm": 64}
    phase, _ = plan(tmp_path, "ernie_m_base", "v5e:4x4", rows, *more)
    kernels, table = 2 * (4 * 256 * 256 + 2 * 256 * 1024) + 256 * 256, (40_000 + 514) * 256
    fast, _ = bytes_sent(phase, "all-gather")
    assert 0.75 * (2 * kernels + 4 * table) < 1.02 * fast < 1.1 * 0.75 * 4 * (kernels + table)
    summed = bytes_sent(phase, "reduce-scatter")[0] + bytes_sent(phase, "all-reduce")[0]
    assert summed < 4 * 4 * (kernels + table), "gradients are summed more than once on an axis"


def test_layers_need_no_kernels_for_column_sums_slices_or_concatenations(tmp_path):
    """On GPUs, column sums of layers would be separate, slow kernels. Query, key and value are not
    sliced from one product, and gradients of layers are not concatenated for one product."""
    more = "--config.model.scan_layers=False", "--config.model.dtype=bfloat16"
    phase, text = plan(tmp_path, "xlm_r_base", "h100:1x1", {"mmlm": 32}, *more)
    executed = [instruction for _, instruction, _ in Program(text).executed()]
    assert not [
        each.source for each in executed
        if re.search(r"/Block.*/(query|key|value|output|feed_forward)/\S*reduce_sum$", each.source)
    ]  # fmt: skip
    tokens = 32 * 128
    arrays_of_tokens = [
        (instruction.name, array.dims)
        for instruction in executed
        for array in instruction.results
        if array.dims[:1] == (tokens,) and len(array.dims) > 1
    ]
    assert arrays_of_tokens and max(dims[-1] for _, dims in arrays_of_tokens) <= 1024, (
        arrays_of_tokens
    )


FULL_SIZE = ("--config.train.gradient_accumulation_steps=1",)


@pytest.mark.parametrize(
    "topology, rows, more, traffic, memory",
    [
        ("h100:1x1", 32, ("--config.model.scan_layers=False",), 75e9, 6),
        ("v5e:4x4", 256, ("--config.mesh.fsdp=16", "--config.model.remat=all"), 50e9, 2),
    ],
)
def test_the_step_of_xlm_r_base_stays_within_its_limits(
    tmp_path, topology, rows, more, traffic, memory
):
    """Limits: bytes moved, GiB of working memory, and an MFU of one half (docs/benchmarks.md)."""
    phase, text = plan(tmp_path, "xlm_r_base", topology, {"mmlm": rows}, *more, size=FULL_SIZE)
    assert sum(phase["traffic"].values()) < traffic
    assert phase["memory"]["working"] < memory * 2**30 and phase["mfu"] > 0.5
    if topology.startswith("h100"):  # keeps the logits: no loop copies blocks into place
        executed = list(Program(text).executed())
        assert all(times == 1 for _, _, times in executed)
        assert not [
            instruction
            for _, instruction, _ in executed
            if "dynamic_update_slice" in instruction.name
        ]


@pytest.mark.parametrize(
    "topology, rows, more", [("h100:1x1", 16, ()), ("v5e:4x4", 128, ("--config.mesh.fsdp=16",))]
)
def test_the_gated_bias_adds_little_memory_traffic(tmp_path, topology, rows, more):
    def traffic(bias):
        flags = "--config.model.remat=all", f"--config.model.position_bias={bias}", *more
        both_rows = {"mrtd": rows, "trtd": rows}
        return sum(
            plan(tmp_path, "xlm_e", topology, both_rows, *flags, size=FULL_SIZE)[0][
                "traffic"
            ].values()
        )

    plain_traffic = traffic("none")
    assert plain_traffic < traffic("gated") < 1.15 * plain_traffic
