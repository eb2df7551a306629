"""Exports an encoder as a Hugging Face folder that transformers loads."""

import dataclasses
import json
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xlj import families
from xlj.config import ConfigError, Model
from xlj.config.choices import AlignmentOptions
from xlj.config.families import options_of
from xlj.config.sections import BIASES
from xlj.config.task import Task
from xlj.contracts.arrays import PyTree
from xlj.data.labelled import kind
from xlj.data.labelled.kind import HuggingFace
from xlj.data.tokenizer.layout import EOS, PAD, ROLES
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.families.interface import POOLER, SURPLUS, TOKEN_TYPE, WHOLE, Architecture, Tensor
from xlj.families.modern import is_local
from xlj.families.xlm_r import XLJ
from xlj.interop import model_config, task_heads, tokenizer_files
from xlj.interop.folder import CONFIG, INDEX, TRAINED_ON_PAIRS, WEIGHTS, WORD_ALIGNMENT
from xlj.interop.sentence_modules import SENTENCE
from xlj.interop.task_heads import TASKS
from xlj.io import atomic
from xlj.io.json_file import Record
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.encoder import PARTS
from xlj.objectives.supervised.head import head_of

_SHARD_BYTES = 2 << 30
_BLOCK = 1 << 24  # how many numbers of an embedding are written at a time

_PREDICTION_HEAD = "prediction_head"

_AUTO_MAP = {"AutoConfig": "configuration_xlj.XljConfig"} | {
    task_heads.auto_class(head): f"modeling_xlj.{task_heads.class_of(XLJ.class_prefix, head)}"
    for head in XLJ.heads
}
"""The entry `auto_map` of config.json: for each `Auto` class, the class of `remote_code`."""


@dataclasses.dataclass(frozen=True)
class ExportPlan:
    """The plan of an export: the architecture, the head, and what the folder contains.

    Attributes:
      head: `prediction_head`, or the head of a fine-tuned task; empty for an encoder without a
        head.
      left_out: parameters that are not exported, with the reason.
      rows: for each row of the exported word embeddings, the index of its source
        (`_choose_rows`).
      labels: the names of the task's classes or tags, in order.
      own: the name of the kind of task if user code defines this kind; empty for xlj's kinds.
      task: the task of the head, for its description; None for a general description.
      trained_on_pairs: whether the model was trained on pairs that are encoded together.
      alignment: the options of word alignment.
    """

    architecture: Architecture
    head: str
    left_out: Mapping[str, str]
    rows: np.ndarray
    labels: tuple[str, ...] = ()
    own: str = ""
    task: Task | None = None
    trained_on_pairs: bool = False
    alignment: AlignmentOptions = AlignmentOptions()

    @property
    def hf_task(self) -> HuggingFace | None:
        """The transformers class for the head; None if the head is not a task head."""
        hf_task = task_heads.hf_task_of(self.head, self.own)
        if hf_task is None or self.task is None:
            return hf_task
        return kind.find(self.task.effective_kind).hugging_face_for(self.task)


_MAY_DIFFER_FROM_XLM_R = {
    "family", "norm", "absolute_positions", "position_bias", "token_types", "pair_marks",
    "layer_norm_epsilon", "dropout", "dropout_parts", "attention_dropout", "task_head",
    "task_pooling",
}  # fmt: skip
"""Options of `Model` in which a model may differ from XLM-R and still have an architecture like
XLM-R's. config.json contains these options, or `XlmR.export_as` checks them."""

_NOT_COMPARED = {
    "family", "dropout", "dropout_parts", "attention_dropout", "attention", "dtype", "scan_layers",
    "remat", "init_std", "language_embeddings", "pair_marks", "position_buckets",
    "position_distance", "full_attention_every", "full_layers", "task_head", "task_pooling",
}  # fmt: skip
"""Options of `Model` that `_find_unsupported` does not compare. Either they do not change
the output of the model, or other code checks them."""


