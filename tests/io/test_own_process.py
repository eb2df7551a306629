"""Steps on a CPU allocate their memory from Linux once.

Compiled programs of XLA are cached for later processes, unless the user turns this off.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from xlj.io.own_process import StepMemory, enable_cache

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


@pytest.mark.slow
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


ROOT = Path(__file__).parents[2]
NAMES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_ENABLE_COMPILATION_CACHE",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old_values = {name: getattr(jax.config, name.lower()) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    yield monkeypatch
    for name, value in old_values.items():
        jax.config.update(name.lower(), value)


def test_programs_are_cached_in_the_cache_folder_of_the_user(environment, tmp_path):
    enable_cache()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder.parent == tmp_path / "xlj" / "compiled"
    assert float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]) == 0
    assert jax.config.jax_compilation_cache_dir == str(folder)
    environment.delenv("JAX_COMPILATION_CACHE_DIR")
    jax.config.update("jax_compilation_cache_dir", None)
    enable_cache()
    assert Path(os.environ["JAX_COMPILATION_CACHE_DIR"]) == folder


@pytest.mark.parametrize("name, value", [(NAMES[0], "/elsewhere"), (NAMES[1], "false")])
def test_settings_of_the_user_are_not_changed(environment, name, value):
    environment.setenv(name, value)
    enable_cache()
    assert {n: os.environ[n] for n in NAMES if n in os.environ} == {name: value}
    assert jax.config.jax_compilation_cache_dir is None


def test_a_cache_folder_that_jax_already_has_is_not_changed(environment):
    jax.config.update("jax_compilation_cache_dir", "/elsewhere")
    enable_cache()
    assert not {*NAMES} & {*os.environ}
    assert jax.config.jax_compilation_cache_dir == "/elsewhere"


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_second_process_compiles_nothing(environment, tmp_path, after):
    """Also if JAX compiles something before the cache is enabled."""
    program = (
        f"{'import jax; jax.numpy.ones(4)' if after else 'import sys'}\n"
        "from xlj.io.own_process import enable_cache\n"
        "enable_cache()\n"
        "import jax\n"
        "events = []\n"
        "jax.monitoring.register_event_listener(lambda event, **_: events.append(event))\n"
        "jax.jit(lambda x: x * 2 + 1)(jax.numpy.ones(3))\n"
        "print(sum(event.endswith('cache_hits') for event in events))\n"
    )
    calls = [
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    first, second = (int(call.stdout) for call in calls)
    assert first == 0 < second
