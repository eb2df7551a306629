"""Writes checkpoints asynchronously. A checkpoint appears complete, or does not appear."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from xlj.checkpoints import metrics, reading
from xlj.checkpoints.digests import digests
from xlj.checkpoints.reading import FORMAT, CheckpointError, orbax_path, seal, tensor_types
from xlj.config import Config, ConfigError, record
from xlj.contracts.arrays import PyTree
from xlj.data.rows.store import Manifest, file_bytes
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.folder import TRAINED_ON_PAIRS
from xlj.io.json_file import Record
from xlj.io.storage import AnyPath, Url
from xlj.sharding.trees import Params

_DELETED = "deleted"
"""Folder in `checkpoints/` for checkpoints that are being deleted. They are moved there first, so a
process that is killed while it deletes files leaves no incomplete checkpoint among the others."""

_PIECE_BYTES = 64 << 20


class _KeepBest:
    """A preservation policy of Orbax that keeps the best checkpoint.

    Args:
      scores: the argument of `Checkpointer`.
    """

    def __init__(self, scores: Mapping[int, float]):
        self._scores = scores

    def should_preserve(self, checkpoints: Sequence[Any], *, context: object) -> list[bool]:
        """Returns whether to keep each checkpoint, an object with `step`."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        best = metrics.rank(self._scores, steps)[:1]
        return [step in best for step in steps]


