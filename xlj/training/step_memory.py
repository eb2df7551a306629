"""Keeps the buffers of CPU steps allocated between steps."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import jax
from jax.sharding import Mesh

# Options of glibc's `mallopt`. M_TRIM_THRESHOLD is the number of free bytes at the end of the heap
# above which free memory returns to the system. M_MMAP_MAX is the largest number of arrays outside
# the heap, whose memory returns to the system as soon as they are freed.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1  # the value of M_TRIM_THRESHOLD with which no memory returns
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}


def compute_in_the_calling_thread() -> None:
    """Makes CPU devices compute in the calling thread, instead of a thread of XLA.

    `StepMemory` keeps only memory of the calling thread. Call this function before the first array
    exists.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


class StepMemory:
    """Keeps the memory of CPU steps in this process from step to step.

    Without this class, the memory returns to Linux after each step, and Linux clears each page
    before the next step gets it. The class does nothing on other devices than CPUs, or if the C
    library is not glibc.
    """

    def __init__(self, mesh: Mesh):
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        on_cpu = mesh.devices.flat[0].platform == "cpu"
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
