"""SIGTERM and Ctrl-C: save within seconds, and end well within the grace period."""

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

from xlj.io import exit_codes

_POINTER = ctypes.c_void_p


class Interrupted(Exception):
    """The run was asked to stop while something was measured that can be measured again."""


class Preemption:
    """Notices that the run was asked to stop, by SIGTERM or by Ctrl-C; a second Ctrl-C raises
    `KeyboardInterrupt`. Several processes agree on the moment: all must ask equally often; there
    Ctrl-C stops at once.

    Until the first step is to be made XLA may compile for minutes, and there is nothing to save: a
    process that is the run's own ends at once; other programs have a `KeyboardInterrupt` when XLA
    is done.

    Args:
      step: from which the run goes on.

    Attributes:
      owns_process: whether processes are there for a run alone, as those of commands are.
      by_user: whether it was Ctrl-C.
    """

    owns_process: ClassVar[bool] = False

    def __init__(self, step: int = 0) -> None:
        self.by_user = False
        self._asked, self._times = False, 0
        self._many = jax.process_count() > 1
        self._signals: _Signals | None = None
        self._starting = True
        in_main_thread = threading.current_thread() is threading.main_thread()
        # With several, jax.distributed's own handler tells all of them, once they make steps.
        if in_main_thread and (self.owns_process or not self._many):
            self._signals = _Signals(self._ask, self._interrupt)
            if self.owns_process:
                self._signals.end_process(step)

    def started(self) -> None:
        """From now on the step in hand is finished, and saved, before the run stops."""
        if self._starting and self._signals is not None:
            self._signals.end_process(None)
            if self._many:
                self.close()
        self._starting = False

    def requested(self) -> bool:
        """Whether to stop now, and from then on."""
        if self._many and not self._asked:
            from jax.experimental import multihost_utils

            # It is True at one number only, the same in all processes.
            self._asked = multihost_utils.reached_preemption_sync_point(self._times)
            self._times += 1
        return self._asked

    def check(self, *_: object) -> None:
        """Raises `Interrupted` if the run is to stop; takes what a progress bar takes."""
        if self.requested():
            raise Interrupted

    def close(self) -> None:
        """Puts the signals' former handlers back."""
        if self._signals is not None:
            self._signals.close()
            self._signals = None

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _interrupt(self, *_: object) -> None:
        if self._starting and self.owns_process:
            return  # the process ends
        pressed = self._signals.pressed() if self._signals else 1
        if self._starting or self.by_user or pressed > 1:
            raise KeyboardInterrupt
        self._asked = self.by_user = True
        _say("Ctrl-C: finishing this step, then saving. Ctrl-C again stops without saving.")


class _Signals:
    """Handlers of SIGTERM and SIGINT, which Python calls in the main thread when XLA is done there,
    and a pipe that has a byte, the number, for each signal as soon as it comes."""

    def __init__(self, terminate: Callable[..., object], interrupt: Callable[..., object]):
        # jax.distributed's handler is none of Python's, which could not put it back.
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

    def pressed(self) -> int:
        """How often SIGINT came since the last call: Python calls its handler once for all that
        come while the main thread is in XLA."""
        try:
            return os.read(self._pipe[0], 1024).count(signal.SIGINT)
        except BlockingIOError:
            return 1

    def end_process(self, step: int | None) -> None:
        """Lets a signal end the process at once, and say from which step the run goes on; None: no
        longer."""
        if step is not None:
            self._watch = threading.Thread(target=self._end, args=(step,), daemon=True)
            self._watch.start()
        elif self._watch is not None:
            os.write(self._pipe[1], bytes(1))  # the number of no signal
            self._watch.join()
            self._watch = None

    def close(self) -> None:
        """Puts the former handlers back."""
        self.end_process(None)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before[signal.SIGTERM] in (None, signal.SIG_DFL):
            self._libc.signal(signal.SIGTERM, self._of_jax)
        signal.set_wakeup_fd(self._wakeup)
        for end in self._pipe:
            os.close(end)

    def _end(self, step: int) -> None:
        found = -1
        while found not in (0, signal.SIGTERM, signal.SIGINT):
            select.select(self._pipe[:1], [], [])
            found = os.read(self._pipe[0], 1)[0]
        if found:
            where = f"from step {step:,}" if step else "from the beginning"
            _say(f"stopped before the first step; the same command goes on {where}")
            os._exit(exit_codes.CONTINUE if found == signal.SIGTERM else 130)


def _say(text: str) -> None:
    with contextlib.suppress(RuntimeError, OSError):  # the bar is being written; `| tee` ended
        print(f"\n{text}", file=sys.stderr, flush=True)
