"""An encoder of ours as a Hugging Face folder that transformers loads as its own."""

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
_BLOCK = 1 << 24  # numbers of an embedding that are moved at a time

_MASKED = "prediction_head"

_AUTO_MAP = {"AutoConfig": "configuration_xlj.XljConfig"} | {
    architectures.auto_class(head): f"modeling_xlj.{name}" for head, name in XLJ.classes.items()
}
"""Which classes of `remote_code` transformers' classes stand for."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """The content of a folder."""

    architecture: Architecture
    head: str  # prediction_head, or that of a fine-tuned task; empty if there is none
    left_out: Mapping[str, str]  # parameters that are not in it, and why
    rows: np.ndarray  # the rows of ours that those of their tables of words are (`_rows`)
    labels: tuple[str, ...] = ()  # names of the task's classes or tags, in order
    own: str = ""  # the kind of the task, if it is a user's own

    @property
    def hf_task(self) -> HuggingFace | None:
        """What transformers has for the head, if it is a task's."""
        return architectures.of_head(self.head, self.own)


_WRITTEN = {
    "family", "norm", "absolute_positions", "position_bias", "token_types", "pair_token_types",
    "layer_norm_epsilon", "dropout", "dropout_parts", "attention_dropout",
}  # fmt: skip
"""Options that distinguish families, and that architectures of 2019 write, or `_of_2019` checks."""

_OF_TRAINING = {
    "family", "dropout", "dropout_parts", "attention_dropout", "attention", "dtype", "scan_layers",
    "remat", "init_std", "language_embeddings", "pair_positions", "position_buckets",
    "position_distance", "full_attention_every", "full_layers", "pair_token_types",
}  # fmt: skip
"""Options that config.json need not say: they change no output, or are checked in another way."""


def plan(
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    headless: bool,
    labels: tuple[str, ...] = (),
    names: str = "",
    own: str = "",
) -> Exported:
    """Which architecture the parameters fit, and what of them it has no place for.

    Args:
      params: named leaves, e.g. layers/attention/query/kernel.
      headless: the encoder ends before its last layer, so leave the head out.
      names: the set of names of tensors, where the architecture has several (`StoredModel.names`).
      own: the kind of task, if it is a user's own.

    Raises:
      ConfigError: if no architecture computes what the model does, or the labels are not those of
        the head.
    """
    if model.language_embeddings == "all":
        raise ConfigError(
            "the model adds a language embedding to every token (model.language_embeddings=all); "
            "no architecture of transformers does, so it cannot be exported"
        )
    if (model.absolute_positions or model.rotary_base) and model.pair_positions == "restart":
        raise ConfigError(
            "positions restart at a pair's second sentence (model.pair_positions=restart), those "
            "of transformers run on, and its vectors of pairs would differ: it cannot be exported"
        )
    options = _unlike(model, options_of("xlm_r"), _WRITTEN)
    if model.norm == "embeddings":
        options["norm"] = model.norm
    architecture = _modern(model, options) if options else _of_2019(model, vocabulary)
    if model.norm != "post" and headless:
        raise ConfigError(
            f"the model's norms stand before its sub-layers (model.norm={model.norm}), and its "
            "last norm belongs to its last layer: it can be exported whole only"
        )
    pad = int(vocabulary.native_ids[PAD])
    if architecture.prefix == XLM_R.prefix and pad < 0:
        raise ConfigError(
            "the tokenizer has no padding of its own, from which positions are counted in "
            f"{architecture.model_type}: the model cannot be exported"
        )
    architecture = architectures.with_pad(architecture, pad).named(names)
    parts = {name.partition("/")[0] for name in params}
    of_kind = head_of(own) if own else next((part for part in sorted(parts) if part in TASKS), "")
    if of_kind in parts:
        architecture = architectures.with_head(architecture, of_kind, own)
    there = [head for head in architecture.classes if head in parts]
    head = "" if headless or not there else there[-1]  # a task's comes after prediction_head
    left_out = _left_out(params, there, head, headless, own)
    own = own if head == of_kind else ""
    rows, labels = _rows(vocabulary, params), _labels(params, head, own, labels)
    return Exported(architecture, head, left_out, rows, labels, own)


