"""Checks before any work that a run fits into device memory; names keys to change if not."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from xlj.config import Config, ConfigError, lookup
from xlj.data.rows import draws
from xlj.data.rows.store import Corpus, RowStore
from xlj.data.text.templates import paired_languages
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.io.quoting import shortened
from xlj.sharding.trees import bytes_on_device, named_leaves
from xlj.training import state as states

_GIB = 2**30


class Sizes(NamedTuple):
    """Sizes on which a run's memory depends, and that the config does not contain."""

    corpus: Corpus
    """Size of the vocabulary, and languages."""
    lengths: list[dict[str, int]]
    """For each phase, the number of token ids in a row of each kind that the phase reads."""


def sizes_of_rows(store: RowStore, config: Config) -> Sizes:
    """Returns the sizes of finished rows."""
    lengths = []
    for phase in config.schedule:
        active_options = phase.config.objectives.active().values()
        by_kind = {
            options.rows_name: draws.tasks_of_length(store, options, phase.config)
            for options in active_options
        }
        lengths.append({kind: tasks[0].length for kind, tasks in by_kind.items() if tasks})
    return Sizes(Corpus.of(store), lengths)


def expected_sizes(
    config: Config, store: RowStore | None = None, vocabulary: Vocabulary | None = None
) -> Sizes:
    """Returns the sizes of rows, or upper bounds of the sizes if the rows do not exist yet.

    Args:
      store: the rows; None if they do not exist yet.
      vocabulary: of the rows; None if it is not trained yet.
    """
    if store is not None:
        return sizes_of_rows(store, config)
    paired = paired_languages(config.data)
    languages = tuple(dict.fromkeys([*config.data.languages, *paired]))
    if vocabulary is not None:
        size = vocabulary.size
    else:
        size = vocabulary_training.requested_size(config.data)
    corpus = Corpus(size, languages, (1,) * len(languages), tuple(paired))
    # The longest rows of the model, if the length depends on text that is not read yet. Two rows of
    # the position table are reserved for padding.
    most = config.model.positions - 2
    lengths = [
        {
            options.rows_name: lookup(phase.config, options.row_kind.length) or most
            for options in phase.config.objectives.active().values()
        }
        for phase in config.schedule
    ]
    return Sizes(corpus, lengths)


def check_fits(config: Config, sizes: Sizes, mesh: Mesh) -> None:
    """Checks that the state of a run, and the token ids of a step, fit into a device.

    Gradients and activations are not counted, so a run may pass the check and still not fit.

    Raises:
      ConfigError: if they do not fit. The message names the memory that is needed, the memory of a
        device, and keys to change.
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
        "parameters and the states of optimizer and objectives",
        f"the largest tensor is {{}}. Lower model.hidden={config.model.hidden}, model.layers="
        f"{config.model.layers} or another key that sets its size, or raise mesh.fsdp="
        f"{config.mesh.fsdp}",
    )


@contextlib.contextmanager
def explain_out_of_memory(config: Config) -> Iterator[None]:
    """Converts a device's out-of-memory error into a `ConfigError` that names keys to change."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        train, model = config.train, config.model
        message = shortened(str(error).partition("\n")[0])
        raise ConfigError(
            f"a device ran out of memory ({message}). To use less memory for the same result, "
            f"raise train.gradient_accumulation_steps={train.gradient_accumulation_steps}, set "
            f"model.remat={model.remat} to products or all, or raise mesh.fsdp={config.mesh.fsdp}. "
            "Smaller batches (batch_size of the objectives) also use less memory, but change the "
            "result"
        ) from error


def _refuse_above(limit: float, sizes: Mapping[str, float], what: str, remedy: str) -> None:
    """Raises a `ConfigError` if the sizes need more than `limit` bytes together.

    Args:
      sizes: bytes on one device, by name.
      what: a phrase for all sizes together, with which the message begins.
      remedy: advice at the end of the message. The name of the largest part replaces `{}`.
    """
    needed = sum(sizes.values())
    if needed > limit:
        largest = max(sizes, key=sizes.__getitem__)
        raise ConfigError(
            f"{what} take {needed / _GIB:,.1f} GiB on each device, which has "
            f"{limit / _GIB:,.1f} GiB; {remedy.format(largest)}"
        )


def _batch_bytes(config: Config, sizes: Sizes) -> list[dict[str, int]]:
    """Returns the bytes of a step's token ids in each phase.

    Ids have the dtype that they have on disk: two bytes for vocabularies of up to 2^16 ids, else
    four.

    Returns:
      For each phase, the bytes of each objective's ids, by `objectives.NAME.batch_size=N`.
    """
    width = 2 if sizes.corpus.vocabulary_size <= 2**16 else 4
    return [
        {
            f"{options.path(name)}.batch_size={options.batch_size}": options.batch_size
            * lengths.get(options.rows_name, 0)
            * width
            for name, options in active.items()
        }
        for active, lengths in zip(config.objectives_by_phase, sizes.lengths, strict=True)
    ]


def state_bytes(config: Config, corpus: Corpus, mesh: Mesh) -> dict[str, int]:
    """Returns the bytes of each array of a run's state on one device, by name, dtype and shape.

    Raises:
      ConfigError: if an array has more elements than JAX supports.
    """
    try:
        leaves = named_leaves(states.abstract(config, corpus, mesh))
    except OverflowError:
        raise ConfigError(
            f"model.positions={config.model.positions}, model.position_buckets="
            f"{config.model.position_buckets} or a vocabulary of {corpus.vocabulary_size} ids is "
            "too large for any array; lower the one that is too large"
        ) from None
    return {
        f"{name} {leaf.dtype}{list(leaf.shape)}": bytes_on_device(leaf)
        for name, leaf in leaves.items()
    }


def _device_memory(mesh: Mesh) -> float | None:
    """Returns the bytes of one device's memory, or None if JAX does not report them.

    CPU devices share the memory of their host equally.
    """
    device = mesh.local_devices[0]
    if device.platform == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages / len(mesh.local_devices)
    return (device.memory_stats() or {}).get("bytes_limit")
