"""Runs jobs in parallel, in local processes or with Apache Beam."""

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

_LINES = "lines"  # name of Beam's counter


class Job(Protocol):
    """A piece of work for any process, which writes its result to disk.

    `size` is its bytes of input; calling it returns the number of lines read.
    """

    @property
    def size(self) -> int: ...

    def __call__(self) -> int: ...


RunJobs = Callable[[str, Collection[Job]], None]
"""Runs jobs; the first argument names the work in printed lines, such as `building rows`."""


@contextmanager
def in_processes(workers: int) -> Iterator[RunJobs]:
    """Runs jobs in `workers` spawned processes; 0 for one process per core."""
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
                "a process that builds rows was killed, perhaps because memory ran out; run the "
                f"command again to resume, with fewer workers than data.workers={count}"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def in_beam(runner: str, arguments: Sequence[str], workers: int) -> Iterator[RunJobs]:
    """Runs jobs in Beam pipelines, on this machine or on a cluster.

    Every worker must see the inputs and the cache at the paths of the config (a shared file
    system). The DirectRunner uses as many processes as `in_processes`, unless `arguments` set it.

    Raises:
      ConfigError: if Apache Beam is not installed.
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
        counters = result.metrics().query(MetricsFilter().with_name(_LINES))["counters"]
        lines = sum(counter.result for counter in counters)
        print(
            f"{doing}: {lines:,} lines in {seconds:,.0f} s, {lines / seconds:,.0f} lines/s, "
            f"{size / seconds:,.1f} MB/s",
            file=sys.stderr,
        )

    yield run


def _do(job: Any) -> int:  # Beam does not accept a Protocol as a type
    from apache_beam.metrics import Metrics

    lines = job()
    Metrics.counter("xlj", _LINES).inc(lines)
    return lines
