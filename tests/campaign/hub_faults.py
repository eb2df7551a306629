"""Builds rows from a server that speaks the hub's protocol and injects faults."""

from __future__ import annotations

import io
import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jobs
import pyarrow as pa
import pyarrow.parquet as pq

from xlj import phrasebook
from xlj.data.rows.store import RowStore

sys.path.append(str(jobs.ROOT / "tests"))
import hub_server  # noqa: E402

LANGUAGES = ("en", "de", "sw")
FAULTS = (429, 500, 503, "cut", "slow", 401, 404)
"""The last two do not pass when a request is repeated."""
PLACES = ("revision", "tree", "hub:/datasets", "files:")
"""Parts of the paths of requests: the commit, the listing, the redirect, the content."""


def run(scratch: Path, seed: int, seconds: float, count: int) -> Iterator[tuple[str, str]]:
    """Yields (outcome, fault or "") of each `xlj prepare` with one to five faults.

    The command must end with the rows of an undisturbed command, or with exit code 2 and an error
    of one line. Then the same command without faults must end with these rows.
    """
    end = time.monotonic() + seconds
    with hub_server.hub() as server:
        server.token, server.slow_seconds = "secret", 3.0
        server.push("datasets/o/corpus", _files())
        expected = _digest(_prepare(server, scratch / "whole"), scratch / "whole")
        vocabulary = next((scratch / "whole").rglob("vocabularies/*.model"))
        for number in range(count):
            if time.monotonic() > end:
                return
            draw = random.Random(f"{seed}-{number}")
            faults = [(draw.choice(PLACES), draw.choice(FAULTS)) for _ in range(draw.randint(1, 5))]
            server.faults = [*faults]
            folder = scratch / f"hub-{seed}-{number}"
            first = _prepare(server, folder, vocabulary)
            outcome, fault = _judge(first, folder)
            server.faults = []
            again = _prepare(server, folder, vocabulary) if outcome == "refused" else first
            if not fault and _digest(again, folder) != expected:
                fault = "other rows than without faults"
            if server.leaks:
                fault = f"the token was sent to another host: {server.leaks[:1]}"
            yield outcome, fault and f"{faults}: {fault}"


def _judge(process: subprocess.CompletedProcess, folder: Path) -> tuple[str, str]:
    if process.returncode == 0:
        return "no error", ""
    errors = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
    if process.returncode != 2 or len(errors) != 1 or "Traceback" in process.stderr:
        return "crash", f"exit code {process.returncode}: {process.stderr[-2000:]}"
    return "refused", ""


def _prepare(
    server: hub_server.Hub, folder: Path, vocabulary: Path | None = None
) -> subprocess.CompletedProcess:
    mono = "hf://datasets/o/corpus@main/{language}/*.parquet#text"
    command = [sys.executable, "-m", "xlj.prepare", "--config=xlm_r_base:tiny"]
    command += [f"--config.data.languages={','.join(LANGUAGES)}", f"--config.data.mono={mono}"]
    command += [f"--config.data.cache={folder}", "--config.data.workers=2"]
    size = "--config.data.vocabulary_size=400"
    command += [f"--config.data.vocabulary={vocabulary}" if vocabulary else size]
    environment = {
        "HF_ENDPOINT": server.url,
        "HF_TOKEN": server.token,
        "HF_HOME": str(folder.parent / "hf"),
        "HF_HUB_DOWNLOAD_TIMEOUT": "1",
        "PYTHONPATH": os.pathsep.join([str(jobs.ROOT), os.environ.get("PYTHONPATH", "")]),
        "JAX_PLATFORMS": "cpu",
    }
    return subprocess.run(
        command, cwd=jobs.ROOT, env=os.environ | environment, capture_output=True, text=True
    )


def _digest(process: subprocess.CompletedProcess, folder: Path) -> dict[str, str]:
    """Returns the digests of the rows, without those of paths."""
    if process.returncode:
        raise RuntimeError(process.stderr[-2000:])
    (manifest,) = folder.glob("*/manifest.json")
    tasks = RowStore(manifest.parent).manifest.tasks
    return {task.name: f"{task.train.rows} {task.text.input_sha256}" for task in tasks}


def _files() -> dict[str, bytes]:
    files = {}
    for language in LANGUAGES:
        lines = list(itertools.islice(phrasebook.text_lines(language), 2000))
        for part in range(2):
            out = io.BytesIO()
            table = pa.table({"text": lines[part::2]})
            pq.write_table(table, out, row_group_size=400)
            files[f"{language}/{part:03d}.parquet"] = out.getvalue()
    return files


def counts(outcomes: Iterator[tuple[str, str]]) -> bool:
    """Prints the outcomes; returns whether there was a fault."""
    number: Counter[str] = Counter()
    has_fault = False
    for outcome, fault in outcomes:
        number[outcome] += 1
        has_fault |= bool(fault)
        print(dict(number), fault, flush=True)
    return has_fault
