"""Whether a run can fit into memory, said before any work; advice where it then does not."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from xlj.config import ROW_KINDS, Config, ConfigError, lookup
from xlj.data.rows import mixture
from xlj.data.rows.corpus import Corpus
from xlj.data.rows.store import RowStore
from xlj.data.text.templates import paired_languages
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.quoting import shortened
from xlj.sharding.trees import bytes_on_device, named_leaves
from xlj.training import state as states

_GIB = 2**30


class Sizes(NamedTuple):
    """The part of a run's memory that its config does not tell."""

    corpus: Corpus
    lengths: list[dict[str, int]]
    """Ids in a row of each kind that a phase reads, by phase."""


def of(store: RowStore, config: Config) -> Sizes:
    """The sizes of finished rows."""
    lengths = []
    for phase in config.schedule:
        every = phase.config.objectives.active().values()
        found = {
            options.rows: mixture.tasks_of_length(store, options, phase.config) for options in every
        }
        lengths.append({kind: tasks[0].length for kind, tasks in found.items() if tasks})
    return Sizes(Corpus.of(store), lengths)


def expected(
    config: Config, store: RowStore | None = None, vocabulary: Vocabulary | None = None
) -> Sizes:
    """The sizes of rows that may not be built yet.

    Args:
      store: the rows, if they are there.
      vocabulary: None if it is yet to be trained.
    """
    if store is not None:
        return of(store, config)
    paired = paired_languages(config.data)
    languages = tuple(dict.fromkeys([*config.data.languages, *paired]))
    size = vocabulary.size if vocabulary is not None else vocabulary_training.ids(config.data)
    corpus = Corpus(size, languages, (1,) * len(languages), tuple(paired))
    most = config.model.positions - 2  # of a length that the text is yet to decide
    lengths = [
        {
            options.rows: lookup(phase.config, ROW_KINDS[options.rows].length) or most
            for options in phase.config.objectives.active().values()
        }
        for phase in config.schedule
    ]
    return Sizes(corpus, lengths)


def check_fits(config: Config, sizes: Sizes, mesh: Mesh) -> None:
    """Refuses a run whose state, or a step's token ids, no device can hold: a lower bound, since
    gradients and activations come on top.

    Raises:
      ConfigError: it names what would be taken, what there is, and which keys to lower.
    """
    limit = _device_memory(mesh)
    if limit is None:
        return
    for batch in _batch_bytes(config, sizes):
        share = {key: size / mesh.size for key, size in batch.items()}
        _refuse_above(limit, share, "the token ids of a step", "lower {}")
    _refuse_above(
        limit,
        state_bytes(config, sizes.corpus, mesh),
        "parameters, the optimizer's state and what objectives keep",
        f"the largest is {{}}. Lower model.hidden={config.model.hidden}, model.layers="
        f"{config.model.layers} or what else sizes it, or raise mesh.fsdp={config.mesh.fsdp}",
    )


@contextlib.contextmanager
def advising(config: Config) -> Iterator[None]:
    """Turns an out-of-memory error of a device in the block into a `ConfigError` that names the
    keys that lower what a step takes."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        train, model = config.train, config.model
        said = shortened(str(error).partition("\n")[0])
        raise ConfigError(
            f"a device has not enough memory for a step ({said}). Without another result: raise "
            f"train.accumulation={train.accumulation}, set model.remat={model.remat} to products "
            f"or all, raise mesh.fsdp={config.mesh.fsdp}; else lower batch_rows of the objectives"
        ) from error


def _refuse_above(limit: float, parts: Mapping[str, float], what: str, mend: str) -> None:
    needed = sum(parts.values())
    if needed > limit:
        largest = max(parts, key=parts.__getitem__)
        raise ConfigError(
            f"{what} take {needed / _GIB:,.1f} GiB on each device, which has "
            f"{limit / _GIB:,.1f} GiB; {mend.format(largest)}"
        )


def _batch_bytes(config: Config, sizes: Sizes) -> list[dict[str, int]]:
    """Bytes of a step's token ids in each phase, as rows are kept, by the key that sizes them."""
    width = 2 if sizes.corpus.vocabulary_size <= 2**16 else 4
    return [
        {
            f"{options.path(name)}.batch_rows={options.batch_rows}": options.batch_rows
            * lengths.get(options.rows, 0)
            * width
            for name, options in active.items()
        }
        for active, lengths in zip(config.objectives_by_phase, sizes.lengths, strict=True)
    ]


def state_bytes(config: Config, corpus: Corpus, mesh: Mesh) -> dict[str, int]:
    """Bytes of each array of a run's state on one device, by name, type and shape; raises a
    `ConfigError` if an array is larger than any can be."""
    try:
        leaves = named_leaves(states.abstract(config, corpus, mesh))
    except OverflowError:
        raise ConfigError(
            f"model.positions={config.model.positions}, model.position_buckets="
            f"{config.model.position_buckets} or a vocabulary of {corpus.vocabulary_size} ids is "
            "more than any array can hold; lower it"
        ) from None
    return {
        f"{name} {leaf.dtype}{list(leaf.shape)}": bytes_on_device(leaf)
        for name, leaf in leaves.items()
    }


def _device_memory(mesh: Mesh) -> float | None:
    """Bytes that a device has; a CPU's devices share the memory of their host. None if unknown."""
    device = mesh.local_devices[0]
    if device.platform == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages / len(mesh.local_devices)
    return (device.memory_stats() or {}).get("bytes_limit")
