"""Steps on a CPU take their memory from Linux once."""

import contextlib
import os
import platform
import subprocess
import sys

import pytest

from xlj.api import runs
from xlj.config import parse
from xlj.training import kept_memory
from xlj.training.loop import train

PROGRAM = """
import resource
from xlj.training import kept_memory, partitioning
kept_memory.compute_in_the_calling_thread()
import jax, jax.numpy as jnp

@jax.jit
def step(x):  # takes 64 MiB, and gives 16 KiB
    wide = jax.lax.optimization_barrier(jnp.outer(x, x))
    return wide @ x + wide.T[0]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        jax.block_until_ready(step(x))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def held():  # MiB
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() // 2**20

x = jnp.ones(4096)
without = faults()
with kept_memory.kept(partitioning.one_device()):
    faults()
    print(without, faults(), held())
print(faults(), held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's memory")
def test_memory_is_kept_between_steps_and_given_back_at_the_end():
    environment = {name: value for name, value in os.environ.items() if "TUNABLES" not in name}
    environment["XLA_FLAGS"] = ""
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True, env=environment)
    without, kept, held, after, held_after = map(int, printed.split())
    pages = 5 * 64 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert without > pages * 0.9 and after > pages * 0.9
    assert kept < pages / 100
    assert held - held_after > 60


def test_a_run_trains_where_memory_is_kept(tiny, store, tmp_path, monkeypatch):
    entered = []

    @contextlib.contextmanager
    def kept(mesh):
        entered.append(mesh.size)
        yield
        assert (tmp_path / "checkpoints" / "2").exists()

    monkeypatch.setattr(kept_memory, "kept", kept)
    tiny.train.steps = tiny.train.eval_every = 2
    train(parse(tiny), tmp_path, store)
    assert entered == [8]


@pytest.mark.parametrize("begin", [runs.pretrain, runs.fine_tune])
def test_runs_compute_in_the_thread_whose_memory_is_kept(begin, tmp_path, monkeypatch):
    class Asked(Exception):
        """For it."""

    def asked():
        raise Asked

    monkeypatch.setattr(kept_memory, "compute_in_the_calling_thread", asked)
    with pytest.raises(Asked):
        begin(None, tmp_path)
