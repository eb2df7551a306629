"""Shows and measures the time that a run waits before its first steps."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from tqdm import tqdm


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
