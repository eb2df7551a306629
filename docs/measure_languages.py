"""Measures time and memory of many languages: preparing, the report, first steps, resumption.

    python docs/measure_languages.py ../shared/data/mono --train=100,500,1833

The first argument is a folder of files CODE.txt.gz. A tenth of the languages have lines of these
files, one in fifty has no line, and all others have lines of the phrasebook. The command prints a
table in Markdown, which it also writes to build/languages/table.md. The last columns have the
exponent b of the growth n^b of each value, from the smallest to the largest number n of languages,
and between the last two numbers. A first training run, which is not measured, compiles the step.
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
    flags.folder.mkdir(parents=True, exist_ok=True)
    compiled = (flags.folder / "compiled").absolute()
    is_compiled = compiled.exists()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled)
    measured = {}
    for count in map(int, flags.languages.split(",")):
        folder = flags.folder / str(count)
        shutil.rmtree(folder, ignore_errors=True)
        write_text(flags.mono, folder, count)
        trains = str(count) in flags.train.split(",")
        measured[count] = measure(folder, trains, trains and not is_compiled)
        is_compiled |= trains
        print(count, json.dumps(measured[count]), flush=True)
    text = table(measured)
    (flags.folder / "table.md").write_text(text, "utf-8")
    print(text, end="")


UNITS = ("s", "CPU s", "MB", "lines", "bytes")
"""The values of a measure, in the order of the table."""


def table(measured: dict[int, dict[str, float]]) -> str:
    """Returns a table: a row for each measure, a column for each number of languages."""
    counts = [*measured]
    lines = [
        f"| languages | {' | '.join(f'{n:,}' for n in counts)} | b | b, last two |",
        f"|{'---|' * (len(counts) + 3)}",
    ]
    names = dict.fromkeys(name.split(":")[0] for row in measured.values() for name in row)
    for name in names:
        values = [
            {unit: row[f"{name}:{unit}"] for unit in UNITS if f"{name}:{unit}" in row}
            for row in measured.values()
        ]
        cells = [", ".join(f"{value:,} {unit}" for unit, value in of.items()) for of in values]
        for first in (0, -2):
            complete = len(counts) > 1 and values[first] and values[-1]
            ends = (counts[first], values[first]), (counts[-1], values[-1])
            cells.append(exponents(*ends) if complete else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def exponents(low: tuple[int, dict[str, float]], high: tuple[int, dict[str, float]]) -> str:
    """Returns the exponents of the growth of all values of a measure."""
    growth = math.log(high[0] / low[0])
    pairs = ((low[1][unit], high[1][unit]) for unit in high[1])
    return ", ".join(f"{math.log(max(b, 1e-9) / max(a, 1e-9)) / growth:.2f}" for a, b in pairs)


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


def measure(folder: Path, trains: bool, compiles: bool) -> dict[str, float]:
    """Returns seconds, megabytes and lines of each command.

    Args:
      trains: whether to train.
      compiles: whether another training run comes first, which compiles the step.
    """
    config = [
        "--config=xlm_r_base:tiny", "--config.data.mono={path}",
        f"--config.data.languages=@{folder / 'languages.tsv'}",
        f"--config.data.cache={folder / 'rows'}", "--config.data.vocabulary_size=2000",
        "--config.data.vocabulary_lines=100000",
    ]  # fmt: skip
    result: dict[str, float] = {}
    run("prepare", config, result, "prepare, with a vocabulary of 2,000 pieces")
    (vocabulary,) = (folder / "rows/vocabularies").glob("*.model")
    given = [part for part in config if "vocabulary" not in part and "data.cache" not in part]
    given += [f"--config.data.vocabulary={vocabulary}", f"--config.data.cache={folder / 'given'}"]
    run("prepare", given, result, "prepare, with a given vocabulary")
    run("prepare", config, result, "report of finished rows")
    if trains:
        train = [*config, *TRAIN, f"--workdir={folder / 'run'}"]
        if compiles:
            run("train", train, {}, "compilation")
            shutil.rmtree(folder / "run")
        run("train", train, result, "first 5 steps, with 2 evaluations")
        metrics = (folder / "run/metrics.jsonl").read_text().splitlines()
        result["longest line of metrics:bytes"] = max(map(len, metrics))
        run("train", [*train, "--config.train.steps=6"], result, "resumption, 1 step")
    return result


def run(command: str, arguments: list[str], result: dict[str, float], name: str) -> None:
    """Runs a command; records its seconds, the CPU seconds of all its processes, the megabytes of
    its largest process, and the lines of its output."""
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
    result[f"{name}:s"] = round(time.monotonic() - start, 1)
    result[f"{name}:CPU s"] = round(cpu_seconds() - cpu_before, 1)
    output, _, peak = process.stdout.rpartition("peak ")
    result[f"{name}:MB"] = int(peak)
    result[f"{name}:lines"] = output.count("\n")


def cpu_seconds() -> float:
    """Returns the CPU seconds of all finished processes that this process started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
