"""Refuses checkpoints of another config, rows or model, and names the differences."""

import dataclasses
from typing import NamedTuple

from xlj.checkpoints.preservation import decay_start
from xlj.checkpoints.reading import Checkpoint, CheckpointError
from xlj.checkpoints.stored_models import StoredModel
from xlj.checkpoints.writing import row_digests
from xlj.config import Config, Model, record, registered
from xlj.config.fields import ConfigTree, Value, flat, merge
from xlj.config.objectives.options import objectives_in
from xlj.data.rows.store import Manifest


def check_resumable(latest: Checkpoint, config: Config) -> None:
    """Refuses to resume from a checkpoint that another config wrote.

    Raises:
      CheckpointError: with the differences and what to do.
    """
    if differences := config_differences(latest, config):
        keys = list(dict.fromkeys(difference.allowed_by for difference in differences))
        allow = f"To resume with them, add --config.train.allow_change={','.join(keys)}. "
        raise CheckpointError(
            f"{latest.folder} was written by another run: {'; '.join(map(str, differences))}. "
            f"{allow if all(keys) else ''}{_start_from(latest)}"
        )
    if latest.step > config.train.steps:
        raise CheckpointError(
            f"{latest.folder} is after the last step, train.steps={config.train.steps}; raise "
            "train.steps to resume"
        )
    before = decay_start(latest.config())
    planned = latest.config()["train"]["steps"]
    if before is not None and before < latest.step < config.train.steps != planned:
        raise CheckpointError(
            f"{latest.folder} is in the decay of a run of {planned} "
            f"steps, which began at step {before}; to train for train.steps="
            f"{config.train.steps}, copy {latest.folder.parent / str(before)} to "
            "ANOTHER_WORKDIR/checkpoints/ and resume there"
        )


def check_rows(latest: Checkpoint, manifest: Manifest) -> None:
    """Refuses to resume from a checkpoint that was trained on other rows.

    Raises:
      CheckpointError: with the differences and what to do.
    """
    if differences := row_differences(latest, manifest):
        raise CheckpointError(
            f"{latest.folder} was written by another run: {'; '.join(differences)}. "
            f"{_start_from(latest)}, and --config.transfer.optimizer=True to keep the "
            "optimizer's moments"
        )


def check_model(source: StoredModel, config: Config, key: str = "") -> None:
    """Refuses to start from a model with other computations.

    Args:
      key: `KEY=`, if a key of the config other than `init_from` names the model. Such a model (a
        teacher) is not trained, so its rotary bases must also equal those of the config.

    Raises:
      CheckpointError: with the differences, and the flags that set the model's own values.
    """
    free = _FREE_TO_ADD if key else _FREE_AT_START
    if differences := model_differences(source.model, config.model, free):
        own = model_differences(source.model, config.model, _FREE_TO_ADD)
        raise CheckpointError(
            f"{key}{source.folder} is of another model: {'; '.join(map(str, differences))}. To "
            f"set the config to that model, add {' '.join(d.flag_of_old for d in own)}"
        )


def _start_from(checkpoint: Checkpoint) -> str:
    return (
        "To start a new run from these parameters, use another --workdir with "
        f"--config.init_from={checkpoint.folder}"
    )


class Difference(NamedTuple):
    """A key with another value than before; as text `KEY: OLD -> NEW`."""

    key: str
    old: ConfigTree | Value | None
    new: ConfigTree | Value | None

    def __str__(self) -> str:
        return f"{self.key}: {self.old!r} -> {self.new!r}"

    @property
    def flag_of_old(self) -> str:
        """The flag that sets the key to its old value."""
        values = ",".join(map(str, self.old)) if isinstance(self.old, tuple) else self.old
        return f"--config.{self.key}={values}"

    @property
    def allowed_by(self) -> str:
        """The key that `train.allow_change` must name to allow it.

        Empty if parameters or states would not fit, or would have another meaning.
        """
        section, _, name = self.key.partition(".")
        if section == "phases":
            return section
        objective, _, option = name.partition(".")
        if section == "model":
            fits = name in _FREE
        elif section == "objectives" and objective in registered():
            fits = option not in registered()[objective].shared
        else:
            fits = self.key not in (_ON, "optimizer.name", "optimizer.average")
        return self.key if fits else ""


_ON = "objectives of all phases"


_MUST_STAY = (
    *("init_from", "transfer", "train.seed", "train.batch_warmup", "data.alpha", "data.sampled"),
    *("objectives", "optimizer"),
)
"""Keys and sections that determine batches, masks and updates; `model` and `phases` are compared
separately."""

_OF_WARMUP = ("train.first_microbatches", "train.accumulation")
"""Keys that determine batches during a batch warm-up."""


