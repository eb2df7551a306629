"""Checkpoints: atomic, asynchronous, verified and audited when they are read.

A checkpoint is a folder `WORKDIR/checkpoints/STEP` that holds everything: parameters, optimizer
state and progress, the vocabulary's model file, and a description (`meta`) with the config, the
digests of the rows, and name, shape, type and digest of every tensor. Orbax does not notice flipped
bits in its files, so the digests are of the arrays, and compared after every restore.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import Mesh

from xlj.checkpoints import orbax_errors
from xlj.checkpoints.digests import digests
from xlj.config import ConfigError, Model, renamed
from xlj.config.fields import ConfigTree
from xlj.contracts.arrays import PyTree, Tree
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.distributed import hosts
from xlj.io import storage
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath, Url, place
from xlj.models.encoder import Params
from xlj.sharding.rules import STORED
from xlj.sharding.trees import abstract_like, named_leaves, nested, shardings

FORMAT = 1
"""Of what is written; tests/formats keeps a checkpoint of each."""
COMMITTED = "commit_success.txt"
"""What Orbax writes last into a checkpoint in a bucket, where no folder can appear at once."""
PARAMS, AVERAGE = "params", "average"
"""The items of a checkpoint that are parameters: those of its step, and their moving average."""
_AWAY = (
    "move this folder away to go on from the checkpoint before it, or set "
    "--config.train.damaged_checkpoint=before"
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint on disk, and what it says of itself."""

    folder: AnyPath
    step: int
    meta: Record

    def config(self) -> ConfigTree:
        """The config that wrote it, as nested dicts, with the names that keys have today."""
        return renamed.translate_recorded(self.meta["config"])

    def digest(self) -> str:
        """SHA-256 of the description, and so of all tensors, whose digests are in it."""
        return seal(self.meta)

    def model(self) -> Model:
        """The model in it, as its last step had it: a phase may change rotary positions. A
        checkpoint older than a key was made by what is now its default."""
        config = self.config()
        values = dict(config["model"])
        phases = config.get("phases", {}).values()
        for phase in sorted(phases, key=lambda phase: phase["start_step"]):
            values |= phase.get("model", {}) if phase["start_step"] < self.step else {}
        return Model(**values)


class CheckpointError(ConfigError):
    """A checkpoint is missing, damaged, or belongs to something else."""


class DamagedError(CheckpointError):
    """A checkpoint is not what was written.

    Args:
      what: is wrong with it.
    """

    def __init__(self, what: str):
        super().__init__(f"{what}; {_AWAY}")
        self.what = what


def find(path: str | AnyPath, key: str = "") -> Checkpoint:
    """The checkpoint at `path`: a workdir (its latest), or the folder of one checkpoint.

    Args:
      key: what named the path, for the error.

    Raises:
      CheckpointError: if there is none, or its description is damaged.
    """
    path = place(path)
    if _is_finished(path):
        return read_meta(path)
    found = steps(path)
    if not found:
        named = f"{key}={path}" if key else path
        below = path.glob("*/checkpoints") if isinstance(path, Path) else ()
        if runs := sorted(folder.parent.name for folder in below):
            raise CheckpointError(
                f"{named} has no checkpoints/, but holds runs that do (fine-tuning's seeds?): name "
                f"one of {', '.join(str(path / run) for run in runs[:4])}"
            )
        raise CheckpointError(
            f"{named} is neither a workdir with checkpoints/, the folder of one checkpoint, nor "
            "a Hugging Face folder with config.json"
        )
    return read_meta(path / "checkpoints" / str(found[-1]))


def _mark(folder: AnyPath) -> AnyPath:
    """What is there if a folder is a finished checkpoint."""
    return folder / (COMMITTED if isinstance(folder, Url) else "meta")


def _is_finished(folder: AnyPath) -> bool:
    mark = _mark(folder)
    return mark.is_file() if isinstance(folder, Url) else mark.is_dir()


def holds_models(path: AnyPath) -> bool:
    """Whether `path` is a finished checkpoint, or a workdir that has some."""
    return _is_finished(path) or bool(steps(path))


def orbax_path(folder: AnyPath) -> epath.Path:
    return epath.Path(str(folder.absolute()))


