"""The rows `sentences-*` of docs/experiments/sentence_encoders.md: encoders trained on pairs.

Each row trains multilingual-e5-small on MAFAND's pairs of Yoruba and English, and measures
retrieval before and after. The trainer of sentence-transformers is the peer: it gets the same
texts, loss, number of examples a step, optimizer, schedule and precision. It needs:
pip install -e '.[peers]' datasets accelerate
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import result_rows
from result_rows import BITS, TATOEBA, TRAINED_IN, pairs_of

from xlj.api.data_sets import Scores, percent
from xlj.checkpoints import metrics
from xlj.evaluation.bootstrap import paired_bootstrap

STEPS, ROWS_PER_STEP, LENGTH = 75, 16, 128
RATE, WARMUP, DECAY, CLIP, TEMPERATURE = 3e-5, 8, 0.01, 1.0, 0.05
FROM_STEP = 15
"""The first step whose time counts: compilation and the first steps do not."""

NEGATIVES = ("--config.objectives.contrast.negatives=1",)
GUARD = (
    "--config.objectives.contrast.guard=True",
    "--config.objectives.contrast.guard_margin=-0.1",
)
FEWEST = 64
MATRYOSHKA = (f"--config.objectives.contrast.dimensions={FEWEST},128",)
WAYS: dict[str, tuple[str, ...]] = {
    "xlj": (),
    "negatives": NEGATIVES,
    "guard": GUARD,
    "negatives and guard": (*NEGATIVES, *GUARD),
    "matryoshka": MATRYOSHKA,
}
"""The flags of each way, in addition to those of `xlj`."""
PEER = "sentence-transformers"
SETS = ("ntrex yo", "mafand yo", "ntrex de")
"""The test sets whose differences have intervals."""
FIRST, FIRST_OF_TATOEBA = 1000, 200
"""The number of sentences of a test set, and of each language of Tatoeba: the first ones."""
found = partial(result_rows.found, compute=TRAINED_IN)
"""`result_rows.found` by vectors in the type of the training."""


def train(way: str, seed: int, model: Path, data: Path) -> tuple[Path, float]:
    """Trains, unless it is done; returns the folder of the encoder, and examples per second."""
    folder = model.parent / "sentences" / f"{way.replace(' ', '-')}-{seed}"
    record = folder / "speed.json"
    if not record.exists():
        folder.mkdir(parents=True, exist_ok=True)
        examples = write_examples(folder.parent, data)
        per_step = examples_per_step(model, examples)
        run = train_peer if way == PEER else partial(train_xlj, way)
        record.write_text(json.dumps(per_step * run(seed, model, examples, folder, per_step)))
    return folder / "model", json.loads(record.read_text())


def write_examples(folder: Path, data: Path) -> Path:
    """Writes the training pairs without duplicates, queries in Yoruba and passages in English."""
    sides = pairs_of(data / "parallel/mafand/train/en-yo.tsv.gz")
    pairs = dict(zip(*sides, strict=True)).items()
    file, lines = folder / "yo.jsonl", [json.dumps({"query": a, "pos": [b]}) for a, b in pairs]
    content = "\n".join(lines) + "\n"
    if not file.exists() or file.read_text("utf-8") != content:  # rows depend on the time
        file.write_text(content, "utf-8")
    return file


def training_values(model: Path, cache: Path) -> dict[str, Any]:
    """Returns the values of the config that all ways of training have."""
    return {
        "init_from": model,
        "data.held_out_share": 0,
        "data.cache": cache,
        "model.dtype": TRAINED_IN,
        "optimizer.learning_rate": RATE,
        "optimizer.warmup_steps": WARMUP,
        "optimizer.weight_decay": DECAY,
        "optimizer.clip_norm": CLIP,
        "optimizer.b2": 0.999,
        "optimizer.epsilon": 1e-8,
        "train.steps": STEPS,
        "train.log_every": FROM_STEP,
        "train.eval_every": STEPS,
        "train.checkpoint_every": STEPS,
    }


def contrast_values(examples: Path) -> dict[str, Any]:
    """Returns the values of the config that rank the examples."""
    contrast = {
        "batch_size": ROWS_PER_STEP,
        "query_length": LENGTH,
        "directions": "query_to_passage,passage_to_query",
        "temperature": TEMPERATURE,
    }
    return {
        "data.languages": "yo",
        "data.examples": examples,
        "data.passage_length": LENGTH,
        **{f"objectives.contrast.{name}": value for name, value in contrast.items()},
    }


def flags_of(values: Mapping[str, Any]) -> list[str]:
    return [f"--config.{name}={value}" for name, value in values.items()]


def examples_per_step(model: Path, examples: Path) -> int:
    """Returns the mean number of examples of a step of xlj, whose rows hold one or several."""
    values = training_values(model, examples.parent / "rows") | contrast_values(examples)
    flags = flags_of(values)
    run(["xlj.prepare", "--config=configs/sentences.py", *flags])
    (manifest,) = (examples.parent / "rows").glob("*/manifest.json")
    (task,) = json.loads(manifest.read_text())["tasks"]
    return round(ROWS_PER_STEP * task["train"]["sentences"] / task["train"]["rows"])


def train_xlj(way: str, seed: int, model: Path, examples: Path, folder: Path, _: int) -> float:
    """Trains with xlj and exports; returns steps per second."""
    if "negatives" in way:
        mined = examples.parent / "mined" / examples.name
        mined.parent.mkdir(exist_ok=True)
        if not mined.exists():
            run(
                [
                    *("xlj.mine", "--negatives", f"--checkpoint={model}", "--ranks=2-50"),
                    *("--count=1", f"--examples={examples}", f"--output={mined}"),
                ]
            )
        examples = mined
    values = training_values(model, examples.parent / "rows") | contrast_values(examples)
    flags = [*flags_of(values | {"train.seed": seed}), *WAYS[way]]
    workdir = folder / "run"
    run(["xlj.train", "--config=configs/sentences.py", f"--workdir={workdir}", *flags])
    run(["xlj.convert", "export", f"--checkpoint={workdir}", f"--output={folder / 'model'}"])
    times = {
        line["step"]: line["time/seconds"]
        for line in metrics.read(workdir)
        if "time/seconds" in line
    }
    return (STEPS - FROM_STEP) / (times[STEPS] - times[FROM_STEP])


def run(command: list[str]) -> None:
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=sys.stderr)


def train_peer(seed: int, model: Path, examples: Path, folder: Path, per_step: int) -> float:
    """Trains with sentence-transformers; returns steps per second."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesSymmetricRankingLoss

    records = [json.loads(line) for line in examples.read_text("utf-8").splitlines()]
    texts = {
        "anchor": [each["query"] for each in records],
        "positive": [each["pos"][0] for each in records],
    }
    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.max_seq_length = LENGTH
    loss = MultipleNegativesSymmetricRankingLoss(encoder, scale=1 / TEMPERATURE)
    return run_peer(encoder, loss, texts, folder, per_step, seed=seed)


