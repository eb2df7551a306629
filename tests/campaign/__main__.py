"""Injects faults into xlj for a limited time and reports the faults that xlj does not handle.

    python tests/campaign fuzz --minutes=10 --seed=0
    python tests/campaign kills --minutes=30 --seed=0
    python tests/campaign disk --minutes=10 --seed=0
    python tests/campaign hub --minutes=10 --seed=0

fuzz gives malformed inputs to every reader. kills sends SIGKILL to commands at random moments. disk
injects full disks, failing and slow storage, damaged files of a row store and a checkpoint, and two
runs at once. hub builds rows from a server that speaks the protocol of the Hugging Face hub and
answers with errors, slowly, or in part.
The same seed gives the same sequence of faults. The exit code is 1 if a fault was not handled.
docs/experiments/faults.md has results.
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
"""Number of inputs that one process reads; then a new process starts."""
STALLED = 90.0
"""Seconds without a new input after which a process counts as hanging."""
START = 600.0
"""Seconds until the first input after which a process counts as hanging."""


def main() -> int:
    """Runs a part of the campaign."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("fuzz", "kills", "disk", "hub", "block"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--count", type=int, default=10**9, help="largest number of inputs, kills or faults"
    )
    parser.add_argument(
        "--only", default="", help="only readers or commands with this text in the name"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first input of fuzz")
    parser.add_argument("--scratch", type=Path, help="working folder; not deleted at the end")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.part == "block":
        return _block(flags)
    if flags.part == "fuzz":
        return _fuzz(flags)
    with tempfile.TemporaryDirectory() as folder:
        flags.scratch = (flags.scratch or Path(folder)).absolute()
        flags.scratch.mkdir(parents=True, exist_ok=True)
        return {"kills": _kills, "disk": _disk, "hub": _hub}[flags.part](flags)


def _block(flags: argparse.Namespace) -> int:
    """Reads a block of inputs in this process, and writes the outcomes to a file."""
    import fuzz
    import fuzz_inputs
    import fuzz_readers

    readers = fuzz_readers.every(fuzz_inputs.make())
    readers = [reader for reader in readers if flags.only in reader.name]
    fuzz.limit_memory()
    with (flags.report / "at").open("w") as at:

        def began(number: int) -> None:
            os.pwrite(at.fileno(), f"{number:020d}".encode(), 0)

        outcome = fuzz.run(readers, flags.seed, flags.first, flags.count, began)
    faults = [[f.reader, f.number, f.what, f.file, f.content.hex()] for f in outcome.faults]
    report = {"refused": outcome.refused, "read": outcome.read, "faults": faults}
    (flags.report / "report.json").write_text(json.dumps(report))
    return 0


def _fuzz(flags: argparse.Namespace) -> int:
    refused, read, faults = Counter[str](), Counter[str](), []
    end, number = time.monotonic() + 60 * flags.minutes, flags.first
    last = flags.first + flags.count
    while number < last and time.monotonic() < end:
        count = min(BLOCK, last - number)
        with tempfile.TemporaryDirectory() as folder:
            code, at = _run_block(flags, number, count, Path(folder))
            if code == 0:
                report = json.loads((Path(folder) / "report.json").read_text())
                refused.update(report["refused"])
                read.update(report["read"])
                faults += report["faults"]
                number += count
            elif at is None:
                print(f"the process ended with {code} before its first input")
                return 1
            else:  # reads the earlier inputs of this block again, to count them
                faults.append(["", at, f"the process ended with {code}", "", ""])
                if at > number:
                    _run_block(flags, number, at - number, Path(folder))
                number = at + 1
        for fault in faults[-5:] if faults else ():
            print("fault:", *fault[:4], fault[4][:400])
        done = refused.total() + read.total()
        print(f"{done + len(faults):,} inputs: {refused.total():,} refused, {read.total():,} read, "
              f"{len(faults)} faults", flush=True)  # fmt: skip
    for name in sorted({*refused, *read}):
        print(f"  {name:28} {refused[name]:8,} refused {read[name]:8,} read")
    return bool(faults)


def _run_block(
    flags: argparse.Namespace, first: int, count: int, folder: Path
) -> tuple[int, int | None]:
    """Reads a block in a new process; returns its exit code and the number of its last input."""
    command = [sys.executable, str(HERE), "block", f"--first={first}", f"--count={count}"]
    command += [f"--seed={flags.seed}", f"--only={flags.only}", f"--report={folder}"]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        at, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            text = (folder / "at").read_text() if (folder / "at").exists() else ""
            if text and int(text) != at:
                at, since = int(text), time.monotonic()
            elif time.monotonic() > since + (STALLED if at >= 0 else START):
                process.kill()
                process.wait()
    if process.returncode:
        print((folder / "output").read_text()[-2000:])
    return process.returncode, at if at >= 0 else None


def _kills(flags: argparse.Namespace) -> int:
    import jobs
    import kills

    job_list = jobs.make(flags.scratch)
    chosen = [job for job in job_list if flags.only in job.name]
    if any(job.name not in ("prepare", "train") for job in chosen):
        for job in job_list:
            if job.name == "train":  # its result is the model of the other jobs
                kills.whole(job, flags.scratch)
    counts: dict[str, Counter[str]] = {job.name: Counter() for job in chosen}
    faults = 0
    seconds = 60 * flags.minutes
    for name, events, fault in kills.run(chosen, flags.scratch, flags.seed, seconds, flags.count):
        counts[name] += events
        faults += bool(fault)
        print(f"{name}: {dict(events)} {fault}", flush=True)
    for name, events in counts.items():
        print(f"  {name:10} {dict(events)}")
    killed = sum(n for events in counts.values() for event, n in events.items() if event != "runs")
    print(
        f"{killed} kills, {sum(events['runs'] for events in counts.values())} runs, {faults} faults"
    )
    return bool(faults)


def _disk(flags: argparse.Namespace) -> int:
    import faults
    import jobs
    import kills

    job_list = jobs.make(flags.scratch)
    model, rows = flags.scratch / "model.whole", flags.scratch / "rows"
    for job in job_list:
        kills.whole(job, flags.scratch)
    train = next(job for job in job_list if job.name == "train")
    (checkpoint,) = list(model.glob("run/checkpoints/24"))
    end, results, number = time.monotonic() + 60 * flags.minutes, list[str](), 0
    counts: Counter[str] = Counter()
    results.append(faults.two_runs(train, flags.scratch))
    counts["two runs"] += 1
    while time.monotonic() < end and number < flags.count:
        seed = f"{flags.seed}-{number}"
        number += 1
        for kind, folder in (("rows", rows), ("checkpoint", checkpoint)):
            for fault, detected in faults.damaged_files(folder, kind, seed, 100):
                results.append(fault)
                counts[f"{kind}, {'refused' if detected else 'no effect'}"] += 1
        for inject in (faults.full_disk, faults.bad_storage, faults.slow_storage):
            for outcome, fault in inject(job_list, flags.scratch, seed):
                results.append(fault)
                counts[f"{inject.__name__.replace('_', ' ')}, {outcome}"] += 1
        print(dict(counts), [fault for fault in results if fault], flush=True)
    return any(results)


def _hub(flags: argparse.Namespace) -> int:
    import hub_faults

    outcomes = hub_faults.run(flags.scratch, flags.seed, 60 * flags.minutes, flags.count)
    return hub_faults.counts(outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
