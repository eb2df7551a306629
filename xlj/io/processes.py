"""Runs functions in processes that stop when their parent stops, even if the parent is killed."""

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
from xlj.io import own_process, storage


class _Process(SpawnProcess):
    """A spawned process that does not import the main module.

    Python's own spawned processes import the main module, so a script without a main guard would
    run twice.
    """

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
"""The only start method that xlj uses: threads of TensorFlow, JAX and SentencePiece do not survive
a fork."""


def stop_with_parent() -> None:
    """Makes this spawned process end with its parent and ignore Ctrl-C; call it at the start."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    be_killed_with_parent()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def be_killed_with_parent() -> None:
    """Makes Linux kill this process when its parent dies, even while a library holds the GIL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def in_child(
    doing: str,
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Result:
    """Runs a function in a spawned process (a child) and returns the result.

    The child sees no CUDA devices, and its memory is freed when it ends; both matter for functions
    that import TensorFlow. The child stops when this process stops.

    Args:
      doing: what the function does, for errors, such as `building rows`.
      function: the function. It must be picklable, and so must its arguments and its result.
      arguments, named: positional and keyword arguments of the function.

    Returns:
      The result of the function.

    Raises:
      ConfigError: if the function raises a `ConfigError` or a storage error.
      RuntimeError: if the function raises another error, or the child dies.
    """
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_child, args=(sender, function, arguments, named))
    with _sigterm_as_exit():
        process.start()
        sender.close()
        try:
            connection.wait([receiver, process.sentinel])
            no_result: tuple[str, Any] = "died", None
            outcome, result = receiver.recv() if receiver.poll() else no_result
            process.join(timeout=3)  # TensorFlow may hang at exit after an error
        except EOFError:
            process.join()
            outcome, result = "died", None
        finally:  # also after an interrupt or SIGTERM
            process.terminate()
            process.join(timeout=3)  # enough to end its workers, but SentencePiece may need longer
            process.kill()
            process.join()
    if outcome == "returned":
        return result
    if outcome == "refused":
        raise ConfigError(result)
    if outcome == "failed":
        raise RuntimeError(f"{doing} failed:\n{result}")
    raise RuntimeError(
        f"{doing}: the child process ended with exit code {process.exitcode}; run the command "
        "again to resume"
    )


def _child(
    sender: connection.Connection,
    function: Callable[Parameters, Result],
    arguments: tuple,
    named: dict,
) -> None:
    stop_with_parent()
    signal.signal(signal.SIGTERM, _exit_on_signal)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # only the parent process uses GPUs
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is already one process for each core
    try:
        sender.send(("returned", function(*arguments, **named)))
    except ConfigError as error:
        sender.send(("refused", str(error)))
    except OSError as error:
        message = storage.describe_storage_error(error)
        sender.send(("refused", message) if message else ("failed", traceback.format_exc()))
    except Exception:
        sender.send(("failed", traceback.format_exc()))


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Makes SIGTERM raise SystemExit in the main thread, so that `in_child` stops the child."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    previous_handler = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        own_process.end(1)