def run_peer(
    encoder: Any,
    loss: Any,
    texts: dict[str, Any],
    folder: Path,
    per_step: int,
    *,
    seed: int,
    steps: int = STEPS,
    rate: float = RATE,
) -> float:
    """Trains an encoder with the trainer of sentence-transformers, and writes it to `model` in the
    folder.

    Args:
      texts: the columns of the examples.

    Returns:
      steps per second, from step `FROM_STEP`.
    """
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from transformers import TrainerCallback

    times: dict[int, float] = {}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            times[state.global_step] = time.monotonic()

    torch.set_num_threads(2)
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "run"),
        max_steps=steps,
        per_device_train_batch_size=per_step,
        learning_rate=rate,
        warmup_steps=WARMUP,
        weight_decay=DECAY,
        max_grad_norm=CLIP,
        lr_scheduler_type="linear",
        bf16=TRAINED_IN == "bfloat16",
        use_cpu=True,
        seed=seed,
        batch_sampler="no_duplicates",
        save_strategy="no",
        logging_steps=FROM_STEP,
        report_to="none",
    )
    trainer = SentenceTransformerTrainer(
        model=encoder,
        args=settings,
        train_dataset=Dataset.from_dict(texts),
        loss=loss,
        callbacks=[Clock()],
    )
    trainer.train()
    encoder.save_pretrained(str(folder / "model"))
    return (steps - FROM_STEP) / (times[steps] - times[FROM_STEP])


