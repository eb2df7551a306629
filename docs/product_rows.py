"""The rows `product-*` of docs/experiments/sentence_encoders.md: a small int8 model for search.

The chain of docs/product.md for search in Swahili and German: multilingual-e5-small is trained on
TyDi QA's questions with mined negatives, then trimmed, healed, and exported as an ONNX graph with
int8 weights. Each row measures one model of the chain as an ONNX graph. It needs:
pip install -e '.[onnx]'
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from result_rows import TRAINED_IN

import xlj
from xlj.api.data_sets import Prompts, Scores, measure_search

STEPS, ROWS_PER_STEP = 150, 16
PIECES, LAYERS, MINUTES = 32_000, "0,1,2,3,4,5", 45
TRAINED_ON, KEPT = ("en", "sw"), ("en", "de", "sw")
QUERY, PASSAGE = "query: ", "passage: "
JUDGED = {"sw": "tydiqa/dev.sw.json.gz", "de": "xquad/xquad.de.json.gz"}
"""The files of the test questions."""
OTHERS = {
    "sw": "tydiqa/train.sw.json.gz",
    "de": "mlqa/dev/dev-context-de-question-de.json.gz",
}
"""The files whose paragraphs are documents too."""
SINGLE = 200
"""The number of queries whose time is measured, one at a time."""


def questions(file: Path) -> Iterator[tuple[str, str]]:
    """Yields (question, paragraph that answers it) of a file in SQuAD's form."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    for paragraph in (each for article in articles for each in article["paragraphs"]):
        for question in paragraph["qas"]:
            yield question["question"], paragraph["context"]


