"""Handling of SIGTERM and Ctrl-C: a run saves within seconds and ends within the grace period."""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import ClassVar

import jax

from xlj.io import own_process

_POINTER = ctypes.c_void_p


class Interrupted(Exception):
    """The run was asked to stop during an evaluation, which can be repeated."""


class Preemption:
    """Detects a request to stop the run: SIGTERM, or Ctrl-C (SIGINT).

    - During steps, the first signal makes `requested` return True. A second Ctrl-C raises
      `KeyboardInterrupt`.
    - Before the first step, there is nothing to save, and XLA may compile for minutes. If
      `owns_process`, a signal ends the process at once. Otherwise Ctrl-C raises `KeyboardInterrupt`
      as soon as XLA returns, and SIGTERM stops the run after its first step.
    - In runs with several processes, SIGTERM stops all processes after the same step. For this, all
      processes must call `requested` equally often. Ctrl-C stops such a run at once.

    Args:
      step: number of finished steps when the run starts or resumes.

    Attributes:
      owns_process: True if the process only runs training, as in xlj's commands; False in programs
        that call the Python API.
      by_user: whether the request was Ctrl-C.
    """

    owns_process: ClassVar[bool] = False

    def __init__(self, step: int = 0) -> None:
        self.by_user = False
        self._is_requested, self._calls = False, 0
        self._has_many_processes = jax.process_count() > 1
        self._signals: _Signals | None = None
        self._starting = True
        in_main_thread = threading.current_thread() is threading.main_thread()
        # With several processes, the SIGTERM handler of jax.distributed informs all processes
        # during steps, so this class has handlers only before the first step.
        if in_main_thread and (self.owns_process or not self._has_many_processes):
            self._signals = _Signals(self._request_stop, self._interrupt)
            if self.owns_process:
                self._signals.end_process(step)

    def started(self) -> None:
        """Marks the start of training.

        After this call, a stop request lets the run finish its step and save.
        """
        if self._starting and self._signals is not None:
            self._signals.end_process(None)
            if self._has_many_processes:
                self.close()
        self._starting = False

    def requested(self) -> bool:
        """Returns whether to stop now. After it has returned True, it always returns True."""
        if self._has_many_processes and not self._is_requested:
            from jax.experimental import multihost_utils

            # JAX returns True for one value of `_calls` only, which is the same in all processes.
            self._is_requested = multihost_utils.reached_preemption_sync_point(self._calls)
            self._calls += 1
        return self._is_requested

    def check(self, *_: object) -> None:
        """Raises `Interrupted` if the run should stop.

        It ignores its arguments, so that it can be called in place of a progress bar's update.
        """
        if self.requested():
            raise Interrupted

    def close(self) -> None:
        """Restores the previous signal handlers."""
        if self._signals is not None:
            self._signals.close()
            self._signals = None

    def _request_stop(self, *_: object) -> None:
        self._is_requested = True

    def _interrupt(self, *_: object) -> None:
        if self._starting and self.owns_process:
            return  # the thread of `_Signals` ends the process
        pressed = self._signals.count_interrupts() if self._signals else 1
        if self._starting or self.by_user or pressed > 1:
            raise KeyboardInterrupt
        self._is_requested = self.by_user = True
        _print("Ctrl-C: finishing this step, then saving. Ctrl-C again stops without saving.")


class _Signals:
    """Handlers of SIGTERM and SIGINT, and a pipe.

    Python calls the handlers in the main thread, but only when the main thread is not inside XLA.
    The pipe gets the number of each signal immediately, as one byte.

    Args:
      terminate: the handler of SIGTERM.
      interrupt: the handler of SIGINT.
    """

    def __init__(self, terminate: Callable[..., object], interrupt: Callable[..., object]):
        # Python cannot restore the handler of jax.distributed, which is a C function.
        self._libc = ctypes.CDLL(None)
        self._libc.signal.restype, self._libc.signal.argtypes = _POINTER, (ctypes.c_int, _POINTER)
        self._of_jax = self._libc.signal(signal.SIGTERM, None)
        self._before = {
            number: signal.signal(number, handler)
            for number, handler in ((signal.SIGTERM, terminate), (signal.SIGINT, interrupt))
        }
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._watch: threading.Thread | None = None

    def count_interrupts(self) -> int:
        """Returns the number of SIGINTs since the last call.

        Python's handler cannot count them: it is called only once for all signals that arrive while
        the main thread is inside XLA.
        """
        try:
            return os.read(self._pipe[0], 1024).count(signal.SIGINT)
        except BlockingIOError:
            return 1  # the pipe is empty, but the handler was called for a signal

    def end_process(self, step: int | None) -> None:
        """Makes signals end the process at once.

        Args:
          step: the step from which the run will resume, for the message; None ends this behaviour.
        """
        if step is not None:
            self._watch = threading.Thread(target=self._end, args=(step,), daemon=True)
            self._watch.start()
        elif self._watch is not None:
            os.write(self._pipe[1], bytes(1))  # 0 is not a signal
            self._watch.join()
            self._watch = None

    def close(self) -> None:
        """Restores the previous handlers."""
        self.end_process(None)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before[signal.SIGTERM] in (None, signal.SIG_DFL):
            self._libc.signal(signal.SIGTERM, self._of_jax)
        signal.set_wakeup_fd(self._wakeup)
        for end in self._pipe:
            os.close(end)

    def _end(self, step: int) -> None:
        """Waits for a signal and ends the process; a byte 0 in the pipe ends only this thread."""
        number = -1
        while number not in (0, signal.SIGTERM, signal.SIGINT):
            select.select(self._pipe[:1], [], [])
            number = os.read(self._pipe[0], 1)[0]
        if number:
            where = f"resumes from step {step:,}" if step else "starts from the beginning"
            _print(f"stopped before the first step; the same command {where}")
            # 130 is the exit code of shells for programs that Ctrl-C has stopped.
            own_process.end(own_process.CONTINUE if number == signal.SIGTERM else 130)


def _print(text: str) -> None:
    # RuntimeError: the main thread is printing. OSError: the reader of stderr has ended.
    with contextlib.suppress(RuntimeError, OSError):
        print(f"\n{text}", file=sys.stderr, flush=True)
