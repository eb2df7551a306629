"""A Hugging Face folder of a checkpoint, with a model card."""

import dataclasses
from pathlib import Path

from xlj.checkpoints import stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.workdir import finished_run
from xlj.config import ConfigError
from xlj.config.finetuning import TASK, labelling_options
from xlj.config.tasks import is_own
from xlj.interop import exporting, model_card, sentence_modules
from xlj.interop.architectures import auto_class
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.training import metrics
from xlj.training.metrics import Line


def export(checkpoint: str, output: Path, layer: int | None, pooling: str) -> None:
    """Writes the folder, and tells what was left out.

    Args:
      layer: the last one that is exported; None for all.
      pooling: `mean` or `first` for a folder of sentence-transformers too; empty for the modules
        that the model has from such a folder, if it ends with its last layer.

    Raises:
      ConfigError: if there is no such model or layer, or transformers has none like it.
    """
    source = stored_models.find(checkpoint, "--checkpoint")
    layers = source.model.layers
    if layer is not None and not 1 <= layer <= layers:
        raise ConfigError(f"--layer={layer}: it has layers 1 to {layers}")
    model = dataclasses.replace(source.model, layers=layer or layers)
    vocabulary, headless = source.vocabulary(), model.layers < layers
    own = source.task.kind if source.task and is_own(source.task.kind) else ""
    exported = exporting.plan(
        source.leaves, model, vocabulary, headless, source.labels, source.names, own
    )
    # A tokenizer.json of other hands frames pairs as the head expects; one that is made of a
    # SentencePiece model frames them as XLM-R, unless it is told.
    trained = source.checkpoint and source.checkpoint.step
    told = trained or vocabulary.markers == "sentencepiece"
    as_rows = exported.theirs is not None and source.separators == 1 and bool(told)
    sentence = None if headless else source.sentence
    if pooling:
        sentence = sentence_modules.plain(model, pooling)
    with atomic.new_folder(output) as folder:
        exporting.write(folder, exported, source.leaves, model, vocabulary, as_rows)
        if exported.theirs and source.task and not own:
            json_file.write(folder / TASK, labelling_options(source.task))
        if sentence:
            sentence_modules.write(folder, sentence, source.leaves, model.hidden)
        text = model_card.card(
            output.name, exported, model, vocabulary, sentence, *_training(source)
        )
        (folder / "README.md").write_text(text, "utf-8")
    for name, reason in exported.left_out.items():
        print(f"not exported: {name} ({reason})")
    if source.sentence and sentence != source.sentence:
        print(f"not exported: sentence vectors with {source.sentence.report()}")
    rows, ids = len(exported.rows), vocabulary.size
    more = f", {rows - ids:,} more than ids" if rows > ids else ""
    print(f"rows of the embeddings: {rows:,}{more}")
    print(
        f"load it with {auto_class(exported.head, exported.own)}"
        + ("" if exported.head else ": no head")
    )
    if exported.architecture.model_type == "xlj":
        print("it has a relative position bias: load it with trust_remote_code=True")
    print(f"folder: {output}")


def _training(source: StoredModel) -> tuple[Record | None, Line | None, Record | None]:
    """The description of a checkpoint, its last evaluation, and its scores in fine-tuning."""
    if source.checkpoint is None:
        return None, None, None
    workdir, step = source.folder.absolute().parent.parent, source.checkpoint.step
    in_workdir = source.folder.absolute().parent.name == "checkpoints"
    found = in_workdir and (workdir / metrics.FILE).is_file()
    lines = metrics.read(workdir) if found else []
    evaluated = [line for line in lines if line["step"] <= step and "eval/" in " ".join(line)]
    run = finished_run(workdir) if in_workdir else None
    if run and run["step"] != step:
        print(f"{workdir} was scored at step {run['step']}, not {step}: the card has no scores")
        run = None
    trained = source.checkpoint.meta | {"config": source.checkpoint.config()}
    return trained, evaluated[-1] if evaluated else None, run
