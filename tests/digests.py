"""Writes digests of what runs see and learn, to compare two versions of the code.

    python tests/digests.py before.json        # in a clone of the version before
    python tests/digests.py after.json
    diff before.json after.json

Each run makes 40 steps in float32 on one device. A process that is killed after step 20 makes the
first half of a second run. `--only` selects runs by name. A run's digests are, for each objective,
of each batch (ids, segments, positions and languages), of what the objective makes of it (masks,
labels and weights), and of each parameter after the last step. Two machines may compute other
parameters from equal batches.
"""

# ruff: noqa: E402

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import conftest
import xla_flags

os.environ["XLA_FLAGS"] = xla_flags.with_devices(1)

import jax
import numpy as np

from xlj import config as schema
from xlj import phrasebook
from xlj.config import finetuning, parse, recipes
from xlj.data.rows.batches import Batches
from xlj.finetuning import task_runs
from xlj.models.segments import segments
from xlj.objectives.objective import build
from xlj.training import loop, start
from xlj.training.step import row_rngs

STEPS, SEED = 40, 5


def pretraining(recipe, **changes):
    """A run of a recipe on the text of the tests; names of keys have `__` for dots."""

    def make(folder):
        config = recipes.read(recipe)
        config.data.languages, config.data.mono = "en,de,sw", f"{folder}/mono/{{language}}.txt"
        config.data.pairs, config.data.parallel = "en-de,en-sw", f"{folder}/pairs/{{pair}}.tsv"
        config.data.cache, config.data.vocabulary_size = f"{folder}/rows", 400
        config.model.dtype = "float32"
        config.train.steps, config.train.seed, config.train.checkpoint_every = STEPS, SEED, 20
        config.train.eval_every = config.train.log_every = 20
        config.train.eval_rows, config.evaluation = 8, schema.default().evaluation
        config.train.batch_warmup = min(11, config.train.batch_warmup)
        config.optimizer.warmup_steps = 7
        config.optimizer.decay_steps = min(9, config.optimizer.decay_steps)
        for number, phase in enumerate(config.phases.values()):
            phase.start_step = 17 + 8 * number
            if "sampled" in phase.get("data", {}):
                phase.data.sampled = ""
        for key, value in changes.items():
            config.update_from_flattened_dict(
                {
                    key.replace("__", "."): value.format(folder=folder)
                    if isinstance(value, str)
                    else value
                }
            )
        if not config.data.mono and not config.data.parallel:
            raise AssertionError(recipe)
        return parse(config)

    return make


def fine_tuning(kind, ending, **changes):
    """A run of a kind of task from the encoder of the run `xlm_r_tlm`."""

    def make(folder):
        config = finetuning.default()
        config.init_from, config.data.cache = f"{folder}/xlm_r_tlm", f"{folder}/rows"
        config.task.kind, config.task.train = kind, f"{folder}/train.{ending}"
        config.task.length, config.task.batch_size, config.train.steps = 32, 8, "1ep"
        config.train.log_every, config.train.seed, config.train.eval_every = 20, SEED, "50%"
        config.task.languages = config.task.test_languages = "en"
        config.task.select, config.task.test = "last", config.task.train
        for key, value in changes.items():
            config.update_from_flattened_dict({key.replace("__", "."): value})
        return finetuning.parse(config)

    return make


RUNS = {
    "xlm_r_tlm": pretraining("xlm_r_tlm:tiny"),
    "ernie_m_base": pretraining("ernie_m_base:tiny"),
    "xlm_e": pretraining("xlm_e:tiny", model__position_bias="gated"),
    "xlm_align": pretraining("xlm_align:tiny"),
    "meta_xlm-kd": pretraining(
        "meta_xlm:kd,tiny", objectives__distillation__teacher="{folder}/xlm_r_tlm"
    ),
    "infoxlm": pretraining("infoxlm:tiny"),
    "quickstart": pretraining("quickstart:tiny"),
    "aligner": pretraining("aligner:tiny", data__pair_length=48),
    "mmbert_base": pretraining("mmbert_base:tiny"),
    "eurobert_210m": pretraining("eurobert_210m:tiny"),
    "gte": pretraining("xlm_r_tlm:tiny", model__family="gte"),
    "classification": fine_tuning("classification", "tsv"),
    "apart": fine_tuning("classification", "pairs.tsv", task__pairs="apart"),
    "tagging": fine_tuning("tagging", "conll"),
    "regression": fine_tuning("regression", "scores.tsv"),
    "question_answering": fine_tuning(
        "question_answering", "json", task__question_length=8, task__stride=4, task__answer_length=2
    ),
    "multiple_choice": fine_tuning("multiple_choice", "choices.jsonl"),
}


