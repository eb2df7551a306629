"""Merges models whose tensors have equal shapes: by the mean, or by TIES (Yadav et al., 2023)."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xlj.checkpoints import compatibility, stored_models
from xlj.checkpoints.stored_models import Leaf, StoredModel
from xlj.config import ConfigError
from xlj.conversion.importing import print_next, store
from xlj.families.interface import SURPLUS
from xlj.sharding.trees import Params, nested, replicated

Merge = Callable[[list[np.ndarray]], np.ndarray]
"""Merges one chunk of a tensor.

Takes the chunk of each model, float32 [n]; for TIES, the base's chunk comes first. Returns the
merged chunk, float [n]. The function is called for tensors in the order of their names, and for the
chunks of a tensor in order."""

_CHUNK = 1 << 22  # how many numbers of a tensor are merged at a time


@dataclasses.dataclass(frozen=True)
class Ties:
    """Options of TIES, which trims each model's differences from a base, elects signs, and merges.

    Attributes:
      base: the model from which all other models were trained.
      share: the share of each model's differences that is used. Of n differences, the
        `round(share * n)` with the largest absolute values remain, at least one. The others become
        0. Of differences with equal absolute values, the first remain, in the order of the tensors'
        names and then of indices.
      scale: factor of the merged differences; lambda in the paper.
    """

    base: str
    share: float = 0.2
    scale: float = 1.0


def merge(
    models: Sequence[str], output: Path, weights: Sequence[float] = (), ties: Ties | None = None
) -> None:
    """Writes a checkpoint of merged parameters. Config and vocabulary come from the first model.

    Memory holds one tensor of each model at a time. Until the checkpoint is written, merged tensors
    are in temporary files next to the output. Sums are computed in float64.

    Args:
      weights: the weight of each model in the mean; empty for equal weights.
      ties: the options of TIES; None computes the mean.

    Raises:
      ConfigError: if a model is missing or damaged, or differs from the first one in its options,
        its vocabulary, its languages, its labels, or a tensor's name or shape. Also if there are
        fewer than two models, `weights` or `ties` is invalid, or both are set.
    """
    if len(models) < 2:
        raise ConfigError("--models: expected at least two models to merge")
    if ties and weights:
        raise ConfigError(
            "--weights applies to the mean only, but --base selects TIES; remove one "
            "of the two flags"
        )
    if ties and not 0 < ties.share <= 1:
        raise ConfigError(f"--share={ties.share:g}: expected above 0 and at most 1")
    if weights and (len(weights) != len(models) or min(weights) <= 0):
        raise ConfigError(
            f"--weights: {len(weights)} weights for {len(models)} models; expected one weight "
            "above 0 for each model"
        )
    paths = [("--models", path) for path in models] + ([("--base", ties.base)] if ties else [])
    found = _without_some_surplus([stored_models.find(path, flag) for flag, path in paths])
    sources, base = found[: len(models)], found[-1] if ties else None
    first = sources[0]
    for source in (*sources[1:], *([base] if base else [])):
        _check_alike(first, source)
    method: Merge = _mean(weights or [1.0] * len(models))
    record: dict[str, object] = {"weights": list(weights)} if weights else {}
    inputs = sources
    if ties and base:
        inputs = [base, *sources]
        method = _by_ties(ties.scale, _limits(ties.share, inputs))
        record = {"base": str(base.folder), "share": ties.share, "scale": ties.scale}
    record["models"] = [f"{source.folder} {source.digest()}" for source in sources]
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{output.name}.", dir=output.parent) as scratch:
        merged = {}
        for number, name in enumerate(sorted(first.leaves)):
            with Path(scratch, str(number)).open("wb") as file:
                for chunks in _chunks(inputs, name):
                    file.write(method(chunks).astype(np.float32).tobytes())
            tensor = np.memmap(
                Path(scratch, str(number)), np.float32, "r", shape=first.leaves[name].shape
            )
            merged[name] = jnp.asarray(tensor)
        print(f"merged {len(models)} models of {len(merged)} tensors each")
        store(output, first, nested(merged), first.model, first.vocabulary(), merged=record)
        print_next(output)


def towards(start: StoredModel, trained: StoredModel, weight: float) -> StoredModel:
    """Returns a trained model whose parameters are moved towards those before its training.

    Each parameter is `weight` times its value before plus `1 - weight` times its value after the
    training (WiSE-FT, Wortsman et al., 2022). Parameters that only the trained model has, such as a
    new head, keep their values. Nothing is written; tensors are merged when they are read.

    Args:
      start: the model from which the training started, with the same vocabulary.
      weight: of the parameters before, from 0 to below 1.

    Raises:
      ConfigError: if a parameter of both models has different shapes.
    """
    if not weight:
        return trained
    method = _mean([weight, 1 - weight])

    def read(name: str) -> np.ndarray:
        both = [_read(source, name) for source in (start, trained)]
        return np.asarray(method(both), np.float32)

    leaves = dict(trained.leaves)
    for name in start.leaves.keys() & trained.leaves.keys():
        shapes = [source.leaves[name].shape for source in (start, trained)]
        if shapes[0] != shapes[1]:
            raise ConfigError(
                f"{start.folder}: {name} has shape {list(shapes[0])}, but {list(shapes[1])} in "
                f"{trained.folder}; the two models cannot be merged"
            )
        leaves[name] = Leaf(shapes[1], partial(read, name))

    def params(mesh: Mesh) -> Params:
        tensors = {name: np.asarray(leaf, np.float32) for name, leaf in leaves.items()}
        return jax.device_put(nested(tensors), replicated(mesh))

    def digest() -> str:
        return f"{trained.digest()}:{weight:g}:{start.digest()}"

    return dataclasses.replace(trained, params=params, leaves=leaves, digest=digest)


def _without_some_surplus(models: Sequence[StoredModel]) -> list[StoredModel]:
    """Returns the models without the rows that have no id, if not all models have them: a released
    model may have such rows, but not its trained export."""
    names = {name for model in models for name in model.leaves if name.startswith(SURPLUS)}
    some = {name for name in names if any(name not in model.leaves for model in models)}
    for name in sorted(some):
        print(f"{name} is left out: rows without an id, which not all models have")
    return [
        dataclasses.replace(
            model, leaves={name: x for name, x in model.leaves.items() if name not in some}
        )
        for model in models
    ]


def _check_alike(first: StoredModel, other: StoredModel) -> None:
    """Raises a `ConfigError` that names the difference if two models cannot be merged."""
    refusal = f"{other.folder} cannot be merged with {first.folder}"
    if differences := compatibility.model_differences(first.model, other.model):
        raise ConfigError(f"{refusal}: {'; '.join(map(str, differences))}")
    if first.vocabulary().digest != other.vocabulary().digest:
        raise ConfigError(
            f"{refusal}: the vocabularies differ in size ({other.vocabulary().size} and "
            f"{first.vocabulary().size} ids) or in pieces"
        )
    shapes = [{n: leaf.shape for n, leaf in model.leaves.items()} for model in (first, other)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        first_shape, other_shape = (tensors.get(name) for tensors in shapes)
        if other_shape is None:
            raise ConfigError(f"{refusal}: {other.folder} has no {name}")
        if first_shape is None:
            raise ConfigError(f"{refusal}: {first.folder} has no {name}")
        if first_shape != other_shape:
            raise ConfigError(
                f"{refusal}: {name} has shape {list(other_shape)}, expected {list(first_shape)}"
            )
    if "embeddings/language" in shapes[0] and first.languages != other.languages:
        raise ConfigError(
            f"{refusal}: the languages are {','.join(other.languages)}, expected "
            f"{','.join(first.languages)}"
        )
    if first.labels != other.labels:
        raise ConfigError(
            f"{refusal}: the labels are {','.join(other.labels)}, expected {','.join(first.labels)}"
        )


def _chunks(sources: Sequence[StoredModel], name: str) -> Iterator[list[np.ndarray]]:
    """Yields the chunks of a tensor: for each chunk a list of the models' values, float32 [n]."""
    tensors = [_read(source, name).reshape(-1) for source in sources]
    for start in range(0, tensors[0].size, _CHUNK):
        yield [tensor[start : start + _CHUNK] for tensor in tensors]


