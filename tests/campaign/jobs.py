"""The commands of the campaign, and digests of their results."""

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
      command: (folder) -> the arguments of `python -m`.
      digest: (folder) -> a digest of the results, without values that depend on the clock.
      saving: a pattern of files that exist while the command saves; empty if there are none.
    """

    name: str
    command: Callable[[Path], list[str]]
    digest: Callable[[Path], str]
    saving: str = ""


def start(job: Job, folder: Path, limit: int = 0, **variables: str) -> subprocess.Popen:
    """Starts the command in a new process group.

    Args:
      limit: largest size of a file in bytes, to simulate a full disk; 0 for no limit.
      variables: additional environment variables.
    """
    environment = dict(
        os.environ,
        PYTHONPATH=str(ROOT),
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=1",
        JAX_COMPILATION_CACHE_DIR=str(ROOT / "build" / "cache" / "campaign"),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        **variables,
    )
    command = [sys.executable, "-m", *job.command(folder)]
    if limit:  # ulimit counts blocks of 1 KiB
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
    """Runs the command to its end and returns its digest; raises a `RuntimeError` if it fails."""
    process = start(job, folder)
    output = process.communicate(timeout=900)[0].decode()
    if process.returncode:
        raise RuntimeError(f"{job.name} ended with {process.returncode}:\n{output[-2000:]}")
    return job.digest(folder)


def make(scratch: Path) -> list[Job]:
    """Returns the jobs in the order of their dependencies; text and rows are in `scratch`."""
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
    training = [*data, f"--config.data.cache={rows}", "--config.train.steps=24"]
    training += ["--config.train.checkpoint_every=3", "--config.train.log_every=4"]
    training += ["--config.train.eval_every=12", "--config.train.eval_rows=8"]
    tuning = ["--config=configs/finetune/udpos.py:phrasebook", f"--config.data.cache={rows}"]
    tuning += [f"--config.init_from={model}", "--config.task.test_languages=en,de"]
    tuning += ["--config.train.steps=0.25ep", "--config.train.eval_every=33.3333%"]

    def embedding(folder: Path) -> list[str]:
        flags = [f"--checkpoint={model}", f"--input={text}/en.txt"]
        return ["xlj.embed", *flags, f"--output={folder}/vectors.npy"]

    sides = [f"--source={text}/documents/*.en", f"--target={text}/documents/*.de", "--scores"]

    def aligning(folder: Path) -> list[str]:
        flags = [f"--checkpoint={model}", f"--output={folder}/pairs", "--shard=1/1"]
        return ["xlj.align_documents", *flags, *sides]

    def aligning_together(folder: Path) -> list[str]:
        files = [f"--output={folder}/pairs.jsonl", f"--ladder={folder}/ladder"]
        files.append(f"--html={folder}/page.html")
        return ["xlj.align_documents", f"--checkpoint={model}", *files, *sides]

    return [
        Job(
            "prepare",
            lambda folder: ["xlj.prepare", *data, f"--config.data.cache={folder}/rows"],
            _digest_of_rows,
            "**/*.part",
        ),
        Job(
            "train",
            lambda folder: ["xlj.train", *training, f"--workdir={folder}/run"],
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
        Job(
            "align_documents",
            aligning,
            lambda folder: _digest_of_files(folder / "pairs"),
            "pairs/*.part",
        ),
        Job("align_documents_together", aligning_together, _digest_of_files, "*.part"),
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
    _write_documents(part / "documents")
    part.rename(folder)


def _write_documents(folder: Path) -> None:
    """Writes ten documents in two languages; the second language lacks every ninth sentence."""
    from xlj import phrasebook

    folder.mkdir()
    pairs = list(itertools.islice(phrasebook.pair_lines("en-de"), 800))
    for number in range(10):
        some = pairs[number::10]
        sides = [a for a, _ in some], [b for k, (_, b) in enumerate(some) if k % 9]
        for language, lines in zip(("en", "de"), sides, strict=True):
            file = folder / f"{number}.{language}"
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _digest_of_files(folder: Path) -> str:
    """Returns a digest of the names and the contents of all files, without unfinished files."""
    files = sorted(file for file in folder.iterdir() if file.suffix != ".part")
    names = " ".join(f"{file.name} {_digest(file)}" for file in files)
    return hashlib.sha256(names.encode()).hexdigest()


def _digest_of_rows(folder: Path) -> str:
    """Returns a digest of the rows and the manifest, without paths and times of the text."""
    from xlj.data.rows.store import RowStore

    (manifest,) = folder.glob("rows/*/manifest.json")
    store = RowStore(manifest.parent)
    files = sorted(_digest(file) for file in folder.rglob("*.rows"))
    return f"{store.manifest.content_hash} {hashlib.sha256(''.join(files).encode()).hexdigest()}"


def _digest_of_run(workdir: Path) -> str:
    """Returns a digest of the last checkpoint, the metrics, and the scores of fine-tuning."""
    from xlj.checkpoints import metrics, reading

    results = [reading.find(workdir).meta["digests"]]
    for line in metrics.read(workdir):
        results.append({key: value for key, value in line.items() if not key.startswith("time/")})
    run = workdir / "run.json"
    results.append(json.loads(run.read_bytes()) if run.exists() else None)
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()
