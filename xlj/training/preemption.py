"""SIGTERM: finish the step, save, and end well within the grace period."""

from __future__ import annotations

import signal
from typing import Any

import jax


class Preemption:
    """Notices that the run was asked to stop. Several processes agree on the step."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None
        self._many = jax.process_count() > 1
        if not self._many:  # with several, jax.distributed's own handler tells all of them
            self._before = signal.signal(signal.SIGTERM, self._ask)

    def requested(self, step: int) -> bool:
        """Whether to stop after `step`; all processes must ask at every step."""
        if self._many:
            from jax.experimental import multihost_utils

            return multihost_utils.reached_preemption_sync_point(step)
        return self._asked

    def close(self) -> None:
        """Puts the signal's former handler back."""
        if not self._many:
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, *_: object) -> None:
        self._asked = True
