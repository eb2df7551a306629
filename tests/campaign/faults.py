"""Disks that fill up, storage that fails or is slow, files that change, two runs at once: an error
in a line, and nothing lost."""

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
"""What calls of a failing storage tell: broken, gone from a server, without answer, not allowed."""


def full_disk(found: Sequence[Job], scratch: Path, seed: str) -> Iterator[tuple[str, str]]:
    """(what came of it, a fault or nothing) of each command, when it may write no more than so many
    bytes into a file: it ends with 2 and one line, and without that limit the same command ends as
    if it had not been."""
    for job in found:
        draw = random.Random(f"{seed}-{job.name}")
        yield hurt(job, scratch, f"full-{seed}", 1 << draw.randint(10, 18))


def bad_storage(found: Sequence[Job], scratch: Path, seed: str) -> Iterator[tuple[str, str]]:
    """As `full_disk`, where from some call on, for good or a few times, storage gives an error."""
    for job in found:
        draw = random.Random(f"{seed}-{job.name}-storage")
        how = {
            "STORAGE_ERROR": draw.choice(ERRORS),
            "STORAGE_FIRST": int(10 ** draw.uniform(0, 3.5)),
            "STORAGE_TIMES": draw.choice((1, 3, 1 << 40)),
        }
        yield hurt(job, scratch, f"bad-{seed}", **stored_badly(scratch, how))


def slow_storage(found: Sequence[Job], scratch: Path, seed: str) -> Iterator[tuple[str, str]]:
    """As `full_disk`, where every call to storage waits: the command ends as ever, but later."""
    for job in found:
        most = random.Random(f"{seed}-{job.name}-slow").choice((1_000, 5_000, 20_000))
        how = stored_badly(scratch, {"STORAGE_WAIT": most})
        came, fault = hurt(job, scratch, f"slow-{seed}", **how)
        yield came, fault or ("" if came == "no error" else f"{job.name}: slow storage: {came}")


def stored_badly(scratch: Path, how: dict[str, int]) -> dict[str, str]:
    """The environment in which calls that concern `scratch` are hurt, as storage.c says."""
    library = scratch / "storage.so"
    if not library.exists():
        source = Path(__file__).with_name("storage.c")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", f"-o{library}", source, "-ldl"], check=True
        )
    preloaded = {"LD_PRELOAD": str(library), "STORAGE_FOLDER": f"{scratch}/"}
    return preloaded | {name: str(value) for name, value in how.items()}


def hurt(job: Job, scratch: Path, name: str, limit: int = 0, **environment: str) -> tuple[str, str]:
    """How a command ends that is hurt, and a fault: an exit code other than 0 and 2, no line that
    tells an error, or other bits when the same command is run again unhurt."""
    folder = scratch / f"{job.name}-{name}"
    folder.mkdir()
    process = jobs.start(job, folder, limit, **environment)
    try:
        said = process.communicate(timeout=900)[0].decode()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "hung", f"{job.name} {environment}: it did not end"
    told = said.rpartition("\nerror: ")[2] if "\nerror: " in f"\n{said}" else ""
    came, fault = {0: "no error", 2: "refused"}.get(process.returncode, "crashed"), ""
    if "Traceback" in said or process.returncode not in (0, 2):
        fault = f"{job.name} {environment}: exit code {process.returncode}: {said[-1500:]}"
    elif process.returncode == 2 and not told:
        fault = f"{job.name} {environment}: no error in {said[-300:]}"
    whole = scratch / ("model.whole" if job.name == "train" else f"{job.name}.whole")
    if not fault and whole.exists():
        try:
            if jobs.finish(job, folder) != job.digest(whole):
                fault = f"{job.name} {environment}: it ended with other bits, after {told}"
        except Exception as error:  # whatever goes wrong then is a fault
            fault = f"{job.name} {environment}: then {type(error).__name__}: {error}"
    if not fault:
        shutil.rmtree(folder)
    return came, fault


def two_runs(job: Job, scratch: Path) -> str:
    """Two commands in one workdir: one is refused, the other ends well."""
    folder = scratch / f"two-{job.name}-{time.time_ns()}"
    folder.mkdir()
    both = [jobs.start(job, folder) for _ in range(2)]
    said = [process.communicate(timeout=900)[0].decode() for process in both]
    codes = sorted(process.returncode for process in both)
    if codes == [0, 0]:  # one came when the other was over
        return "" if any("nothing is left to do" in text for text in said) else "both ran"
    if codes != [0, 2] or not any("another run is using" in text for text in said):
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
        stores = {manifest.parent for manifest in folder.rglob("manifest.json")}
        files = [f for f in files if f.suffix == ".rows" or f.parent in stores]
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
        stores = [RowStore(m.parent) for m in sorted(folder.rglob("manifest.json"))]
        return [x for s in stores for x in (s.vocabulary_file.read_bytes(), *rows(s))]
    found = reading.find(folder)
    reading.verify(found)
    return [reading.read_vocabulary(found).digest, found.digest()]


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
