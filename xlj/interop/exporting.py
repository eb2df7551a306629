"""An encoder of ours as a Hugging Face folder that transformers loads as its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from xlj.config import ConfigError, Model
from xlj.data.layout import BOS, EOS, PAD
from xlj.data.vocabulary import Vocabulary
from xlj.interop import architectures, tokenizer_files
from xlj.interop.architectures import (
    BERT,
    ROBERTA,
    TASKS,
    XLJ,
    XLM_R,
    XLM_R_XL,
    Architecture,
    Tensor,
)
from xlj.interop.folder import CONFIG, INDEX, WEIGHTS
from xlj.models.encoder import FIRST_POSITION, PARTS

_SHARD_BYTES = 2 << 30

_AUTO_MAP = {"AutoConfig": "configuration_xlj.XljConfig"} | {
    architectures.auto_class(head): f"modeling_xlj.{name}" for head, name in XLJ.classes.items()
}
"""Which classes of `remote_code` transformers' classes stand for."""

_OF_MARKERS = {"sentencepiece": XLM_R, "byte_bpe": ROBERTA, "wordpiece": BERT}


@dataclasses.dataclass(frozen=True)
class Exported:
    """What is written.

    Attributes:
      architecture: whose names the tensors have.
      head: that is among them: prediction_head (masked tokens), or that of a fine-tuned task, e.g.
        tagging_head; empty if there is none.
      left_out: parameters that are not, and why.
      labels: names of the task's classes or tags, in order.
    """

    architecture: Architecture
    head: str
    left_out: Mapping[str, str]
    labels: tuple[str, ...] = ()


def plan(
    params: Mapping[str, Any],
    model: Model,
    vocabulary: Vocabulary,
    headless: bool,
    labels: tuple[str, ...] = (),
) -> Exported:
    """Which architecture the parameters fit, and what of them it has no place for.

    Args:
      params: named leaves, e.g. layers/attention/query/kernel.
      headless: leave the head out.
      labels: of the head of a fine-tuned task.

    Raises:
      ConfigError: if no architecture computes what the model does, or the labels are not those of
        the head.
    """
    if model.language_embeddings == "all":
        raise ConfigError(
            "the model adds a language embedding to every token (model.language_embeddings=all); "
            "no architecture of transformers does, so it cannot be exported"
        )
    plain = model.position_bias == "none" and model.absolute_positions
    architecture = _OF_MARKERS[vocabulary.markers] if plain else XLJ
    if model.norm == "pre":
        if architecture is not XLM_R or "final_norm/scale" not in params:
            raise ConfigError(
                "the model's norms stand before its sub-layers (model.norm=pre): it can be "
                "exported whole only, with a SentencePiece vocabulary and without a position bias"
            )
        architecture = XLM_R_XL
    architecture = architectures.with_pad(architecture, int(vocabulary.native_ids[PAD]))
    parts = {name.partition("/")[0] for name in params}
    there = [head for head in architecture.classes if head in parts]
    head = "" if headless or not there else there[-1]  # a task's comes after prediction_head
    left_out = {}
    for name in params:
        part = name.partition("/")[0]
        if part in there and headless:
            left_out[name] = "the encoder is cut before its last layer"
        elif part in there and part != head:
            left_out[name] = "a folder has one head, that of the fine-tuned task"
        elif name == "embeddings/language":
            left_out[name] = "read in pretraining only, where a token is predicted or generated"
        elif part not in (*PARTS, head):
            left_out[name] = "belongs to a pretraining objective"
    named = TASKS.get(head) in ("classification", "tagging")
    classes = params[f"{head}/output/bias"].shape[0] if named else 0
    if named and classes != len(labels):
        raise ConfigError(
            f"the checkpoint's {head} has {classes} classes, and its config names {len(labels)} "
            "labels: export a checkpoint that xlj.finetune wrote, or an import of a folder"
        )
    return Exported(architecture, head, left_out, labels if named else ())


def write(
    folder: Path,
    exported: Exported,
    params: Mapping[str, Any],
    model: Model,
    vocabulary: Vocabulary,
    pairs_as_rows: bool = False,
) -> None:
    """Writes config.json, the tensors and the tokenizer into an existing folder.

    Args:
      params: named leaves; the layers stacked, no more of them than `model.layers` are written.
      pairs_as_rows: the tokenizer frames pairs as xlj's rows do, which a fine-tuned model knows,
        not as its family does.
    """
    architecture = exported.architecture
    config = architectures.config_of(architecture, model, vocabulary.size)
    config |= architectures.config_of_task(exported.head, exported.labels)
    config["architectures"] = [architecture.classes[exported.head]]
    named = {"pad": PAD} if architecture is BERT else {"bos": BOS, "pad": PAD, "eos": EOS}
    config |= {f"{name}_token_id": int(vocabulary.native_ids[i]) for name, i in named.items()}
    if architecture.model_type == XLJ.model_type:
        config["auto_map"] = _AUTO_MAP
        for name in ("configuration_xlj.py", "modeling_xlj.py"):
            shutil.copyfile(Path(__file__).parent / "remote_code" / name, folder / name)
    _write_json(folder / CONFIG, config)
    _write_tensors(folder, list(_tensors(exported, params, model, vocabulary)))
    tokenizer_files.write(
        vocabulary,
        folder,
        model.positions - FIRST_POSITION,
        pair_types=model.pair_token_types if pairs_as_rows else None,
    )


