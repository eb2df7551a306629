"""SIGTERM: save within seconds, and end well within the grace period."""

import signal
from collections.abc import Callable
from types import FrameType

import jax


class Interrupted(Exception):
    """The run was asked to stop while something was measured that can be measured again."""


class Preemption:
    """Notices that the run was asked to stop. Several processes agree on the moment: all must ask
    equally often."""

    def __init__(self) -> None:
        self._asked, self._times = False, 0
        self._before: Callable[[int, FrameType | None], object] | int | None = None
        self._many = jax.process_count() > 1
        if not self._many:  # with several, jax.distributed's own handler tells all of them
            self._before = signal.signal(signal.SIGTERM, self._ask)

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
        """Puts the signal's former handler back."""
        if not self._many:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, *_: object) -> None:
        self._asked = True
