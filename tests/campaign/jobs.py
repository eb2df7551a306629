"""Commands that the campaign hurts, and what they leave when nobody does."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """A command that writes into a folder.

    Attributes:
      command: of a folder of its own, after `python -m`.
      digest: of all that it leaves there, but for what depends on the clock.
      saving: a pattern of what is there while it writes; empty if that is not told.
    """

    name: str
    command: Callable[[Path], list[str]]
    digest: Callable[[Path], str]
    saving: str = ""


def start(job: Job, folder: Path, limit: int = 0, **more: str) -> subprocess.Popen:
    """Starts the command, as a group of processes of its own.

    Args:
      limit: bytes that a file may have, as on a disk that becomes full; 0 for none.
      more: of its environment.
    """
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=1",
        JAX_COMPILATION_CACHE_DIR=str(ROOT / "build" / "cache" / "campaign"),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        **more,
    )
    command = [sys.executable, "-m", *job.command(folder)]
    if limit:  # in blocks of 1 KiB
        limited = f"ulimit -f {max(1, limit >> 10)}; trap '' XFSZ; exec \"$@\""
        command = ["bash", "-c", limited, "bash", *command]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def finish(job: Job, folder: Path) -> str:
    """Runs the command to its end; what it leaves. Raises a `RuntimeError` if it fails."""
    process = start(job, folder)
    said = process.communicate(timeout=900)[0].decode()
    if process.returncode:
        raise RuntimeError(f"{job.name} ended with {process.returncode}:\n{said[-2000:]}")
    return job.digest(folder)


def make(scratch: Path) -> list[Job]:
    """The jobs, in the order in which they need each other; text and rows are in `scratch`."""
    text, rows, model = scratch / "text", scratch / "rows", scratch / "model"
    _write_text(text)
    data = [
        "--config=configs/quickstart.py:tiny",
        f"--config.data.mono={text}/{{language}}.txt",
        f"--config.data.parallel={text}/{{pair}}.tsv",
        "--config.data.languages=en,de",
        "--config.data.pairs=en-de",
        "--config.data.workers=2",
    ]
    few = [*data, f"--config.data.cache={rows}", "--config.train.steps=24"]
    few += ["--config.train.checkpoint_every=3", "--config.train.log_every=4"]
    few += ["--config.train.eval_every=12", "--config.train.eval_rows=8"]
    tuning = ["--config=configs/finetune/udpos.py:phrasebook", f"--config.cache={rows}"]
    tuning += [f"--config.init_from={model}", "--config.task.test_languages=en,de"]
    tuning += ["--config.train.epochs=0.25", "--config.train.evaluations=3"]

    def embedding(folder: Path) -> list[str]:
        where = [f"--checkpoint={model}", f"--input={text}/en.txt"]
        return ["xlj.embed", *where, f"--output={folder}/vectors.npy"]

    return [
        Job(
            "prepare",
            lambda folder: ["xlj.prepare", *data, f"--config.data.cache={folder}/rows"],
            _digest_of_rows,
            "**/*.part",
        ),
        Job(
            "train",
            lambda folder: ["xlj.train", *few, f"--workdir={folder}/run"],
            lambda folder: _digest_of_run(folder / "run"),
            "run/checkpoints/*tmp*",
        ),
        Job(
            "finetune",
            lambda folder: ["xlj.finetune", *tuning, f"--workdir={folder}/run"],
            lambda folder: _digest_of_run(folder / "run" / "seed-0"),
            "run/seed-0/checkpoints/*tmp*",
        ),
        Job("embed", embedding, lambda folder: _digest(folder / "vectors.npy"), "*.part"),
    ]


def _write_text(folder: Path) -> None:
    from xlj import phrasebook

    if folder.exists():
        return
    part = folder.with_suffix(".new")
    part.mkdir(parents=True)
    for language in ("en", "de"):
        lines = itertools.islice(phrasebook.text_lines(language), 2000)
        (part / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = itertools.islice(phrasebook.pair_lines("en-de"), 1500)
    (part / "en-de.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    part.rename(folder)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _digest_of_rows(folder: Path) -> str:
    """Of the rows, and of the manifest but for the paths and times that name its text."""
    from xlj.data.rows.store import RowStore

    (manifest,) = folder.glob("rows/*/manifest.json")
    store = RowStore(manifest.parent)
    files = sorted(_digest(file) for file in folder.rglob("*.rows"))
    return f"{store.manifest.content_hash} {hashlib.sha256(''.join(files).encode()).hexdigest()}"


def _digest_of_run(workdir: Path) -> str:
    """Of the last checkpoint, the metrics, and a fine-tuning run's scores."""
    from xlj.checkpoints import reading
    from xlj.training import metrics

    told = [reading.find(workdir).meta["digests"]]
    for line in metrics.read(workdir):
        told.append({key: value for key, value in line.items() if not key.startswith("time/")})
    run = workdir / "run.json"
    told.append(json.loads(run.read_bytes()) if run.exists() else None)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