def write_pooling(folder: Path, model: Model, pooling: str) -> None:
    """Adds what makes the folder one of sentence-transformers.

    Args:
      pooling: `mean` of all tokens, specials too, or the vector of the `first`, as in
        `downstream.sentence_vectors`.
    """
    _write_json(
        folder / "modules.json",
        [
            {"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{_MODULES}.Pooling"},
        ],
    )
    _write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": model.positions - FIRST_POSITION, "do_lower_case": False},
    )
    (folder / "1_Pooling").mkdir()
    _write_json(
        folder / "1_Pooling" / CONFIG,
        {
            "word_embedding_dimension": model.hidden,
            "pooling_mode_cls_token": pooling == "first",
            "pooling_mode_mean_tokens": pooling == "mean",
        },
    )


_MODULES = "sentence_transformers.models"


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which appears under `path` when the block ends well, and else not at all.

    Raises:
      ConfigError: if there is something already.
    """
    if path.exists():
        raise ConfigError(f"{path} is there already; name a new folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        yield part
        part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class _Written:
    """A tensor of theirs that is made when it is written."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]


def _tensors(
    exported: Exported, params: Mapping[str, Any], model: Model, vocabulary: Vocabulary
) -> Iterator[_Written]:
    """All tensors to write."""
    architecture = exported.architecture
    for tensor in architecture.tensors:
        if tensor.ours in exported.left_out:
            continue
        for layer in range(model.layers if tensor.stacked else 1):
            if tensor.ours in params:
                one = params[tensor.ours]
            elif tensor.ours == "embeddings/token_type":
                one = np.zeros((1, model.hidden), np.float32)
            else:
                continue
            if tensor.ours == "embeddings/token_type":  # the first row is every token's
                more = architectures.token_types(architecture, model) - len(one)
                one = np.concatenate([one, np.repeat(one[:1], more, 0)])
            name = tensor.theirs.format(layer=layer)
            if exported.head and not tensor.head:
                name = f"{architecture.prefix}.{name}"
            made = _Theirs(tensor, one, layer, architecture, vocabulary)
            yield _Written(name, made.shape(), made)


@dataclasses.dataclass(frozen=True)
class _Theirs:
    """A parameter of ours, or a layer of it, in the layout that theirs has; made when called."""

    tensor: Tensor
    ours: Any
    layer: int
    architecture: Architecture
    vocabulary: Vocabulary

    def shape(self) -> tuple[int, ...]:
        shape = list(self.ours.shape[self.tensor.stacked :])
        shape[0] += self._more_positions()
        return tuple(reversed(shape) if self.tensor.transposed else shape)

    def __call__(self) -> np.ndarray:
        one = self.ours[self.layer] if self.tensor.stacked else self.ours
        array = architectures.shifted(np.asarray(one, np.float32), self._more_positions())
        if self.tensor.by_word:
            rows = np.empty_like(array)
            rows[self.vocabulary.native_ids] = array
            array = rows
        return np.ascontiguousarray(array.T if self.tensor.transposed else array)

    def _more_positions(self) -> int:
        """Rows that their position table has before ours; negative if it has fewer."""
        is_position = self.tensor.ours == "embeddings/position"
        return self.architecture.first_position - FIRST_POSITION if is_position else 0


def _write_tensors(folder: Path, tensors: list[_Written]) -> None:
    """One file, or shards of at most 2 GB and their index; one shard in memory at a time."""
    shards: list[list[_Written]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(map(_bytes, [*shards[-1], tensor])) > _SHARD_BYTES:
            shards.append([])
        shards[-1].append(tensor)
    names = [WEIGHTS] if len(shards) == 1 else [
        f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)
    ]  # fmt: skip
    for name, shard in zip(names, shards, strict=True):
        content = {tensor.name: tensor.make() for tensor in shard}
        save_file(content, folder / name, metadata={"format": "pt"})
        (folder / name).chmod((folder / CONFIG).stat().st_mode)  # as any file, not its owner's only
    if len(shards) > 1:
        weight_map = {t.name: n for n, shard in zip(names, shards, strict=True) for t in shard}
        size = {"total_size": sum(map(_bytes, tensors))}
        _write_json(folder / INDEX, {"metadata": size, "weight_map": weight_map})


def _bytes(tensor: _Written) -> int:
    return 4 * math.prod(tensor.shape)


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=isinstance(content, dict)) + "\n")
