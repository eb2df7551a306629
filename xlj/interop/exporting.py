"""Exports an encoder as a Hugging Face folder that transformers loads."""

import dataclasses
import json
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xlj.config import ConfigError, Model
from xlj.config.families import options_of
from xlj.config.sections import BIASES
from xlj.contracts.arrays import PyTree
from xlj.data.labelled import kind
from xlj.data.labelled.kind import HuggingFace
from xlj.data.tokenizer.layout import EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import architectures, tokenizer_files
from xlj.interop.architectures import (
    SURPLUS,
    TASKS,
    TOKEN_TYPE,
    WHOLE,
    XLJ,
    XLM_R,
    Architecture,
    Tensor,
)
from xlj.interop.folder import CONFIG, INDEX, WEIGHTS
from xlj.interop.sentence_modules import SENTENCE
from xlj.io import atomic
from xlj.io.json_file import Record
from xlj.models import pattern
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.encoder import PARTS
from xlj.objectives.task_heads import head_of

_SHARD_BYTES = 2 << 30
_BLOCK = 1 << 24  # numbers of an embedding written at a time

_MASKED = "prediction_head"

_AUTO_MAP = {"AutoConfig": "configuration_xlj.XljConfig"} | {
    architectures.auto_class(head): f"modeling_xlj.{name}" for head, name in XLJ.classes.items()
}
"""The classes of `remote_code` that transformers' `Auto` classes load."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """A plan for the content of a folder.

    Attributes:
      head: `prediction_head`, or the head of a fine-tuned task; empty without a head.
      left_out: parameters that are not exported, with the reason.
      rows: for each row of the exported word embeddings, the row of xlj's table (`_rows`).
      labels: the names of the task's classes or tags, in order.
      own: the kind of task, if it is user code.
    """

    architecture: Architecture
    head: str
    left_out: Mapping[str, str]
    rows: np.ndarray
    labels: tuple[str, ...] = ()
    own: str = ""

    @property
    def hf_task(self) -> HuggingFace | None:
        """Transformers' class for the head, if it is a task's head."""
        return architectures.of_head(self.head, self.own)


_WRITTEN = {
    "family", "norm", "absolute_positions", "position_bias", "token_types", "pair_token_types",
    "layer_norm_epsilon", "dropout", "dropout_parts", "attention_dropout",
}  # fmt: skip
"""Options that architectures like XLM-R write to config.json, or that `_like_xlm_r` checks."""

_OF_TRAINING = {
    "family", "dropout", "dropout_parts", "attention_dropout", "attention", "dtype", "scan_layers",
    "remat", "init_std", "language_embeddings", "pair_positions", "position_buckets",
    "position_distance", "full_attention_every", "full_layers", "pair_token_types",
}  # fmt: skip
"""Options that config.json does not have: they change no output, or are checked elsewhere."""


def plan(
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    headless: bool,
    labels: tuple[str, ...] = (),
    names: str = "",
    own: str = "",
) -> Exported:
    """Chooses the architecture for a model, and the parameters that it cannot represent.

    Args:
      params: leaves by name, e.g. layers/attention/query/kernel.
      headless: the export ends before the last layer, so it has no head.
      labels: the names of the task's classes or tags, in order.
      names: the set of tensor names, if the architecture has several (`StoredModel.names`).
      own: the kind of task, if it is user code.

    Raises:
      ConfigError: if no architecture computes the same outputs, or the labels do not fit the head.
    """
    if model.language_embeddings == "all":
        raise ConfigError(
            "model.language_embeddings=all adds a language embedding to every token; no "
            "architecture of transformers does, so the model cannot be exported"
        )
    if (model.absolute_positions or model.rotary_base) and model.pair_positions == "restart":
        raise ConfigError(
            "model.pair_positions=restart restarts positions at a pair's second sentence; "
            "transformers does not, so vectors of pairs would differ and the model cannot be "
            "exported"
        )
    options = _unlike(model, options_of("xlm_r"), _WRITTEN)
    if model.norm == "embeddings":
        options["norm"] = model.norm
    architecture = _modern(model, options) if options else _like_xlm_r(model, vocabulary)
    if model.norm != "post" and headless:
        raise ConfigError(
            f"model.norm={model.norm} puts a final norm after the last layer; the model can be "
            "exported with all layers only"
        )
    pad = int(vocabulary.native_ids[PAD])
    if architecture.prefix == XLM_R.prefix and pad < 0:
        raise ConfigError(
            f"the tokenizer has no padding token, but {architecture.model_type} counts positions "
            "from its id; the model cannot be exported"
        )
    architecture = architectures.with_pad(architecture, pad).named(names)
    parts = {name.partition("/")[0] for name in params}
    of_kind = head_of(own) if own else next((part for part in sorted(parts) if part in TASKS), "")
    if of_kind in parts:
        architecture = architectures.with_head(architecture, of_kind, own)
    heads = [head for head in architecture.classes if head in parts]
    head = "" if headless or not heads else heads[-1]  # a task's head comes after prediction_head
    left_out = _left_out(params, heads, head, headless, own)
    own = own if head == of_kind else ""
    rows, labels = _rows(vocabulary, params), _labels(params, head, own, labels)
    return Exported(architecture, head, left_out, rows, labels, own)


def _labels(
    params: Mapping[str, PyTree], head: str, own: str, labels: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the names of a head's outputs: the labels, or transformers' default names if outputs
    have no labels but config.json counts them.

    Raises:
      ConfigError: if the labels do not fit the head.
    """
    hf_task = architectures.of_head(head, own)
    if hf_task is None:
        return ()
    named = kind.find(own or TASKS[head]).has_labels
    if not named and not hf_task.like:
        return ()
    outputs = params[f"{head}/output/bias"].shape[0]
    if not named:
        return tuple(f"LABEL_{number}" for number in range(outputs))
    if outputs != len(labels):
        raise ConfigError(
            f"the checkpoint's {head} has {outputs} outputs, but its config has {len(labels)} "
            "labels; export a checkpoint that xlj.finetune or xlj.convert import wrote"
        )
    return labels


