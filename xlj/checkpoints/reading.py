"""Reads checkpoints, and verifies them against the digests in their descriptions.

A checkpoint is a folder `WORKDIR/checkpoints/STEP` with everything that a run needs to resume:
parameters, optimizer state, progress, the vocabulary's model file, and a description (`meta`). The
description contains the config, the digests of the rows, and the name, shape, type and digest of
every tensor. Orbax does not detect flipped bits in its files. Therefore the digests are computed
from arrays, and compared after every restore.

Orbax's errors become one line, and its own messages are suppressed. `move_damaged` moves damaged
checkpoints into another folder before a run resumes.
"""

import dataclasses
import hashlib
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import Mesh

from xlj.checkpoints import metrics
from xlj.checkpoints.digests import digests
from xlj.config import ConfigError, Model
from xlj.config.families import options_of
from xlj.config.fields import ConfigTree
from xlj.config.objectives import trains_on_pairs
from xlj.contracts.arrays import PyTree, Tree
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.distributed import hosts
from xlj.interop.folder import TRAINED_ON_PAIRS
from xlj.io import storage
from xlj.io.atomic import as_config_error
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath, Url, to_path
from xlj.objectives.supervised.options import recorded_kind
from xlj.sharding.devices import STORED
from xlj.sharding.trees import Params, abstract_like, named_leaves, nested, shardings

