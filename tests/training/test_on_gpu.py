"""The quickstart on a GPU: the losses of a CPU, and the same bits after a kill.

Its rows are built, or those that the environment variable QUICKSTART_ROWS names.
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
    config.optimizer.schedule = "constant"  # the first steps do not depend on their number
    return config
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Starts the quickstart without its evaluations."""
    recipe = tmp_path_factory.mktemp("recipe") / "recipe.py"
    recipe.write_text(RECIPE, encoding="utf-8")
    rows = f"--config.data.cache={ROOT}/build/cache/rows"
    if folder := os.environ.get("QUICKSTART_ROWS"):
        rows = f"--config.data.rows={folder}"

    def started(workdir, platform, steps):
        flags = DETERMINISTIC if platform == "cuda" else ""
        steps = f"--config.train.steps={steps}"
        return start(recipe, workdir, rows, steps, platform=platform, flags=flags)

    return started


@pytest.fixture(scope="module")
def whole(started, tmp_path_factory):
    """The workdirs of a run on the GPU and of one on the CPU, at the same time."""
    folder = tmp_path_factory.mktemp("whole")
    running = [
        started(folder / platform, platform, steps)
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
    for one, other in zip(on_gpu, on_cpu, strict=True):
        for name in losses:
            if name in other:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-4, err_msg=name)


@pytest.mark.gpu
def test_a_killed_run_ends_with_the_same_bits(whole, started, tmp_path):
    killed = tmp_path / "killed"
    kill_when(started(killed, "cuda", STEPS), killed, 100, 0.0)
    assert len(lines(killed)) < STEPS, "the run was over before it could be killed"
    finish(started(killed, "cuda", STEPS))
    assert digests(killed) == digests(whole[0])
    assert lines(killed) == lines(whole[0])
