"""An encoder of ours as a Hugging Face folder that transformers loads as its own."""

import dataclasses
import itertools
import json
import math
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xlj.config import ConfigError, Model
from xlj.config.families import options_of
from xlj.contracts.arrays import PyTree
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import architectures, tokenizer_files
from xlj.interop.architectures import BERT, TASKS, TOKEN_TYPE, XLJ, XLM_R, Architecture, Tensor
from xlj.interop.folder import CONFIG, INDEX, WEIGHTS
from xlj.io import atomic
from xlj.io.json_file import Record
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.encoder import PARTS
from xlj.objectives.supervised import head_of

_SHARD_BYTES = 2 << 30
_BLOCK = 1 << 24  # numbers of an embedding that are moved at a time

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
    labels: tuple[str, ...] = ()  # names of the task's classes or tags, in order


_WRITTEN = {
    "family", "norm", "absolute_positions", "position_bias", "token_types", "pair_token_types",
    "layer_norm_epsilon", "dropout", "dropout_parts", "attention_dropout",
}  # fmt: skip
"""Options that distinguish families, and that are written, or checked below."""


def plan(
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    headless: bool,
    labels: tuple[str, ...] = (),
) -> Exported:
    """Which architecture the parameters fit, and what of them it has no place for.

    Args:
      params: named leaves, e.g. layers/attention/query/kernel.
      headless: the encoder ends before its last layer, so leave the head out.

    Raises:
      ConfigError: if no architecture computes what the model does, or the labels are not those of
        the head.
    """
    if model.language_embeddings == "all":
        raise ConfigError(
            "the model adds a language embedding to every token (model.language_embeddings=all); "
            "no architecture of transformers does, so it cannot be exported"
        )
    same = dataclasses.replace(model, key_value_heads=model.key_value_heads % model.heads)
    read = {**options_of("xlm_r"), "middle_norm": False}
    own = [name for name in read if name not in _WRITTEN and getattr(same, name) != read[name]]
    if model.norm == "embeddings":
        own.append("norm")
    if own:
        listed = ", ".join(f"model.{name}={_shown(getattr(model, name))}" for name in own)
        raise ConfigError(
            f"{listed}: no architecture that xlj writes has this, so the model cannot be exported "
            "yet"
        )
    if model.absolute_positions and model.pair_positions == "restart":
        raise ConfigError(
            "positions restart at a pair's second sentence (model.pair_positions=restart), those "
            "of transformers run on, and its vectors of pairs would differ: it cannot be exported"
        )
    plain = model.position_bias == "none" and model.absolute_positions
    architecture = architectures.OF_MARKERS[vocabulary.markers] if plain else XLJ
    if model.norm == "pre":
        if architecture is not XLM_R or headless:
            raise ConfigError(
                "the model's norms stand before its sub-layers (model.norm=pre): it can be "
                "exported whole only, with a SentencePiece vocabulary and without a position bias"
            )
        architecture = architectures.XLM_R_XL
    architecture = architectures.with_pad(architecture, _native_id(vocabulary, PAD))
    parts = {name.partition("/")[0] for name in params}
    there = [head for head in architecture.classes if head in parts]
    head = "" if headless or not there else there[-1]  # a task's comes after prediction_head
    left_out = _left_out(params, there, head, headless)
    named = TASKS.get(head) in ("classification", "tagging")
    classes = params[f"{head}/output/bias"].shape[0] if named else 0
    if named and classes != len(labels):
        raise ConfigError(
            f"the checkpoint's {head} has {classes} classes, and its config names {len(labels)} "
            "labels: export a checkpoint that xlj.finetune wrote, or an import of a folder"
        )
    return Exported(architecture, head, left_out, labels if named else ())


