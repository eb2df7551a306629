"""What this process asks of Linux, the C library and XLA: huge pages, memory that stays, the cache
of compiled programs, its end and the exit code (docs/launch.md).
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from typing import NoReturn

_TUNABLES = "GLIBC_TUNABLES"
# Options of glibc's `mallopt`. M_TRIM_THRESHOLD is the number of free bytes at the end of the heap
# above which free memory returns to the system. M_MMAP_MAX is the largest number of arrays outside
# the heap, whose memory returns to the system as soon as they are freed.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1  # the value of M_TRIM_THRESHOLD with which no memory returns
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}


def use_huge_pages() -> None:
    """Restarts a command of xlj so that glibc allocates memory in huge pages.

    glibc reads the setting only at the start of a process. On CPUs XLA allocates its buffers from
    glibc in each step, and huge pages save a sixth of a small model's step (docs/benchmarks.md).
    Does nothing if GLIBC_TUNABLES is set, or if a program calls the command.
    """
    main = sys.modules["__main__"]
    spec, script = main.__spec__, getattr(main, "__file__", None) or ""
    # python -m xlj.train, or the script `xlj`
    is_command = spec.name.startswith("xlj.") if spec else os.path.basename(script) == "xlj"
    if is_command and sys.platform == "linux" and _TUNABLES not in os.environ:
        os.environ[_TUNABLES] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def end(code: int) -> NoReturn:
    """Ends the process at once, from any thread, with an exit code.

    A normal exit waits for other threads, and sometimes crashes while XLA is still computing.
    """
    os._exit(code)


class StepMemory:
    """Keeps the memory of CPU steps in this process from step to step.

    Without this class, the memory returns to Linux after each step, and Linux clears each page
    before the next step gets it. XLA must compute in the thread that calls `retain`
    (`devices.compute_in_the_calling_thread`). The class does nothing if the C library is not glibc.

    Args:
      on_cpu: whether steps run on CPUs; the class does nothing for other devices.
    """

    def __init__(self, on_cpu: bool):
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._libc = libc if on_cpu and hasattr(libc, "mallopt") else None

    @contextlib.contextmanager
    def retain(self) -> Iterator[None]:
        """Makes a step inside a `with` statement allocate from the heap, which keeps freed memory.

        Compile nothing inside the statement. The compiler's large arrays would occupy the memory in
        the heap that the next step needs.
        """
        self._set(_MMAP_MAX, 0)
        self._set(_TRIM_THRESHOLD, _NEVER)
        try:
            yield
        finally:
            self._set(_MMAP_MAX, _DEFAULTS[_MMAP_MAX])

    def release(self) -> None:
        """Returns all free memory to the system, including free pages inside the heap."""
        self._set(_TRIM_THRESHOLD, _DEFAULTS[_TRIM_THRESHOLD])
        if self._libc:
            self._libc.malloc_trim(0)

    close = release

    def _set(self, option: int, value: int) -> None:
        if self._libc:
            self._libc.mallopt(option, value)


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


CONTINUE = 75
"""The run was interrupted: one of its processes died, or the run received a signal to stop. The
same command resumes the run from its latest checkpoint. The value is EX_TEMPFAIL of sysexits.h."""
