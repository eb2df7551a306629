"""Reads Hugging Face folders: config.json, and tensors one by one."""

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
MODULES = "modules.json"  # of sentence-transformers
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_LONGEST = 255  # the longest file name
_ARGUMENTS = "training_args.bin"  # written by transformers' trainer; has no weights
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pdparams", "*.h5", "*.msgpack")


@dataclasses.dataclass(frozen=True)
class Folder:
    """The content of a folder: config.json, and each tensor's file and shape by name."""

    path: Path
    config: Record
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]

    def digest(self) -> str:
        """Returns the SHA-256 of config.json and of all files with tensors."""
        total = hashlib.sha256()
        for file in [self.path / CONFIG, *sorted(set(self.files.values()))]:
            with file.open("rb") as opened:
                total.update(hashlib.file_digest(opened, "sha256").digest())
        return total.hexdigest()

    def read(self, name: str, index: Any = ...) -> np.ndarray:
        """Reads a tensor, or the part given by `index` (slices), in float32.

        Raises:
          ConfigError: if the tensor cannot be read, or has integers.
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
    """Returns whether a path looks like a Hugging Face folder with a model, readable or not."""
    is_there = any((path / name).is_file() for name in (CONFIG, MODULES))
    return is_there and not (path / "checkpoints").is_dir()


def open_folder(path: Path) -> Folder:
    """Reads the config and the headers of all files with tensors.

    Raises:
      ConfigError: if config.json or a shard is missing or damaged, the index names a file outside
        the folder, a tensor is not in the shard that the index names, or the folder has weights as
        pickles only.
    """
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{path}: no {CONFIG}; expected a Hugging Face folder")
    config = json_file.read_object(inside(path, CONFIG))
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    paths, weight_map = _tensor_files(path)
    for file in paths:
        try:
            with safe_open(file, framework="np") as opened:
                for name in opened.keys():  # noqa: SIM118 (safe_open is no dict)
                    if name in files:
                        raise ConfigError(f"{file}: {shortened(name)} is in {files[name].name} too")
                    tensor = opened.get_slice(name)
                    if tensor.get_dtype() not in ("F64", "F32", "F16", "BF16", "I64"):
                        raise ConfigError(
                            f"{file}: {shortened(name)} has type {tensor.get_dtype()}; expected "
                            "floating point values or I64"
                        )
                    files[name], shapes[name] = file, tuple(tensor.get_shape())
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"{file} is damaged or not in the safetensors format: {shortened(str(error))}"
            ) from None
    for name, shard in weight_map.items():
        if files.get(name) != path / shard:
            raise ConfigError(
                f"{path / INDEX}: the tensor {shortened(name)} is not in {shard}, which the index "
                "names"
            )
    return Folder(path, config, files, shapes)


def _tensor_files(path: Path) -> tuple[list[Path], Record]:
    """Returns a folder's safetensors files (one, or the shards of its index) and its weight_map."""
    if (path / WEIGHTS).is_file():
        return [inside(path, WEIGHTS)], {}
    if (path / INDEX).is_file():
        shards = json_file.read_object(inside(path, INDEX)).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ConfigError(f"{path / INDEX}: has no weight_map")
        names = sorted({str(shard) for shard in shards.values()})
        for name in names:
            if PurePath(name).name != name or name in ("", ".", "..") or len(name) > _LONGEST:
                raise ConfigError(
                    f"{path / INDEX}: shard {quoted(name)} is not a file of this folder"
                )
            if not (path / name).is_file():
                raise ConfigError(f"{path / INDEX}: the shard {path / name} is missing")
        return [inside(path, name) for name in names], shards
    refuse_pickles(path)
    raise ConfigError(f"{path}: the folder has neither {WEIGHTS} nor {INDEX}")


def refuse_pickles(path: Path) -> None:
    """Raises a `ConfigError` if a folder has pickles.

    The message has a line of Python that converts them without running their code.
    """
    pickles = sorted(file.name for kind in _PICKLES for file in path.glob(kind))
    if not pickles:
        return
    files = [name for name in pickles if name.endswith(".bin") and name != _ARGUMENTS]
    if files:
        line = (
            "import torch, safetensors.torch as s; s.save_file({k: v.clone() "
            f"for f in {files} for k, v in torch.load(f, weights_only=True).items()}}, "
            f"'{WEIGHTS}', {{'format': 'pt'}})"
        )
        how = f'in that folder, with PyTorch installed: python -c "{line}"'
    else:
        how = "to safetensors with the library that wrote them"
    raise ConfigError(
        f"{path}: the weights are in {', '.join(pickles[:4])}, a format that can run any code when "
        f"it is loaded; xlj reads {WEIGHTS} only. Convert them {how}"
    )


def inside(folder: Path, name: str) -> Path:
    """Returns the path of a file in a folder.

    Raises:
      ConfigError: if it is a link that leaves the folder, unless it leads to a blob of Hugging
        Face's download cache.
    """
    file = folder / name
    target = file.resolve()
    if target.parent != folder.resolve() and not _is_blob(target):
        raise ConfigError(f"{file} is a link out of the folder, to {target}")
    return file


def _is_blob(file: Path) -> bool:
    """Returns whether a file is models--x/blobs/HASH, to which models--x/snapshots has links."""
    blobs = file.parent
    is_model = blobs.parent.name.startswith("models--") and (blobs.parent / "snapshots").is_dir()
    return blobs.name == "blobs" and is_model