def _labels(
    params: Mapping[str, PyTree], head: str, own: str, labels: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of a head's outputs: the labels, or, where config.json counts outputs that have no
    names, those that transformers gives them.

    Raises:
      ConfigError: if the labels are not those of the head.
    """
    theirs = architectures.of_head(head, own)
    if theirs is None:
        return ()
    named = kind.find(own or TASKS[head]).has_labels
    if not named and not theirs.like:
        return ()
    outputs = params[f"{head}/output/bias"].shape[0]
    if not named:
        return tuple(f"LABEL_{number}" for number in range(outputs))
    if outputs != len(labels):
        raise ConfigError(
            f"the checkpoint's {head} has {outputs} classes, and its config names {len(labels)} "
            "labels: export a checkpoint that xlj.finetune wrote, or an import of a folder"
        )
    return labels


def _unlike(
    model: Model, options: Mapping[str, object], others: Collection[str]
) -> dict[str, object]:
    """The options of a model that have other values than these, but for some."""
    canonical = _canonical(model)
    return {
        name: getattr(model, name)
        for name, value in {**options, "middle_norm": False}.items()
        if name not in others and getattr(canonical, name) != value
    }


def _canonical(model: Model) -> Model:
    """The model with one spelling of options that have several."""
    local = [kind.is_local for kind in pattern.kinds(model, model.layers)]
    return dataclasses.replace(
        model,
        key_value_heads=model.key_value_heads % model.heads,
        biases=tuple(name for name in BIASES if name in model.biases),
        local_attention=model.local_attention if any(local) else 0,
        rotary_local_base=(model.rotary_local_base or model.rotary_base) if any(local) else 0.0,
    )


def _of_2019(model: Model, vocabulary: Vocabulary) -> Architecture:
    """The architecture with learned positions or a position bias that fits a model."""
    plain = model.position_bias == "none" and model.absolute_positions
    architecture = architectures.OF_MARKERS[vocabulary.markers] if plain else XLJ
    if model.norm == "post":
        return architecture
    if architecture is not XLM_R:
        raise ConfigError(
            "the model's norms stand before its sub-layers (model.norm=pre): it can be exported "
            "with a SentencePiece vocabulary and without a position bias only"
        )
    return architectures.XLM_R_XL


def _modern(model: Model, own: Mapping[str, object]) -> Architecture:
    """The architecture that reads the same model from the config.json that it writes.

    Args:
      own: the options of the model that are not XLM-R's.
    """
    written, lacking = {a.model_type: a for a in architectures.MODERN}, {XLM_R.model_type: own}
    if model.rotary_base:
        lacking = {name: _lacking(architecture, model) for name, architecture in written.items()}
    nearest = min(lacking, key=lambda name: len(lacking[name]))
    if lacking[nearest]:
        raise ConfigError(
            f"{_listed(own)}: no architecture that xlj writes has this; {nearest}, the nearest, "
            f"does not have {_listed(lacking[nearest])}, so the model cannot be exported"
        )
    return written[nearest]


def _lacking(architecture: Architecture, model: Model) -> dict[str, object]:
    """The options of a model that are not read back from the config.json that is written of it."""
    written = architectures.config_of(architecture, model, 1)
    read = architectures.model_of(architecture, written, CONFIG)
    unlike = _unlike(model, dataclasses.asdict(_canonical(read)), _OF_TRAINING)
    if pattern.kinds(read, model.layers) != pattern.kinds(model, model.layers):
        unlike["full_layers"] = model.full_layers
    return unlike


def _listed(options: Mapping[str, object]) -> str:
    return ", ".join(f"model.{name}={_shown(value)}" for name, value in options.items())


def _shown(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value


def _left_out(
    params: Iterable[str], there: Collection[str], head: str, headless: bool, own: str
) -> dict[str, str]:
    """Why leaves of the parameters are not exported, by name."""
    left_out = {}
    for name in params:
        part = name.partition("/")[0]
        if name.startswith(SENTENCE):
            continue  # what becomes of them, the caller decides
        if name.startswith(SURPLUS):
            if name.removeprefix(SURPLUS).startswith("prediction_head/") and head != _MASKED:
                left_out[name] = "belongs to the head of masked tokens, which is not exported"
        elif part in there and headless:
            left_out[name] = "the encoder is cut before its last layer"
        elif part in there and part != head:
            left_out[name] = "a folder has one head, that of the fine-tuned task"
        elif part in TASKS and part not in there:
            left_out[name] = "transformers has another head for this task in this architecture"
        elif own and part == head_of(own) and part != head:
            left_out[name] = "its kind of task names no class of transformers that fits"
        elif part == head_of("pair_classification"):
            left_out[name] = "transformers has no class that reads two sentences apart"
        elif name == "embeddings/language":
            left_out[name] = "read in pretraining only, where a token is predicted or generated"
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
      params: named leaves; the layers stacked, no more of them than `model.layers` are written. A
        leaf needs a shape, and is made an array when it is written, one at a time.
      pairs_as_rows: the tokenizer frames pairs as xlj's rows do, which a fine-tuned model knows,
        not as its family does.
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
    """The file's id of one of our specials; where it has no `<pad>`, that of `</s>`, for padding is
    then known by lengths."""
    number = vocabulary.native_special_ids[special]
    return vocabulary.native_special_ids[EOS] if number is None else number  # type: ignore[return-value]


def _token_ids(architecture: Architecture, vocabulary: Vocabulary) -> Record:
    """Keys of config.json of special tokens. Where padding has no id of its own, it has the last
    token's, as in EuroBERT."""
    numbers = {name: _native_id(vocabulary, i) for name, i in architecture.specials.items()}
    return {f"{name}_token_id": number for name, number in numbers.items()}


def _rows(vocabulary: Vocabulary, params: Mapping[str, PyTree]) -> np.ndarray:
    """For each row of their tables of words that of ours; those behind ours are the surplus rows,
    in order, and behind these a row of zeros."""
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


def _tensors(exported: Exported, params: Mapping[str, PyTree], model: Model) -> Iterator["_Theirs"]:
    """All tensors to write, those of a parameter one after the other."""
    architecture = exported.architecture
    types = architectures.token_types(architecture, model)
    params = {TOKEN_TYPE.ours: np.zeros((min(types, 1), model.hidden), np.float32), **params}
    more_rows = {
        "embeddings/position": architecture.first_position - FIRST_POSITION,
        TOKEN_TYPE.ours: types - params[TOKEN_TYPE.ours].shape[0],
    }
    parts: dict[str, list[_Part]] = {}
    for tensor in architecture.tensors:
        if tensor.ours in exported.left_out or tensor.ours not in params:
            continue
        if tensor == TOKEN_TYPE and not types:
            continue
        surplus = params.get(SURPLUS + tensor.ours)
        for layer in range(tensor.first_layer, model.layers if tensor.stacked else 1):
            name = tensor.theirs.format(layer=layer)
            if exported.head and not tensor.head:
                name = f"{architecture.prefix}.{name}"
            part = _Part(
                tensor, params[tensor.ours], layer - tensor.first_layer,
                more_rows.get(tensor.ours, 0), exported.rows, surplus,
            )  # fmt: skip
            parts.setdefault(name, []).append(part)
    for name, group in parts.items():
        yield _Theirs(name, tuple(sorted(group, key=lambda part: part.tensor.of_theirs)))


@dataclasses.dataclass(frozen=True)
class _Part:
    """A parameter of ours, or a layer or a share of it, as a tensor of theirs or a share of one."""

    tensor: Tensor
    ours: Any
    layer: int  # among those of ours
    more_rows: int  # of theirs, at its start (positions) or its end (token types)
    rows: np.ndarray  # the rows of ours that theirs are, where they belong to ids (`_rows`)
    surplus: Any  # the rows behind ours, if there are any

    def shape(self) -> tuple[int, ...]:
        shape = [*self.ours.shape[self.tensor.stacked :]]
        shape[-1] //= self.tensor.of_ours[1]
        shape[0] = len(self.rows) if self.tensor.by_word else shape[0] + self.more_rows
        return tuple(shape[::-1] if self.tensor.transposed else shape)

    def bytes(self) -> int:
        return 4 * math.prod(self.shape())

    def blocks(self, ours: np.ndarray) -> Iterator[np.ndarray]:
        """Its rows, in order, made of all of ours."""
        if self.tensor.by_word:
            yield from self._blocks_of_words(ours)
            return
        one = ours[self.layer] if self.tensor.stacked else ours
        if self.tensor.of_ours != WHOLE:
            number, count = self.tensor.of_ours
            one = np.split(one, count, axis=-1)[number]
        if self.tensor.ours == "embeddings/position":
            one = architectures.shifted(one, self.more_rows)
        elif self.more_rows:  # the first token type is every token's
            one = np.concatenate([one, np.repeat(one[:1], self.more_rows, 0)])
        yield np.ascontiguousarray(one.T if self.tensor.transposed else one)

    def _blocks_of_words(self, ours: np.ndarray) -> Iterator[np.ndarray]:
        behind = np.zeros((max(1, self.rows.max() + 1 - len(ours)), *ours.shape[1:]), "<f4")
        if self.surplus is not None:
            behind[: self.surplus.shape[0]] = np.asarray(self.surplus)
        rows = max(1, _BLOCK // math.prod(ours.shape[1:]))
        for start in range(0, len(self.rows), rows):
            some = self.rows[start : start + rows]
            block = ours[np.minimum(some, len(ours) - 1)]
            outside = some >= len(ours)
            block[outside] = behind[some[outside] - len(ours)]
            yield block


@dataclasses.dataclass(frozen=True)
class _Theirs:
    """A tensor of theirs, and what it is made of: shares of its first axis, in order."""

    name: str
    parts: tuple[_Part, ...]

    def shape(self) -> tuple[int, ...]:
        first, *rest = self.parts[0].shape()
        return first * len(self.parts), *rest

    def bytes(self) -> int:
        return sum(part.bytes() for part in self.parts)


def _write_tensors(folder: Path, tensors: list[_Theirs]) -> None:
    """One file, or shards of at most 2 GB and their index."""
    shards: list[list[_Theirs]] = [[]]
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


def _write_shard(path: Path, tensors: list[_Theirs]) -> None:
    """A safetensors file: the length of a header, the header, the tensors' bytes. The library's own
    writer takes no less than all tensors at once."""
    header: Record = {"__metadata__": {"format": "pt"}}
    end = 0
    places: dict[str, list[tuple[int, _Part]]] = {}
    for tensor in tensors:
        start, end = end, end + tensor.bytes()
        offsets = {"data_offsets": (start, end)}
        header[tensor.name] = {"dtype": "F32", "shape": tensor.shape(), **offsets}
        for part in tensor.parts:
            places.setdefault(part.tensor.ours, []).append((start, part))
            start += part.bytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic.writing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for group in places.values():
            _write_parameter(file, 8 + len(text), group)


def _write_parameter(file: BinaryIO, begin: int, places: list[tuple[int, _Part]]) -> None:
    """What one parameter is in a file, behind its first `begin` bytes; the parameter is in memory
    no longer than this takes."""
    ours = np.asarray(places[0][1].ours, "<f4")
    for start, part in places:
        file.seek(begin + start)
        for block in part.blocks(ours):
            file.write(block.data)


def _write_json(file: Path, content: list | dict) -> None:
    text = json.dumps(content, indent=2, sort_keys=isinstance(content, dict)) + "\n"
    atomic.write(file, text.encode())