def _unlike(
    model: Model, options: Mapping[str, object], others: Collection[str]
) -> dict[str, object]:
    """Returns the options of a model that differ from `options`, without the names in `others`."""
    canonical = _canonical(model)
    return {
        name: getattr(model, name)
        for name, value in {**options, "middle_norm": False}.items()
        if name not in others and getattr(canonical, name) != value
    }


def _canonical(model: Model) -> Model:
    """Returns the model with one spelling of options that have several equal ones."""
    local = [kind.is_local for kind in pattern.kinds(model, model.layers)]
    return dataclasses.replace(
        model,
        key_value_heads=model.key_value_heads % model.heads,
        biases=tuple(name for name in BIASES if name in model.biases),
        local_attention=model.local_attention if any(local) else 0,
        rotary_local_base=(model.rotary_local_base or model.rotary_base) if any(local) else 0.0,
    )


def _like_xlm_r(model: Model, vocabulary: Vocabulary) -> Architecture:
    """Returns the architecture for a model with learned positions or a position bias."""
    plain = model.position_bias == "none" and model.absolute_positions
    architecture = architectures.OF_MARKERS[vocabulary.markers] if plain else XLJ
    if model.norm == "post":
        return architecture
    if architecture is not XLM_R:
        raise ConfigError(
            "model.norm=pre: the model can be exported with a SentencePiece vocabulary and without "
            "a position bias only"
        )
    return architectures.XLM_R_XL


def _modern(model: Model, own: Mapping[str, object]) -> Architecture:
    """Returns the architecture that reads the same model from the config.json that it writes.

    Args:
      own: the options of the model that differ from XLM-R's.
    """
    written, lacking = {a.model_type: a for a in architectures.MODERN}, {XLM_R.model_type: own}
    if model.rotary_base:
        lacking = {name: _lacking(architecture, model) for name, architecture in written.items()}
    nearest = min(lacking, key=lambda name: len(lacking[name]))
    if lacking[nearest]:
        raise ConfigError(
            f"{_format(own)}: the model cannot be exported, because no architecture has these "
            f"options; the nearest, {nearest}, does not have {_format(lacking[nearest])}"
        )
    return written[nearest]


def _lacking(architecture: Architecture, model: Model) -> dict[str, object]:
    """Returns the options of a model that an architecture's config.json does not preserve."""
    written = architectures.config_of(architecture, model, 1)
    read = architectures.model_of(architecture, written, CONFIG)
    unlike = _unlike(model, dataclasses.asdict(_canonical(read)), _OF_TRAINING)
    if pattern.kinds(read, model.layers) != pattern.kinds(model, model.layers):
        unlike["full_layers"] = model.full_layers
    return unlike


def _format(options: Mapping[str, object]) -> str:
    return ", ".join(f"model.{name}={_format_value(value)}" for name, value in options.items())


