"""Configures the cache of XLA's compiled programs."""

import contextlib
import hashlib
import os
import platform
import sys

_FOLDER_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_MIN_SECONDS_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def enable_cache() -> None:
    """Makes XLA store compiled programs in `~/.cache/xlj/compiled`, where later runs find them.

    `$XDG_CACHE_HOME` replaces `~/.cache`. Each kind of processor has its own subfolder, because a
    program that is compiled for one kind of CPU may not run on another kind. The function does
    nothing if JAX_COMPILATION_CACHE_DIR or JAX_ENABLE_COMPILATION_CACHE is set, or if a cache
    folder is already configured in JAX.
    """
    if not {_FOLDER_VARIABLE, "JAX_ENABLE_COMPILATION_CACHE"}.isdisjoint(os.environ):
        return
    jax = sys.modules.get("jax")
    if jax and jax.config.jax_compilation_cache_dir is not None:
        return
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(root, "xlj", "compiled", _processor())
    # JAX reads these variables when it is imported, in this process or in a child process.
    os.environ[_FOLDER_VARIABLE] = folder
    os.environ.setdefault(_MIN_SECONDS_VARIABLE, "0")
    if jax:
        jax.config.update(_FOLDER_VARIABLE.lower(), folder)
        jax.config.update(_MIN_SECONDS_VARIABLE.lower(), float(os.environ[_MIN_SECONDS_VARIABLE]))


def _processor() -> str:
    """Returns a name that is equal for processors with equal instruction sets."""
    description = platform.machine() + platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        description += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{hashlib.sha256(description.encode()).hexdigest()[:12]}"