def plan(
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    headless: bool,
    labels: tuple[str, ...] = (),
    own: str = "",
    is_sentence: bool = False,
) -> ExportPlan:
    """Chooses the architecture of an export, and finds the parameters that it cannot contain.

    Args:
      params: the parameters by name, e.g. layers/attention/query/kernel.
      headless: whether the export ends before the last layer. Such an export has no head.
      labels: the names of the task's classes or tags, in order.
      own: the name of the kind of task if user code defines this kind; empty for xlj's kinds.
      is_sentence: whether the folder is for sentence-transformers, which loads no head.

    Raises:
      ConfigError: if no architecture computes the same outputs, or the labels do not fit the head.
    """
    if model.language_embeddings == "all":
        raise ConfigError(
            "model.language_embeddings=all: the model cannot be exported, because no architecture "
            "of transformers adds a language embedding to every token"
        )
    if "positions" in model.pair_marks:
        raise ConfigError(
            "model.pair_marks=positions: the model cannot be exported, because transformers does "
            "not restart positions at the second sentence of a pair"
        )
    architecture = _choose_family(model).export_as(model, vocabulary.markers)
    if model.norm != "post" and headless:
        raise ConfigError(
            f"model.norm={model.norm} adds a norm after the last layer, so an export must contain "
            "all layers; remove --layer"
        )
    pad = int(vocabulary.native_ids[PAD])
    if architecture.has_pad_rows and pad < 0:
        raise ConfigError(
            "the model cannot be exported: its tokenizer has no padding token, but "
            f"{architecture.model_type} counts positions from the padding token's id"
        )
    architecture = architecture.with_pad(pad)
    top_names = {name.partition("/")[0] for name in params}
    task_head = (
        head_of(own) if own else next((part for part in sorted(top_names) if part in TASKS), "")
    )
    architecture = task_heads.with_head(architecture, task_head, own)
    refused = {
        part: reason
        for part in top_names & {*TASKS, task_head}
        if (reason := task_heads.why_not(architecture, part, model, own))
    }
    heads = [head for head in architecture.heads if head in top_names - refused.keys()]
    no_head = (headless and "the export ends before the last layer") or (
        is_sentence and "sentence-transformers loads no head"
    )
    head = "" if no_head or not heads else heads[-1]  # a task's head comes after prediction_head
    left_out = _find_left_out(params, heads, head, no_head or "", refused)
    own = own if head == task_head else ""
    rows, labels = _choose_rows(vocabulary, params), _output_names(params, head, own, labels)
    return ExportPlan(architecture, head, left_out, rows, labels, own)


