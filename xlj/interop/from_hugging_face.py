"""Imports an encoder from a Hugging Face folder; every tensor is used or reported."""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import KeyPath

from xlj.config import ConfigError, Model
from xlj.contracts.arrays import PyTree
from xlj.data.labelled import kind
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.families.interface import (
    IGNORED,
    SURPLUS,
    TOKEN_TYPE,
    WHOLE,
    Architecture,
    Tensor,
)
from xlj.interop import model_config, task_heads, tokenizer_files
from xlj.interop.folder import CONFIG, Folder, open_folder
from xlj.interop.task_heads import TASKS
from xlj.models import encoder
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives.mlm.head import init_prediction
from xlj.objectives.supervised import loss as supervised
from xlj.sharding.trees import name_of, named_leaves, nested

_CHUNK = 1 << 24  # how many numbers of a tensor are read at a time


@dataclasses.dataclass(frozen=True)
class FolderModel:
    """A model in a Hugging Face folder, without its weights, which are read later.

    Attributes:
      names: for each `Tensor`, the names of the Hugging Face tensors that it describes. A stacked
        `Tensor` has one name per layer, in order.
      shapes: the shapes of the parameters of the encoder, the head for masked tokens and the task
        head, by xlj's name. The folder may lack the parameters in `missing`.
      surplus: int [rows], indices of the rows of the word embeddings that have no id in the
        vocabulary.
      missing: the parameters of the head for masked tokens that the folder lacks.
      ignored: the names of tensors in the folder that are not read, each with the reason.
      head: the head of a fine-tuned task, e.g. tagging_head; empty if the folder has no head that
        xlj supports.
      labels: the names of the head's classes or tags, in order.
    """

    folder: Folder
    architecture: Architecture
    model: Model
    vocabulary: Vocabulary
    names: Mapping[Tensor, tuple[str, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    surplus: np.ndarray
    missing: tuple[str, ...]
    ignored: Mapping[str, str]
    head: str = ""
    labels: tuple[str, ...] = ()

    @functools.cached_property
    def parameters(self) -> dict[str, list[Tensor]]:
        """The parameters that the folder contains, by xlj's name, each with its tensors."""
        parameters: dict[str, list[Tensor]] = {}
        for tensor in self.names:
            parameters.setdefault(tensor.xlj_name, []).append(tensor)
        return parameters

    def report(self) -> str:
        """Returns a printable report on all tensors."""
        used = len({name for names in self.names.values() for name in names})
        lines = [f"{self.folder.path}: {self.architecture.model_type}, {used} tensors used"]
        if len(self.surplus):
            lines += [
                f"  {len(self.surplus)} embedding rows have no id in the tokenizer: they are "
                "neither trained nor predicted; if you export the model without training, the "
                "export contains them"
            ]
        if self.head:
            outputs = f"labels {', '.join(self.labels)}" if self.labels else "unnamed outputs"
            lines += [f"  {self.head} with {outputs}"]
        lines += [f"  not read: {name} ({reason})" for name, reason in self.ignored.items()]
        if self.missing:
            lines += [f"  missing: {', '.join(self.missing)}"]
        return "\n".join(lines)


def inspect(path: Path) -> FolderModel:
    """Reads the config, the tokenizer and the tensors' names and shapes of a folder.

    Raises:
      ConfigError: if the folder is damaged, its architecture or tokenizer is not supported, or tied
        weights differ. Also if a tensor is missing, unknown, or not of the shape that config.json
        and the tokenizer imply.
    """
    folder = open_folder(path)
    where = str(path / CONFIG)
    architecture = model_config.find_architecture(folder.config, where)
    model = model_config.read_model(architecture, folder.config, where)
    _check_head(model, where)
    vocabulary = tokenizer_files.read(path)
    surplus = _find_surplus(folder, vocabulary, where)
    # Old checkpoints call the weight and the bias of a norm gamma and beta.
    in_folder = {
        name.replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias"): name
        for name in folder.shapes
    }
    if len(in_folder) < len(folder.shapes):
        repeated = sorted(set(folder.shapes) - set(in_folder.values()))
        raise ConfigError(
            f"{path}: the tensor {repeated[0]} also exists under its newer name (weight instead of "
            "gamma, bias instead of beta); remove one of them"
        )
    if model.layers > len(in_folder):  # a huge number would make the loops below very slow
        raise ConfigError(
            f"{where}: num_hidden_layers is {model.layers}, but the folder has {len(in_folder)} "
            "tensors only"
        )
    architecture = architecture.with_names_in(in_folder)
    model = _remove_zero_type(folder, architecture, model, in_folder)
    marks = tokenizer_files.pair_marks(folder.path, vocabulary, model.token_types > 1)
    model = dataclasses.replace(model, pair_marks=marks)
    head = task_heads.find_task_head(architecture, folder.config, in_folder)
    labels: tuple[str, ...] = ()
    if head:
        architecture = task_heads.with_head(architecture, head)
    if head and kind.find(TASKS[head]).has_labels:
        labels = task_heads.read_labels(folder.config, where)
    expected = _expected_shapes(model, vocabulary.size, head, len(labels))
    names, missing = _assign_names(folder, architecture, model, expected, in_folder)
    if len(surplus):
        for tensor in [tensor for tensor in names if tensor.has_vocabulary_rows]:
            expected[SURPLUS + tensor.xlj_name] = len(surplus), *expected[tensor.xlj_name][1:]
            names[tensor._replace(xlj_name=SURPLUS + tensor.xlj_name)] = names[tensor]
    unused = set(in_folder) - {name for group in names.values() for name in group}
    ignored = {in_folder[name]: _find_reason(architecture, name) for name in sorted(unused)}
    unknown = [name for name, reason in ignored.items() if not reason]
    if unknown:
        raise ConfigError(
            f"{path}: {len(unknown)} tensors are unknown in an encoder with {model.layers} layers: "
            f"{', '.join(unknown[:4])}"
        )
    names = {tensor: tuple(in_folder[name] for name in group) for tensor, group in names.items()}
    imported = FolderModel(
        folder, architecture, model, vocabulary, names, expected, surplus, missing, ignored, head,
        labels,
    )  # fmt: skip
    _check_shapes(imported)
    _check_copies(imported, in_folder)
    return imported


def load(imported: FolderModel, shardings: Callable[[PyTree], PyTree]) -> encoder.Params:
    """Reads all parameters of the folder into a nested dict of float32 arrays.

    Each device's shard is read separately.

    Args:
      shardings: takes a tree of `ShapeDtypeStruct`; returns a tree of shardings with the same
        structure.

    Raises:
      ConfigError: if a tensor cannot be read, or has values that are not finite.
    """
    shapes = {name: imported.shapes[name] for name in imported.parameters}
    abstract = nested({n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in shapes.items()})

    def read(
        path: KeyPath, leaf: jax.ShapeDtypeStruct, sharding: jax.sharding.Sharding
    ) -> jax.Array:
        name = name_of(path)
        return jax.make_array_from_callback(
            leaf.shape, sharding, lambda index: _read_part(imported, name, index or ())
        )

    return jax.tree_util.tree_map_with_path(read, abstract, shardings(abstract))


def read(imported: FolderModel, name: str) -> np.ndarray:
    """Reads one parameter in float32.

    Args:
      name: xlj's name of the parameter.

    Raises:
      ConfigError: if a tensor cannot be read, or has values that are not finite.
    """
    return _read_part(imported, name, (slice(None),) * len(imported.shapes[name]))


def _check_head(model: Model, where: str) -> None:
    if not model.has_own_head:
        raise ConfigError(
            f"{where}: tie_word_embeddings is true and the head for masked tokens has no bias, but "
            "xlj does not support a head without parameters; set tie_word_embeddings to false and "
            "add a copy of the word embeddings as the tensor lm_head.weight"
        )


def _find_surplus(folder: Folder, vocabulary: Vocabulary, where: str) -> np.ndarray:
    """Returns the indices of the rows of the word embeddings that have no id.

    Many models pad the table, because some sizes make matrix products faster.
    """
    rows, ids = folder.config.get("vocab_size"), vocabulary.native_ids
    known = ids[ids >= 0]
    if isinstance(rows, bool) or not isinstance(rows, int) or rows <= known.max():
        raise ConfigError(
            f"{where}: vocab_size is {rows}, but the tokenizer of {folder.path} has "
            f"{known.max() + 1} ids"
        )
    if rows > max(map(math.prod, folder.shapes.values()), default=0):
        raise ConfigError(
            f"{where}: vocab_size is {rows}, but no tensor of the folder has that many values"
        )
    return np.setdiff1d(np.arange(rows), known)


def _assign_names(
    folder: Folder,
    architecture: Architecture,
    model: Model,
    expected: Collection[str],
    in_folder: Mapping[str, str],
) -> tuple[dict[Tensor, tuple[str, ...]], tuple[str, ...]]:
    """Returns the names of each `Tensor` in the folder, and the parameters of the head for masked
    tokens that the folder lacks.

    Args:
      expected: xlj's names of all parameters that the model should have.
      in_folder: for each tensor of the folder, its name in the folder, by its current name. The
        two names differ in old checkpoints, which have gamma and beta instead of weight and bias.

    Raises:
      ConfigError: if a tensor of the encoder or the task head is missing, or only a part of the
        head for masked tokens exists.
    """
    names: dict[Tensor, tuple[str, ...]] = {}
    missing: dict[str, str] = {}  # Hugging Face's names, by xlj's name
    is_task_folder = architecture.has_shared_head and task_heads.has_task_head(folder.config)
    for tensor in architecture.tensors:
        if tensor.xlj_name not in expected:
            continue
        is_masked = tensor.head == "prediction_head"
        group = tuple(_hf_names(architecture, tensor, model, in_folder))
        absent = [name for name in group if name not in in_folder]
        if not absent and not (is_masked and is_task_folder):
            names[tensor] = group
        elif is_masked:
            missing[tensor.xlj_name] = group[0] if is_task_folder else absent[0]
        else:
            raise ConfigError(f"{folder.path}: the tensor {absent[0]} is missing")
    head = [group[0] for tensor, group in names.items() if tensor.head == "prediction_head"]
    if head and missing:
        missing_name = next(iter(missing.values()))
        raise ConfigError(
            f"{folder.path}: the tensor {missing_name} is missing, but {head[0]} of the same head "
            "exists; add the tensor, or remove all tensors of the head for masked tokens"
        )
    if not any(tensor.head == "prediction_head" for tensor in architecture.tensors):
        return names, tuple(name for name in expected if name.startswith("prediction_head/"))
    return names, tuple(missing)


def _hf_names(
    architecture: Architecture, tensor: Tensor, model: Model, in_folder: Mapping[str, str]
) -> Iterator[str]:
    """Yields the names of a `Tensor` in a folder, one per layer if it is stacked."""
    for layer in range(tensor.first_layer, model.layers if tensor.is_stacked else 1):
        name = tensor.hf_name.format(layer=layer)
        prefixed = f"{architecture.prefix}.{name}"
        yield name if tensor.head or name in in_folder and prefixed not in in_folder else prefixed


def _find_reason(architecture: Architecture, name: str) -> str:
    """Returns the reason why a tensor of the folder is not read; empty if the tensor is unknown."""
    bare = name.removeprefix(f"{architecture.prefix}.")
    if name in architecture.copies:
        return f"tied to {architecture.copies[name]}"
    if bare == TOKEN_TYPE.hf_name and TOKEN_TYPE in architecture.tensors:
        return "the only token type, and all zeros"
    if architecture.has_shared_head and name.startswith("head."):
        return "part of a task head that xlj does not support"
    rules = (*IGNORED, *architecture.ignored)
    return next((reason for rule, reason in rules if re.fullmatch(rule, name)), "")


def _remove_zero_type(
    folder: Folder, architecture: Architecture, model: Model, in_folder: Mapping[str, str]
) -> Model:
    """Removes the token type from the model if there is only one and its vector is zero, as in
    XLM-R."""
    name = TOKEN_TYPE.hf_name
    name = in_folder.get(f"{architecture.prefix}.{name}", in_folder.get(name, ""))
    adds_one = architecture.token_types == 1  # an export adds the token type again
    if adds_one and model.token_types == 1 and name and not folder.read(name).any():
        return dataclasses.replace(model, token_types=0)
    return model


def _expected_shapes(
    model: Model, vocabulary_size: int, head: str, labels: int
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the parameters of the encoder, the head for masked tokens and the task
    head.

    Args:
      head: the task head, or empty.
      labels: the number of labels.
    """
    key = jax.random.key(0)

    def init() -> encoder.Params:
        params = encoder.init(key, model, vocabulary_size, 0)
        params["prediction_head"] = init_prediction(key, model, vocabulary_size)
        if head:
            params[head] = supervised.init_head(TASKS[head], model, labels, key)
        return params

    return {name: leaf.shape for name, leaf in named_leaves(jax.eval_shape(init)).items()}


def _check_shapes(imported: FolderModel) -> None:
    rows = imported.folder.config["vocab_size"]
    for tensor, names in imported.names.items():
        shape = list(imported.shapes[tensor.xlj_name])[tensor.is_stacked :]
        if tensor.xlj_share != WHOLE or tensor.hf_share != WHOLE:
            shape[-1] = shape[-1] // tensor.xlj_share[1] * tensor.hf_share[1]
        if tensor.is_transposed:
            shape.reverse()
        if tensor.has_vocabulary_rows:
            shape[0] = rows
        if tensor.xlj_name == "embeddings/position":
            shape[0] -= FIRST_POSITION - imported.architecture.first_position
        for name in names:
            actual = imported.folder.shapes[name]
            if list(actual) != shape:
                raise ConfigError(
                    f"{imported.folder.files[name]}: {name} has shape {list(actual)}; "
                    f"{CONFIG} and the tokenizer imply {shape}"
                )


def _check_copies(imported: FolderModel, in_folder: Mapping[str, str]) -> None:
    used = {name for names in imported.names.values() for name in names}
    for copy, xlj_name in imported.architecture.copies.items():
        if copy not in in_folder or in_folder[copy] in used or xlj_name not in imported.parameters:
            continue
        name, original = in_folder[copy], imported.names[imported.parameters[xlj_name][0]][0]
        shape = imported.folder.shapes[original]
        rows = max(1, _CHUNK // math.prod(shape[1:]))
        for start in range(0, shape[0], rows):
            part = slice(start, min(start + rows, shape[0]))
            original_part = imported.folder.read(original, part)
            copied_part = imported.folder.shapes[name] == shape and imported.folder.read(name, part)
            if not np.array_equal(original_part, copied_part):
                raise ConfigError(
                    f"{imported.folder.files[name]}: {name} differs from {original}; they must be "
                    "equal, because xlj's head for masked tokens uses the word embeddings"
                )


def _read_part(imported: FolderModel, name: str, index: tuple[slice, ...]) -> np.ndarray:
    """Reads a part of a parameter.

    Args:
      name: xlj's name of the parameter.
      index: a slice for each axis.
    """
    shape = imported.shapes[name]
    ranges = [range(*i.indices(n)) for i, n in zip(index, shape, strict=True)]
    part = _empty_aligned([len(span) for span in ranges])
    for tensor in imported.parameters[name]:
        if tensor.xlj_share == WHOLE and tensor.hf_share == WHOLE:
            _fill(part, imported, tensor, ranges)
            continue
        size = shape[-1] // tensor.xlj_share[1]
        begin, outputs = tensor.xlj_share[0] * size, ranges[-1]
        start, stop = max(outputs.start, begin), min(outputs.stop, begin + size)
        if start < stop:
            share = part[..., start - outputs.start : stop - outputs.start]
            shift = tensor.hf_share[0] * size - begin
            hf_outputs = range(start + shift, stop + shift)
            _fill(share, imported, tensor, [*ranges[:-1], hf_outputs])
    return part


def _fill(part: np.ndarray, imported: FolderModel, tensor: Tensor, ranges: list[range]) -> None:
    """Reads one tensor of the folder into a part of a parameter.

    Args:
      part: the array to fill.
      ranges: for each axis of `part`, the indices to read. On the axes of the inputs and outputs of
        a linear layer, they are indices of the folder's tensor. On all other axes, they are indices
        of xlj's parameter.
    """
    names = imported.names[tensor]
    index = tuple(slice(span.start, span.stop) for span in ranges)
    if tensor.is_stacked:
        for place, layer in enumerate(ranges[0]):
            part[place] = _read_tensor(imported, tensor, names[layer], index[1:])
        return
    rows = max(1, _CHUNK // math.prod(imported.shapes[tensor.xlj_name][1:]))
    rows = rows if tensor.has_vocabulary_rows else max(1, len(part))
    for start in range(0, len(part), rows):
        span = ranges[0][start : start + rows]
        chunk = (slice(span.start, span.stop), *index[1:])
        part[start : start + rows] = _read_tensor(imported, tensor, names[0], chunk)


def _empty_aligned(shape: list[int]) -> np.ndarray:
    """Returns an uninitialised float32 array that is aligned to 64 bytes.

    On CPUs, XLA uses aligned memory without a copy.
    """
    size = 4 * math.prod(shape)
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(np.float32).reshape(shape)


def _read_rows(
    imported: FolderModel, name: str, ids: np.ndarray, index: tuple[slice, ...]
) -> np.ndarray:
    """Reads rows of a tensor.

    Rows with consecutive ids are read together. The ids have few gaps, because only special tokens
    are in a different order in the folder.

    Args:
      ids: the rows to read, in order; -1 for a row of zeros.
      index: slices for the other axes.
    """
    known = ids >= 0
    if not known.all():
        shape = imported.folder.shapes[name][1:]
        widths = [len(range(*i.indices(n))) for i, n in zip(index, shape, strict=True)]
        rows = np.zeros((len(ids), *widths), np.float32)
        if known.any():
            rows[known] = _read_rows(imported, name, ids[known], index)
        return rows
    starts = [0, *(np.flatnonzero(np.diff(ids) != 1) + 1), len(ids)]
    arrays = [
        imported.folder.read(name, (slice(int(ids[start]), int(ids[end - 1]) + 1), *index))
        for start, end in itertools.pairwise(starts)
    ]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _read_tensor(
    imported: FolderModel, tensor: Tensor, name: str, index: tuple[slice, ...]
) -> np.ndarray:
    """Reads a part of a tensor in the folder.

    Args:
      name: the name of the tensor in the folder.
      index: a slice for each axis, with axes and rows in xlj's order.

    Raises:
      ConfigError: if the part has values that are not finite.
    """
    if tensor.is_transposed:
        part = imported.folder.read(name, index[::-1]).T
    elif tensor.has_vocabulary_rows:
        is_surplus = tensor.xlj_name.startswith(SURPLUS)
        ids = imported.surplus if is_surplus else imported.vocabulary.native_ids
        part = _read_rows(imported, name, ids[index[0]], index[1:])
    elif tensor.xlj_name == "embeddings/position":
        part = imported.folder.read(name, (slice(None), *index[1:]))
        added_rows = FIRST_POSITION - imported.architecture.first_position
        part = model_config.shift_positions(part, added_rows)[index[0]]
    else:
        part = imported.folder.read(name, index)
    if not np.isfinite(part).all():
        raise ConfigError(f"{imported.folder.files[name]}: {name} has values that are not finite")
    return part
