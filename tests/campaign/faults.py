"""Injects full disks, failing or slow storage, damaged files, and two runs at once.

Slow storage must have no effect on results. Each other fault must end in an error of one line,
without loss of data, or have no effect.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jobs
import numpy as np
from jobs import Job

from xlj.checkpoints import reading
from xlj.checkpoints.reading import CheckpointError
from xlj.data.rows.store import RowStore, RowStoreError

ERRORS = (errno.EIO, errno.ESTALE, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.ETIMEDOUT)
"""Errors of failing storage: I/O error, stale file, read-only, quota exceeded, denied, timeout."""


def full_disk(job_list: Sequence[Job], scratch: Path, seed: str) -> Iterator[tuple[str, str]]:
    """Yields (outcome, fault or "") of each command, run with a limit on the size of files.

    If a file reaches the limit, the command must end with exit code 2 and an error of one line.
    Then the same command, without the limit, must end with the same results as an undisturbed run.
    """
    for job in job_list:
        draw = random.Random(f"{seed}-{job.name}")
        yield hurt(job, scratch, f"full-{seed}", 1 << draw.randint(10, 18))


def bad_storage(job_list: Sequence[Job], scratch: Path, seed: str) -> Iterator[tuple[str, str]]:
    """Same as `full_disk`, but from a random storage call on, one, three or all calls fail."""
    for job in job_list:
        draw = random.Random(f"{seed}-{job.name}-storage")
        settings = {
            "STORAGE_ERROR": draw.choice(ERRORS),
            "STORAGE_FIRST": int(10 ** draw.uniform(0, 3.5)),
            "STORAGE_TIMES": draw.choice((1, 3, 1 << 40)),
        }
        yield hurt(job, scratch, f"bad-{seed}", **stored_badly(scratch, settings))


def slow_storage(job_list: Sequence[Job], scratch: Path, seed: str) -> Iterator[tuple[str, str]]:
    """Same as `full_disk`, but all storage calls take longer, and the command must succeed."""
    for job in job_list:
        max_delay = random.Random(f"{seed}-{job.name}-slow").choice((1_000, 5_000, 20_000))
        environment = stored_badly(scratch, {"STORAGE_WAIT": max_delay})
        outcome, fault = hurt(job, scratch, f"slow-{seed}", **environment)
        yield (
            outcome,
            fault or ("" if outcome == "no error" else f"{job.name}: slow storage: {outcome}"),
        )


def stored_badly(scratch: Path, settings: dict[str, int]) -> dict[str, str]:
    """Returns environment variables that preload storage.c, for calls on files in `scratch`.

    Args:
      settings: other variables of storage.c.
    """
    library = scratch / "storage.so"
    if not library.exists():
        source = Path(__file__).with_name("storage.c")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", f"-o{library}", source, "-ldl"], check=True
        )
    variables = {"LD_PRELOAD": str(library), "STORAGE_FOLDER": f"{scratch}/"}
    return variables | {name: str(value) for name, value in settings.items()}


def hurt(job: Job, scratch: Path, name: str, limit: int = 0, **environment: str) -> tuple[str, str]:
    """Runs a command with injected faults, then without; returns (outcome, fault or "").

    It is a fault if the exit code is not 0 or 2, if no line reports the error, or if the same
    command, run again without injected faults, has other results than an undisturbed run.
    """
    folder = scratch / f"{job.name}-{name}"
    folder.mkdir()
    process = jobs.start(job, folder, limit, **environment)
    try:
        output = process.communicate(timeout=900)[0].decode()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hung", f"{job.name} {environment}: it did not end"
    message = output.rpartition("\nerror: ")[2] if "\nerror: " in f"\n{output}" else ""
    outcome, fault = {0: "no error", 2: "refused"}.get(process.returncode, "crashed"), ""
    if "Traceback" in output or process.returncode not in (0, 2):
        fault = f"{job.name} {environment}: exit code {process.returncode}: {output[-1500:]}"
    elif process.returncode == 2 and not message:
        fault = f"{job.name} {environment}: no error in {output[-300:]}"
    whole = scratch / ("model.whole" if job.name == "train" else f"{job.name}.whole")
    if not fault and whole.exists():
        try:
            if jobs.finish(job, folder) != job.digest(whole):
                fault = f"{job.name} {environment}: it ended with other bits, after {message}"
        except Exception as error:  # any error of the second run is a fault
            fault = f"{job.name} {environment}: then {type(error).__name__}: {error}"
    if not fault:
        shutil.rmtree(folder)
    return outcome, fault


def two_runs(job: Job, scratch: Path) -> str:
    """Runs two commands in one workdir: one must be refused, the other must finish."""
    folder = scratch / f"two-{job.name}-{time.time_ns()}"
    folder.mkdir()
    both = [jobs.start(job, folder) for _ in range(2)]
    outputs = [process.communicate(timeout=900)[0].decode() for process in both]
    codes = sorted(process.returncode for process in both)
    if codes == [0, 0]:  # the second command started after the first had finished
        return "" if any("this run is finished" in text for text in outputs) else "both ran"
    if codes != [0, 2] or not any("another run is using" in text for text in outputs):
        return f"exit codes {codes}: {outputs}"
    return ""


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Flips a bit, overwrites or appends bytes, or truncates the content."""
    if not content:
        return b"\0"
    place, how = draw.randrange(len(content)), draw.randrange(4)
    if how == 0:
        return content[:place]
    if how == 1:
        return content[:place] + bytes(min(512, len(content) - place)) + content[place + 512 :]
    if how == 2:
        return content + draw.randbytes(9)
    flipped = bytearray(content)
    flipped[place] ^= 1 << draw.randrange(8)
    return bytes(flipped)


def rows(store: RowStore) -> list[np.ndarray]:
    """Reads all rows of a store."""
    return [
        field
        for task in store.manifest.tasks
        for split in ("train", "held_out")
        for field in store.read(task.name, split, np.arange(task.split(split).rows)).values()
    ]


def damaged_files(folder: Path, kind: str, seed: int, count: int) -> Iterator[tuple[str, bool]]:
    """Damages the files of a row store or a checkpoint in turn; yields (fault or "", detected).

    Args:
      kind: "rows" for a folder of a row store and its tasks, or "checkpoint".
    """
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    if kind == "rows":  # other files only describe how the rows were built
        stores = {manifest.parent for manifest in folder.rglob("manifest.json")}
        files = [f for f in files if f.suffix == ".rows" or f.parent in stores]
    expected = _read(folder, kind)
    for number in range(count):
        file, draw = files[number % len(files)], random.Random(f"{seed}-{number}")
        content = file.read_bytes()
        file.write_bytes(damaged(content, draw))
        fault, detected = "", False
        try:
            if not _equal(_read(folder, kind), expected):
                fault = "other content was read without an error"
        except (RowStoreError, CheckpointError) as error:
            detected = True
            if str(folder) not in str(error) or "\n" in str(error):
                fault = f"unclear error: {str(error)[:300]}"
        except Exception as error:  # any other error is a fault
            fault = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            file.write_bytes(content)
        yield (f"{file.relative_to(folder)}, damage {number}: {fault}" if fault else ""), detected


def _read(folder: Path, kind: str) -> Any:
    if kind == "rows":
        stores = [RowStore(m.parent) for m in sorted(folder.rglob("manifest.json"))]
        return [x for s in stores for x in (s.vocabulary_file.read_bytes(), *rows(s))]
    checkpoint = reading.find(folder)
    reading.verify(checkpoint)
    return [reading.read_vocabulary(checkpoint).digest, checkpoint.digest()]


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