def _read(source: StoredModel, name: str) -> np.ndarray:
    tensor = np.asarray(source.leaves[name], np.float32)
    if not np.isfinite(tensor).all():
        raise ConfigError(f"{source.folder}: {name} has values that are not finite")
    return tensor


def _mean(weights: Sequence[float]) -> Merge:
    shares = np.array(weights) / sum(weights)

    def mean(chunks: list[np.ndarray]) -> np.ndarray:
        return sum(share * chunk for share, chunk in zip(shares, chunks, strict=True))

    return mean


def _by_ties(scale: float, limits: Sequence["_Limit"]) -> Merge:
    def merge_chunks(chunks: list[np.ndarray]) -> np.ndarray:
        base, *others = chunks
        trimmed = np.stack(
            [limit.trim(chunk - base) for limit, chunk in zip(limits, others, strict=True)]
        )
        sign = np.sign(trimmed.sum(0, dtype=np.float64))
        agrees = np.sign(trimmed) == sign  # where the sum is 0, only zeros agree, which add nothing
        total = np.where(agrees, trimmed, 0).sum(0, dtype=np.float64)
        return base + scale * total / np.maximum(agrees.sum(0), 1)

    return merge_chunks


@dataclasses.dataclass
class _Limit:
    """The smallest absolute difference of one model that TIES uses; smaller ones become 0.

    Attributes:
      bits: the float32 bits of this absolute value, as an integer. `narrow` determines them in two
        steps of 16 bits.
      equal: the number of differences with exactly this absolute value that remain to be used.
    """

    bits: int
    equal: int

    def narrow(self, counts: np.ndarray) -> None:
        """Determines the next 16 bits.

        Args:
          counts: int [65536], for each value of the next 16 bits, the number of differences with
            this value whose higher bits equal `bits`.
        """
        from_top = np.cumsum(counts[::-1])
        index_from_top = int(np.searchsorted(from_top, self.equal))
        self.equal -= int(from_top[index_from_top] - counts[::-1][index_from_top])
        self.bits = self.bits << 16 | 0xFFFF - index_from_top

    def trim(self, difference: np.ndarray) -> np.ndarray:
        """Returns the differences [n] with zeros for those below the limit.

        Of the differences at the limit, the first `equal` remain. The call subtracts their number
        from `equal`.
        """
        bits = _bits(difference)
        is_used = bits > self.bits
        at_limit = np.flatnonzero(bits == self.bits)[: self.equal]
        is_used[at_limit] = True
        self.equal -= len(at_limit)
        return np.where(is_used, difference, np.float32(0))


def _limits(share: float, models: Sequence[StoredModel]) -> list[_Limit]:
    """Computes the limit of each model except the base, `models[0]`.

    It reads each model twice. The first pass counts all differences by the upper half of their
    bits. The second pass counts the differences at the limit by the lower half.
    """
    numbers = sum(math.prod(leaf.shape) for leaf in models[0].leaves.values())
    limits = [_Limit(0, max(1, round(share * numbers))) for _ in models[1:]]
    for shift in (16, 0):
        counts = np.zeros((len(limits), 1 << 16), np.int64)
        for name in models[0].leaves:
            for base, *chunks in _chunks(models, name):
                for chunk, limit, count in zip(chunks, limits, counts, strict=True):
                    bits = _bits(chunk - base) >> shift
                    count += np.bincount(bits[bits >> 16 == limit.bits] & 0xFFFF, minlength=1 << 16)
        for limit, count in zip(limits, counts, strict=True):
            limit.narrow(count)
    return limits


def _bits(difference: np.ndarray) -> np.ndarray:
    """Returns the bits of the absolute values of float32 numbers, as uint32.

    The integers have the same order as the absolute values.
    """
    return np.abs(difference).view(np.uint32)
