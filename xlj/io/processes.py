"""Processes that stop when the one that started them does, however it ends."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from xlj.config import ConfigError
from xlj.io import storage_errors


class _Process(SpawnProcess):
    """Leaves the main module alone, which a spawned process would import: a script that does not
    guard its work would start everything again there."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:
        main = sys.modules["__main__"]
        hidden = {name: main.__dict__.pop(name, None) for name in ("__file__", "__spec__")}
        main.__spec__ = None
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            main.__dict__.update({k: v for k, v in hidden.items() if v is not None})


class _Context(SpawnContext):
    Process = _Process


SPAWN = _Context()
"""Never fork: threads of TensorFlow, JAX and SentencePiece do not survive it."""


def stop_with_parent() -> None:
    """Called first in a spawned process: it ends when its parent does, and leaves Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    be_killed_with_parent()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def be_killed_with_parent() -> None:
    """Lets Linux kill this process when its parent is gone, which works while a library holds the
    interpreter for minutes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_child(
    doing: str, function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs
) -> Result:
    """The result of a function that runs in a spawned process of its own, so that TensorFlow never
    shares this one's memory or accelerator. It stops when this process does.

    Args:
      doing: what it does, for errors: `building rows`.
      function, arguments, named: whatever multiprocessing can send; so must be the result.

    Raises:
      ConfigError: as the function does, or of an error of storage.
      RuntimeError: if it fails otherwise, or the process dies.
    """
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_child, args=(sender, function, arguments, named))
    with _sigterm_as_exit():
        process.start()
        sender.close()
        try:
            connection.wait([receiver, process.sentinel])
            ended: tuple[str, Any] = "died", None
            outcome, result = receiver.recv() if receiver.poll() else ended
            process.join(timeout=3)  # TensorFlow may hang as it ends after an error
        except EOFError:
            process.join()
            outcome, result = "died", None
        finally:  # an interrupt, or SIGTERM
            process.terminate()
            process.join(timeout=3)  # it ends its workers; training a vocabulary does not let it
            process.kill()
            process.join()
    if outcome == "returned":
        return result
    if outcome == "refused":
        raise ConfigError(result)
    if outcome == "failed":
        raise RuntimeError(f"{doing} failed:\n{result}")
    raise RuntimeError(
        f"{doing}: the process ended with exit code {process.exitcode}; start again to go on"
    )


def _child(
    sender: connection.Connection,
    function: Callable[Given, Result],
    arguments: tuple,
    named: dict,
) -> None:
    stop_with_parent()
    signal.signal(signal.SIGTERM, _leave)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # accelerators are the trainer's
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process a core already
    try:
        sender.send(("returned", function(*arguments, **named)))
    except ConfigError as error:
        sender.send(("refused", str(error)))
    except OSError as error:
        said = storage_errors.line(error)
        sender.send(("refused", said) if said else ("failed", traceback.format_exc()))
    except Exception:
        sender.send(("failed", traceback.format_exc()))


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """SIGTERM unwinds the main thread, so that what it started is stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
