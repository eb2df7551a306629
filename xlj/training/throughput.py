"""Counts the tokens of a run; computes tokens and operations per second since the last metrics."""

import contextlib
import time
from collections.abc import Iterator

import jax
import numpy as np

from xlj.distributed import hosts
from xlj.training.prefetch import Prefetch
from xlj.training.run_flops import RunFlops


class Throughput:
    """Counts steps, tokens and time, without the time of evaluations and saves.

    Args:
      flops: operations of the run's steps.
      prefetch: measures how long the run waits for rows.
      seen: number of tokens, without padding, of all earlier steps.
    """

    def __init__(self, flops: RunFlops, prefetch: Prefetch, seen: int):
        self._of_run, self._prefetch = flops, prefetch
        self._seen = seen  # tokens of all processes, at the last exchange between processes
        self._own_tokens = 0  # tokens of this process since the last exchange
        self._begin = time.perf_counter()
        self._restart()

    def count(self, step: int, tokens: int) -> None:
        """Adds a step.

        Args:
          step: zero-based.
          tokens: number of tokens, without padding, in this process's rows of the step.
        """
        self._own_tokens += tokens
        self._tokens += tokens
        self._flops += self._of_run.of_step(step).xlj

    def seen(self) -> int:
        """Returns the number of tokens, without padding, of all finished steps.

        All processes must call this, since they exchange their counts.
        """
        high, low = hosts.all_gather(np.array(divmod(self._own_tokens, _PART), np.int32)).T
        self._seen += int(high.astype(np.int64).sum()) * _PART + int(low.astype(np.int64).sum())
        self._own_tokens = 0
        return self._seen

    def measures(self) -> dict[str, float]:
        """Returns metrics: `tokens`, which counts all finished steps, and `time/...`.

        Rates and shares cover the time since the last call, without `paused`. Tokens per second are
        those of this process times the number of processes. `time/seconds` counts from the
        construction of this object. All processes must call this.
        """
        seconds = max(time.perf_counter() - self._interval_begin, 1e-9)
        waited = self._prefetch.seconds_waited - self._waited_before
        measures = {
            "tokens": self.seen(),
            "time/tokens_per_second": self._tokens * jax.process_count() / seconds,
            "time/model_flops_per_second": self._flops / seconds,
            "time/waiting_share": min(waited / seconds, 1.0),
            "time/seconds": time.perf_counter() - self._begin,
        }
        self._restart()
        return measures

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time of a `with` statement from the rates and shares of `measures`."""
        begin = time.perf_counter()
        yield
        self._interval_begin += time.perf_counter() - begin

    def _restart(self) -> None:
        self._interval_begin = time.perf_counter()
        self._waited_before = self._prefetch.seconds_waited
        self._tokens, self._flops = 0, 0.0


_PART = 1 << 30
"""Processes exchange a count as two int32 numbers: the quotient and the remainder of the division
by this number."""