FORMAT = 1
"""Version of the file format. tests/formats contains a checkpoint of each version."""
COMMITTED = "commit_success.txt"
"""The file that Orbax writes last into a checkpoint in a bucket, where folders are not atomic."""
PARAMS, AVERAGE = "params", "average"
"""The items of a checkpoint that contain parameters: the step's parameters, and their moving
average."""
ALIGNED_LAYER = "aligned_layer"
"""An optional entry of the description: the layer that word alignment uses unless the config or the
user names one. If the step was not measured when it was saved, its line of metrics has the layer
(`LAYER_METRIC`)."""
_REMEDY = (
    "to resume from the previous checkpoint, move this folder to another place, or set "
    "--config.train.damaged_checkpoint=before"
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint on disk.

    Attributes:
      meta: the description.
    """

    folder: AnyPath
    step: int
    meta: Record

    def config(self) -> ConfigTree:
        """Returns the config of the run that wrote the checkpoint, as nested dicts."""
        config: ConfigTree = self.meta["config"]
        return config

    @property
    def trained_on_pairs(self) -> bool:
        """Whether the model, or the model that it was trained from, was trained on pairs that are
        encoded together."""
        return bool(self.meta.get(TRAINED_ON_PAIRS)) or trains_on_pairs(self.config())

    def digest(self) -> str:
        """Returns the SHA-256 of the description, which contains the digests of all tensors."""
        return seal(self.meta)

    def model(self) -> Model:
        """Returns the model's options at the checkpoint's step.

        A phase may have changed the rotary positions.
        """
        values: dict[str, Any] = {}
        phases = self.config().get("phases", {}).values()
        for phase in sorted(phases, key=lambda phase: phase["start_step"]):
            values |= phase.get("model", {}) if phase["start_step"] < self.step else {}
        return dataclasses.replace(self.first_model(), **values)

    def first_model(self) -> Model:
        """Returns the model's options in the first phase.

        Keys that did not exist when the checkpoint was written have their current defaults. Without
        a task head, those of task heads have the values of the family.
        """
        config = self.config()
        options = options_of(config["model"].get("family", Model().family))
        names = () if recorded_kind(config) else ("task_head", "task_pooling")
        return Model(**{name: options[name] for name in names} | config["model"])


class CheckpointError(ConfigError):
    """A checkpoint is missing, is damaged, or does not fit the run."""


class DamagedError(CheckpointError):
    """A checkpoint differs from the data that was written.

    Args:
      what: a description of the damage.
    """

    def __init__(self, what: str):
        super().__init__(f"{what}; {_REMEDY}")
        self.what = what


def find(path: str | AnyPath, key: str = "") -> Checkpoint:
    """Returns the latest checkpoint of a workdir, or the checkpoint in a checkpoint's folder.

    Args:
      key: the key or flag that set the path, for errors.

    Raises:
      CheckpointError: if there is no checkpoint, or its description is damaged.
    """
    path = to_path(path)
    if _is_finished(path):
        return read_meta(path)
    finished = steps(path)
    if not finished:
        named = f"{key}={path}" if key else path
        inside = (
            [*path.glob("*/checkpoints"), *path.glob("*/*.safetensors")]
            if isinstance(path, Path)
            else []
        )
        if models := sorted({str(file.parent) for file in inside}):
            raise CheckpointError(
                f"{named} is not a model, but contains models; name one of them: "
                f"{', '.join(models[:4])}"
            )
        raise CheckpointError(
            f"{named} contains no model; expected a workdir with checkpoints/, the folder of a "
            "checkpoint, or a Hugging Face folder with config.json"
        )
    return read_meta(path / "checkpoints" / str(finished[-1]))


def _path_if_finished(folder: AnyPath) -> AnyPath:
    """Returns the path of a file or folder that exists only in a finished checkpoint."""
    return folder / (COMMITTED if isinstance(folder, Url) else "meta")


def _is_finished(folder: AnyPath) -> bool:
    mark = _path_if_finished(folder)
    return mark.is_file() if isinstance(folder, Url) else mark.is_dir()


def contains_models(path: AnyPath) -> bool:
    """Returns whether `path` is a finished checkpoint, or a workdir with a finished checkpoint."""
    return _is_finished(path) or bool(steps(path))


def orbax_path(folder: AnyPath) -> epath.Path:
    return epath.Path(str(folder.absolute()))


def best(workdir: AnyPath) -> Checkpoint:
    """Returns the checkpoint of a workdir with the highest score; of equal scores, the latest one.

    The metrics of the run have the scores, by the `train.best_metric` of the latest checkpoint.
    Checkpoints with damaged descriptions and damaged lines of metrics are skipped with a message.
    Without scores, the function returns the latest checkpoint, with a message.

    Raises:
      CheckpointError: if the description of the latest checkpoint is damaged.
    """
    latest = find(workdir)
    metric = str(latest.config().get("train", {}).get("best_metric", ""))
    if not metric:
        return latest
    damaged: list[str] = []
    scores = metrics.scores(metrics.read(workdir, damaged), metric)
    for line in damaged:
        print(f"skipped: {line}", file=sys.stderr)
    for step in metrics.rank(scores, steps(workdir)):
        try:
            return read_meta(workdir / "checkpoints" / str(step))
        except CheckpointError as error:
            print(f"skipped: {error}", file=sys.stderr)
    file = workdir / metrics.FILE
    print(f"{file} has no {metric} of a checkpoint, so the latest is used", file=sys.stderr)
    return latest


def steps(workdir: AnyPath) -> list[int]:
    """Returns the steps of the finished checkpoints of a workdir, in order.

    Raises:
      CheckpointError: if the folder cannot be listed.
    """
    folder = workdir / "checkpoints"
    try:
        if isinstance(folder, Url):
            entries = [mark.parent for mark in storage.find_files_below(folder, f"*/{COMMITTED}")]
        else:
            entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {folder}: {error.strerror or error}") from error
    return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def list_all(workdir: AnyPath) -> list[Checkpoint]:
    """Returns the finished checkpoints of a workdir, in order.

    In a run with several processes, process 0 lists the checkpoints. Then each process reads the
    descriptions independently.

    Raises:
      CheckpointError: if a description is damaged.
    """
    return [_read_listed(workdir, step) for step in hosts.broadcast(lambda: steps(workdir))]


def latest(workdir: AnyPath) -> Checkpoint | None:
    """Returns the last finished checkpoint of a workdir, or None.

    In a run with several processes, process 0 selects the checkpoint.

    Raises:
      CheckpointError: if the description is damaged.
    """
    step = hosts.broadcast(lambda: max(steps(workdir), default=None))
    return None if step is None else _read_listed(workdir, step)


def earliest(workdir: AnyPath) -> Checkpoint | None:
    """Returns the first finished checkpoint of a workdir, or None.

    In a run with several processes, process 0 selects the checkpoint.

    Raises:
      CheckpointError: if the description is damaged.
    """
    step = hosts.broadcast(lambda: min(steps(workdir), default=None))
    return None if step is None else _read_listed(workdir, step)


def _read_listed(workdir: AnyPath, step: int) -> Checkpoint:
    """Reads the description of a checkpoint whose step process 0 has listed."""
    folder = workdir / "checkpoints" / str(step)
    hosts.wait_for(_path_if_finished(folder))
    return read_meta(folder)


def read_meta(folder: AnyPath) -> Checkpoint:
    """Reads the description of the checkpoint in a folder.

    Each process reads the description independently.

    Raises:
      CheckpointError: if the description is damaged, or has another version of the format.
    """
    silence_orbax()
    try:
        options = _options_without_waiting()
        handler = ocp.JsonCheckpointHandler(multiprocessing_options=options)
        with ocp.Checkpointer(handler, multiprocessing_options=options) as reader:
            meta = reader.restore(orbax_path(folder) / "meta")
        expected_seal = meta.pop("seal")
    except Exception as error:  # Orbax raises the exceptions of its parsers
        raise _unreadable(folder, "its description (meta)", error) from None
    if seal(meta) != expected_seal:
        raise DamagedError(f"{folder}: its description (meta) is damaged")
    if meta["format"] != FORMAT:
        raise CheckpointError(
            f"{folder} has format {meta['format']}, but this version of xlj reads format {FORMAT}; "
            "use the version of xlj that wrote the checkpoint to export it with python -m "
            "xlj.convert export, and set init_from to the exported folder"
        )
    return Checkpoint(folder, meta["step"], meta)


def _options_without_waiting() -> ocp.options.MultiprocessingOptions:
    """Returns options with which Orbax does not wait for other processes of the run."""
    this = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=this, active_processes={this}, barrier_sync_key_prefix=f"process_{this}"
    )


def _unreadable(folder: AnyPath, item: str, error: Exception) -> CheckpointError:
    """Returns the error to raise for an unreadable item. Server errors are not reported as
    damage."""
    reason = error_reason(error)
    if isinstance(folder, Url) and is_server_error(error):
        return CheckpointError(
            f"{folder}: cannot read {item} from the bucket ({reason}); try again later"
        )
    return DamagedError(f"{folder} is damaged: cannot read {item} ({reason})")


def seal(meta: Record) -> str:
    """Returns the SHA-256 of a description without its seal, as hexadecimal text."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def tensor_types(tree: PyTree) -> dict[str, str]:
    """Returns the type and shape of every leaf as text, by name, e.g. float32[2, 3]."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in named_leaves(tree).items()}


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Reads the vocabulary of a checkpoint.

    Raises:
      CheckpointError: if the vocabulary is damaged.
    """
    model = _restore_item(checkpoint, "vocabulary", None)["model"].tobytes()
    if hashlib.sha256(model).hexdigest() != checkpoint.meta["vocabulary"]:
        raise DamagedError(f"{checkpoint.folder} is damaged: its vocabulary changed")
    return Vocabulary(model)


def restore(checkpoint: Checkpoint, abstract: Mapping[str, PyTree]) -> dict[str, PyTree]:
    """Restores the parts of a run's state.

    Args:
      abstract: by name of the part, a tree of `jax.ShapeDtypeStruct` with shardings.

    Raises:
      CheckpointError: if a tensor is missing, unexpected or damaged, or has another shape or type.
    """
    return {
        name: _restore_verified(checkpoint, name, part) if jax.tree.leaves(part) else part
        for name, part in abstract.items()
    }


def verify(checkpoint: Checkpoint) -> None:
    """Reads a whole checkpoint on this host, item by item, and compares all digests.

    It does not wait for other processes of the run.

    Raises:
      DamagedError: if any part differs from the data that was written.
    """
    options = _options_without_waiting()
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=options)

    def on_host(folder: epath.Path) -> PyTree:
        with ocp.Checkpointer(handler, multiprocessing_options=options) as reader:
            tree = reader.metadata(folder).item_metadata.tree
            arrays = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
            return reader.restore(folder, ocp.args.PyTreeRestore(restore_args=arrays))

    for item, expected in checkpoint.meta["digests"].items():
        actual = digests(_read_item(checkpoint, item, on_host))
        # The restored leaves may have other names, so only the digests are compared.
        if sorted(actual.values()) != sorted(expected.values()):
            raise DamagedError(
                f"{checkpoint.folder} is damaged: {item} differs from the saved data"
            )
    model = _read_item(checkpoint, "vocabulary", on_host)["model"].tobytes()
    if hashlib.sha256(model).hexdigest() != checkpoint.meta["vocabulary"]:
        raise DamagedError(f"{checkpoint.folder} is damaged: its vocabulary changed")


