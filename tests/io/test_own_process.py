"""Steps on a CPU allocate their memory from Linux once."""

import os
import platform
import subprocess
import sys

import pytest

from xlj.io.own_process import StepMemory

PROGRAM = """
import resource
from xlj.io.own_process import StepMemory
from xlj.sharding import devices
devices.compute_in_the_calling_thread()
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
memory = StepMemory(True)
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_only_steps_on_cpus_retain_memory():
    assert StepMemory(True)._libc is not None and StepMemory(False)._libc is None
