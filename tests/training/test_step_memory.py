"""Steps on a CPU allocate their memory from Linux once."""

import contextlib
import os
import platform
import subprocess
import sys

import pytest

from xlj.api import runs
from xlj.checkpoints import writing
from xlj.config import parse
from xlj.training import loop, resources, start, step_memory
from xlj.training.step_memory import StepMemory

PROGRAM = """
import resource
from xlj.sharding import meshes
from xlj.training import step_memory
step_memory.compute_in_the_calling_thread()
import jax, jax.numpy as jnp

@jax.jit
def step(x):  # allocates 64 MiB, and returns 16 KiB
    wide = jax.lax.optimization_barrier(jnp.outer(x, x))
    return wide @ x + wide.T[0]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        jax.block_until_ready(step(x))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():  # MiB
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() // 2**20

x = jnp.ones(4096)
without = faults()
memory = step_memory.StepMemory(meshes.one_device())
with memory.retain():
    faults()
    print(without, faults(), resident())
memory.release()
print(resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_is_retained_between_steps_and_released_at_the_end():
    environment = {name: value for name, value in os.environ.items() if "TUNABLES" not in name}
    environment["XLA_FLAGS"] = ""
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True, env=environment)
    without, with_memory, resident, resident_after = map(int, printed.split())
    pages = 20 * 64 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert without > pages * 0.9
    assert with_memory < pages / 5  # a small array may sometimes take the place of a large one
    assert resident - resident_after > 60


def test_a_run_retains_memory_between_steps_and_releases_it_before_other_work(
    tiny, store, tmp_path, monkeypatch
):
    events = []

    class Memory(StepMemory):
        @contextlib.contextmanager
        def retain(self):
            events.append("retained")
            yield
            events.append("done")

        def release(self):
            events.append("released")

        close = release

    def evaluate(state, check):
        events.append("evaluated")
        return {}

    def save(*arguments, **options):
        events.append("saved")

    monkeypatch.setattr(resources, "StepMemory", Memory)
    monkeypatch.setattr(resources, "Evaluation", lambda *arguments: evaluate)
    monkeypatch.setattr(writing.Checkpointer, "save", save)
    tiny.train.steps, tiny.train.checkpoint_every = 4, 3
    tiny.train.log_every, tiny.train.eval_every = 3, 2
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    step, released = ["retained", "done"], "released"
    assert events == [
        # The initial state is evaluated after the first step.
        *(*step, released, "evaluated", *step, released, "evaluated"),
        *(*step, released, released, "saved"),
        *(*step, released, "evaluated", released, "saved", released),
    ]


@pytest.mark.parametrize("start_run", [runs.pretrain, runs.fine_tune])
def test_runs_compute_in_the_thread_whose_memory_is_retained(start_run, tmp_path, monkeypatch):
    class Called(Exception):
        """Raised by the replaced function."""

    def raise_called():
        raise Called

    monkeypatch.setattr(step_memory, "compute_in_the_calling_thread", raise_called)
    with pytest.raises(Called):
        start_run(None, tmp_path)