def restore_params(checkpoint: Checkpoint, mesh: Mesh, item: str = PARAMS) -> Params:
    """Restores all parameters of a checkpoint as a nested dict, sharded on a mesh.

    Args:
      item: `PARAMS`, or `AVERAGE` for the moving average.

    Raises:
      CheckpointError: if a parameter is damaged.
    """
    tree = nested(abstract_params(checkpoint, item))
    return _restore_verified(checkpoint, item, abstract_like(tree, shardings(tree, mesh, STORED)))


def abstract_params(checkpoint: Checkpoint, item: str = PARAMS) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shape and type of all parameters of a checkpoint by name.

    Args:
      item: `PARAMS`, or `AVERAGE` for the moving average.
    """
    abstract = {}
    for name, text in checkpoint.meta["tensors"][item].items():
        dtype, _, shape = text.partition("[")
        abstract[name] = jax.ShapeDtypeStruct(json.loads("[" + shape), jnp.dtype(dtype))
    return abstract


def restore_leaf(checkpoint: Checkpoint, name: str, item: str = PARAMS) -> np.ndarray:
    """Restores one parameter of a checkpoint on the host.

    Args:
      name: the name of the parameter.
      item: `PARAMS`, or `AVERAGE` for the moving average.

    Raises:
      CheckpointError: if the parameter is damaged.
    """
    arguments = ocp.args.PyTreeRestore(
        nested({name: abstract_params(checkpoint, item)[name]}),
        restore_args=nested({name: ocp.RestoreArgs(restore_type=np.ndarray)}),
        partial_restore=True,
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        restored = _read_item(checkpoint, item, lambda path: reader.restore(path, args=arguments))
    return named_leaves(_check_digests(checkpoint, item, restored))[name]


def _restore_verified(checkpoint: Checkpoint, item: str, abstract: Tree) -> Tree:
    expected, saved = tensor_types(abstract), checkpoint.meta["tensors"].get(item, {})
    unequal = [
        f"{name}: {saved.get(name, 'none')} saved, {expected.get(name, 'none')} in this run"
        for name in sorted(expected.keys() | saved.keys())
        if expected.get(name) != saved.get(name)
    ]
    if unequal:
        shown = "; ".join(unequal[:4]) + ("; ..." if len(unequal) > 4 else "")
        raise CheckpointError(
            f"{checkpoint.folder} contains another model than this run: {len(unequal)} tensors of "
            f"{item} differ: {shown}"
        )
    return _check_digests(checkpoint, item, _restore_item(checkpoint, item, abstract))


def _check_digests(checkpoint: Checkpoint, item: str, restored: Tree) -> Tree:
    expected = checkpoint.meta["digests"][item]
    damaged = [name for name, digest in digests(restored).items() if digest != expected[name]]
    if damaged:
        raise DamagedError(
            f"{checkpoint.folder} is damaged: {item} {', '.join(damaged[:4])} "
            f"({len(damaged)} in total) differ from the saved data"
        )
    return restored


def _restore_item(checkpoint: Checkpoint, item: str, abstract: PyTree) -> PyTree:
    with ocp.StandardCheckpointer() as reader:
        return _read_item(checkpoint, item, lambda folder: reader.restore(folder, abstract))


def _read_item(checkpoint: Checkpoint, item: str, read: Callable[[epath.Path], Tree]) -> Tree:
    try:
        return read(orbax_path(checkpoint.folder) / item)
    except jax.errors.JaxRuntimeError:  # for example out of memory, which is no damage
        raise
    except Exception as error:  # Orbax and TensorStore raise many types, including `Exception`
        raise _unreadable(checkpoint.folder, item, error) from error


def error_reason(error: BaseException) -> str:
    """Returns the system's message for a disk error; else the first line of an error's root
    cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    if disk_message := disk_error(error):
        return disk_message
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]


