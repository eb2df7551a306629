"""Reads Hugging Face folders: config.json, and one tensor at a time."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from xlj.config import ConfigError
from xlj.io import json_file
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened

CONFIG = "config.json"
MODULES = "modules.json"  # written by sentence-transformers
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

TRAINED_ON_PAIRS = "trained_on_pairs"
"""The key of config.json, and of the description of a checkpoint, that is true if the model was
trained on pairs that are encoded together, as in TLM."""
WORD_ALIGNMENT = "word_alignment"
"""The key of config.json with the options of word alignment that differ from the defaults
(`AlignmentOptions`)."""

_MAX_NAME = 255  # the maximum length of a file name, in characters
_ARGUMENTS = "training_args.bin"  # written by transformers' trainer; has no weights
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pdparams", "*.h5", "*.msgpack")


@dataclasses.dataclass(frozen=True)
class Folder:
    """The content of a folder: config.json, and the file and shape of each tensor by name."""

    path: Path
    config: Record
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]

    def digest(self) -> str:
        """Returns the SHA-256 of config.json and of all files with tensors, as hex digits."""
        total = hashlib.sha256()
        for file in [self.path / CONFIG, *sorted(set(self.files.values()))]:
            with file.open("rb") as opened:
                total.update(hashlib.file_digest(opened, "sha256").digest())
        return total.hexdigest()

    def read(self, name: str, index: Any = ...) -> np.ndarray:
        """Reads a tensor in float32.

        Args:
          index: a tuple of slices to read a part only; by default the whole tensor is read.

        Raises:
          ConfigError: if the tensor cannot be read, or contains integers.
        """
        try:
            with safe_open(self.files[name], framework="np") as file:
                part = file.get_tensor(name) if index is ... else file.get_slice(name)[index]
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{self.files[name]}: cannot read {shortened(name)}: {shortened(str(error))}"
            ) from None
        part = np.asarray(part)
        if np.issubdtype(part.dtype, np.integer):
            raise ConfigError(
                f"{self.files[name]}: {shortened(name)} has type {part.dtype}; expected a weight "
                "with floating point values"
            )
        return part.astype(np.float32, copy=False)


def is_folder(path: Path) -> bool:
    """Returns whether a path looks like a Hugging Face folder.

    Such a folder contains config.json or modules.json, and no folder checkpoints/. The files are
    not read, so they may be damaged.
    """
    has_model_file = any((path / name).is_file() for name in (CONFIG, MODULES))
    return has_model_file and not (path / "checkpoints").is_dir()


def open_folder(path: Path) -> Folder:
    """Reads config.json and the headers of all safetensors files.

    Raises:
      ConfigError: if one of these files is missing, damaged, or outside the folder. Also if a
        tensor is in two files, is not in the shard that the index names, or has an unsupported
        dtype, or if the weights exist as pickles only.
    """
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{path} has no {CONFIG}; expected a Hugging Face folder")
    config = json_file.read_object(inside(path, CONFIG))
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    paths, weight_map = _tensor_files(path)
    for file in paths:
        try:
            with safe_open(file, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118 (safe_open is no dict)
                    if name in files:
                        raise ConfigError(
                            f"{file}: the tensor {shortened(name)} is also in {files[name].name}; "
                            "remove one of the files"
                        )
                    tensor = opened.get_slice(name)
                    if tensor.get_dtype() not in ("F64", "F32", "F16", "BF16", "I64"):
                        raise ConfigError(
                            f"{file}: {shortened(name)} has type {tensor.get_dtype()}; expected "
                            "floating point values or I64"
                        )
                    files[name], shapes[name] = file, tuple(tensor.get_shape())
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file} is damaged or is not a safetensors file: {shortened(str(error))}"
            ) from None
    for name, shard in weight_map.items():
        if files.get(name) != path / shard:
            raise ConfigError(
                f"{path / INDEX}: the tensor {shortened(name)} is not in {shard}, which the index "
                "names"
            )
    return Folder(path, config, files, shapes)


def _tensor_files(path: Path) -> tuple[list[Path], Record]:
    """Returns (safetensors files, weight_map) of a folder.

    A folder has one file, or shards and an index. `weight_map` is the entry of the index that maps
    each tensor to the name of its shard. It is empty if there is no index.
    """
    if (path / WEIGHTS).is_file():
        return [inside(path, WEIGHTS)], {}
    if (path / INDEX).is_file():
        shards = json_file.read_object(inside(path, INDEX)).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ConfigError(f"{path / INDEX}: expected weight_map, which maps tensors to shards")
        names = sorted({str(shard) for shard in shards.values()})
        for name in names:
            if PurePath(name).name != name or name in ("", ".", "..") or len(name) > _MAX_NAME:
                raise ConfigError(
                    f"{path / INDEX}: weight_map names {quoted(name)}; expected the name of a file "
                    "in this folder"
                )
            if not (path / name).is_file():
                raise ConfigError(
                    f"{path / INDEX}: the shard {path / name} is missing; download it"
                )
        return [inside(path, name) for name in names], shards
    refuse_pickles(path)
    raise ConfigError(f"{path}: expected weights in {WEIGHTS}, or in shards with {INDEX}")


def refuse_pickles(path: Path) -> None:
    """Raises a `ConfigError` if a folder has weights as pickles.

    The message contains a line of Python that converts pickles of PyTorch without running their
    code.
    """
    names = sorted(file.name for kind in _PICKLES for file in path.glob(kind))
    pickles = [name for name in names if name != _ARGUMENTS]
    if not pickles:
        return
    files = [name for name in pickles if name.endswith(".bin")]
    if files:
        line = (
            "import torch, safetensors.torch as s; s.save_file({k: v.clone() "
            f"for f in {files} for k, v in torch.load(f, weights_only=True).items()}}, "
            f"'{WEIGHTS}', {{'format': 'pt'}})"
        )
        instruction = f'in that folder, with PyTorch installed: python -c "{line}"'
    else:
        instruction = "to safetensors with the library that wrote them"
    raise ConfigError(
        f"{path}: the weights are in {', '.join(pickles[:4])}, but xlj reads {WEIGHTS} only, "
        f"because pickles can run any code when they are loaded. Convert them {instruction}"
    )


def inside(folder: Path, name: str) -> Path:
    """Returns the path of a file in a folder.

    Raises:
      ConfigError: if the file is a link to a file outside the folder. Links into Hugging Face's
        download cache are allowed.
    """
    file = folder / name
    target = file.resolve()
    if target.parent != folder.resolve() and not _is_blob(target):
        raise ConfigError(
            f"{file} is a link to {target}, outside the folder; replace the link by "
            "a copy of the file"
        )
    return file


def _is_blob(file: Path) -> bool:
    """Returns whether a file is in Hugging Face's download cache.

    Its path is models--NAME/blobs/HASH, next to the folder models--NAME/snapshots.
    """
    blobs = file.parent
    is_model = blobs.parent.name.startswith("models--") and (blobs.parent / "snapshots").is_dir()
    return blobs.name == "blobs" and is_model
