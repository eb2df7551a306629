"""The time of a run: tokens and operations per second since the last metrics, and what the run
waits for before its first steps.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import jax
import numpy as np
from tqdm import tqdm

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


class Waits:
    """Shows on the progress bar what the run waits for, and records the seconds of each part.

    On a terminal, the bar also counts the seconds.
    """

    def __init__(self, bar: tqdm):
        self._bar, self._known = bar, set[str]()
        self._seconds = dict[str, float]()

    @contextlib.contextmanager
    def on(self, what: str, part: str) -> Iterator[None]:
        """Shows `what` on the bar during a `with` statement.

        The bar's estimate of the time left excludes the seconds of the statement. The metric of
        `part` (`measures`) includes them only the first time that the run waits for `what`.
        """
        begin, bar, ended = time.perf_counter(), self._bar, threading.Event()
        before = bar.postfix if not bar.disable else None

        def show() -> None:
            while not ended.wait(1):
                bar.set_postfix_str(f"{what}, {time.perf_counter() - begin:.0f} s")

        thread = threading.Thread(target=show, daemon=True)
        if not bar.disable:
            bar.set_postfix_str(what)
            if sys.stderr.isatty():
                thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.ident is not None:
                thread.join()
            if not bar.disable:
                bar.postfix = before
                bar.unpause()
            if what not in self._known:
                self._known.add(what)
                seconds = time.perf_counter() - begin
                self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def measures(self) -> dict[str, float]:
        """Returns the waits recorded since the last call, as metrics `time/start/seconds/PART`."""
        measures = {f"time/start/seconds/{part}": each for part, each in self._seconds.items()}
        self._seconds.clear()
        return measures