def _shown(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value


def _left_out(
    params: Iterable[str], there: Collection[str], head: str, headless: bool
) -> dict[str, str]:
    """Why leaves of the parameters are not exported, by name."""
    left_out = {}
    for name in params:
        part = name.partition("/")[0]
        if part in there and headless:
            left_out[name] = "the encoder is cut before its last layer"
        elif part in there and part != head:
            left_out[name] = "a folder has one head, that of the fine-tuned task"
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
    config = architectures.config_of(architecture, model, vocabulary.native_size)
    config |= architectures.config_of_task(exported.head, exported.labels)
    config["architectures"] = [architecture.classes[exported.head]]
    named = {"pad": PAD} if architecture is BERT else {"bos": BOS, "pad": PAD, "eos": EOS}
    config |= {f"{name}_token_id": _native_id(vocabulary, i) for name, i in named.items()}
    if architecture.model_type == XLJ.model_type:
        config["auto_map"] = _AUTO_MAP
        for name in ("configuration_xlj.py", "modeling_xlj.py"):
            source = Path(__file__).parent / "remote_code" / name
            atomic.write(folder / name, source.read_bytes())
    _write_json(folder / CONFIG, config)
    _write_tensors(folder, list(_tensors(exported, params, model, vocabulary)))
    tokenizer_files.write(
        vocabulary,
        folder,
        model.positions - FIRST_POSITION,
        pair_types=model.pair_token_types if pairs_as_rows else None,
        separated=model.pair_separator == "parallel",
    )


def _native_id(vocabulary: Vocabulary, special: int) -> int:
    """The file's id of one of our specials; where it has no `<pad>`, that of `</s>`, for padding is
    then known by lengths."""
    number = vocabulary.native_special_ids[special]
    return vocabulary.native_special_ids[EOS] if number is None else number  # type: ignore[return-value]


def write_pooling(folder: Path, model: Model, pooling: str) -> None:
    """Adds what makes the folder one of sentence-transformers, with the vectors of
    `retrieval.embedder`: the `mean` of all tokens, specials too, or the vector of the `first`."""
    modules = "sentence_transformers.models"
    contents: dict[str, list | dict] = {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": f"{modules}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{modules}.Pooling"},
        ],
        "sentence_bert_config.json": {
            "max_seq_length": model.positions - FIRST_POSITION,
            "do_lower_case": False,
        },
        f"1_Pooling/{CONFIG}": {
            "word_embedding_dimension": model.hidden,
            "pooling_mode_cls_token": pooling == "first",
            "pooling_mode_mean_tokens": pooling == "mean",
        },
    }
    (folder / "1_Pooling").mkdir()
    for name, content in contents.items():
        _write_json(folder / name, content)


def _tensors(
    exported: Exported, params: Mapping[str, PyTree], model: Model, vocabulary: Vocabulary
) -> Iterator["_Theirs"]:
    """All tensors to write, those of a parameter one after the other."""
    architecture = exported.architecture
    order = np.argsort(vocabulary.native_ids)[vocabulary.size - vocabulary.native_size :]
    params = {TOKEN_TYPE.ours: np.zeros((1, model.hidden), np.float32), **params}
    types = params[TOKEN_TYPE.ours].shape[0]
    more_rows = {
        "embeddings/position": architecture.first_position - FIRST_POSITION,
        TOKEN_TYPE.ours: architectures.token_types(architecture, model) - types,
    }
    for tensor in architecture.tensors:
        if tensor.ours in exported.left_out or tensor.ours not in params:
            continue
        ours, rows = params[tensor.ours], more_rows.get(tensor.ours, 0)
        for layer in range(model.layers if tensor.stacked else 1):
            name = tensor.theirs.format(layer=layer)
            if exported.head and not tensor.head:
                name = f"{architecture.prefix}.{name}"
            yield _Theirs(name, tensor, ours, layer, rows, order)


@dataclasses.dataclass(frozen=True)
class _Theirs:
    """A tensor of theirs, and the parameter of ours that it is, or is a layer of."""

    name: str
    tensor: Tensor
    ours: Any
    layer: int
    more_rows: int  # of theirs, at its start (positions) or its end (token types)
    order: np.ndarray  # the rows of ours that theirs are, where they belong to ids

    def shape(self) -> tuple[int, ...]:
        first, *rest = self.ours.shape[self.tensor.stacked :]
        shape = (len(self.order) if self.tensor.by_word else first + self.more_rows, *rest)
        return shape[::-1] if self.tensor.transposed else shape

    def bytes(self) -> int:
        return 4 * math.prod(self.shape())

    def blocks(self, ours: np.ndarray) -> Iterator[np.ndarray]:
        """Its rows, in order, made of all of ours."""
        if self.tensor.by_word:
            rows = max(1, _BLOCK // math.prod(ours.shape[1:]))
            for start in range(0, len(self.order), rows):
                yield ours[self.order[start : start + rows]]
            return
        one = ours[self.layer] if self.tensor.stacked else ours
        if self.tensor.ours == "embeddings/position":
            one = architectures.shifted(one, self.more_rows)
        elif self.more_rows:  # the first token type is every token's
            one = np.concatenate([one, np.repeat(one[:1], self.more_rows, 0)])
        yield np.ascontiguousarray(one.T if self.tensor.transposed else one)


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
    for tensor in tensors:
        start, end = end, end + tensor.bytes()
        offsets = {"data_offsets": (start, end)}
        header[tensor.name] = {"dtype": "F32", "shape": tensor.shape(), **offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic.writing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, group in itertools.groupby(tensors, key=lambda tensor: tensor.tensor.ours):
            _write_parameter(file, list(group))


def _write_parameter(file: BinaryIO, tensors: list[_Theirs]) -> None:
    """Tensors that are made of one parameter, which is in memory no longer than this takes."""
    ours = np.asarray(tensors[0].ours, "<f4")
    for tensor in tensors:
        for block in tensor.blocks(ours):
            file.write(block.data)


def _write_json(file: Path, content: list | dict) -> None:
    text = json.dumps(content, indent=2, sort_keys=isinstance(content, dict)) + "\n"
    atomic.write(file, text.encode())
