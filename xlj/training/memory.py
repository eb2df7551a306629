"""Whether a run can fit into memory at all, said before any work."""

from __future__ import annotations

import math
import os

import jax
import numpy as np
from jax.sharding import Mesh

from xlj.config import (
    KINDS,
    LABELLED,
    Config,
    ConfigError,
    phase_configs,
    row_kind,
)
from xlj.config.fields import lookup
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.training import state as states
from xlj.training.partitioning import named_leaves

_GIB = 2**30


def expected_corpus(config: Config) -> Corpus:
    """The corpus of rows that are not made yet: of the sizes that it will have.

    Raises:
      ConfigError: if `data.vocabulary` cannot be read.
    """
    paired = [language for pair in config.data.pairs for language in pair.split("-")]
    languages = tuple(dict.fromkeys([*config.data.languages, *paired]))
    given = config.data.vocabulary
    size = Vocabulary.load(given).size if given else config.data.vocabulary_size
    return Corpus(size, languages, (1,) * len(languages), tuple(dict.fromkeys(paired)))


def check_fits(config: Config, corpus: Corpus, mesh: Mesh) -> None:
    """Refuses a run whose state, or a step's token ids, no device can hold: a lower bound, since
    gradients and activations come on top.

    Raises:
      ConfigError: it names what would be taken, what there is, and which keys to lower.
    """
    limit = _device_memory(mesh)
    if limit is None:
        return
    phases = [_batch_bytes(phase, corpus) / mesh.size for _, phase in phase_configs(config)]
    batch, where = max(phases), f"batches of token ids of {_rows(config)}"
    if batch > limit:
        raise _too_large(where, batch, limit, "lower batch_rows")
    sizes = _state_bytes(config, corpus, mesh)
    if sum(sizes.values()) > limit:
        raise _too_large(
            "parameters, AdamW's moments and what objectives keep",
            sum(sizes.values()),
            limit,
            f"the largest is {max(sizes, key=sizes.__getitem__)}. Lower model.hidden="
            f"{config.model.hidden}, model.layers={config.model.layers} or what else sizes it, or "
            f"raise mesh.fsdp={config.mesh.fsdp}",
        )


def _too_large(what: str, needed: float, limit: float, mend: str) -> ConfigError:
    return ConfigError(
        f"{what} take {needed / _GIB:,.1f} GiB on each device, which has {limit / _GIB:,.1f} GiB; "
        f"{mend}"
    )


def _rows(config: Config) -> str:
    active = [item for _, p in phase_configs(config) for item in p.objectives.active().items()]
    largest = max(active, key=lambda item: item[1].batch_rows)
    section = "train" if largest[0] in LABELLED else f"objectives.{largest[0]}"
    return f"{section}.batch_rows={largest[1].batch_rows}"


def _batch_bytes(phase: Config, corpus: Corpus) -> int:
    """Bytes of a step's token ids, as rows are kept."""
    width = 2 if corpus.vocabulary_size <= 2**16 else 4
    total = 0
    for name, options in phase.objectives.active().items():
        kind = row_kind(name)
        length = options.length if name in LABELLED else lookup(phase, KINDS[kind].length)
        total += options.batch_rows * length * width
    return total


def _state_bytes(config: Config, corpus: Corpus, mesh: Mesh) -> dict[str, int]:
    """Bytes of the state's arrays on each device, by name and shape."""
    try:
        shapes = named_leaves(jax.eval_shape(lambda: states.init(config, corpus)))
    except OverflowError:
        raise ConfigError(
            f"model.positions={config.model.positions}, model.position_buckets="
            f"{config.model.position_buckets} or a vocabulary of {corpus.vocabulary_size} ids is "
            "more than any array can hold; lower it"
        ) from None
    where = named_leaves(states.sharding(config, corpus, mesh))
    return {
        f"{name} {leaf.dtype}{list(leaf.shape)}": np.dtype(leaf.dtype).itemsize
        * math.prod(where[name].shard_shape(leaf.shape))
        for name, leaf in shapes.items()
    }


def _device_memory(mesh: Mesh) -> float | None:
    """Bytes that a device has; a CPU's devices share the memory of their host. None if unknown."""
    device = mesh.local_devices[0]
    if device.platform == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages / len(mesh.local_devices)
    return (device.memory_stats() or {}).get("bytes_limit")