def steps(workdir: AnyPath) -> list[int]:
    """Steps of the finished checkpoints of a workdir, in order; raises a `CheckpointError` if they
    cannot be listed."""
    folder = workdir / "checkpoints"
    try:
        if isinstance(folder, Url):
            entries = [mark.parent for mark in storage.below(folder, f"*/{COMMITTED}")]
        else:
            entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {folder}: {error.strerror or error}") from error
    return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def every(workdir: AnyPath) -> list[Checkpoint]:
    """The finished checkpoints of a workdir, in order; raises a `CheckpointError` if a description
    is damaged. Of several processes the first lists them, and all read: Orbax lets all wait for
    each other when one reads."""
    return [_seen(workdir, step) for step in hosts.told(lambda: steps(workdir))]


def latest(workdir: AnyPath) -> Checkpoint | None:
    """The last finished checkpoint of a workdir, if it has any, with the same error. Of several
    processes the first decides which it is."""
    step = hosts.told(lambda: max(steps(workdir), default=None))
    if step is None:
        return None
    return _seen(workdir, step)


def _seen(workdir: AnyPath, step: int) -> Checkpoint:
    """The checkpoint of a step that process 0 has listed."""
    folder = workdir / "checkpoints" / str(step)
    hosts.wait_for(_mark(folder))
    return read_meta(folder)


def read_meta(folder: AnyPath) -> Checkpoint:
    """The checkpoint in `folder`, of which each process reads the description by itself; raises a
    `CheckpointError` if it is damaged, or of another format."""
    orbax_errors.silence()
    try:
        alone = _alone()
        handler = ocp.JsonCheckpointHandler(multiprocessing_options=alone)
        with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
            meta = reader.restore(orbax_path(folder) / "meta")
        sealed = meta.pop("seal")
    except Exception as error:  # Orbax raises whatever its parsers do
        raise _unreadable(folder, "its description (meta)", error) from None
    if seal(meta) != sealed:
        raise DamagedError(f"{folder}: its description (meta) is damaged")
    if meta["format"] != FORMAT:
        raise CheckpointError(
            f"{folder} has format {meta['format']}; this xlj reads {FORMAT}. Where the xlj that "
            "wrote it is installed, python -m xlj.convert export makes a folder for init_from"
        )
    return Checkpoint(folder, meta["step"], meta)


def _alone() -> ocp.options.MultiprocessingOptions:
    """Reading that waits for no other process of the run."""
    this = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=this, active_processes={this}, barrier_sync_key_prefix=f"process_{this}"
    )


def _unreadable(folder: AnyPath, item: str, error: Exception) -> CheckpointError:
    """Of a bucket whose server does not answer, or not to everybody, no damage is told."""
    reason = orbax_errors.reason(error)
    if isinstance(folder, Url) and orbax_errors.of_server(error):
        return CheckpointError(f"{folder}: cannot read {item} ({reason})")
    return DamagedError(f"{folder} is damaged: cannot read {item} ({reason})")


