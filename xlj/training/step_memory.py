"""Keeps the buffers of CPU steps allocated between steps."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import jax
from jax.sharding import Mesh

# Options of glibc's `mallopt`: how much free memory at the end of the heap is kept, and how many
# large arrays may be outside the heap. Memory outside the heap is released when it is freed.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}


def compute_in_the_calling_thread() -> None:
    """Makes CPUs compute in the calling thread instead of a thread of XLA's.

    `StepMemory` only keeps memory of the calling thread. Call this before the first array exists.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


class StepMemory:
    """Keeps the memory of CPU steps in this process from step to step.

    XLA allocates the buffers of each step again, and Linux clears each page first. This class does
    nothing for other devices, or if the C library is not glibc.
    """

    def __init__(self, mesh: Mesh):
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        on_cpu = mesh.devices.flat[0].platform == "cpu"
        self._libc = libc if on_cpu and hasattr(libc, "mallopt") else None

    @contextlib.contextmanager
    def retain(self) -> Iterator[None]:
        """Makes a step called inside the block allocate from the heap, which keeps freed memory.

        Compile nothing inside: other large arrays would take the place of the step's in the heap.
        """
        self._set(_MMAP_MAX, 0)
        self._set(_TRIM_THRESHOLD, _NEVER)
        try:
            yield
        finally:
            self._set(_MMAP_MAX, _DEFAULTS[_MMAP_MAX])

    def release(self) -> None:
        """Returns all free memory to the system, also that between small arrays in the heap."""
        self._set(_TRIM_THRESHOLD, _DEFAULTS[_TRIM_THRESHOLD])
        if self._libc:
            self._libc.malloc_trim(0)

    close = release

    def _set(self, option: int, value: int) -> None:
        if self._libc:
            self._libc.mallopt(option, value)
