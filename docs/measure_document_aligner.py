"""Measures time, memory and F1 of sentence alignment by the length of documents.

    python docs/measure_document_aligner.py DATA runs/documents --checkpoint=exported \\
        --lines=10000,28800,50000,100000

The documents are the Canadian Hansards of DATA/parallel/hansards in order, changed by
docs/construct_documents.py (15 % of the sentences joined, 5 % dropped). A longer document begins
with the shorter ones. Documents of more than about 50,000 lines repeat the text. Sentence vectors
are computed once and stored in the folder, so the same command resumes.

Each length is aligned in a process of its own, which reads the stored vectors and no encoder. Its
peak memory contains Python, NumPy, and the text and the vectors of both documents. At the end the
command prints a table, and the exponent b of the growth n^b from the shortest to the longest
documents. --threads sets the number of threads of matrix products.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from compare_document_aligners import Vectors, by_kind, embed_with, f1, of_xlj
from construct_documents import PLANS, Documents, construct, read_pairs

from xlj.document_alignment import blocks

PAIRS_PER_LINE = 1.12
"""Pairs of text for each line of the shorter document."""
MEASURES = ("wall_s", "cpu_s", "peak_mb")


def main() -> None:
    """Measures each length, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="folder of the stored vectors")
    parser.add_argument("--checkpoint", required=True, help="exported folder with int8 weights")
    parser.add_argument("--lines", default="10000,28800,50000,100000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    stored = flags.folder / f"hansards-{flags.seed}"
    if flags.one:
        print(json.dumps(measure(stored, flags.one)))
        return
    lines = [*map(int, flags.lines.split(","))]
    pairs = read_pairs(flags.data / "parallel/hansards/train/en-fr.tsv.gz")
    store(stored, pairs, flags, max(lines))
    environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(flags.threads))
    rows = []
    for count in lines:
        command = [sys.executable, *sys.argv, f"--one={count}"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        is_repeated = len(pairs) < PAIRS_PER_LINE * count
        rows.append(json.loads(done.stdout) | {"is_repeated": is_repeated})
        print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        print(*(row[name] for name in ("lines", *MEASURES, "strict", "lax")), sep="\t")
    for name in MEASURES if len(rows) > 1 else ():
        growth = math.log(rows[-1][name] / rows[0][name])
        print(name, f"exponent {growth / math.log(lines[-1] / lines[0]):.2f}")


def store(
    folder: Path, pairs: list[tuple[str, str]], flags: argparse.Namespace, lines: int
) -> None:
    """Stores the longest documents, their gold and their vectors, unless they are stored."""
    folder.mkdir(parents=True, exist_ok=True)
    count = folder / "lines.json"
    if count.exists() and json.loads(count.read_text()) >= lines:
        return
    repeated = itertools.islice(itertools.cycle(pairs), math.ceil(PAIRS_PER_LINE * lines) + 50)
    built = construct([*repeated], PLANS["trial"], flags.seed)
    assert min(len(built.source), len(built.target)) >= lines
    embed = embed_with(flags.checkpoint)
    for name, texts in (("source", built.source), ("target", built.target)):
        vectors = Vectors(flags.folder, f"hansards.{name}", embed).of(texts)
        np.save(folder / f"{name}.npy", vectors)
    (folder / "documents.json").write_text(json.dumps(built))
    count.write_text(json.dumps(lines))


def measure(folder: Path, count: int) -> dict:
    """Returns seconds, memory and F1 of the first lines of the stored documents.

    The target ends with the last line that belongs to one of the first `count` source lines.
    """
    built = Documents(*json.loads((folder / "documents.json").read_text()))
    gold = [(tuple(a), tuple(b)) for a, b in built.gold if a[-1] < count]
    ends = count, gold[-1][1][-1] + 1
    sides = []
    for name, texts, end in zip(("source", "target"), built, ends, strict=False):
        vectors = np.array(np.load(folder / f"{name}.npy", mmap_mode="r")[:end])
        sides.append(blocks.of_sentences(vectors, texts[:end], np.zeros(end, np.int64)))
    before = peak_mb()
    wall, cpu = time.monotonic(), time.process_time()
    predicted = of_xlj(*sides)
    seconds = time.monotonic() - wall, time.process_time() - cpu
    peak = peak_mb()
    strict, lax = (round(value, 4) for value in f1(predicted, gold))
    return {
        "lines": ends[0],
        "target_lines": ends[1],
        "wall_s": round(seconds[0], 2),
        "cpu_s": round(seconds[1], 2),
        "peak_mb_before": before,
        "peak_mb": peak,
        "strict": strict,
        "lax": lax,
        "kinds": by_kind(predicted, gold),
    }


def peak_mb() -> int:
    """Returns the peak memory of this process. (`ru_maxrss` would contain that of its parent.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    main()