def seal(meta: Record) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def described(tree: PyTree) -> dict[str, str]:
    """Type and shape of every leaf, by name."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in named_leaves(tree).items()}


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """The vocabulary inside a checkpoint; raises a `CheckpointError` if it is damaged."""
    model = _restore_item(checkpoint, "vocabulary", None)["model"].tobytes()
    if hashlib.sha256(model).hexdigest() != checkpoint.meta["vocabulary"]:
        raise DamagedError(f"{checkpoint.folder} is damaged: its vocabulary changed")
    return Vocabulary(model)


def restore(checkpoint: Checkpoint, abstract: Mapping[str, PyTree]) -> dict[str, PyTree]:
    """The parts of a run's state by name, on the devices that `abstract`'s shardings name; raises a
    `CheckpointError` if a tensor is missing, left over, of another shape or type, or damaged."""
    return {
        name: _restore_verified(checkpoint, name, part) if jax.tree.leaves(part) else part
        for name, part in abstract.items()
    }


def verify(checkpoint: Checkpoint) -> None:
    """Reads all of a checkpoint on this host, an item at a time; waits for no other process.

    Raises:
      DamagedError: if something of it is not what was written.
    """
    alone = _alone()
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)

    def on_host(folder: epath.Path) -> PyTree:
        with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
            tree = reader.metadata(folder).item_metadata.tree
            arrays = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
            return reader.restore(folder, ocp.args.PyTreeRestore(restore_args=arrays))

    for item, wanted in checkpoint.meta["digests"].items():
        found = digests(_restored(checkpoint, item, on_host))
        if sorted(found.values()) != sorted(wanted.values()):  # Orbax may name leaves otherwise
            raise DamagedError(f"{checkpoint.folder} is damaged: {item} is not what was saved")
    model = _restored(checkpoint, "vocabulary", on_host)["model"].tobytes()
    if hashlib.sha256(model).hexdigest() != checkpoint.meta["vocabulary"]:
        raise DamagedError(f"{checkpoint.folder} is damaged: its vocabulary changed")


def restore_params(checkpoint: Checkpoint, mesh: Mesh, item: str = PARAMS) -> Params:
    """All parameters in a checkpoint, or their average, a nested dict, sharded over a mesh; raises
    a `CheckpointError` if one is damaged."""
    tree = nested(abstract_params(checkpoint, item))
    return _restore_verified(checkpoint, item, abstract_like(tree, shardings(tree, mesh, STORED)))


def abstract_params(checkpoint: Checkpoint, item: str = PARAMS) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and type of all parameters in a checkpoint, or of their average, by name."""
    found = {}
    for name, text in checkpoint.meta["tensors"][item].items():
        dtype, _, shape = text.partition("[")
        found[name] = jax.ShapeDtypeStruct(json.loads("[" + shape), jnp.dtype(dtype))
    return found


def restore_leaf(checkpoint: Checkpoint, name: str, item: str = PARAMS) -> np.ndarray:
    """One of the parameters in a checkpoint, or of their average, on the host, by its name; raises
    a `CheckpointError` if it is damaged."""
    wanted = ocp.args.PyTreeRestore(
        nested({name: abstract_params(checkpoint, item)[name]}),
        restore_args=nested({name: ocp.RestoreArgs(restore_type=np.ndarray)}),
        partial_restore=True,
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        restored = _restored(checkpoint, item, lambda path: reader.restore(path, args=wanted))
    return named_leaves(_verified(checkpoint, item, restored))[name]


def _restore_verified(checkpoint: Checkpoint, item: str, abstract: Tree) -> Tree:
    expected, found = described(abstract), checkpoint.meta["tensors"].get(item, {})
    unequal = [
        f"{name}: {found.get(name, 'none')} there, {expected.get(name, 'none')} in this run"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]
    if unequal:
        shown = "; ".join(unequal[:4]) + ("; ..." if len(unequal) > 4 else "")
        raise CheckpointError(
            f"{checkpoint.folder} is of another model: {len(unequal)} tensors of {item} "
            f"differ: {shown}"
        )
    return _verified(checkpoint, item, _restore_item(checkpoint, item, abstract))


def _verified(checkpoint: Checkpoint, item: str, restored: Tree) -> Tree:
    wanted = checkpoint.meta["digests"][item]
    damaged = [name for name, digest in digests(restored).items() if digest != wanted[name]]
    if damaged:
        raise DamagedError(
            f"{checkpoint.folder} is damaged: {item} {', '.join(damaged[:4])} "
            f"({len(damaged)} in all) are not what was saved"
        )
    return restored


def _restore_item(checkpoint: Checkpoint, item: str, abstract: PyTree) -> PyTree:
    with ocp.StandardCheckpointer() as reader:
        return _restored(checkpoint, item, lambda folder: reader.restore(folder, abstract))


def _restored(checkpoint: Checkpoint, item: str, read: Callable[[epath.Path], Tree]) -> Tree:
    try:
        return read(orbax_path(checkpoint.folder) / item)
    except jax.errors.JaxRuntimeError:  # out of memory, say: the files are not to blame
        raise
    except Exception as error:  # Orbax and TensorStore raise many kinds, `Exception` itself too
        raise _unreadable(checkpoint.folder, item, error) from error