def _format_value(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value


def _left_out(
    params: Iterable[str], heads: Collection[str], head: str, headless: bool, own: str
) -> dict[str, str]:
    """Returns the parameters that are not exported, with the reason."""
    left_out = {}
    for name in params:
        part = name.partition("/")[0]
        if name.startswith(SENTENCE):
            continue  # the caller decides whether to write them
        if name.startswith(SURPLUS):
            if name.removeprefix(SURPLUS).startswith("prediction_head/") and head != _MASKED:
                left_out[name] = "belongs to the head for masked tokens, which is not exported"
        elif part in heads and headless:
            left_out[name] = "the export ends before the last layer"
        elif part in heads and part != head:
            left_out[name] = "a folder has one head, that of the fine-tuned task"
        elif part in TASKS and part not in heads:
            left_out[name] = "transformers has a different head for this task and architecture"
        elif own and part == head_of(own) and part != head:
            left_out[name] = "its kind of task does not name a matching class of transformers"
        elif part == head_of("pair_classification"):
            left_out[name] = "transformers has no class that encodes two sentences separately"
        elif name == "embeddings/language":
            left_out[name] = "used in pretraining only, to predict or generate tokens"
        elif part not in (*PARTS, head):
            left_out[name] = "belongs to a pretraining objective"
    return left_out


def write(
    folder: Path,
    exported: Exported,
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    pairs_as_rows: bool = False,
) -> None:
    """Writes config.json, the tensors and the tokenizer into an existing folder.

    Args:
      params: leaves by name, with stacked layers; the first `model.layers` layers are written. A
        leaf needs a shape; it is converted to an array when it is written, one at a time.
      pairs_as_rows: the tokenizer encodes pairs as xlj's rows do (for which a fine-tuned model was
        trained), not as its family does.
    """
    architecture = exported.architecture
    config = architectures.config_of(architecture, model, len(exported.rows))
    config |= architectures.config_of_task(exported.head, exported.labels, exported.own)
    config["architectures"] = [architecture.classes[exported.head]]
    config |= _token_ids(architecture, vocabulary)
    if architecture.model_type == XLJ.model_type:
        config["auto_map"] = _AUTO_MAP
        for name in ("configuration_xlj.py", "modeling_xlj.py"):
            source = Path(__file__).parent / "remote_code" / name
            atomic.write(folder / name, source.read_bytes())
    _write_json(folder / CONFIG, config)
    _write_tensors(folder, list(_tensors(exported, params, model)))
    tokenizer_files.write(
        vocabulary,
        folder,
        model.positions - FIRST_POSITION,
        model.pair_token_types,
        pairs_as_rows,
        separated=model.pair_separator == "parallel",
    )


def _native_id(vocabulary: Vocabulary, special: int) -> int:
    """Returns a special's id in the file. Without `<pad>` it is the id of `</s>`: padding is then
    known from lengths."""
    number = vocabulary.native_special_ids[special]
    return vocabulary.native_special_ids[EOS] if number is None else number  # type: ignore[return-value]


def _token_ids(architecture: Architecture, vocabulary: Vocabulary) -> Record:
    """Returns the keys of config.json with ids of special tokens. If padding has no id, it has the
    id of the last token, as in EuroBERT."""
    numbers = {name: _native_id(vocabulary, i) for name, i in architecture.specials.items()}
    return {f"{name}_token_id": number for name, number in numbers.items()}


def _rows(vocabulary: Vocabulary, params: Mapping[str, PyTree]) -> np.ndarray:
    """Returns, for each row of the exported word embeddings, the row of xlj's table to write.

    Indices after xlj's table are surplus rows, in order. The index after these is a row of zeros.
    """
    ids, size = vocabulary.native_ids, vocabulary.size
    surplus = params.get(f"{SURPLUS}embeddings/word")
    known = ids >= 0
    more = 0 if surplus is None else surplus.shape[0]
    length = int(known.sum()) + more if more else int(ids.max()) + 1
    rows = np.full(length, size + more)
    rows[ids[known]] = np.flatnonzero(known)
    if more:
        rows[rows == size + more] = np.arange(size, size + more)
    return rows


def _tensors(
    exported: Exported, params: Mapping[str, PyTree], model: Model
) -> Iterator["_HfTensor"]:
    """Yields all tensors to write; tensors of the same parameter follow each other."""
    architecture = exported.architecture
    types = architectures.token_types(architecture, model)
    params = {TOKEN_TYPE.xlj_name: np.zeros((min(types, 1), model.hidden), np.float32), **params}
    more_rows = {
        "embeddings/position": architecture.first_position - FIRST_POSITION,
        TOKEN_TYPE.xlj_name: types - params[TOKEN_TYPE.xlj_name].shape[0],
    }
    parts: dict[str, list[_Part]] = {}
    for tensor in architecture.tensors:
        if tensor.xlj_name in exported.left_out or tensor.xlj_name not in params:
            continue
        if tensor == TOKEN_TYPE and not types:
            continue
        surplus = params.get(SURPLUS + tensor.xlj_name)
        for layer in range(tensor.first_layer, model.layers if tensor.stacked else 1):
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
    """A tensor of the folder, or a share of one, and the parameter that it comes from.

    Attributes:
      parameter: xlj's parameter; the tensor may be one layer or a share of it.
      layer: the index in the layers' axis.
      more_rows: rows to add, before the first row (positions) or after the last (token types).
      rows: the row of the parameter for each row of the tensor, if rows belong to ids (`_rows`).
      surplus: rows after those of the parameter, or None.
    """

    tensor: Tensor
    parameter: Any
    layer: int
    more_rows: int
    rows: np.ndarray
    surplus: Any

    def shape(self) -> tuple[int, ...]:
        shape = [*self.parameter.shape[self.tensor.stacked :]]
        shape[-1] //= self.tensor.xlj_share[1]
        shape[0] = len(self.rows) if self.tensor.by_word else shape[0] + self.more_rows
        return tuple(shape[::-1] if self.tensor.transposed else shape)

    def bytes(self) -> int:
        return 4 * math.prod(self.shape())

    def blocks(self, parameter: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the rows in order, given the values of the whole parameter."""
        if self.tensor.by_word:
            yield from self._blocks_of_words(parameter)
            return
        array = parameter[self.layer] if self.tensor.stacked else parameter
        if self.tensor.xlj_share != WHOLE:
            number, count = self.tensor.xlj_share
            array = np.split(array, count, axis=-1)[number]
        if self.tensor.xlj_name == "embeddings/position":
            array = architectures.shifted(array, self.more_rows)
        elif self.more_rows:  # all tokens have the first token type, so its row is repeated
            array = np.concatenate([array, np.repeat(array[:1], self.more_rows, 0)])
        yield np.ascontiguousarray(array.T if self.tensor.transposed else array)

    def _blocks_of_words(self, table: np.ndarray) -> Iterator[np.ndarray]:
        further = np.zeros((max(1, self.rows.max() + 1 - len(table)), *table.shape[1:]), "<f4")
        if self.surplus is not None:
            further[: self.surplus.shape[0]] = np.asarray(self.surplus)
        rows = max(1, _BLOCK // math.prod(table.shape[1:]))
        for start in range(0, len(self.rows), rows):
            indices = self.rows[start : start + rows]
            block = table[np.minimum(indices, len(table) - 1)]
            is_further = indices >= len(table)
            block[is_further] = further[indices[is_further] - len(table)]
            yield block


@dataclasses.dataclass(frozen=True)
class _HfTensor:
    """A tensor of the folder and its parts: shares of its first axis, in order."""

    name: str
    parts: tuple[_Part, ...]

    def shape(self) -> tuple[int, ...]:
        first, *rest = self.parts[0].shape()
        return first * len(self.parts), *rest

    def bytes(self) -> int:
        return sum(part.bytes() for part in self.parts)


def _write_tensors(folder: Path, tensors: list[_HfTensor]) -> None:
    """Writes one file, or shards of at most 2 GiB and their index."""
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

    The library's writer is not used, because it needs all tensors in memory.
    """
    header: Record = {"__metadata__": {"format": "pt"}}
    end = 0
    places: dict[str, list[tuple[int, _Part]]] = {}
    for tensor in tensors:
        start, end = end, end + tensor.bytes()
        offsets = {"data_offsets": (start, end)}
        header[tensor.name] = {"dtype": "F32", "shape": tensor.shape(), **offsets}
        for part in tensor.parts:
            places.setdefault(part.tensor.xlj_name, []).append((start, part))
            start += part.bytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic.writing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for group in places.values():
            _write_parameter(file, 8 + len(text), group)


def _write_parameter(file: BinaryIO, begin: int, places: list[tuple[int, _Part]]) -> None:
    """Writes the tensors of one parameter into a file, which is in memory for this call only.

    Args:
      begin: where the tensors' bytes begin in the file.
      places: (offset in bytes from `begin`, tensor or share of a tensor).
    """
    parameter = np.asarray(places[0][1].parameter, "<f4")
    for start, part in places:
        file.seek(begin + start)
        for block in part.blocks(parameter):
            file.write(block.data)


def _write_json(file: Path, content: list | dict) -> None:
    text = json.dumps(content, indent=2, sort_keys=isinstance(content, dict)) + "\n"
    atomic.write(file, text.encode())
