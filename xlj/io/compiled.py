"""Configures the cache of XLA's compiled programs."""

import contextlib
import hashlib
import os
import platform
import sys

_FOLDER = "JAX_COMPILATION_CACHE_DIR"
_LEAST_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep() -> None:
    """Keeps programs that XLA compiles for later runs, in `~/.cache/xlj/compiled`.

    `$XDG_CACHE_HOME` replaces `~/.cache`. The folder is specific to the kind of processor, since
    programs for CPUs run on no other kind. Does nothing if JAX_COMPILATION_CACHE_DIR or
    JAX_ENABLE_COMPILATION_CACHE is set, or JAX already has a folder.
    """
    if not {_FOLDER, "JAX_ENABLE_COMPILATION_CACHE"}.isdisjoint(os.environ):
        return
    jax = sys.modules.get("jax")
    if jax and jax.config.jax_compilation_cache_dir is not None:
        return
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(root, "xlj", "compiled", _processor())
    # JAX reads these variables when it is imported, in this process or in children.
    os.environ[_FOLDER] = folder
    os.environ.setdefault(_LEAST_SECONDS, "0")
    if jax:
        jax.config.update(_FOLDER.lower(), folder)
        jax.config.update(_LEAST_SECONDS.lower(), float(os.environ[_LEAST_SECONDS]))


def _processor() -> str:
    """Returns a name that processors with equal instruction sets share."""
    description = platform.machine() + platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        description += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{hashlib.sha256(description.encode()).hexdigest()[:12]}"