def measure(way: str, seed: int, model: Path, data: Path) -> Scores:
    """Trains, and compares retrieval before and after."""
    folder, speed = train(way, seed, model, data)
    return {"examples per second": round(speed, 1)} | compare(model, folder, data)


def compare(
    model: Path,
    folder: Path,
    data: Path,
    sets: Sequence[str] = SETS,
    with_tatoeba: bool = True,
) -> Scores:
    """Measures retrieval with a model before the training and with the folder of the result.

    A pair of scores has the accuracies before and after, the means of both directions, without a
    prefix. "difference" is that of the accuracies, with the 95 % interval of the paired bootstrap
    over sentences.

    Args:
      with_tatoeba: whether to measure the mean of the languages of Tatoeba too.
    """
    scores: Scores = {**BITS}
    for name in sets:
        before, after = (found(each, name, data, FIRST) for each in (model, folder))
        scores[name] = [percent(before.mean()), percent(after.mean())]
        scores[f"{name}, difference"] = [percent(x) for x in paired_bootstrap(before, after)]
    if with_tatoeba:
        means = [
            [
                found(each, f"tatoeba {language}", data, FIRST_OF_TATOEBA).mean()
                for language in TATOEBA
            ]
            for each in (model, folder)
        ]
        scores["tatoeba"] = [percent(np.mean(each)) for each in means]
    return scores


def cut(seed: int, model: Path, data: Path) -> Scores:
    """Measures the first `FEWEST` dimensions of the vectors before the training and after two ways
    of it: xlj and matryoshka. "difference" is matryoshka's accuracy minus xlj's."""
    folders = [model, *(train(way, seed, model, data)[0] for way in ("xlj", "matryoshka"))]
    scores: Scores = {**BITS}
    for name in SETS:
        sides = [found(each, name, data, FIRST, FEWEST) for each in folders]
        scores[name] = [percent(each.mean()) for each in sides]
        scores[f"{name}, difference"] = [percent(x) for x in paired_bootstrap(*sides[1:])]
    return scores


def mean(seed: int, model: Path, data: Path) -> Path:
    """Merges the model before and after the training of `xlj`, unless it is done; returns the
    folder of their mean."""
    trained, _ = train("xlj", seed, model, data)
    output = trained.parents[1] / f"mean-{seed}/model"
    if not output.exists():
        run(["xlj.convert", "merge", "--models", str(model), str(trained), f"--output={output}"])
    return output


def forgets(seed: int, model: Path, data: Path) -> Scores:
    """Measures `SETS` and each language of Tatoeba, all sentences: before the training of `xlj`,
    after it, and with the mean of both models.

    A set has its number of sentences, the accuracy before, and for both models the accuracy and the
    difference.
    """
    after = train("xlj", seed, model, data)[0], mean(seed, model, data)
    files = sorted((data / "tatoeba").glob("tatoeba.*-eng.eng.gz"))
    languages = [file.name.split(".")[1].removesuffix("-eng") for file in files]
    scores: Scores = {}
    for name in (*SETS, *(f"tatoeba {language}" for language in languages)):
        before = found(model, name, data)
        scores[name] = [len(before), percent(before.mean())]
        for each in (found(folder, name, data) for folder in after):
            difference = [percent(x) for x in paired_bootstrap(before, each)]
            scores[name] += [percent(each.mean()), *difference]
    return scores


ROWS: dict[str, Callable[[Path, Path], Scores]] = {
    **{
        f"sentences-{way}-{seed}": partial(measure, way, seed)
        for way in ("xlj", PEER)
        for seed in range(3)
    },
    **{f"sentences-{way}-0": partial(measure, way, 0) for way in WAYS if way != "xlj"},
    "sentences-cut-0": partial(cut, 0),
    "sentences-all languages-0": partial(forgets, 0),
}
"""The function that measures each row, from the model's folder and the folder of the data."""
