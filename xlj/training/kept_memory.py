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
_KEEPING = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1}
_DEFAULTS = {_MMAP_MAX: 65_536, _TRIM_THRESHOLD: 128 * 1024}


def compute_in_the_calling_thread() -> None:
    """A CPU alone computes in the thread that asks for it, from whose memory alone `kept` keeps
    something, and no longer in one of XLA's. To be called before the first array is made."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


@contextlib.contextmanager
def kept(mesh: Mesh) -> Iterator[None]:
    """In the block, memory that a step on a CPU frees stays with this process.

    XLA asks for a step's buffers anew each time, and Linux clears them page by page before it
    gives them. Nothing is done for other devices, nor where the C library is not glibc.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if mesh.devices.flat[0].platform != "cpu" or not hasattr(libc, "mallopt"):
        yield
        return
    assert libc is not None
    libc.malloc_trim(0)
    for option, value in _KEEPING.items():
        libc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in _DEFAULTS.items():
            libc.mallopt(option, value)
        libc.malloc_trim(0)
