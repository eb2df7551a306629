"""Disks that fill up, files that change, two runs at once: an error in a line, and nothing lost."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jobs
import numpy as np
from jobs import Job

from xlj.data.rows.store import RowStore, RowStoreError
from xlj.training import checkpoints
from xlj.training.checkpoints import CheckpointError


def full_disk(found: Sequence[Job], scratch: Path, seed: int, count: int) -> Iterator[str]:
    """A fault or nothing, of commands that may write no more than so many bytes into a file: each
    ends with 2 and one line, and without that limit the same command ends as if it had not been."""
    for number in range(count):
        job, draw = found[number % len(found)], random.Random(f"{seed}-{number}")
        folder = scratch / f"full-{job.name}-{seed}-{number}"
        folder.mkdir()
        process = jobs.start(job, folder, limit=1 << draw.randint(10, 18))
        said = process.communicate(timeout=900)[0].decode()
        fault = ""
        if "Traceback" in said or process.returncode not in (0, 2):
            fault = f"{job.name}: exit code {process.returncode}: {said[-1500:]}"
        elif process.returncode == 2 and "\nerror: " not in f"\n{said}":
            fault = f"{job.name}: no error in {said[-300:]}"
        if not fault and job.name in ("train", "finetune", "embed"):
            whole = scratch / ("model.whole" if job.name == "train" else f"{job.name}.whole")
            if whole.exists() and jobs.finish(job, folder) != job.digest(whole):
                fault = f"{job.name}: it ended with other bits"
        if not fault:
            shutil.rmtree(folder)
        yield fault


def two_runs(job: Job, scratch: Path) -> str:
    """Two commands in one workdir: one is refused, the other ends well."""
    folder = scratch / f"two-{job.name}-{time.time_ns()}"
    folder.mkdir()
    both = [jobs.start(job, folder) for _ in range(2)]
    said = [process.communicate(timeout=900)[0].decode() for process in both]
    codes = sorted(process.returncode for process in both)
    if codes == [0, 0]:  # one came when the other was over
        return "" if any("nothing is left to do" in text for text in said) else "both ran"
    if codes != [0, 2] or not any("another run is in" in text for text in said):
        return f"exit codes {codes}: {said}"
    return ""


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with a bit flipped, bytes overwritten, or cut short."""
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
    """All rows of a store."""
    return [
        store.read(task.name, split, np.arange(task.split(split).rows))
        for task in store.manifest.tasks
        for split in ("train", "held_out")
    ]


def damaged_files(folder: Path, kind: str, seed: int, count: int) -> Iterator[tuple[str, bool]]:
    """(fault or nothing, whether it was noticed), of so many damages, which go round the files of a
    row store (`kind` rows: with the folders of its tasks around it) or of a checkpoint."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    if kind == "rows":  # beside them are notes of how they were made
        (manifest,) = folder.rglob("manifest.json")
        files = [f for f in files if f.suffix == ".rows" or f.parent == manifest.parent]
    wanted = _read(folder, kind)
    for number in range(count):
        file, draw = files[number % len(files)], random.Random(f"{seed}-{number}")
        content = file.read_bytes()
        file.write_bytes(damaged(content, draw))
        fault, noticed = "", False
        try:
            found = _read(folder, kind)
            if not _equal(found, wanted):
                fault = "other content was read, and nothing said"
        except (RowStoreError, CheckpointError) as error:
            noticed = True
            if str(folder) not in str(error) or "\n" in str(error):
                fault = f"unclear error: {str(error)[:300]}"
        except Exception as error:  # any other error is a fault
            fault = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            file.write_bytes(content)
        yield (f"{file.relative_to(folder)}, damage {number}: {fault}" if fault else ""), noticed


def _read(folder: Path, kind: str) -> Any:
    if kind == "rows":
        (manifest,) = folder.rglob("manifest.json")
        store = RowStore(manifest.parent)
        return [store.vocabulary_file.read_bytes(), *rows(store)]
    found = checkpoints.find(folder)
    checkpoints.verify(found)
    return [checkpoints.read_vocabulary(found).digest, found.digest()]


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
