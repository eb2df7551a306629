"""SIGTERM and Ctrl-C: save within seconds, and end well within the grace period."""

import contextlib
import os
import signal
import sys
import threading
from typing import Any

import jax


class Interrupted(Exception):
    """The run was asked to stop while something was measured that can be measured again."""


class Preemption:
    """Notices that the run was asked to stop, by SIGTERM or by Ctrl-C; a second Ctrl-C raises
    `KeyboardInterrupt`. Several processes agree on the moment: all must ask equally often; there
    Ctrl-C stops at once.

    Attributes:
      by_user: whether it was Ctrl-C.
    """

    def __init__(self) -> None:
        self.by_user = False
        self._asked, self._times = False, 0
        self._before: dict[signal.Signals, Any] = {}
        self._many = jax.process_count() > 1
        # With several, jax.distributed's own handler tells all of them.
        if not self._many and threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGTERM, self._ask),
                (signal.SIGINT, self._interrupt),
            ):
                self._before[number] = signal.signal(number, handler)
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)

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
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
            for end in self._pipe:
                os.close(end)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _interrupt(self, *_: object) -> None:
        # Python calls this once for all signals that come while the main thread is in XLA, where a
        # CPU computes a step. The pipe has a byte for each of them.
        try:
            pressed = os.read(self._pipe[0], 1024).count(signal.SIGINT)
        except BlockingIOError:
            pressed = 1
        if self.by_user or pressed > 1:
            raise KeyboardInterrupt
        self._asked = self.by_user = True
        with contextlib.suppress(RuntimeError, OSError):  # the bar is being written; `| tee` ended
            print(
                "\nCtrl-C: finishing this step, then saving. Ctrl-C again stops without saving.",
                file=sys.stderr,
                flush=True,
            )
