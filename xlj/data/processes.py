"""Processes that stop when the one that started them does, however it ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import connection

SPAWN = multiprocessing.get_context("spawn")
"""Never fork: threads of TensorFlow, JAX and SentencePiece do not survive it."""


def stop_with_parent() -> None:
    """Called first in a spawned process: it ends when its parent does, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        # The kernel's own way works while a library holds the interpreter for minutes.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
