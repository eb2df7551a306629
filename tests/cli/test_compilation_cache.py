"""What XLA compiles is kept for the next call of a command, unless the user says otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xlj.cli.command import keep_compiled

ROOT = Path(__file__).parents[2]
NAMES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_ENABLE_COMPILATION_CACHE",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
)


@pytest.fixture
def environment(monkeypatch, tmp_path):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return monkeypatch


def test_programs_are_kept_under_the_users_cache(environment, tmp_path):
    keep_compiled()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder.parent == tmp_path / "xlj" / "compiled"
    assert float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]) == 0
    environment.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_compiled()
    assert Path(os.environ["JAX_COMPILATION_CACHE_DIR"]) == folder


@pytest.mark.parametrize("name, value", [(NAMES[0], "/elsewhere"), (NAMES[1], "false")])
def test_what_the_user_sets_stays(environment, name, value):
    environment.setenv(name, value)
    keep_compiled()
    assert {n: os.environ[n] for n in NAMES if n in os.environ} == {name: value}


@pytest.mark.slow
def test_a_second_call_compiles_nothing(environment, tmp_path):
    program = (
        "import sys\n"
        "from xlj.cli.command import keep_compiled\n"
        "keep_compiled()\n"
        "import jax\n"
        "found = []\n"
        "jax.monitoring.register_event_listener(lambda event, **_: found.append(event))\n"
        "jax.jit(lambda x: x * 2 + 1)(jax.numpy.ones(3))\n"
        "print(sum(event.endswith('cache_hits') for event in found))\n"
    )
    calls = [
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    first, second = (int(call.stdout) for call in calls)
    assert first == 0 < second
