"""Hurts xlj on purpose, for as long as one likes, and tells what it did not stand.

    python tests/campaign fuzz --minutes=10 --seed=0
    python tests/campaign kills --minutes=30 --seed=0
    python tests/campaign disk --minutes=10 --seed=0

fuzz: malformed inputs to every reader. kills: SIGKILL to commands at random moments. disk: files
that cannot grow, changed bytes in every file of a row store and a checkpoint, two runs at once. The
same seed is the same campaign, as far as it gets. The exit code is 1 if there was a fault.
docs/experiments/faults.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

BLOCK = 4000
"""Inputs that a process reads; then a new one begins."""
STALLED = 90.0
"""Seconds after which a process that begins no further input is taken for one that hangs."""


def main() -> int:
    """Runs a part of the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("fuzz", "kills", "disk", "block"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9, help="most inputs, kills or faults")
    parser.add_argument("--only", default="", help="readers or commands with this in their name")
    parser.add_argument("--first", type=int, default=0, help="the first input of fuzz")
    parser.add_argument("--scratch", type=Path, help="a folder to work in, which is kept")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.part == "block":
        return _block(flags)
    if flags.part == "fuzz":
        return _fuzz(flags)
    with tempfile.TemporaryDirectory() as folder:
        flags.scratch = (flags.scratch or Path(folder)).absolute()
        flags.scratch.mkdir(parents=True, exist_ok=True)
        return _kills(flags) if flags.part == "kills" else _disk(flags)


def _block(flags: argparse.Namespace) -> int:
    """Reads some inputs in this process, and writes down what became of them."""
    import fuzz
    import fuzz_inputs
    import fuzz_readers

    readers = fuzz_readers.every(fuzz_inputs.make())
    readers = [reader for reader in readers if flags.only in reader.name]
    fuzz.limit_memory()
    with (flags.report / "at").open("w") as at:

        def began(number: int) -> None:
            os.pwrite(at.fileno(), f"{number:020d}".encode(), 0)

        found = fuzz.run(readers, flags.seed, flags.first, flags.count, began)
    faults = [[f.reader, f.number, f.what, f.file, f.content.hex()] for f in found.faults]
    told = {"refused": found.refused, "read": found.read, "faults": faults}
    (flags.report / "told.json").write_text(json.dumps(told))
    return 0


def _fuzz(flags: argparse.Namespace) -> int:
    refused, read, faults = Counter[str](), Counter[str](), []
    end, number = time.monotonic() + 60 * flags.minutes, flags.first
    last = flags.first + flags.count
    while number < last and time.monotonic() < end:
        count = min(BLOCK, last - number)
        with tempfile.TemporaryDirectory() as folder:
            code, at = _of_block(flags, number, count, Path(folder))
            if code == 0:
                told = json.loads((Path(folder) / "told.json").read_text())
                refused.update(told["refused"])
                read.update(told["read"])
                faults += told["faults"]
                number += count
            elif at is None:
                return 1
            else:  # what came before in this block is read again
                faults.append(["", at, f"the process ended with {code}", "", ""])
                if at > number:
                    _of_block(flags, number, at - number, Path(folder))
                number = at + 1
        for fault in faults[-5:] if faults else ():
            print("fault:", *fault[:4], fault[4][:400])
        done = refused.total() + read.total()
        print(f"{done + len(faults):,} inputs: {refused.total():,} refused, {read.total():,} read, "
              f"{len(faults)} faults", flush=True)  # fmt: skip
    for name in sorted({*refused, *read}):
        print(f"  {name:28} {refused[name]:8,} refused {read[name]:8,} read")
    return bool(faults)


def _of_block(
    flags: argparse.Namespace, first: int, count: int, folder: Path
) -> tuple[int, int | None]:
    """The exit code of a process that reads a block, and the input that it was at."""
    command = [sys.executable, str(HERE), "block", f"--first={first}", f"--count={count}"]
    command += [f"--seed={flags.seed}", f"--only={flags.only}", f"--report={folder}"]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
        at, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            text = (folder / "at").read_text() if (folder / "at").exists() else ""
            if text and int(text) != at:
                at, since = int(text), time.monotonic()
            elif time.monotonic() > since + STALLED:
                process.kill()
                process.wait()
    if process.returncode:
        print((folder / "said").read_text()[-2000:])
    return process.returncode, at if at >= 0 else None


def _kills(flags: argparse.Namespace) -> int:
    import jobs
    import kills

    found = [job for job in jobs.make(flags.scratch) if flags.only in job.name]
    counts: dict[str, Counter[str]] = {job.name: Counter() for job in found}
    faults = 0
    seconds = 60 * flags.minutes
    for name, more, fault in kills.run(found, flags.scratch, flags.seed, seconds, flags.count):
        counts[name] += more
        faults += bool(fault)
        print(f"{name}: {dict(more)} {fault}", flush=True)
    for name, some in counts.items():
        print(f"  {name:10} {dict(some)}")
    killed = sum(n for some in counts.values() for how, n in some.items() if how != "runs")
    print(f"{killed} kills, {sum(some['runs'] for some in counts.values())} runs, {faults} faults")
    return bool(faults)


def _disk(flags: argparse.Namespace) -> int:
    import faults
    import jobs
    import kills

    every = jobs.make(flags.scratch)
    model, rows = flags.scratch / "model.whole", flags.scratch / "rows"
    for job in every:
        kills.whole(job, flags.scratch)
    train = next(job for job in every if job.name == "train")
    (checkpoint,) = list(model.glob("run/checkpoints/24"))
    end, told, number = time.monotonic() + 60 * flags.minutes, list[str](), 0
    counts: Counter[str] = Counter()
    told.append(faults.two_runs(train, flags.scratch))
    counts["two runs"] += 1
    while time.monotonic() < end and number < flags.count:
        seed = f"{flags.seed}-{number}"
        number += 1
        for kind, folder in (("rows", rows), ("checkpoint", checkpoint)):
            for fault, noticed in faults.damaged_files(folder, kind, seed, 100):
                told.append(fault)
                counts[f"{kind}, {'refused' if noticed else 'without a meaning'}"] += 1
        for hurt in (faults.full_disk, faults.bad_storage, faults.slow_storage):
            for came, fault in hurt(every, flags.scratch, seed):
                told.append(fault)
                counts[f"{hurt.__name__.replace('_', ' ')}, {came}"] += 1
        print(dict(counts), [fault for fault in told if fault], flush=True)
    return any(told)


if __name__ == "__main__":
    raise SystemExit(main())