def disk_error(error: BaseException | None) -> str:
    """Returns the system's message for a disk error, such as a full disk; else an empty text."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        if code := re.search(r"os_error_code='(\d+)'", str(error)):  # an error of TensorStore
            return os.strerror(int(code[1]))
        error = error.__cause__ or error.__context__
    return ""


def is_server_error(error: BaseException | None) -> bool:
    """Returns whether a bucket's server was unreachable or denied access. This may be temporary."""
    while error is not None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return True
        if re.search(
            r"UNAVAILABLE|PERMISSION_DENIED|UNAUTHENTICATED|DEADLINE_EXCEEDED", str(error)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def silence_orbax() -> None:
    """Suppresses the tracebacks that Orbax prints in addition to the error that it raises.

    If one tensor fails, Orbax logs the error in each thread, and abandons the coroutines of the
    other tensors. Python then warns that these were never awaited.
    """
    logging.getLogger("absl").addFilter(_is_not_of_orbax)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = _report_unless_abandoned


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname


def _report_unless_abandoned(event: "sys.UnraisableHookArgs") -> None:
    code = getattr(event.object, "cr_code", None)
    if "Event loop is closed" in str(event.exc_value) or code and "orbax" in code.co_filename:
        return
    sys.__unraisablehook__(event)


FOLDER = "damaged"
"""The folder in a workdir to which damaged checkpoints are moved."""


def move_damaged(workdir: AnyPath) -> None:
    """Moves damaged checkpoints into `WORKDIR/damaged`, and prints a message for each.

    It begins with the latest checkpoint, and reads whole checkpoints until one is intact. Of all
    earlier checkpoints, it reads only the descriptions. The first checkpoint of a workdir is never
    moved, so that a run does not silently start from the beginning. Every process of a run must
    call this function; process 0 does the work, and all other processes wait.

    Raises:
      ConfigError: if a folder cannot be moved.
    """
    hosts.broadcast(lambda: _move_damaged(workdir))


def _move_damaged(workdir: AnyPath) -> None:
    """Implements `move_damaged` in one process."""
    saved_steps, found_intact = steps(workdir), False
    for before, step in reversed(list(itertools.pairwise(saved_steps))):
        folder = workdir / "checkpoints" / str(step)
        try:
            checkpoint = read_meta(folder)
            if not found_intact:
                verify(checkpoint)
            found_intact = True
        except DamagedError as error:
            target = _move(folder, workdir / FOLDER)
            resume = "" if found_intact else f"; the run resumes from step {before} or earlier"
            print(f"{error.what}; it was moved to {target}{resume}", flush=True)


def _move(folder: AnyPath, into: AnyPath) -> AnyPath:
    """Moves a folder into another folder, under an unused name.

    Returns:
      The new path.
    """
    names = itertools.chain([folder.name], (f"{folder.name}.{n}" for n in itertools.count(1)))
    try:
        with as_config_error(into):
            target = next(into / name for name in names if not storage.exists(into / name))
            into.mkdir(exist_ok=True)
            storage.move_folder(folder, target, COMMITTED)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; {folder} is damaged and could not be moved; move it to another folder"
        ) from error
    return target