def write_lines(file: Path, records: Iterable[dict[str, object]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    file.write_text("".join(lines), "utf-8")


def write_search(folder: Path, judged: Path, others: Iterable[Path]) -> Path:
    """Writes a search set in BEIR's form: the questions of `judged`, and the paragraphs of all
    files."""
    asked = list(questions(judged))
    paragraphs = [paragraph for _, paragraph in asked]
    paragraphs += [paragraph for file in others for _, paragraph in questions(file)]
    ids = {paragraph: f"d{i}" for i, paragraph in enumerate(dict.fromkeys(paragraphs))}
    write_lines(folder / "corpus.jsonl", ({"_id": i, "text": text} for text, i in ids.items()))
    queries = ({"_id": f"q{i}", "text": question} for i, (question, _) in enumerate(asked))
    write_lines(folder / "queries.jsonl", queries)
    grades = [f"q{i}\t{ids[paragraph]}\t1\n" for i, (_, paragraph) in enumerate(asked)]
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(grades), "utf-8"
    )
    return folder


def search_sets(folder: Path, data: Path) -> dict[str, Path]:
    """Writes the search sets of the languages."""
    return {
        language: write_search(
            folder / "search" / language, data / judged, [data / OTHERS[language]]
        )
        for language, judged in JUDGED.items()
    }


def run(command: str, *flags: str) -> None:
    subprocess.run([sys.executable, "-m", *command.split(), *flags], check=True, stdout=sys.stderr)


def trained(model: Path, data: Path) -> Path:
    """Trains the model with mined negatives, unless it is done; returns the exported folder."""
    folder = model.parent / "product"
    output = folder / "trained"
    if output.exists():
        return output
    for language in TRAINED_ON:
        pairs = questions(data / f"tydiqa/train.{language}.json.gz")
        records = ({"query": question, "pos": [paragraph]} for question, paragraph in pairs)
        file = folder / f"examples/{language}.jsonl"
        if not file.exists():
            write_lines(file, records)
    examples, mined = (f"{folder}/examples/{name}{{language}}.jsonl" for name in ("", "mined."))
    run(
        *("xlj.mine --negatives", f"--checkpoint={model}", f"--examples={examples}"),
        *(f"--languages={','.join(TRAINED_ON)}", "--ranks=2-50", "--count=1", f"--output={mined}"),
    )
    contrast = {
        "batch_size": ROWS_PER_STEP,
        "query_length": 64,
        "negatives": 1,
        "guard": True,
        "guard_margin": -0.1,
        "query_prompt": QUERY,
        "passage_prompt": PASSAGE,
    }
    values = {f"objectives.contrast.{name}": value for name, value in contrast.items()} | {
        "init_from": model,
        "data.languages": ",".join(TRAINED_ON),
        "data.examples": mined,
        "data.passage_length": 192,
        "data.cache": folder / "rows",
        "model.dtype": TRAINED_IN,
        "optimizer.learning_rate": 3e-5,
        "optimizer.warmup_steps": 15,
        "train.steps": STEPS,
        "train.log_every": 15,
        "train.eval_every": STEPS,
        "train.checkpoint_every": STEPS,
    }
    flags = [f"--config.{name}={value}" for name, value in values.items()]
    run("xlj.train --config=configs/sentences.py", f"--workdir={folder / 'run'}", *flags)
    run("xlj.convert export", f"--checkpoint={folder / 'run'}", f"--output={output}")
    return output


def trimmed(model: Path, data: Path, heal: bool = False) -> Path:
    """Trims the trained model, unless it is done; returns the folder of the smaller model."""
    output = model.parent / "product" / ("healed" if heal else "trimmed")
    text = [str(data / f"mono/{language}.txt.gz") for language in KEPT]
    if not output.exists():
        run(
            *("xlj.convert trim", f"--checkpoint={trained(model, data)}", "--text", *text),
            *(f"--pieces={PIECES}", f"--layers={LAYERS}", f"--output={output}"),
            *(("--heal", f"--minutes={MINUTES}") if heal else ()),
        )
    return output


def measure(make: Callable[[Path, Path], Path], weights: str, model: Path, data: Path) -> Scores:
    """Makes a model of the chain, and measures it as an ONNX graph.

    Args:
      weights: "float32" or "int8".

    Returns:
      the MB of the graph, nDCG@10 in % and the number of documents of each search set, and the
      median and the 95th percentile of the time of one query, in ms.
    """
    source, folder = make(model, data), model.parent / "product"
    graphs = folder / "graphs" / source.name
    if not graphs.exists():
        flags = [f"--checkpoint={source}", f"--output={graphs}", "--format=onnx", "--int8"]
        run("xlj.convert export", *flags)
    encoder = xlj.load(graphs, backend="onnx" if weights == "float32" else "onnx-int8")
    file = encoder.model.file
    size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))
    scores: Scores = {"mb": round(size / 1e6, 1)}
    for language, search_set in search_sets(folder, data).items():
        found = measure_search(search_set, "test", encoder, Prompts({}, QUERY, PASSAGE))
        scores[language] = found["ndcg@10"]
        scores[f"{language}, documents"] = found["documents"]
    asked = [question for question, _ in questions(data / JUDGED["de"])][:SINGLE]
    times = [seconds(encoder, QUERY + question) for question in asked]
    scores["ms"] = [round(1000 * float(np.quantile(times, share)), 1) for share in (0.5, 0.95)]
    return scores


def seconds(encoder: xlj.OnnxEncoder, query: str) -> float:
    """Returns the time in which the vector of one query is computed."""
    began = time.perf_counter()
    encoder.encode([query])
    return time.perf_counter() - began


MODELS: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "as released": (lambda model, data: model, "float32"),
    "trained with negatives": (trained, "float32"),
    "trimmed": (trimmed, "float32"),
    "healed": (partial(trimmed, heal=True), "float32"),
    "healed int8": (partial(trimmed, heal=True), "int8"),
}
"""The models of the chain: the function that makes each, and the weights of its graph."""
ROWS: dict[str, Callable[[Path, Path], Scores]] = {
    f"product-{name}": partial(measure, *each) for name, each in MODELS.items()
}
"""The function that measures each row, from the model's folder and the folder of the data."""
