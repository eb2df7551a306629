"""Counts the tokens of a run, and tokens and model operations per second between metrics."""

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
      seen: text tokens, without padding, of earlier steps.
    """

    def __init__(self, flops: RunFlops, prefetch: Prefetch, seen: int):
        self._of_run, self._prefetch = flops, prefetch
        self._seen = seen  # tokens of all processes, at the last exchange of counts
        self._own = 0  # tokens of this process since that exchange
        self._begin = time.perf_counter()
        self._restart()

    def count(self, step: int, tokens: int) -> None:
        """Adds a step and the tokens of this process's rows."""
        self._own += tokens
        self._tokens += tokens
        self._flops += self._of_run.of_step(step).xlj

    def seen(self) -> int:
        """Returns the tokens of all rows of all steps so far. All processes must call this."""
        high, low = hosts.all_gather(np.array(divmod(self._own, _PART), np.int32)).T
        self._seen += int(high.astype(np.int64).sum()) * _PART + int(low.astype(np.int64).sum())
        self._own = 0
        return self._seen

    def measures(self) -> dict[str, float]:
        """Returns tokens seen, and rates since the last call, as metrics.

        `time/seconds` counts from the start of this process's run.
        """
        seconds = max(time.perf_counter() - self._since, 1e-9)
        waited = self._prefetch.seconds_waited - self._waited
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
        """Excludes the time of a block from all measures."""
        begin = time.perf_counter()
        yield
        self._since += time.perf_counter() - begin

    def _restart(self) -> None:
        self._since = time.perf_counter()
        self._waited = self._prefetch.seconds_waited
        self._tokens, self._flops = 0, 0.0


_PART = 1 << 30
"""Counts are exchanged as two int32 numbers: multiples of this and the rest."""
