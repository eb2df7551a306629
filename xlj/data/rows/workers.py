"""Runs jobs in parallel, in processes of this machine or with Apache Beam."""

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

_LINES = "lines"  # name of the counter in Beam


class Job(Protocol):
    """A piece of work that any process can do; it writes its result to storage.

    `size` is the size of the input in bytes. A call does the work, and returns the number of lines
    that were read.
    """

    @property
    def size(self) -> int: ...

    def __call__(self) -> int: ...


RunJobs = Callable[[str, Collection[Job]], None]
"""A function that runs jobs. Its first argument names the work in printed messages, such as
`building rows`."""


@contextmanager
def in_processes(workers: int) -> Iterator[RunJobs]:
    """Starts worker processes, and yields a function that runs jobs in them.

    Args:
      workers: number of processes; 0 for one process per core.

    Raises:
      RuntimeError: if a worker process is killed.
    """
    count = workers or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(count, SPAWN, stop_with_parent) as pool:

        def run(doing: str, jobs: Collection[Job]) -> None:
            if not jobs:
                return
            total = sum(job.size for job in jobs)
            lines, start = 0, time.monotonic()
            sizes: dict[Future[int], int] = {}
            with tqdm(total=total, desc=doing, unit="B", unit_scale=True) as bar:

                def finish() -> None:
                    nonlocal lines
                    for future in wait(sizes, return_when=FIRST_COMPLETED).done:
                        lines += future.result()
                        rate = lines / (time.monotonic() - start)
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
                "a process that builds rows was killed, perhaps because memory ran out; set "
                f"data.workers to fewer than {count} processes and run the command again to resume"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def in_beam(runner: str, arguments: Sequence[str], workers: int) -> Iterator[RunJobs]:
    """Yields a function that runs jobs in pipelines of Apache Beam, on this machine or a cluster.

    All workers must be able to read the inputs, and to write to the cache, at the paths of the
    config. So both must be on a shared file system or in a bucket.

    Args:
      runner: name of the runner of Beam.
      arguments: options of the pipeline, such as `--region=...`.
      workers: number of processes of the DirectRunner; 0 for one process per core. It is ignored if
        `arguments` set this number, and by other runners.

    Raises:
      ConfigError: if Apache Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.metrics import MetricsFilter
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ConfigError(
            f"--runner={runner} needs apache-beam ({error}); pip install -e '.[beam]'"
        ) from error
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
        print(
            f"{doing}: {len(jobs):,} units of work, {size:,.0f} MB in total, on {runner}",
            file=sys.stderr,
        )
        start = time.monotonic()
        pipeline = beam.Pipeline(options=PipelineOptions(options))
        _ = (
            pipeline
            | doing >> beam.Create(list(jobs))
            | "spread" >> beam.Reshuffle()
            | "work" >> beam.Map(_run_job)
        )
        result = pipeline.run()
        result.wait_until_finish()
        seconds = time.monotonic() - start
        counters = result.metrics().query(MetricsFilter().with_name(_LINES))["counters"]
        lines = sum(counter.result for counter in counters)
        print(
            f"{doing}: {lines:,} lines in {seconds:,.0f} s, {lines / seconds:,.0f} lines/s, "
            f"{size / seconds:,.1f} MB/s",
            file=sys.stderr,
        )

    yield run


def _run_job(job: Any) -> int:  # not `Job`, because Beam does not accept a Protocol as a type
    from apache_beam.metrics import Metrics

    lines = job()
    Metrics.counter("xlj", _LINES).inc(lines)
    return lines