def config_differences(checkpoint: Checkpoint, config: Config) -> list[Difference]:
    """Returns the differences for which a checkpoint is refused, without `train.allow_change`.

    Compares the model, and what determines batches, masks and updates; `restore` checks the
    tensors. A key that did not exist when the checkpoint was written had its present default.
    Options of objectives that are off in both are ignored.
    """
    first = Model(**checkpoint.config()["model"])  # `checkpoint.model()` may be a later phase's
    differences = model_differences(first, config.model, _FREE_ON_RESUME)
    # Configs of fine-tuning record only their own objective; others have defaults on both sides.
    old, new = (merge(record(Config()), tree, "") for tree in (checkpoint.config(), record(config)))
    on = objectives_in(old) | objectives_in(new)
    grow = config.train.batch_warmup > 0
    for path in (*_MUST_STAY, *_OF_WARMUP * grow, "phases"):
        before, now = old, new
        for name in path.split("."):
            before, now = before[name], now[name]
        if path == "objectives":
            off = set(registered()) - on
            before, now = ({n: tree[n] for n in tree if n not in off} for tree in (before, now))
        if path == "phases":  # phases that have not begun may still change
            before, now = (
                {n: p for n, p in phases.items() if p["start_step"] < checkpoint.step}
                for phases in (before, now)
            )
        differences += _unequal(path, before, now)
    for module, digest in new.get("objective_digests", {}).items():
        if old.get("objective_digests", {}).get(module) != digest:
            differences.append(Difference("objective_modules", f"{module} as it was", "other code"))
    # The state for later phases is created when the run starts, so objectives cannot be added.
    differences += _unequal(_ON, *(", ".join(sorted(objectives_in(tree))) for tree in (old, new)))
    allowed = config.train.allow_change
    return [difference for difference in differences if difference.allowed_by not in allowed]


def changes(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Returns the keys that differ from a checkpoint's config: `KEY was OLD, is now NEW`.

    Keys that did not exist when the checkpoint was written are left out.
    """
    old, new = flat(checkpoint.config()), flat(record(config))
    return [
        f"{path} was {old[path]!r}, is now {value!r}"
        for path, value in new.items()
        if path in old and old[path] != value and path not in _OF_RESUMING
    ]


_OF_RESUMING = ("train.allow_change", "train.damaged_checkpoint")
"""Keys that only determine how to resume."""


def row_differences(checkpoint: Checkpoint, manifest: Manifest) -> list[str]:
    """Returns the tasks whose rows differ from those that a checkpoint was trained on."""
    before, now = checkpoint.meta["rows"], row_digests(manifest)
    differences = []
    if checkpoint.meta["vocabulary"] != manifest.vocabulary_digest:
        differences.append("another vocabulary")
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            how = "removed" if name not in now else "new" if name not in before else "changed"
            differences.append(f"rows of {name}: {how}")
    return differences


_FREE_ON_RESUME = ("family", "attention", "scan_layers", "remat", "init_std")
"""Keys of `model` that do not change what a step computes, except the order of sums."""

_FREE = (*_FREE_ON_RESUME, "dropout", "dropout_parts", "attention_dropout", "dtype")
"""Also keys that do not change what equal parameters compute at inference."""

_FREE_TO_ADD = (*_FREE, "language_embeddings", "middle_norm", "pair_separator")
"""Also keys that a run may add to other parameters, or that change what it takes from them."""

_ROTARY = ("rotary_base", "rotary_local_base", "rotary_factor")
_ROTARY_KEYS = tuple(f"model.{name}" for name in _ROTARY)

_FREE_AT_START = (*_FREE_TO_ADD, *_ROTARY)
"""Also keys that a new run may change when it starts from other parameters: longer contexts begin
with a larger base (ModernBERT, mmBERT)."""


def model_differences(old: Model, new: Model, free: tuple[str, ...] = _FREE) -> list[Difference]:
    """Returns the differences between two models, except the keys in `free`."""
    models = (dataclasses.asdict(model) for model in (old, new))
    return _unequal("model", *({k: m[k] for k in m if k not in free} for m in models))


def rotary_changes(source: StoredModel, config: Config) -> list[Difference]:
    """Returns the keys of rotary positions in which a run differs from its `init_from`."""
    differences = model_differences(source.model, config.model, _FREE_TO_ADD)
    return [difference for difference in differences if difference.key in _ROTARY_KEYS]


def _unequal(
    path: str, before: ConfigTree | Value | None, now: ConfigTree | Value | None
) -> list[Difference]:
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted(before.keys() | now.keys())
        return [d for n in names for d in _unequal(f"{path}.{n}", before.get(n), now.get(n))]
    return [] if before == now else [Difference(path, before, now)]
