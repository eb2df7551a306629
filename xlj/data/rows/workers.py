"""Runs jobs by all cores, or by Apache Beam; each reads its own part of the text."""

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol

from tqdm import tqdm

from xlj.config import ConfigError
from xlj.io.processes import SPAWN, stop_with_parent

_LINES = "lines"  # what Beam counts them as


class Job(Protocol):
    """A piece of work that any process may do, and that leaves its result on disk: it knows its
    `size` in bytes of input, and returns the lines that it read."""

    @property
    def size(self) -> int: ...

    def __call__(self) -> int: ...


Run = Callable[[str, Collection[Job]], None]
"""Does jobs, which are told as `building rows` or the like."""


@contextmanager
def in_processes(workers: int) -> Iterator[Run]:
    """Runs jobs in so many spawned processes, 0 for one a core."""
    count = workers or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(count, SPAWN, stop_with_parent) as pool:

        def run(doing: str, jobs: Collection[Job]) -> None:
            if not jobs:
                return
            total = sum(job.size for job in jobs)
            lines, began = 0, time.monotonic()
            sizes: dict[Future[int], int] = {}
            with tqdm(total=total, desc=doing, unit="B", unit_scale=True) as bar:

                def finish() -> None:
                    nonlocal lines
                    for future in wait(sizes, return_when=FIRST_COMPLETED).done:
                        lines += future.result()
                        rate = lines / (time.monotonic() - began)
                        bar.set_postfix_str(f"{rate:,.0f} lines/s", False)
                        bar.update(sizes.pop(future))

                for job in jobs:
                    if len(sizes) >= 2 * count:
                        finish()
                    sizes[pool.submit(job)] = job.size
                while sizes:
                    finish()

        try:
            yield run
        except BrokenProcessPool:
            raise RuntimeError(
                "a process that builds rows was killed, perhaps for memory; start again to go on, "
                f"with fewer than data.workers={count}"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def in_beam(runner: str, arguments: Sequence[str], workers: int) -> Iterator[Run]:
    """Runs jobs in pipelines on this machine or on a cluster, of which every worker must see the
    inputs and the cache at the paths of the config (a shared file system). The DirectRunner works
    in as many processes as `in_processes`, unless the arguments say otherwise.

    Raises:
      ConfigError: if there is no Beam.
    """
    try:
        import apache_beam as beam
        from apache_beam.metrics import MetricsFilter
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ConfigError(f"--runner={runner} needs apache-beam ({error})") from error
    options = [f"--runner={runner}", *arguments]
    if runner == "DirectRunner":
        for name, value in (
            ("direct_running_mode", "multi_processing"),
            ("direct_num_workers", workers or len(os.sched_getaffinity(0))),
        ):
            if not any(option.startswith(f"--{name}=") for option in arguments):
                options.append(f"--{name}={value}")

    def run(doing: str, jobs: Collection[Job]) -> None:
        if not jobs:
            return
        size = sum(job.size for job in jobs) / 1e6
        print(f"{doing}: {len(jobs):,} units of {size:,.0f} MB by {runner}", file=sys.stderr)
        began = time.monotonic()
        pipeline = beam.Pipeline(options=PipelineOptions(options))
        _ = (
            pipeline
            | doing >> beam.Create(list(jobs))
            | "spread" >> beam.Reshuffle()
            | "work" >> beam.Map(_do)
        )
        result = pipeline.run()
        result.wait_until_finish()
        seconds = time.monotonic() - began
        found = result.metrics().query(MetricsFilter().with_name(_LINES))["counters"]
        lines = sum(counter.result for counter in found)
        print(
            f"{doing}: {lines:,} lines in {seconds:,.0f} s, {lines / seconds:,.0f} lines/s, "
            f"{size / seconds:,.1f} MB/s",
            file=sys.stderr,
        )

    yield run


def _do(job: Any) -> int:  # Beam takes no Protocol for a type
    from apache_beam.metrics import Metrics

    lines = job()
    Metrics.counter("xlj", _LINES).inc(lines)
    return lines
