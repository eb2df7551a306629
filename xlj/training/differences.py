"""Differences between runs: those for which a checkpoint is refused, and those that may be."""

import dataclasses

from xlj.config import Config, Model, record
from xlj.config.fields import ConfigTree, Value, flat
from xlj.data.rows.store import Manifest
from xlj.training.checkpoints import Checkpoint, row_digests


def config_differences(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Differences for which a checkpoint is refused under this config.

    Tensors are audited one by one in `restore`; this compares the model, and what decides batches,
    masks and learning rates up to the checkpoint's step.
    """
    found = []
    old, new = checkpoint.config(), record(config)
    found += model_differences(checkpoint.model(), config.model)
    for path in ("init_from", "transfer", "train.seed", "data.alpha", "objectives", "phases"):
        before, now = old, new
        for name in path.split("."):
            before, now = before[name], now[name]
        if path == "phases":  # phases that begin later may still change
            before, now = (
                {n: p for n, p in phases.items() if p["start_step"] < checkpoint.step}
                for phases in (before, now)
            )
        found += _unequal(path, before, now)
    for module, digest in new.get("objective_digests", {}).items():
        if old.get("objective_digests", {}).get(module) != digest:
            found.append(f"objective_modules: the code of {module} is another")
    # What a later phase needs is made when the run starts, so it cannot be added.
    found += _unequal("objectives of all phases", _objectives_in(old), _objectives_in(new))
    return found


def changes(checkpoint: Checkpoint, config: Config) -> list[str]:
    """Keys that differ from the config that wrote a checkpoint: `KEY was OLD, is now NEW`. A key
    that the checkpoint is older than is left out."""
    old, new = flat(checkpoint.config()), flat(record(config))
    return [
        f"{path} was {old[path]!r}, is now {value!r}"
        for path, value in new.items()
        if path in old and old[path] != value
    ]


def _objectives_in(config: ConfigTree) -> str:
    parts = [config["objectives"], *(p.get("objectives", {}) for p in config["phases"].values())]
    on = {
        name
        for part in parts
        for name, options in part.items()
        if isinstance(options, dict) and options.get("batch_rows")
    }
    return ", ".join(sorted(on))


def row_differences(checkpoint: Checkpoint, manifest: Manifest) -> list[str]:
    """Which tasks have other rows than those that a checkpoint was trained on."""
    before, now = checkpoint.meta["rows"], row_digests(manifest)
    found = []
    if checkpoint.meta["vocabulary"] != manifest.vocabulary_digest:
        found.append("another vocabulary")
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            how = "no longer there" if name not in now else "new" if name not in before else "other"
            found.append(f"rows of {name}: {how}")
    return found


_FREE = ("dropout", "attention_dropout", "attention", "dtype", "scan_layers", "remat", "init_std")
"""Keys of `model` that change nothing of what the same parameters compute."""

FREE_AT_START = (*_FREE, "language_embeddings", "generator_layers", "generator_embeddings")
"""Those, and what a run that starts from other parameters may add to them."""


def model_differences(old: Model, new: Model, free: tuple[str, ...] = _FREE) -> list[str]:
    """Differences between two models, but for the keys in `free`."""
    models = (dataclasses.asdict(model) for model in (old, new))
    return _unequal("model", *({k: m[k] for k in m if k not in free} for m in models))


def _unequal(
    path: str, before: ConfigTree | Value | None, now: ConfigTree | Value | None
) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted(before.keys() | now.keys())
        return [d for n in names for d in _unequal(f"{path}.{n}", before.get(n), now.get(n))]
    return [] if before == now else [f"{path}: {before!r}, now {now!r}"]