class Checkpointer:
    """Writes the checkpoints of one run.

    Args:
      workdir: the folder that contains `checkpoints/`.
      config: the config of the run, which each checkpoint contains.
      manifest: the manifest of the run's rows. Each checkpoint contains the digests of the rows.
      vocabulary: the vocabulary of the rows, which each checkpoint contains.
      keep: the number of latest checkpoints that are kept.
      keep_steps: steps whose checkpoints are always kept.
      scores: the scores of the run's steps, which grow with the run (`metrics.scores`). The best
        checkpoint is always kept.
      from_pairs: whether the model from which the run started was trained on pairs that are encoded
        together.

    Attributes:
      keep_steps: as above.
    """

    def __init__(
        self,
        workdir: AnyPath,
        config: Config,
        manifest: Manifest,
        vocabulary: Vocabulary,
        keep: int,
        keep_steps: tuple[int, ...] = (),
        scores: Mapping[int, float] = MappingProxyType({}),
        from_pairs: bool = False,
    ):
        policies = [
            preservation_policy.LatestN(keep),
            preservation_policy.CustomSteps(list(keep_steps)),
            _KeepBest(scores),
        ]
        reading.silence_orbax()
        self.keep_steps = keep_steps
        self._folder = workdir / "checkpoints"
        self._config, self._manifest, self._vocabulary = config, manifest, vocabulary
        self._from_pairs = from_pairs
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(policies),
            enable_async_checkpointing=True,
            single_host_load_and_broadcast=True,  # other hosts may get an outdated list of files
            cleanup_tmp_directories=True,
            todelete_subdir=_DELETED,  # without effect in a bucket
        )
        with self._writing():
            self._delete_files()
            self._manager = ocp.CheckpointManager(orbax_path(self._folder), options=options)

    def save(
        self,
        step: int,
        items: Mapping[str, PyTree],
        measured: bool = True,
        tokens: int = 0,
        layer: int | None = None,
    ) -> None:
        """Starts to write the checkpoint of a step.

        Args:
          items: items of the run's state by name. Parts without arrays are not written.
          measured: whether the run's files already contain the metrics of this step.
          tokens: the number of tokens of text, without padding, that the run has read.
          layer: the layer that word alignment should use; None to store no layer.

        Raises:
          ConfigError: if this checkpoint or the previous one could not be written, for example
            because the disk is full.
        """
        if step in self._manager.all_steps():
            return
        manifest, vocabulary = self._manifest, self._vocabulary
        items = {name: part for name, part in items.items() if jax.tree.leaves(part)}
        tasks = {
            task.name: {"sentences": task.train.sentences, "tokens": task.train.tokens}
            for task in manifest.tasks
        }
        meta = _description(
            items,
            self._config,
            vocabulary,
            manifest.languages,
            step=step,
            measured=measured,
            tokens=tokens,
            rows=row_digests(manifest),
            tasks=tasks,
            text=file_bytes(manifest.recipe),
            **{TRAINED_ON_PAIRS: True} if self._from_pairs else {},
            **{reading.ALIGNED_LAYER: layer} if layer is not None else {},
        )
        saved = {name: ocp.args.StandardSave(part) for name, part in items.items()}
        with self._writing():
            self._manager.wait_until_finished()
            self._delete_files()
            self._manager.save(step, args=_composite(meta, vocabulary, **saved))

    def close(self) -> None:
        """Waits until all checkpoints are written.

        Raises:
          ConfigError: if a checkpoint could not be written.
        """
        with self._writing():
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
            self._manager.close()
            self._delete_files()

    def _delete_files(self) -> None:
        """Deletes the files of the local checkpoints that Orbax has moved out of the way."""
        if isinstance(self._folder, Path) and jax.process_index() == 0:
            shutil.rmtree(self._folder / _DELETED, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Converts disk errors, and all errors in a bucket, into a `ConfigError`."""
        try:
            yield
        except Exception as error:
            reason = reading.disk_error(error)
            if not reason and isinstance(self._folder, Url):
                reason = reading.error_reason(error)
            if reason:
                raise ConfigError(
                    f"cannot write checkpoints to {self._folder}: {reason}"
                ) from error
            raise


def write_params(
    folder: Path,
    params: Params,
    config: Config,
    vocabulary: Vocabulary,
    languages: list[str],
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Writes a checkpoint with parameters only, at step 0, from which a run can start.

    Args:
      extra: further entries of the description, which `stored_models` reads.

    Raises:
      CheckpointError: if `folder` exists.
    """
    if folder.exists():
        raise CheckpointError(f"{folder} already exists; set the output to a new folder")
    meta = _description({"params": params}, config, vocabulary, languages, **extra or {})
    # Without compression, Orbax writes from the memory of the arrays. With compression, Orbax would
    # hold all compressed data in memory, and the weights would be only 8 % smaller on disk.
    handler = ocp.CompositeCheckpointHandler(
        meta=ocp.JsonCheckpointHandler(),
        vocabulary=ocp.StandardCheckpointHandler(),
        params=ocp.PyTreeCheckpointHandler(use_compression=False),
    )
    with ocp.Checkpointer(handler) as writer:
        saved = ocp.args.PyTreeSave(params, save_args=jax.tree.map(_choose_pieces, params))
        writer.save(folder.absolute(), _composite(meta, vocabulary, params=saved))


def _choose_pieces(leaf: jax.Array) -> ocp.SaveArgs:
    """Chooses the pieces into which a leaf is divided on disk.

    A matrix of more than 64 MiB (an embedding) is divided into pieces of whole rows, up to 64 MiB
    each. Each piece can be read separately. Other leaves are one piece. Orbax copies a piece before
    writing, unless the piece is contiguous in memory and has several rows or layers.
    """
    size = leaf.size * leaf.dtype.itemsize
    if leaf.ndim != 2 or size <= _PIECE_BYTES:
        return ocp.SaveArgs()
    rows, row = leaf.shape[0], size // leaf.shape[0]
    max_rows = max(n for n in range(1, 1 + max(1, _PIECE_BYTES // row)) if rows % n == 0)
    # Orbax needs pieces of equal size. For a prime number of rows these would be single rows. A
    # leaf whose pieces would be small (1 MiB or less) remains one piece.
    return ocp.SaveArgs(chunk_byte_size=max_rows * row if max_rows * row > 1 << 20 else None)


def row_digests(manifest: Manifest) -> dict[str, str]:
    """Returns a text for each task, by name: the row length, and the digests of training and
    held-out rows."""
    return {
        task.name: f"{task.length}:{task.train.sha256}:{task.held_out.sha256}"
        for task in manifest.tasks
    }


def _description(
    items: Mapping[str, PyTree],
    config: Config,
    vocabulary: Vocabulary,
    languages: list[str],
    **of_run: float | bool | str | Mapping[str, str | int | dict[str, int]],
) -> Record:
    """Returns the description of a checkpoint, with a hash (the seal).

    The defaults are those of a checkpoint that xlj did not train.
    """
    meta: Record = {
        "format": FORMAT,
        "step": 0,
        "measured": True,
        "rows": {},
        "tasks": {},
        "text": {},
        "languages": languages,
        "vocabulary": vocabulary.digest,
        "config": record(config),
        "tensors": {name: tensor_types(tree) for name, tree in items.items()},
        "digests": {name: digests(tree) for name, tree in items.items()},
    } | of_run
    return meta | {"seal": seal(meta)}


def _composite(
    meta: Record, vocabulary: Vocabulary, **items: ocp.args.CheckpointArgs
) -> ocp.args.Composite:
    model = {"model": np.frombuffer(vocabulary.model, np.uint8)}
    return ocp.args.Composite(
        meta=ocp.args.JsonSave(meta), vocabulary=ocp.args.StandardSave(model), **items
    )
