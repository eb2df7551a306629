"""Heals a trimmed sentence encoder: trains its vectors towards those of the whole model (ours)."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xlj import config as schema
from xlj.adaptation import plan
from xlj.adaptation.sentences import frozen_modules, through_modules
from xlj.api import runs
from xlj.checkpoints import reading, stored_models
from xlj.config import Config, parse
from xlj.conversion.importing import print_next, store
from xlj.conversion.trimming import TEST_EVERY, measured_lines
from xlj.data.rows.preparing import prepare_rows
from xlj.data.rows.report import align_columns
from xlj.inference import pretrained
from xlj.io import atomic, json_file
from xlj.models.embeddings import FIRST_POSITION
from xlj.retrieval import embedder
from xlj.retrieval.teaching import teachers_of
from xlj.retrieval.vector_loss import cosines_of
from xlj.training import memory, start

STEPS = 3000
"""The largest number of steps."""

MINUTES = 45
"""The time of training steps, at most, if the user names no other."""

_BATCH_ROWS, _LENGTH = 32, 128
_OBJECTIVE = "text_distillation"


def heal(
    checkpoint: str,
    texts: Mapping[str, Sequence[str]],
    work: Path,
    output: Path,
    minutes: float,
    seed: int = 0,
) -> bool:
    """Trains the model in `work/trimmed`, and writes the result to `output`.

    The teacher is the whole model. Every tenth line of each text is not trained on, and measures
    the cosine with the vectors of the whole model. The same call resumes after an interruption.

    Args:
      checkpoint: the path of the whole model, with sentence modules.
      texts: lines of each language.
      work: a folder for the text, the rows and the training run, which is removed at the end.
      output: the path of the new checkpoint.
      minutes: the time of training steps, as measured before training; fewer than `STEPS` steps
        are trained if these would take longer.
      seed: the seed of the training run.

    Returns:
      False if the training was interrupted.

    Raises:
      ConfigError: if the model has no sentence modules, or modules that cannot be trained.
    """
    whole = stored_models.find(checkpoint, "--checkpoint")
    trimmed = stored_models.find(work / "trimmed", "--output")
    config = _config_of(whole, work, _write_texts(texts, work / "text"), seed)
    config = _with_steps(config, work / "plan.json", minutes)
    began, first = time.monotonic(), max(reading.steps(work / "run"), default=0)
    outcome = runs.pretrain(config, work / "run")
    if not outcome.finished:
        print(f"\nstopped at step {outcome.step}; the same command resumes from there")
        return False
    print(
        f"\ntrained {outcome.step - first:,} steps in {(time.monotonic() - began) / 60:.1f} minutes"
    )
    healed = pretrained.of(stored_models.find(work / "run"))._replace(sentence=whole.sentence)
    some = {name: measured_lines(lines) for name, lines in texts.items()}
    vectors = [
        {name: embedder.by_modules(model).embed(lines)[0] for name, lines in some.items()}
        for model in (pretrained.of(whole), pretrained.of(trimmed), healed)
    ]
    rows = [["", "lines", "trimmed", "healed"]]
    for name, lines in some.items():
        exact, before, after = (of_model[name] for of_model in vectors)
        means = (f"{cosines_of(exact, other).mean():.4f}" for other in (before, after))
        rows.append([name, f"{len(lines):,}", *means])
    print("\nmean cosine with the vectors of the whole model, on lines that were not trained on")
    print("\n".join(align_columns(rows)))
    store(output, trimmed, healed.params, trimmed.model, trimmed.vocabulary())
    shutil.rmtree(work)
    print_next(output)
    return True


def check_source(checkpoint: str) -> None:
    """Raises a `ConfigError` if the vectors of the model at this path cannot be distilled."""
    through_modules(stored_models.find(checkpoint, "--checkpoint"), "--checkpoint")


def _write_texts(texts: Mapping[str, Sequence[str]], folder: Path) -> list[str]:
    """Writes the lines to train on, a file for each text; returns the names of the texts."""
    folder.mkdir(exist_ok=True)
    names = [f"{name.partition('.')[0] or 'text'}-{n}" for n, name in enumerate(texts)]
    for name, lines in zip(names, texts.values(), strict=True):
        trained = [line for i, line in enumerate(lines) if i % TEST_EVERY]
        file, content = folder / f"{name}.txt", "".join(f"{line}\n" for line in trained).encode()
        if not (file.is_file() and file.read_bytes() == content):  # rows depend on the time
            atomic.write(file, content)
    return names


def _config_of(
    whole: stored_models.StoredModel, work: Path, names: Sequence[str], seed: int
) -> Config:
    """Returns the config of the training run."""
    config = schema.default()
    config.init_from, config.transfer.model = str(work / "trimmed"), "init_from"
    config.data.languages, config.data.mono = ",".join(names), f"{work}/text/{{language}}.txt"
    config.data.cache, config.data.duplicates = str(work / "rows"), "drop"
    config.data.length = min(_LENGTH, whole.model.positions - FIRST_POSITION)
    config.model.dtype = "auto"
    values: dict[str, Any] = through_modules(whole, "--checkpoint")
    assert whole.sentence is not None  # else `through_modules` raises an error
    values |= {"batch_size": _BATCH_ROWS, "teacher": str(whole.folder)}
    values |= {"prompt": whole.sentence.prompt(None)}
    config.objectives[_OBJECTIVE].update(values)
    config.optimizer.learning_rate, config.optimizer.clip_norm = 1e-4, 1.0
    config.optimizer.b2 = 0.98
    config.optimizer.rate_multipliers = ",".join(frozen_modules(whole))
    config.train.steps, config.train.seed = STEPS, seed
    config.optimizer.warmup_steps = STEPS // 10
    config.train.log_every = 50
    config.train.eval_every = config.train.checkpoint_every = 500
    return start.adopt_model(parse(config))


def _with_steps(config: Config, file: Path, minutes: float) -> Config:
    """Returns the config with the number of steps, which the first call writes to a file."""
    if not file.is_file():
        source = stored_models.find(config.init_from)
        adopted, _ = start.adopt_vocabulary(config, source, None)
        rows = prepare_rows(adopted, vocabulary=source.vocabulary(), teach=teachers_of(config))
        with memory.explain_out_of_memory(adopted):
            seconds = plan.measure_step(adopted, rows)
        steps = min(plan.choose_steps(adopted, rows, ()), int(60 * minutes / seconds))
        json_file.write(file, {"steps": max(10, steps), "seconds": seconds})
    planned = json_file.read_object(file)
    steps, seconds = planned["steps"], planned["seconds"]
    print(
        f"healing: {steps:,} steps of {seconds:.3g} s, about {steps * seconds / 60:.1f} minutes "
        "plus compilation, evaluations and checkpoints",
        flush=True,
    )
    return plan.with_steps(config, steps)
