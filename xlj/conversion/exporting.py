"""Exports a checkpoint as a Hugging Face folder with a model card."""

import dataclasses
from pathlib import Path

from xlj.checkpoints import metrics, stored_models
from xlj.checkpoints.metrics import Line
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.workdir import finished_run
from xlj.config import ConfigError, Model
from xlj.config.task import TASK, is_own, labelling_options
from xlj.conversion.graphs import Graphs
from xlj.evaluation import adaptation_record
from xlj.interop import (
    model_card,
    sentence_modules,
    servers,
    to_hugging_face,
)
from xlj.interop.folder import open_folder
from xlj.interop.sentence_modules import SentenceModules
from xlj.interop.task_heads import auto_class
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.models.embeddings import FIRST_POSITION
from xlj.word_alignment import methods


def export(
    checkpoint: str | StoredModel,
    output: Path,
    layer: int | None = None,
    pooling: str = "",
    name: str = "",
    origin: StoredModel | None = None,
    graphs: Graphs | None = None,
) -> None:
    """Writes a Hugging Face folder, and prints what it does not contain.

    Args:
      checkpoint: a model, or its path (`stored_models.find`).
      output: the path of the new folder.
      layer: the last layer to export, from 1; None for all layers.
      pooling: `mean` or `first` writes a sentence-transformers folder with this pooling. If empty,
        the folder gets the sentence modules of the model, if the model has any and all layers are
        exported. A folder with sentence modules has no head.
      name: the name of the folder that contains `output`, for the title of the model card; if
        empty, the title is the name of `output`.
      origin: the model from which the checkpoint was trained, whose sentence modules the folder
        gets; None for those of the checkpoint.
      graphs: the ONNX graphs that the folder also contains; None for none.

    Raises:
      ConfigError: if the model or the layer does not exist, no architecture of transformers
        computes the same outputs, or a library for the graph is not installed.
    """
    source = checkpoint
    if isinstance(source, str):
        source = stored_models.find(source, "--checkpoint")
    layers = source.model.layers
    if layer is not None and not 1 <= layer <= layers:
        raise ConfigError(f"--layer={layer}: expected one of the model's layers, 1 to {layers}")
    model = dataclasses.replace(source.model, layers=layer or layers)
    vocabulary, headless = source.vocabulary(), model.layers < layers
    own = source.task.kind if source.task and is_own(source.task.kind) else ""
    origin = origin or source
    sentence = None if headless else origin.sentence
    if pooling:
        sentence = sentence_modules.pooling_only(model.positions - FIRST_POSITION, pooling)
    exported = to_hugging_face.plan(
        source.leaves, model, vocabulary, headless, source.labels, own, bool(sentence)
    )
    kept = {name.partition("/")[0] for name in source.leaves.keys() - exported.left_out.keys()}
    alignment = methods.usable(source.alignment, kept)
    if alignment.layer > model.layers:
        alignment = dataclasses.replace(alignment, layer=-1)
    exported = dataclasses.replace(
        exported,
        task=source.task,
        trained_on_pairs=source.trained_on_pairs,
        alignment=alignment,
    )
    if graphs:
        graphs.check(exported)
    with atomic.new_folder(output) as folder:
        _write_folder(folder, exported, source, origin, model, sentence)
        text = model_card.card(
            name or output.name,
            exported,
            model,
            vocabulary,
            sentence,
            *card_arguments(source),
            path=f"{name}/{output.name}" if name else "",
            known=() if source.task else origin.known,
        )
        if graphs:
            names = [n for n in origin.leaves if n.startswith(sentence_modules.SENTENCE)]
            params = {**source.leaves, **{name: origin.leaves[name] for name in names}}
            text += "\n" + graphs.write(folder, exported, params, model, vocabulary, sentence)
        (folder / model_card.CARD).write_text(text, "utf-8")
    for name, reason in exported.left_out.items():
        print(f"not exported: {name} ({reason})")
    if origin.sentence and sentence != origin.sentence:
        print(f"not exported: the sentence modules ({origin.sentence.report()})")
    _print_use(exported, vocabulary.size, output)


def _write_folder(
    folder: Path,
    exported: to_hugging_face.ExportPlan,
    source: StoredModel,
    origin: StoredModel,
    model: Model,
    sentence: SentenceModules | None,
) -> None:
    """Writes the model, the tokenizer, the options of the task and the sentence modules."""
    vocabulary = source.vocabulary()
    # An imported tokenizer.json encodes pairs as an imported head expects them. A tokenizer.json
    # that xlj makes from a SentencePiece model encodes pairs as XLM-R does, unless `as_rows` is
    # true.
    trained = source.checkpoint and source.checkpoint.step
    needs_rows = trained or vocabulary.markers == "sentencepiece"
    as_rows = exported.hf_task is not None and source.separators == 1 and bool(needs_rows)
    to_hugging_face.write(folder, exported, source.leaves, model, vocabulary, as_rows)
    if exported.hf_task and source.task and not is_own(source.task.kind):
        json_file.write(folder / TASK, labelling_options(source.task))
    if sentence:
        sentence_modules.write(folder, sentence, origin.leaves, model.hidden)


def _print_use(exported: to_hugging_face.ExportPlan, ids: int, output: Path) -> None:
    """Prints how to load an exported folder, which servers cannot serve it, and why.

    Args:
      ids: the number of ids of the tokenizer.
    """
    rows = len(exported.rows)
    surplus_text = f" ({rows - ids:,} more than the tokenizer has ids)" if rows > ids else ""
    print(f"embedding rows: {rows:,}{surplus_text}")
    print(
        f"load with: {auto_class(exported.head, exported.own)}"
        + ("" if exported.head else " (the folder has no head)")
    )
    if exported.architecture.model_type == "xlj":
        print("the model has a relative position bias: pass trust_remote_code=True")
    print(f"folder: {output}")
    folder = open_folder(output)
    for server in servers.CONTRACTS:
        if reason := servers.why_not(server, folder):
            print(f"not for {server}: {reason}")
        elif server == "llama.cpp" and (note := servers.hash_note(folder)):
            print(f"note: {note}")


_CardArguments = tuple[Record | None, Line | None, Record | None, str]


def card_arguments(source: StoredModel) -> _CardArguments:
    """Returns the arguments `trained`, `metrics`, `run` and `adapted` of `model_card.card`."""
    if source.checkpoint is None:
        return None, None, None, ""
    workdir, step = source.folder.absolute().parent.parent, source.checkpoint.step
    in_workdir = source.folder.absolute().parent.name == "checkpoints"
    has_metrics = in_workdir and (workdir / metrics.FILE).is_file()
    lines = metrics.read(workdir) if has_metrics else []
    evaluated = [line for line in lines if line["step"] <= step and "eval/" in " ".join(line)]
    run = finished_run(workdir) if in_workdir else None
    if run and run["step"] != step:
        print(
            f"the model card has no scores, because the scores of {workdir} belong to step "
            f"{run['step']}, not to step {step}"
        )
        run = None
    trained = source.checkpoint.meta | {"config": source.checkpoint.config()}
    adapted = ""
    if in_workdir and (workdir / adaptation_record.FILE).is_file():
        record = json_file.read_object(workdir / adaptation_record.FILE)
        adapted = adaptation_record.markdown(record)
        # The run started from the extended model, a part of the adaptation.
        trained["config"] = trained["config"] | {"init_from": record["source"]}
    return trained, evaluated[-1] if evaluated else None, run, adapted