def _output_names(
    params: Mapping[str, PyTree], head: str, own: str, labels: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the names of a head's outputs for config.json.

    - If the task has labels, these are the names.
    - If the task has no labels, but the head's class reads the number of outputs from config.json,
      the names are transformers' default names LABEL_0, LABEL_1, ...
    - Otherwise there are no names.

    Raises:
      ConfigError: if the labels do not fit the head.
    """
    hf_task = task_heads.hf_task_of(head, own)
    if hf_task is None:
        return ()
    has_labels = kind.find(own or TASKS[head]).has_labels
    if not has_labels and not hf_task.like:
        return ()
    outputs = params[f"{head}/output/bias"].shape[0]
    if not has_labels:
        return tuple(f"LABEL_{number}" for number in range(outputs))
    if outputs != len(labels):
        raise ConfigError(
            f"the checkpoint's {head} has {outputs} outputs, but the checkpoint's config has "
            f"{len(labels)} labels; export a checkpoint of xlj.finetune, or one made by "
            "xlj.convert import"
        )
    return labels


def _find_differences(
    model: Model, options: Mapping[str, object], ignored: Collection[str]
) -> dict[str, object]:
    """Returns the options of a model that differ from `options`, except the names in `ignored`."""
    canonical = _canonicalise(model)
    return {
        name: getattr(model, name)
        for name, value in {**options, "middle_norm": False}.items()
        if name not in ignored and getattr(canonical, name) != value
    }


def _canonicalise(model: Model) -> Model:
    """Returns an equivalent model whose options have canonical values.

    Some options have several values with the same meaning. For example, `key_value_heads` may be 0
    or the number of heads.
    """
    has_local_layers = any(is_local(model, layer) for layer in range(model.layers))
    return dataclasses.replace(
        model,
        key_value_heads=model.key_value_heads % model.heads,
        biases=tuple(name for name in BIASES if name in model.biases),
        local_attention=model.local_attention if has_local_layers else 0,
        rotary_local_base=(
            model.rotary_local_base or model.rotary_base if has_local_layers else 0.0
        ),
    )


def _choose_family(model: Model) -> families.Family:
    """Returns the family that preserves all options of a model.

    XLM-R's family preserves them if the model differs from XLM-R only in `_MAY_DIFFER_FROM_XLM_R`.
    Another family preserves them if the config.json that xlj writes for the model is read as the
    same model again. If several families preserve them, the family that `model.family` names is
    returned.

    Raises:
      ConfigError: if no family preserves all options.
    """
    unlike_xlm_r = _find_differences(model, options_of("xlm_r"), _MAY_DIFFER_FROM_XLM_R)
    if model.norm == "embeddings":
        unlike_xlm_r["norm"] = model.norm
    lacking = {"xlm_r": unlike_xlm_r}
    for name, family in families.all_families():
        if name != "xlm_r":
            try:
                lacking[name] = _find_unsupported(family.architectures[0], model)
            except ConfigError:  # the architecture cannot express the model, e.g. its positions
                continue

    def distance(name: str) -> tuple[bool, int, bool]:
        lacks_rotary = name == "xlm_r" and model.rotary_base > 0
        return lacks_rotary, len(lacking[name]), name != model.family

    nearest = min(lacking, key=distance)
    if lacking[nearest]:
        raise ConfigError(
            f"{_format(unlike_xlm_r)}: the model cannot be exported, because no architecture "
            f"supports these options; the nearest one, "
            f"{families.load(nearest).architectures[0].model_type}, does not support "
            f"{_format(lacking[nearest])}"
        )
    return families.load(nearest)


def _find_unsupported(architecture: Architecture, model: Model) -> dict[str, object]:
    """Returns the options of a model that an architecture's config.json does not preserve.

    Raises:
      ConfigError: if the config.json is not valid.
    """
    written = model_config.make_config(architecture, model, 1)
    read = model_config.read_model(architecture, written, CONFIG)
    unlike = _find_differences(model, dataclasses.asdict(_canonicalise(read)), _NOT_COMPARED)
    if any(is_local(read, layer) != is_local(model, layer) for layer in range(model.layers)):
        unlike["full_layers"] = model.full_layers
    return unlike


def _format(options: Mapping[str, object]) -> str:
    return ", ".join(f"model.{name}={_format_value(value)}" for name, value in options.items())


def _format_value(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value


def _find_left_out(
    params: Iterable[str],
    heads: Collection[str],
    head: str,
    no_head: str,
    refused: Mapping[str, str],
) -> dict[str, str]:
    """Returns the parameters that are not exported, each with the reason.

    Args:
      no_head: why the export has no head; empty if it may have one.
      refused: task heads that no class of transformers computes, each with the reason.
    """
    left_out = {}
    for name in params:
        part = name.partition("/")[0]
        if name.startswith(SENTENCE):
            continue  # the caller decides whether to export sentence modules
        if name.startswith(SURPLUS):
            if (
                name.removeprefix(SURPLUS).startswith("prediction_head/")
                and head != _PREDICTION_HEAD
            ):
                left_out[name] = "belongs to the head for masked tokens, which is not exported"
        elif part in heads and no_head:
            left_out[name] = no_head
        elif part in heads and part != head:
            left_out[name] = "a folder has one head, which is the fine-tuned task's head"
        elif part in refused:
            left_out[name] = refused[part]
        elif part == head_of("pair_classification"):
            left_out[name] = "transformers has no class that encodes two sentences separately"
        elif name == "embeddings/language":
            left_out[name] = "used in pretraining only, to predict or generate tokens"
        elif part not in (*PARTS, head):
            left_out[name] = "belongs to a pretraining objective"
    return left_out


def write(
    folder: Path,
    exported: ExportPlan,
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    pairs_as_rows: bool = False,
) -> None:
    """Writes config.json, the tensors and the tokenizer into an existing folder.

    Args:
      params: the parameters by name. Layers are stacked on the first axis, and the first
        `model.layers` layers are written. Each parameter needs `shape`, and is converted to a NumPy
        array only while it is written.
      pairs_as_rows: whether the tokenizer encodes pairs as in xlj's rows, on which fine-tuning
        trains. Otherwise it encodes pairs as its family does (`tokenizer_files.write`).
    """
    architecture = exported.architecture
    config = model_config.make_config(architecture, model, len(exported.rows))
    config |= task_heads.make_task_config(exported.head, exported.labels, exported.own)
    config["architectures"] = [
        task_heads.class_of(architecture.class_prefix, exported.head, exported.own)
    ]
    config |= _token_ids(architecture, vocabulary)
    config |= {TRAINED_ON_PAIRS: True} if exported.trained_on_pairs else {}
    defaults = dataclasses.asdict(AlignmentOptions()).items()
    chosen = dict(dataclasses.asdict(exported.alignment).items() - defaults)
    config |= {WORD_ALIGNMENT: chosen} if chosen else {}
    if architecture.model_type == XLJ.model_type:
        config["auto_map"] = _AUTO_MAP
        for name in ("configuration_xlj.py", "modeling_xlj.py"):
            source = Path(__file__).parent / "remote_code" / name
            atomic.write(folder / name, source.read_bytes())
    _write_json(folder / CONFIG, config)
    _write_tensors(folder, list(_list_tensors(exported, params, model)))
    tokenizer_files.write(
        vocabulary,
        folder,
        model.positions - FIRST_POSITION,
        model.pair_marks,
        pairs_as_rows,
    )


def _native_id(vocabulary: Vocabulary, role: str) -> int:
    """Returns the id of the special token with a role (`ROLES`) in the tokenizer's file.

    If the file has no such token, the function returns the id of `</s>`. EuroBERT, for example, has
    no padding token and pads with `</s>`.
    """
    number = vocabulary.native_special_ids[ROLES.index(role)]
    return vocabulary.native_special_ids[EOS] if number is None else number  # type: ignore[return-value]


def _token_ids(architecture: Architecture, vocabulary: Vocabulary) -> Record:
    """Returns the keys of config.json with the ids of special tokens."""
    numbers = {name: _native_id(vocabulary, role) for name, role in architecture.specials.items()}
    return {f"{name}_token_id": number for name, number in numbers.items()}


def _choose_rows(vocabulary: Vocabulary, params: Mapping[str, PyTree]) -> np.ndarray:
    """Returns, for each row of the exported word embeddings, the index of its source, int [rows].

    Index i below the vocabulary's size is row i of xlj's table. The next indices are the surplus
    rows: rows of an imported model that have no id, since many models pad their tables (`SURPLUS`).
    The index after the last surplus row means a row of zeros.
    """
    ids, size = vocabulary.native_ids, vocabulary.size
    surplus = params.get(f"{SURPLUS}embeddings/word")
    known = ids >= 0
    surplus_rows = 0 if surplus is None else surplus.shape[0]
    length = int(known.sum()) + surplus_rows if surplus_rows else int(ids.max()) + 1
    rows = np.full(length, size + surplus_rows)
    rows[ids[known]] = np.flatnonzero(known)
    if surplus_rows:
        rows[rows == size + surplus_rows] = np.arange(size, size + surplus_rows)
    return rows


def vocabulary_rows(
    table: np.ndarray, rows: np.ndarray, surplus: PyTree | None
) -> Iterator[np.ndarray]:
    """Yields the rows of an exported parameter with a row for each id, float32 [n, ...], in blocks.

    Args:
      table: xlj's parameter, [ids, ...].
      rows: `ExportPlan.rows`.
      surplus: the surplus rows of the parameter (`SURPLUS`), or None.
    """
    added_rows = np.zeros((max(1, rows.max() + 1 - len(table)), *table.shape[1:]), "<f4")
    if surplus is not None:
        added_rows[: surplus.shape[0]] = np.asarray(surplus)
    count = max(1, _BLOCK // math.prod(table.shape[1:]))
    for start in range(0, len(rows), count):
        indices = rows[start : start + count]
        block = table[np.minimum(indices, len(table) - 1)]
        is_added = indices >= len(table)
        block[is_added] = added_rows[indices[is_added] - len(table)]
        yield block


def _list_tensors(
    exported: ExportPlan, params: Mapping[str, PyTree], model: Model
) -> Iterator["_HfTensor"]:
    """Yields all tensors to write, in the order of the architecture's table."""
    architecture = exported.architecture
    types = architecture.type_rows(model)
    params = {TOKEN_TYPE.xlj_name: np.zeros((min(types, 1), model.hidden), np.float32), **params}
    more_rows = {
        "embeddings/position": architecture.first_position - FIRST_POSITION,
        TOKEN_TYPE.xlj_name: types - params[TOKEN_TYPE.xlj_name].shape[0],
    }
    tensors = architecture.tensors
    if architecture.has_pooler and not exported.head:
        tensors += POOLER
        identity = (np.eye(model.hidden, dtype=np.float32), np.zeros(model.hidden, np.float32))
        params |= {tensor.xlj_name: x for tensor, x in zip(POOLER, identity, strict=True)}
    parts: dict[str, list[_Part]] = {}
    for tensor in tensors:
        if tensor.xlj_name in exported.left_out or tensor.xlj_name not in params:
            continue
        if tensor == TOKEN_TYPE and not types:
            continue
        surplus = params.get(SURPLUS + tensor.xlj_name)
        for layer in range(tensor.first_layer, model.layers if tensor.is_stacked else 1):
            name = tensor.hf_name.format(layer=layer)
            if exported.head and not tensor.head:
                name = f"{architecture.prefix}.{name}"
            part = _Part(
                tensor, params[tensor.xlj_name], layer - tensor.first_layer,
                more_rows.get(tensor.xlj_name, 0), exported.rows, surplus,
            )  # fmt: skip
            parts.setdefault(name, []).append(part)
    for name, group in parts.items():
        yield _HfTensor(name, tuple(sorted(group, key=lambda part: part.tensor.hf_share)))


@dataclasses.dataclass(frozen=True)
class _Part:
    """A tensor of the folder, or a share of a tensor, and the parameter that contains its values.

    Attributes:
      parameter: xlj's parameter. The tensor may be one layer of it, or a share of its outputs.
      layer: the index on the parameter's layer axis.
      more_rows: the number of rows to add before the first row (position embeddings) or after the
        last row (token types). A negative number removes the first rows (position embeddings only).
      rows: the result of `_choose_rows`. Used only if the tensor has a row for each id of the
        vocabulary, such as the word embeddings.
      surplus: the surplus rows of the parameter (`SURPLUS`), or None.
    """

    tensor: Tensor
    parameter: Any
    layer: int
    more_rows: int
    rows: np.ndarray
    surplus: Any

    def shape(self) -> tuple[int, ...]:
        shape = [*self.parameter.shape[self.tensor.is_stacked :]]
        shape[-1] //= self.tensor.xlj_share[1]
        shape[0] = len(self.rows) if self.tensor.has_vocabulary_rows else shape[0] + self.more_rows
        return tuple(shape[::-1] if self.tensor.is_transposed else shape)

    def bytes(self) -> int:
        return 4 * math.prod(self.shape())

    def blocks(self, parameter: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the rows in order, in blocks.

        Args:
          parameter: the values of the whole parameter.
        """
        if self.tensor.has_vocabulary_rows:
            yield from vocabulary_rows(parameter, self.rows, self.surplus)
            return
        array = parameter[self.layer] if self.tensor.is_stacked else parameter
        if self.tensor.xlj_share != WHOLE:
            number, count = self.tensor.xlj_share
            array = np.split(array, count, axis=-1)[number]
        if self.tensor.xlj_name == "embeddings/position":
            array = model_config.shift_positions(array, self.more_rows)
        elif self.more_rows:  # in training all tokens had token type 0, so its row is repeated
            array = np.concatenate([array, np.repeat(array[:1], self.more_rows, 0)])
        yield np.ascontiguousarray(array.T if self.tensor.is_transposed else array)


@dataclasses.dataclass(frozen=True)
class _HfTensor:
    """A tensor of the folder. Its parts are shares of its first axis, in order."""

    name: str
    parts: tuple[_Part, ...]

    def shape(self) -> tuple[int, ...]:
        first, *rest = self.parts[0].shape()
        return first * len(self.parts), *rest

    def bytes(self) -> int:
        return sum(part.bytes() for part in self.parts)


def _write_tensors(folder: Path, tensors: list[_HfTensor]) -> None:
    """Writes one safetensors file, or shards with their index.

    A shard has at most 2 GiB, unless a single tensor is larger.
    """
    shards: list[list[_HfTensor]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(t.bytes() for t in [*shards[-1], tensor]) > _SHARD_BYTES:
            shards.append([])
        shards[-1].append(tensor)
    names = [WEIGHTS] if len(shards) == 1 else [
        f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)
    ]  # fmt: skip
    for name, shard in zip(names, shards, strict=True):
        _write_shard(folder / name, shard)
    if len(shards) > 1:
        weight_map = {t.name: n for n, shard in zip(names, shards, strict=True) for t in shard}
        size = {"total_size": sum(t.bytes() for t in tensors)}
        _write_json(folder / INDEX, {"metadata": size, "weight_map": weight_map})


def _write_shard(path: Path, tensors: list[_HfTensor]) -> None:
    """Writes a safetensors file: the length of the header, the header, and the tensors' bytes.

    The writer of the safetensors library would need all tensors in memory.
    """
    header: Record = {"__metadata__": {"format": "pt"}}
    end = 0
    slices: dict[str, list[tuple[int, _Part]]] = {}
    for tensor in tensors:
        start, end = end, end + tensor.bytes()
        offsets = {"data_offsets": (start, end)}
        header[tensor.name] = {"dtype": "F32", "shape": tensor.shape(), **offsets}
        for part in tensor.parts:
            slices.setdefault(part.tensor.xlj_name, []).append((start, part))
            start += part.bytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic.writing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for group in slices.values():
            _write_parameter(file, 8 + len(text), group)


def _write_parameter(file: BinaryIO, begin: int, slices: list[tuple[int, _Part]]) -> None:
    """Writes the tensors of one parameter into a file.

    The parameter is in memory only during this call.

    Args:
      begin: the offset in bytes at which the data of the tensors begins.
      slices: (offset in bytes from `begin`, tensor or share of a tensor) for each part.
    """
    parameter = np.asarray(slices[0][1].parameter, "<f4")
    for start, part in slices:
        file.seek(begin + start)
        for block in part.blocks(parameter):
            file.write(block.data)


def _write_json(file: Path, content: list | dict) -> None:
    text = json.dumps(content, indent=2, sort_keys=isinstance(content, dict)) + "\n"
    atomic.write(file, text.encode())
