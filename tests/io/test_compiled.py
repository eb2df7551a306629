"""Compiled programs of XLA are cached for later processes, unless the user turns this off."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from xlj.io.compiled import enable_cache

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
        "from xlj.io.compiled import enable_cache\n"
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
