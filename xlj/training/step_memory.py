"""What a step on a CPU takes of memory is kept for the next one."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

import jax
from jax.sharding import Mesh

# Numbers of glibc's `mallopt`: below how much free memory at the heap's end it is given back, and
# how many large arrays may lie outside the heap, which are given back once they are freed.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _MMAP_MAX: 65_536}


def compute_in_the_calling_thread() -> None:
    """A CPU alone computes in the thread that asks for it, from whose memory alone `StepMemory`
    keeps something, and no longer in one of XLA's. To be called before the first array is made."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


class StepMemory:
    """Memory that a step on a CPU takes stays with this process from step to step.

    XLA asks for a step's buffers anew each time, and Linux clears them page by page before it
    gives them. Nothing is done for other devices, nor where the C library is not glibc.
    """

    def __init__(self, mesh: Mesh):
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        on_cpu = mesh.devices.flat[0].platform == "cpu"
        self._libc = libc if on_cpu and hasattr(libc, "mallopt") else None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What a step that is called inside takes is from the heap, and is kept when it is free.
        Other large arrays stay out of there, where they would take its place: nothing is to be
        compiled inside."""
        self._set(_MMAP_MAX, 0)
        self._set(_TRIM_THRESHOLD, _NEVER)
        try:
            yield
        finally:
            self._set(_MMAP_MAX, _DEFAULTS[_MMAP_MAX])

    def give_back(self) -> None:
        """Gives all that is free back, so that others can have it, and that small arrays which
        came to lie in between cost nothing for long."""
        self._set(_TRIM_THRESHOLD, _DEFAULTS[_TRIM_THRESHOLD])
        if self._libc:
            self._libc.malloc_trim(0)

    close = give_back

    def _set(self, option: int, value: int) -> None:
        if self._libc:
            self._libc.mallopt(option, value)
