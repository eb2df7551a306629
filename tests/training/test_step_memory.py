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
from xlj.training import loop, start, step_memory
from xlj.training.step_memory import StepMemory

PROGRAM = """
import resource
from xlj.sharding import meshes
from xlj.training import step_memory
step_memory.compute_in_the_calling_thread()
import jax, jax.numpy as jnp

@jax.jit
def step(x):  # takes 64 MiB, and gives 16 KiB
    wide = jax.lax.optimization_barrier(jnp.outer(x, x))
    return wide @ x + wide.T[0]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        jax.block_until_ready(step(x))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def held():  # MiB
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() // 2**20

x = jnp.ones(4096)
without = faults()
memory = step_memory.StepMemory(meshes.one_device())
with memory.retain():
    faults()
    print(without, faults(), held())
memory.release()
print(held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's memory")
def test_memory_is_kept_between_steps_and_given_back_at_the_end():
    environment = {name: value for name, value in os.environ.items() if "TUNABLES" not in name}
    environment["XLA_FLAGS"] = ""
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True, env=environment)
    without, kept, held, held_after = map(int, printed.split())
    pages = 20 * 64 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert without > pages * 0.9
    assert kept < pages / 5  # a small array may take the place of a large one, now and then
    assert held - held_after > 60


def test_a_run_retains_memory_between_steps_and_releases_it_before_other_work(
    tiny, store, tmp_path, monkeypatch
):
    output = []

    class Memory(StepMemory):
        @contextlib.contextmanager
        def retain(self):
            output.append("retained")
            yield
            output.append("done")

        def release(self):
            output.append("given back")

        close = release

    def evaluated(state, check):
        output.append("evaluated")
        return {}

    def saved(*arguments, tokens):
        output.append("saved")

    monkeypatch.setattr(loop, "StepMemory", Memory)
    monkeypatch.setattr(loop, "Evaluation", lambda *arguments: evaluated)
    monkeypatch.setattr(writing.Checkpointer, "save", saved)
    tiny.train.steps, tiny.train.checkpoint_every = 4, 3
    tiny.train.log_every, tiny.train.eval_every = 3, 2
    loop.train(start.prepare(parse(tiny), tmp_path, store))
    step, back = ["retained", "done"], "given back"
    assert output == [
        # Step 0 is measured when the first step has been made.
        *(*step, back, "evaluated", *step, back, "evaluated", *step, back, back, "saved"),
        *(*step, back, "evaluated", back, "saved", back),
    ]


@pytest.mark.parametrize("begin", [runs.pretrain, runs.fine_tune])
def test_runs_compute_in_the_thread_whose_memory_is_kept(begin, tmp_path, monkeypatch):
    class Asked(Exception):
        """Raised by the replaced function."""

    def asked():
        raise Asked

    monkeypatch.setattr(step_memory, "compute_in_the_calling_thread", asked)
    with pytest.raises(Asked):
        begin(None, tmp_path)