def write_text(folder):
    """Writes unlabelled text and pairs, and 320 labelled examples of each kind."""
    conftest._write_corpus(folder)
    rng = random.Random(0)
    lines = [line for line in phrasebook.text_lines("en") if line][:320]
    words = [line.split() for line in lines]
    other = rng.sample(lines, len(lines))
    labels = [rng.choice(("cat", "dog")) for _ in lines]

    def write(ending, entries):
        (folder / f"train.{ending}").write_text("".join(entries), encoding="utf-8")

    write("tsv", [f"{a}\t{b}\n" for a, b in zip(lines, labels, strict=True)])
    triples = list(zip(lines, other, labels, strict=True))
    write("pairs.tsv", ["\t".join(triple) + "\n" for triple in triples])
    scores = [rng.uniform(0, 5) for _ in lines]
    write(
        "scores.tsv", [f"{a}\t{b}\t{c:.3f}\n" for a, b, c in zip(lines, other, scores, strict=True)]
    )
    tag = {True: "B-E", False: "O"}
    write(
        "conll", ["".join(f"{w}\t{tag['e' in w]}\n" for w in sentence) + "\n" for sentence in words]
    )
    questions = []
    for number, sentence in enumerate(words):
        at = rng.randrange(len(sentence))
        answer = {
            "text": sentence[at],
            "answer_start": len(" ".join(["", *sentence[:at]][1:])) + (at > 0),
        }
        qa = {"id": str(number), "question": other[number], "answers": [answer]}
        questions.append({"context": " ".join(sentence), "qas": [qa]})
    write("json", [json.dumps({"data": [{"title": "t", "paragraphs": questions}]})])
    records = [
        {"premise": a, "choice1": b, "choice2": a[::-1], "question": "cause", "label": number % 2}
        for number, (a, b) in enumerate(zip(lines, other, strict=True))
    ]
    write("choices.jsonl", [json.dumps(record) + "\n" for record in records])


def run(name, folder, workdir):
    """Trains a run, or the rest of it, and returns what the loop started from."""
    config, starts = RUNS[name](folder), []
    if config.task.kind:
        train = loop.train
        loop.train = lambda start, *rest: starts.append(start) or train(start, *rest)
        try:
            assert task_runs.run(config, workdir).finished
        finally:
            loop.train = train
    else:
        starts.append(start.prepare(config, workdir))
        assert loop.train(starts[0]).finished
    return starts[0]


def digest(*arrays):
    """Digests arrays; integers count as int64, numbers as float32, random keys as their data."""
    found = hashlib.sha256()
    for array in arrays:
        if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        is_number = np.issubdtype(np.asarray(array).dtype, np.floating)
        kind = np.float32 if is_number else np.int64
        found.update(np.ascontiguousarray(array, kind).tobytes())
    return found.hexdigest()[:16]


def read(batches, name, step, slots):
    """Returns the rows of a batch, their tokens in one array, and their layout."""
    batch = batches.read(name, step, slots)
    ids = [batch[field] for field in ("tokens", "first", "second") if field in batch]
    return batch, np.concatenate(ids, axis=1), batch["languages"]


def leaves_of(made):
    """Returns the leaves; a score counts as five numbers, as it was once stored."""
    if isinstance(made, dict) and "score" in made:
        numbers = np.asarray(made["score"]).view(np.uint8).reshape(-1, 4)
        labels = np.concatenate([np.asarray(made["has_score"])[:, None], numbers], 1)
        made = {"tokens": made["tokens"], "languages": made["languages"], "labels": labels}
    return jax.tree.leaves(made)


def seen(begin):
    """Returns the digests of what the objectives of a run see, in one text for each step."""
    config, batches, corrupt = begin.config, Batches(begin.store, begin.config), {}
    texts = []
    for step in range(config.train.steps):
        phase, text = config.phase_at(step), []
        for name, (rows, _) in batches.shapes(step).items():
            if (name, phase.start) not in corrupt:
                active = phase.config.objectives.active()
                objective = build(active, phase.config.model, batches.corpus)[name]
                corrupt[name, phase.start] = jax.jit(objective.corrupt)
            slots = np.arange(rows)
            batch, ids, languages = read(batches, name, step, slots)
            rngs = row_rngs(config.train.seed, f"{name}/corruption", step, slots)
            made = corrupt[name, phase.start](batch, rngs)
            leaves = sorted(map(digest, leaves_of(made)))
            digests = digest(ids), digest(languages), digest(*segments(ids)), "+".join(leaves)
            text.append(f"{name}: {' '.join(digests)}")
        texts.append("; ".join(text))
    return texts


def last_checkpoint(workdir):
    found = [*workdir.glob("checkpoints/*"), *workdir.glob("*/checkpoints/*")]
    folders = [path for path in found if path.name.isdecimal()]
    return max(folders, key=lambda path: int(path.name), default=None)


def measure(name, folder):
    """Trains a run twice, once with a kill, and returns its digests."""
    from xlj.checkpoints import reading

    begin = run(name, folder, folder / name)
    parameters = reading.read_meta(last_checkpoint(folder / name)).meta["digests"]
    killed = folder / f"{name}-killed"
    command = [sys.executable, __file__, "-", f"--only={name}", f"--resume={killed}"]
    with subprocess.Popen([*command, f"--folder={folder}"], stdout=subprocess.DEVNULL) as process:
        while last_checkpoint(killed) is None and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert int(last_checkpoint(killed).name) < STEPS, "the run ended before it was killed"
    run(name, folder, killed)
    again = reading.read_meta(last_checkpoint(killed)).meta["digests"]
    assert again == parameters, f"{name}: a killed run ends with other bits"
    return {"seen": seen(begin), "parameters": parameters}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("output")
    parser.add_argument("--only", default=",".join(RUNS), help="names of runs, with commas")
    parser.add_argument("--folder", type=Path, help="an empty folder; default: a temporary one")
    parser.add_argument("--resume", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    if flags.resume:
        run(flags.only, flags.folder, flags.resume)
        return
    print(schema.__file__, flush=True)
    folder = flags.folder or Path(tempfile.mkdtemp())
    if not (folder / "mono").exists():
        write_text(folder)
    names = flags.only.split(",")
    found = {}
    for name in names if names[0] == "xlm_r_tlm" else ["xlm_r_tlm", *names]:
        begun = time.monotonic()
        found[name] = measure(name, folder)
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        Path(flags.output).write_text(json.dumps(found, indent=1), encoding="utf-8")
    if not flags.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
