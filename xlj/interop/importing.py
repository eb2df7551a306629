"""A Hugging Face folder as an encoder of ours: every tensor accounted for, read in place."""

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
from xlj.interop import architectures, tokenizer_files
from xlj.interop.architectures import (
    IGNORED,
    SURPLUS,
    TASKS,
    TOKEN_TYPE,
    WHOLE,
    Architecture,
    Tensor,
)
from xlj.interop.folder import CONFIG, Folder, open_folder
from xlj.models import encoder, heads
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives import supervised
from xlj.sharding.trees import name_of, named_leaves, nested

_CHUNK = 1 << 24  # numbers that are read at a time


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model in a Hugging Face folder; its weights are still on disk."""

    folder: Folder
    architecture: Architecture
    model: Model
    vocabulary: Vocabulary
    names: Mapping[Tensor, tuple[str, ...]]  # of theirs, in the order of layers
    shapes: Mapping[str, tuple[int, ...]]  # of each parameter of ours that may be there
    surplus: np.ndarray  # int, rows of tables of words that belong to no id of the vocabulary
    missing: tuple[str, ...]  # parameters of the head for masked tokens, if the folder has none
    ignored: Mapping[str, str]  # tensors that are not read, and why
    head: str = ""  # that of a fine-tuned task, e.g. tagging_head; empty if xlj has none such
    labels: tuple[str, ...] = ()  # names of its classes or tags, in order; none of answers

    @functools.cached_property
    def parameters(self) -> dict[str, list[Tensor]]:
        """The parameters of ours that are there, and the tensors that each is made of."""
        found: dict[str, list[Tensor]] = {}
        for tensor in self.names:
            found.setdefault(tensor.ours, []).append(tensor)
        return found

    def report(self) -> str:
        """A report of what became of each tensor."""
        used = len({name for names in self.names.values() for name in names})
        lines = [f"{self.folder.path}: {self.architecture.model_type}, {used} tensors used"]
        if len(self.surplus):
            lines += [
                f"  {len(self.surplus)} rows of embeddings belong to no id of the tokenizer: they "
                "are neither trained nor predicted, and an export without training has them again"
            ]
        if self.head:
            lines += [f"  {self.head}, of {', '.join(self.labels) or 'outputs without names'}"]
        lines += [f"  not read: {name} ({reason})" for name, reason in self.ignored.items()]
        if self.missing:
            lines += [f"  not there: {', '.join(self.missing)}"]
        return "\n".join(lines)


def inspect(path: Path) -> Imported:
    """Reads all but the weights, and accounts for every tensor.

    Raises:
      ConfigError: if the folder is damaged, its architecture or tokenizer is none that xlj has, a
        tensor is missing, left over or of another shape, or a tied weight is not tied.
    """
    folder = open_folder(path)
    where = str(path / CONFIG)
    architecture = architectures.of_config(folder.config, where)
    model = architectures.model_of(architecture, folder.config, where)
    _check_head(model, where)
    vocabulary = tokenizer_files.read(path)
    surplus = _surplus(folder, vocabulary, where)
    # Old checkpoints call the parts of a norm gamma and beta.
    found = {
        name.replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias"): name
        for name in folder.shapes
    }
    if len(found) < len(folder.shapes):
        twice = sorted(set(folder.shapes) - set(found.values()))
        raise ConfigError(f"{path}: {twice[0]} is there under its new name too")
    if model.layers > len(found):  # before a name is made for each tensor of each
        raise ConfigError(
            f"{where}: num_hidden_layers is {model.layers}, but there are {len(found)} tensors"
        )
    architecture = architecture.named_as(found)
    model = _without_zero_types(folder, architecture, model, found)
    if model.token_types > 1 and tokenizer_files.has_pair_types(folder.path, vocabulary):
        model = dataclasses.replace(model, pair_token_types=True)
    head = architectures.task_head_of(architecture, folder.config, found)
    labels: tuple[str, ...] = ()
    if head:
        architecture = architectures.with_head(architecture, head)
    if head and kind.find(TASKS[head]).has_labels:
        labels = architectures.labels_of(folder.config, where)
    expected = _expected(model, vocabulary.size, head, len(labels))
    names, missing = _assigned(folder, architecture, model, expected, found)
    if len(surplus):
        for tensor in [tensor for tensor in names if tensor.by_word]:
            expected[SURPLUS + tensor.ours] = len(surplus), *expected[tensor.ours][1:]
            names[tensor._replace(ours=SURPLUS + tensor.ours)] = names[tensor]
    left = set(found) - {name for group in names.values() for name in group}
    ignored = {found[name]: _reason(architecture, name) for name in sorted(left)}
    unknown = [name for name, reason in ignored.items() if not reason]
    if unknown:
        raise ConfigError(
            f"{path}: {len(unknown)} tensors are not those of an encoder of {model.layers} layers: "
            f"{', '.join(unknown[:4])}"
        )
    names = {tensor: tuple(found[name] for name in group) for tensor, group in names.items()}
    imported = Imported(
        folder, architecture, model, vocabulary, names, expected, surplus, missing, ignored, head,
        labels,
    )  # fmt: skip
    _check_shapes(imported)
    _check_copies(imported, found)
    return imported


def load(imported: Imported, shardings: Callable[[PyTree], PyTree]) -> encoder.Params:
    """The parameters, float32, each device's part read from the files by itself; `shardings` makes
    of a tree of shapes the same tree of shardings.

    Raises:
      ConfigError: if a tensor cannot be read, or is not finite.
    """
    shapes = {name: imported.shapes[name] for name in imported.parameters}
    abstract = nested({n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in shapes.items()})

    def read(
        path: KeyPath, leaf: jax.ShapeDtypeStruct, sharding: jax.sharding.Sharding
    ) -> jax.Array:
        name = name_of(path)
        return jax.make_array_from_callback(
            leaf.shape, sharding, lambda index: _part(imported, name, index or ())
        )

    return jax.tree_util.tree_map_with_path(read, abstract, shardings(abstract))


def read(imported: Imported, name: str) -> np.ndarray:
    """One parameter of ours, float32, by its name; errors as of `load`."""
    return _part(imported, name, (slice(None),) * len(imported.shapes[name]))


def _check_head(model: Model, where: str) -> None:
    if not model.has_own_head:
        raise ConfigError(
            f"{where}: tie_word_embeddings is true, and the head for masked tokens has no bias "
            "either: xlj's encoder has no head without parameters. Untie it: add lm_head.weight, a "
            "copy of the word embeddings, and set tie_word_embeddings to false"
        )


def _surplus(folder: Folder, vocabulary: Vocabulary, where: str) -> np.ndarray:
    """The rows of tables of words that belong to no id: tables are padded to sizes that multiply
    fast."""
    rows, ids = folder.config.get("vocab_size"), vocabulary.native_ids
    known = ids[ids >= 0]
    if isinstance(rows, bool) or not isinstance(rows, int) or rows <= known.max():
        raise ConfigError(
            f"{where}: vocab_size is {rows}, but the tokenizer of {folder.path} has "
            f"{known.max() + 1} ids"
        )
    if rows > max(map(math.prod, folder.shapes.values()), default=0):
        raise ConfigError(f"{where}: vocab_size is {rows}, and no tensor is so large")
    return np.setdiff1d(np.arange(rows), known)


def _assigned(
    folder: Folder,
    architecture: Architecture,
    model: Model,
    expected: Collection[str],
    found: Mapping[str, str],
) -> tuple[dict[Tensor, tuple[str, ...]], tuple[str, ...]]:
    """Names of theirs by tensor, and what the head for masked tokens lacks."""
    names: dict[Tensor, tuple[str, ...]] = {}
    missing: dict[str, str] = {}  # names of theirs by ours
    of_task = architecture.has_shared_head and architectures.is_of_task(folder.config)
    for tensor in architecture.tensors:
        if tensor.ours not in expected:
            continue
        is_masked = tensor.head == "prediction_head"
        group = tuple(_theirs(architecture, tensor, model, found))
        absent = [name for name in group if name not in found]
        if not absent and not (is_masked and of_task):
            names[tensor] = group
        elif is_masked:
            missing[tensor.ours] = group[0] if of_task else absent[0]
        else:
            raise ConfigError(f"{folder.path}: the tensor {absent[0]} is missing")
    head = [group[0] for tensor, group in names.items() if tensor.head == "prediction_head"]
    if head and missing:
        absent_one = next(iter(missing.values()))
        raise ConfigError(
            f"{folder.path}: the tensor {absent_one} is missing, and {head[0]} of its head is not"
        )
    if not any(tensor.head == "prediction_head" for tensor in architecture.tensors):
        return names, tuple(name for name in expected if name.startswith("prediction_head/"))
    return names, tuple(missing)


def _theirs(
    architecture: Architecture, tensor: Tensor, model: Model, found: Mapping[str, str]
) -> Iterator[str]:
    """The names of a tensor in a folder, one a layer if it is stacked."""
    for layer in range(tensor.first_layer, model.layers if tensor.stacked else 1):
        name = tensor.theirs.format(layer=layer)
        prefixed = f"{architecture.prefix}.{name}"
        yield name if tensor.head or name in found and prefixed not in found else prefixed


def _reason(architecture: Architecture, name: str) -> str:
    """Why a tensor of theirs is not read; nothing if no rule says so."""
    bare = name.removeprefix(f"{architecture.prefix}.")
    if name in architecture.copies:
        return f"tied to {architecture.copies[name]}"
    if bare == TOKEN_TYPE.theirs and TOKEN_TYPE in architecture.tensors:
        return "a single token type, all zero"
    if architecture.has_shared_head and name.startswith("head."):
        return "the head of a task that xlj does not have"
    rules = (*IGNORED, *architecture.ignored)
    return next((reason for rule, reason in rules if re.fullmatch(rule, name)), "")


def _without_zero_types(
    folder: Folder, architecture: Architecture, model: Model, found: Mapping[str, str]
) -> Model:
    """The model without token types where the only one adds nothing, as in XLM-R."""
    name = TOKEN_TYPE.theirs
    name = found.get(f"{architecture.prefix}.{name}", found.get(name, ""))
    adds_one = architecture.token_types == 1  # on export
    if adds_one and model.token_types == 1 and name and not folder.read(name).any():
        return dataclasses.replace(model, token_types=0)
    return model


def _expected(
    model: Model, vocabulary_size: int, head: str, labels: int
) -> dict[str, tuple[int, ...]]:
    """Shapes, by name, of the encoder's parameters and those of both heads."""
    key = jax.random.key(0)

    def init() -> encoder.Params:
        params = encoder.init(key, model, vocabulary_size, 0)
        params["prediction_head"] = heads.init_prediction(key, model, vocabulary_size)
        if head:
            params[head] = supervised.init_head(TASKS[head], model, labels, key)
        return params

    return {name: leaf.shape for name, leaf in named_leaves(jax.eval_shape(init)).items()}


