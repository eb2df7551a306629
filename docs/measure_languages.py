"""Measures time and memory of many languages: preparing, the report, first steps, resumption.

    python docs/measure_languages.py ../shared/data/mono --languages=100,500,1833

The first argument is a folder of files CODE.txt.gz. A tenth of the languages have lines of these
files, one in fifty has no line, and all others have lines of the phrasebook. The command prints a
table, and for each measure the exponent b of the growth n^b between the smallest and the largest n.
"""

import argparse
import gzip
import itertools
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from xlj import phrasebook

LINES = 100
"""Lines of each language."""
TRAIN = (
    "--config.train.steps=5", "--config.train.eval_every=5", "--config.train.log_every=1",
    "--config.train.checkpoint_every=5", "--config.train.eval_rows=2",
)  # fmt: skip


def main() -> None:
    """Measures each number of languages, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("mono", type=Path)
    parser.add_argument("--languages", default="100,500,1833")
    parser.add_argument("--folder", type=Path, default=Path("build/languages"))
    parser.add_argument("--train", default="1833", help="numbers of languages to train with")
    flags = parser.parse_args()
    measured = {}
    for count in map(int, flags.languages.split(",")):
        folder = flags.folder / str(count)
        shutil.rmtree(folder, ignore_errors=True)
        write_text(flags.mono, folder, count)
        measured[count] = measure(folder, str(count) in flags.train.split(","))
        print(count, json.dumps(measured[count]), flush=True)
    for name in [*measured.values()][-1]:
        values = [each[name] for each in measured.values() if name in each]
        growth = f"exponent {exponent(measured, name):.2f}" if len(values) == len(measured) else ""
        print(name, *values, growth)


def exponent(measured: dict[int, dict[str, float]], name: str) -> float:
    """Returns the exponent of the growth of a measure from the smallest to the largest number."""
    (low, first), *_, (high, last) = measured.items()
    return math.log(max(last[name], 1e-9) / max(first[name], 1e-9)) / math.log(high / low)


def write_text(mono: Path, folder: Path, count: int) -> None:
    """Writes the text of each language, and the file that names the languages."""
    real = itertools.cycle(sorted(mono.glob("*.txt.gz")))
    made = {name: phrasebook.text_lines(name) for name in phrasebook.LANGUAGES}
    names, rows = itertools.cycle(made), []
    text = folder / "text"
    text.mkdir(parents=True)
    opened = {}
    for number in range(count):
        code = f"{chr(97 + number // 676)}{chr(97 + number // 26 % 26)}{chr(97 + number % 26)}_Latn"
        if number % 50 == 49:
            lines = []
        elif number % 10 == 0:
            file = next(real)
            source = opened.setdefault(file, gzip.open(file, "rt", encoding="utf-8", newline="\n"))
            lines = [line.rstrip("\n") for line in itertools.islice(source, LINES)]
        else:
            name = next(names)
            lines = list(itertools.islice(made[name], LINES))
            if len(lines) < LINES:
                made[name] = phrasebook.text_lines(name)
                lines += itertools.islice(made[name], LINES - len(lines))
        (text / f"{code}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        rows.append(f"{code}\t{text / code}.txt\t{1 + number % 3}")
    (folder / "languages.tsv").write_text("\n".join(rows) + "\n", "utf-8")


def measure(folder: Path, trains: bool) -> dict[str, float]:
    """Returns seconds and megabytes of each command; the size of outputs."""
    config = [
        "--config=xlm_r_base:tiny", "--config.data.mono={path}",
        f"--config.data.languages=@{folder / 'languages.tsv'}",
        f"--config.data.cache={folder / 'rows'}", "--config.data.vocabulary_size=2000",
        "--config.data.vocabulary_lines=100000",
    ]  # fmt: skip
    result = {}
    output = run("prepare", config, result, "prepare")
    result["prepare lines"] = output.count("\n")
    output = run("prepare", config, result, "report")  # the rows exist
    result["report lines"] = output.count("\n")
    if trains:
        train = [*config, *TRAIN, f"--workdir={folder / 'run'}"]
        output = run("train", train, result, "train")
        result["train lines"] = output.count("\n")
        metrics = (folder / "run/metrics.jsonl").read_text().splitlines()
        result["metrics bytes per line"] = max(map(len, metrics))
        run("train", [*train, "--config.train.steps=6"], result, "resume")
    return result


def run(command: str, arguments: list[str], result: dict[str, float], name: str) -> str:
    """Runs a command; records its seconds, the CPU seconds of all its processes, and the megabytes
    of its largest process."""
    start, cpu_before = time.monotonic(), cpu_seconds()
    code = (
        "import resource, runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "try: runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
        "finally:\n"
        " sizes = [resource.getrusage(who).ru_maxrss for who in (0, -1)]\n"
        " print('peak', max(sizes) // 1024)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, f"xlj.{command}", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    if process.returncode:
        raise SystemExit(process.stdout[-3000:])
    result[f"{name} s"] = round(time.monotonic() - start, 1)
    result[f"{name} CPU s"] = round(cpu_seconds() - cpu_before, 1)
    output, _, peak = process.stdout.rpartition("peak ")
    result[f"{name} MB"] = int(peak)
    return output


def cpu_seconds() -> float:
    """Returns the CPU seconds of all finished processes that this process started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
