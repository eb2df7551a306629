"""What this process asks of Linux and the C library: huge pages, memory that stays, its end."""

import contextlib
import ctypes
import os
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
