"""Compares the speed, memory and start of backends that compute sentence vectors on CPUs.

    python -m xlj.convert export --checkpoint=build/real/e5 --output=exported --format=onnx --int8
    pip install -e '.[peers]'
    python docs/compare_backends.py exported DATA/parallel/ntrex/test

The text is an equal number of sentences in each of several languages, mixed. Each backend runs in a
process of its own, which loads the model and embeds the text once before it is timed. In a round,
one backend after the other embeds the text, while the others wait. So what slows the machine down
for a while slows all of them. The times are medians of the rounds. "Start" is the time from the
start of Python to the first vector, in further processes.

The figures are in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlj.io import files

LANGUAGES = "de fr zh-CN sw hi ru".split()
BATCH = 32  # sentence-transformers' default

Embed = Callable[[list[str]], np.ndarray]


def sentence_transformer(folder: str, dtype: str) -> Embed:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(2)
    options = {"torch_dtype": getattr(torch, dtype)}
    model = SentenceTransformer(folder, device="cpu", model_kwargs=options)
    encode: Any = model.encode
    return lambda texts: np.asarray(encode(texts, batch_size=BATCH, show_progress_bar=False))


def xlj_encoder(folder: str, backend: str, compute: str | None = None) -> Embed:
    import xlj

    model = xlj.load(folder, backend=backend, compute=compute)
    return lambda texts: model.encode(texts)


BACKENDS: dict[str, Callable[[str], Embed]] = {
    "sentence-transformers float32": lambda folder: sentence_transformer(folder, "float32"),
    "sentence-transformers bfloat16": lambda folder: sentence_transformer(folder, "bfloat16"),
    "xlj JAX float32": lambda folder: xlj_encoder(folder, "jax", "float32"),
    "xlj JAX bfloat16": lambda folder: xlj_encoder(folder, "jax", "bfloat16"),
    "xlj ONNX float32": lambda folder: xlj_encoder(folder, "onnx"),
    "xlj ONNX int8": lambda folder: xlj_encoder(folder, "onnx-int8"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a folder that xlj exported with ONNX graphs")
    parser.add_argument("ntrex", type=Path, help="the folder with en-de.tsv.gz and so on")
    parser.add_argument("--sentences", type=int, default=384, help="number of sentences [384]")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds [5]")
    parser.add_argument("--worker", choices=BACKENDS, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.worker:
        embed = BACKENDS[flags.worker](str(flags.model))
        embed(["The first sentence."])
        answer({})
        work(embed, mixed(flags.ntrex, flags.sentences))
        return
    command = [sys.executable, __file__, str(flags.model), str(flags.ntrex)]
    command += [f"--sentences={flags.sentences}", "--worker"]
    print(compare(command, flags.rounds))


def mixed(ntrex: Path, count: int) -> list[str]:
    """Returns the first sentences of each language, the languages in turn."""
    each = count // len(LANGUAGES)
    sides = []
    for language in LANGUAGES:
        lines = [line.split("\t")[1] for line in files.lines(ntrex / f"en-{language}.tsv.gz")]
        sides.append(lines[:each])
    return [text for group in zip(*sides, strict=True) for text in group]


def work(embed: Embed, texts: list[str]) -> None:
    """Embeds the text for each line of standard input, and prints a line of JSON."""
    for line in sys.stdin:
        began = time.perf_counter()
        vectors = embed(texts)
        seconds = time.perf_counter() - began
        status = Path("/proc/self/status").read_text("utf-8")
        peak = next(row for row in status.splitlines() if row.startswith("VmHWM"))
        record = {"seconds": seconds, "mb": int(peak.split()[1]) / 1000}
        if line.strip() == "vectors":
            norms = np.linalg.norm(np.asarray(vectors, np.float32), axis=1, keepdims=True)
            record["vectors"] = (np.asarray(vectors, np.float32) / norms).tolist()
        answer(record)


def answer(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


def compare(command: Sequence[str], rounds: int) -> str:
    """Runs all backends; returns the table."""
    workers, records = {}, {}
    for name in BACKENDS:
        starts = []
        for _ in range(3):  # the first one may read files from the disk
            began = time.time()
            worker = start(command, name)
            read(worker)  # after the first vector
            starts.append(time.time() - began)
            workers[name] = worker
            if len(starts) < 3:
                stop(worker)
        records[name] = {"start": min(starts), "vectors": ask(workers[name], "vectors")["vectors"]}
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            record = ask(worker, "time")
            times[name].append(record["seconds"])
            records[name]["mb"] = record["mb"]
    for worker in workers.values():
        stop(worker)
    first = next(iter(workers))
    exact, count = np.array(records[first]["vectors"]), len(records[first]["vectors"])
    lines = []
    for name, record in records.items():
        seconds = statistics.median(times[name])
        cosines = (exact * np.array(record["vectors"])).sum(1)
        speed, ratio = count / seconds, statistics.median(times[first]) / seconds
        spread = f"{count / max(times[name]):.0f} to {count / min(times[name]):.0f}"
        cells = [name, f"{speed:.0f}", spread, f"{ratio:.2f}", f"{record['mb']:.0f}"]
        lines.append(
            [*cells, f"{record['start']:.1f}", f"{cosines.mean():.4f}", f"{cosines.min():.4f}"]
        )
    from xlj.api.data_sets import markdown_table  # imports JAX

    head = ["backend", "sentences/s", "slowest to fastest round", "times the first", "peak MB"]
    return markdown_table([*head, "start, s", "mean cosine", "least cosine"], lines)


def start(command: Sequence[str], name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(worker: subprocess.Popen[str], text: str) -> dict[str, Any]:
    assert worker.stdin is not None
    worker.stdin.write(f"{text}\n")
    worker.stdin.flush()
    return read(worker)


def read(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise SystemExit("a backend failed; see its error above")
    record: dict[str, Any] = json.loads(line)
    return record


def stop(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    worker.wait()


if __name__ == "__main__":
    main()
