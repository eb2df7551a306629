"""Kills commands with SIGKILL at random moments; a rerun must end with the same bits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import jobs
from jobs import Job

MAX_KILLS = 6
"""Largest number of kills of one run. After the kills, the run continues to its end."""


def run(
    job_list: Sequence[Job], scratch: Path, seed: int, seconds: float, max_kills: int
) -> Iterator[tuple[str, Counter[str], str]]:
    """Yields (name of the job, counts of events, fault or "") of runs that are killed repeatedly.

    Each run is killed up to `MAX_KILLS` times.

    Args:
      job_list: the jobs.
      seconds: time limit, without the undisturbed runs at the start.
      max_kills: limit of all kills together.
    """
    undisturbed = {job.name: _timed(job, scratch) for job in job_list}
    end, killed = time.monotonic() + seconds, 0
    for number in range(10**9):
        job, draw = job_list[number % len(job_list)], random.Random(f"{seed}-{number}")
        if time.monotonic() > end or killed >= max_kills:
            return
        digest, duration = undisturbed[job.name]
        folder = scratch / f"{job.name}-{seed}-{number}"
        folder.mkdir()
        counts: Counter[str] = Counter()
        for _ in range(draw.randint(1, MAX_KILLS)):
            if how := _kill(job, folder, draw, duration):
                counts[f"killed {how}"] += 1
                killed += 1
        try:
            same = jobs.finish(job, folder) == digest
            fault = "" if same else "it ended with other bits"
        except Exception as error:  # any error of the last run is a fault
            fault = f"{type(error).__name__}: {error}"
        counts["runs"] += 1
        yield job.name, counts, fault
        if not fault:
            shutil.rmtree(folder)


def whole(job: Job, scratch: Path) -> str:
    """Returns the digest of an undisturbed run, whose folder is not deleted.

    Other jobs use the result of `train` as their model.
    """
    folder = scratch / ("model.whole" if job.name == "train" else f"{job.name}.whole")
    if folder.exists():
        return job.digest(folder)
    folder.mkdir()
    digest = jobs.finish(job, folder)
    if job.name == "train":
        (scratch / "model").symlink_to(folder / "run")
    return digest


def _timed(job: Job, scratch: Path) -> tuple[str, float]:
    """Returns the digest of an undisturbed run, and the seconds of a run after compilation."""
    digest, folder = whole(job, scratch), scratch / f"{job.name}.timed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began = time.monotonic()
    if jobs.finish(job, folder) != digest:
        raise RuntimeError(f"{job.name}: two undisturbed runs differ")
    return digest, time.monotonic() - began


def _kill(job: Job, folder: Path, draw: random.Random, seconds: float) -> str:
    """Kills the command at a random moment, or while it saves.

    Args:
      seconds: duration of an undisturbed run.

    Returns:
      How the command was killed, or "" if it had ended before.
    """
    process = jobs.start(job, folder)
    if job.saving and draw.random() < 0.5:
        how, until = "while saving", time.monotonic() + seconds * draw.uniform(0.2, 1)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        while process.poll() is None and not any(folder.glob(job.saving)):
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02))
    else:
        how, until = "at any moment", time.monotonic() + seconds * draw.random()
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
    return how if _end(process, draw) else ""


def _end(process: subprocess.Popen, draw: random.Random) -> bool:
    """Sends SIGKILL to the command, with or without its child processes.

    Returns:
      False if the command had ended before.
    """
    alive = process.poll() is None
    if alive:
        draw.choice((os.kill, os.killpg))(process.pid, signal.SIGKILL)
    process.communicate()
    return alive and process.returncode == -signal.SIGKILL
