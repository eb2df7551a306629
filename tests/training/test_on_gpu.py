"""The quickstart on a GPU has the losses of a CPU, and the same bits after a kill.

The environment variable QUICKSTART_ROWS may name a folder with finished rows. Without it, the tests
build the rows.
"""

import os

import numpy as np
import pytest
from test_resume import ROOT, digests, finish, kill_when, lines, start

STEPS = 600
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"  # docs/determinism.md
RECIPE = """
import quickstart
from xlj import config as schema


def get_config():
    config = quickstart.get_config()
    config.evaluation = schema.default().evaluation
    config.train.log_every, config.train.eval_rows, config.train.checkpoint_every = 1, 0, 100
    config.optimizer.schedule = "constant"  # equal first steps for any number of steps
    return config
"""


@pytest.fixture(scope="module")
def start_run(tmp_path_factory):
    """A function that starts the quickstart without its evaluations."""
    recipe = tmp_path_factory.mktemp("recipe") / "recipe.py"
    recipe.write_text(RECIPE, encoding="utf-8")
    rows = f"--config.data.cache={ROOT}/build/cache/rows"
    if folder := os.environ.get("QUICKSTART_ROWS"):
        rows = f"--config.data.rows={folder}"

    def start_run(workdir, platform, steps):
        flags = DETERMINISTIC if platform == "cuda" else ""
        steps = f"--config.train.steps={steps}"
        return start(recipe, workdir, rows, steps, platform=platform, flags=flags)

    return start_run


@pytest.fixture(scope="module")
def whole(start_run, tmp_path_factory):
    """The workdirs of a run on the GPU and of one on the CPU, at the same time."""
    folder = tmp_path_factory.mktemp("whole")
    running = [
        start_run(folder / platform, platform, steps)
        for platform, steps in (("cuda", STEPS), ("cpu", 20))
    ]
    for process in running:
        finish(process)
    return folder / "cuda", folder / "cpu"


@pytest.mark.gpu
def test_twenty_steps_have_the_losses_of_a_cpu(whole):
    """In float32, with full-precision products, losses agree within 1e-4."""
    on_gpu, on_cpu = (lines(workdir)[:20] for workdir in whole)
    assert [line["step"] for line in on_gpu] == [line["step"] for line in on_cpu]
    losses = [name for name in on_cpu[-1] if "loss" in name]
    assert len(losses) > 4
    for gpu_line, cpu_line in zip(on_gpu, on_cpu, strict=True):
        for name in losses:
            if name in cpu_line:
                np.testing.assert_allclose(gpu_line[name], cpu_line[name], rtol=1e-4, err_msg=name)


@pytest.mark.gpu
def test_a_killed_run_ends_with_the_same_bits(whole, start_run, tmp_path):
    killed = tmp_path / "killed"
    kill_when(start_run(killed, "cuda", STEPS), killed, 100, 0.0)
    assert len(lines(killed)) < STEPS, "the run finished before it could be killed"
    finish(start_run(killed, "cuda", STEPS))
    assert digests(killed) == digests(whole[0])
    assert lines(killed) == lines(whole[0])