def _check_shapes(imported: Imported) -> None:
    rows = imported.folder.config["vocab_size"]
    for tensor, names in imported.names.items():
        shape = list(imported.shapes[tensor.ours])[tensor.stacked :]
        if tensor.of_ours != WHOLE or tensor.of_theirs != WHOLE:
            shape[-1] = shape[-1] // tensor.of_ours[1] * tensor.of_theirs[1]
        if tensor.transposed:
            shape.reverse()
        if tensor.by_word:
            shape[0] = rows
        if tensor.ours == "embeddings/position":
            shape[0] -= FIRST_POSITION - imported.architecture.first_position
        for name in names:
            got = imported.folder.shapes[name]
            if list(got) != shape:
                raise ConfigError(
                    f"{imported.folder.files[name]}: {name} has shape {list(got)}; "
                    f"{CONFIG} and the tokenizer make it {shape}"
                )


def _check_copies(imported: Imported, found: Mapping[str, str]) -> None:
    used = {name for names in imported.names.values() for name in names}
    for copy, ours in imported.architecture.copies.items():
        if copy not in found or found[copy] in used or ours not in imported.parameters:
            continue
        name, original = found[copy], imported.names[imported.parameters[ours][0]][0]
        shape = imported.folder.shapes[original]
        rows = max(1, _CHUNK // math.prod(shape[1:]))
        for start in range(0, shape[0], rows):
            part = slice(start, min(start + rows, shape[0]))
            one = imported.folder.read(original, part)
            other = imported.folder.shapes[name] == shape and imported.folder.read(name, part)
            if not np.array_equal(one, other):
                raise ConfigError(
                    f"{imported.folder.files[name]}: {name} differs from {original}; xlj's head "
                    "shares the word embeddings"
                )


def _part(imported: Imported, name: str, index: tuple[slice, ...]) -> np.ndarray:
    """The part of a parameter of ours that `index` names."""
    shape = imported.shapes[name]
    wanted = [range(*i.indices(n)) for i, n in zip(index, shape, strict=True)]
    part = _aligned([len(places) for places in wanted])
    for tensor in imported.parameters[name]:
        if tensor.of_ours == WHOLE and tensor.of_theirs == WHOLE:
            _fill(part, imported, tensor, wanted)
            continue
        size = shape[-1] // tensor.of_ours[1]
        begin, outputs = tensor.of_ours[0] * size, wanted[-1]
        start, stop = max(outputs.start, begin), min(outputs.stop, begin + size)
        if start < stop:
            here = part[..., start - outputs.start : stop - outputs.start]
            before = tensor.of_theirs[0] * size - begin
            theirs = range(start + before, stop + before)
            _fill(here, imported, tensor, [*wanted[:-1], theirs])
    return part


def _fill(part: np.ndarray, imported: Imported, tensor: Tensor, wanted: list[range]) -> None:
    """Reads what one kind of tensor has of a parameter: the layers of ours, and inputs and outputs
    of theirs, that `wanted` lists."""
    names = imported.names[tensor]
    index = tuple(slice(places.start, places.stop) for places in wanted)
    if tensor.stacked:
        for place, layer in enumerate(wanted[0]):
            part[place] = _one(imported, tensor, names[layer], index[1:])
        return
    rows = max(1, _CHUNK // math.prod(imported.shapes[tensor.ours][1:]))
    rows = rows if tensor.by_word else max(1, len(part))
    for start in range(0, len(part), rows):
        places = wanted[0][start : start + rows]
        some = (slice(places.start, places.stop), *index[1:])
        part[start : start + rows] = _one(imported, tensor, names[0], some)


def _aligned(shape: list[int]) -> np.ndarray:
    """An array to fill, float32. XLA on CPUs copies memory that is not aligned to 64 bytes, and
    takes over what is."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(np.float32).reshape(shape)


def _rows(imported: Imported, name: str, ids: np.ndarray, index: tuple[slice, ...]) -> np.ndarray:
    """Rows `ids` of a tensor, in this order; few runs, as only specials are at other places. Those
    of -1, which a folder does not have, are zero."""
    known = ids >= 0
    if not known.all():
        shape = imported.folder.shapes[name][1:]
        widths = [len(range(*i.indices(n))) for i, n in zip(index, shape, strict=True)]
        rows = np.zeros((len(ids), *widths), np.float32)
        if known.any():
            rows[known] = _rows(imported, name, ids[known], index)
        return rows
    starts = [0, *(np.flatnonzero(np.diff(ids) != 1) + 1), len(ids)]
    parts = [
        imported.folder.read(name, (slice(int(ids[start]), int(ids[end - 1]) + 1), *index))
        for start, end in itertools.pairwise(starts)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _one(imported: Imported, tensor: Tensor, name: str, index: tuple[slice, ...]) -> np.ndarray:
    if tensor.transposed:
        part = imported.folder.read(name, index[::-1]).T
    elif tensor.by_word:
        is_surplus = tensor.ours.startswith(SURPLUS)
        ids = imported.surplus if is_surplus else imported.vocabulary.native_ids
        part = _rows(imported, name, ids[index[0]], index[1:])
    elif tensor.ours == "embeddings/position":
        part = imported.folder.read(name, (slice(None), *index[1:]))
        above = FIRST_POSITION - imported.architecture.first_position
        part = architectures.shifted(part, above)[index[0]]
    else:
        part = imported.folder.read(name, index)
    if not np.isfinite(part).all():
        raise ConfigError(f"{imported.folder.files[name]}: {name} is not finite everywhere")
    return part
