"""Merges several models of the same shapes: by their mean, or by TIES (Yadav et al., 2023)."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from xlj.checkpoints import compatibility, stored_models
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import ConfigError
from xlj.conversion.importing import print_next, store
from xlj.sharding.trees import nested

Merge = Callable[[list[np.ndarray]], np.ndarray]
"""Merges one chunk of a tensor: takes the chunk of each model, float32 [n], with TIES' base first,
and returns the merged chunk, float [n]. It is called for the chunks of a tensor in order, and for
the tensors in the order of their names."""

_CHUNK = 1 << 22  # numbers merged at a time


@dataclasses.dataclass(frozen=True)
class Ties:
    """Options of TIES: trim each model's differences from a base, elect a sign, and merge.

    Attributes:
      base: the model that all others were trained from.
      share: the share of each model's differences from the base that is used. The largest
        `round(share * numbers)` differences remain, at least one; the others become 0. Ties at the
        limit are broken by the tensor's name, then by the lower index.
      scale: lambda in the paper; multiplies the merged differences.
    """

    base: str
    share: float = 0.2
    scale: float = 1.0


def merge(
    models: Sequence[str], output: Path, weights: Sequence[float] = (), ties: Ties | None = None
) -> None:
    """Writes a checkpoint of merged parameters; everything else comes from the first model.

    Memory holds one tensor of each model at a time. Merged tensors are stored in temporary files
    next to the output until the checkpoint is written. Sums are in float64.

    Args:
      weights: the weight of each model in the mean; empty for equal weights.
      ties: the options of TIES; None computes the mean.

    Raises:
      ConfigError: if a model is missing or damaged, or differs from the first one in its options,
        its vocabulary, or a tensor's name or shape.
    """
    if len(models) < 2:
        raise ConfigError("--models: name at least two models to merge")
    if ties and weights:
        raise ConfigError("--weights belongs to a mean; remove it, or remove --base")
    if ties and not 0 < ties.share <= 1:
        raise ConfigError(f"--share={ties.share:g} must be above 0 and at most 1")
    if weights and (len(weights) != len(models) or min(weights) <= 0):
        raise ConfigError(
            f"--weights: {len(weights)} weights for {len(models)} models; give each model one "
            "weight above 0"
        )
    sources = [stored_models.find(path, "--models") for path in models]
    base = stored_models.find(ties.base, "--base") if ties else None
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


def _check_alike(first: StoredModel, other: StoredModel) -> None:
    """Raises a ConfigError that names the difference if a model cannot be merged with the first."""
    refusal = f"{other.folder} cannot be merged with {first.folder}"
    if differences := compatibility.model_differences(first.model, other.model):
        raise ConfigError(f"{refusal}: {'; '.join(map(str, differences))}")
    if first.vocabulary().digest != other.vocabulary().digest:
        raise ConfigError(
            f"{refusal}: their vocabularies differ ({other.vocabulary().size} ids and "
            f"{first.vocabulary().size}, or other pieces)"
        )
    shapes = [{n: leaf.shape for n, leaf in model.leaves.items()} for model in (first, other)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        one, two = (tensors.get(name) for tensors in shapes)
        if two is None:
            raise ConfigError(f"{refusal}: it has no {name}")
        if one is None:
            raise ConfigError(f"{refusal}: it has {name}, and {first.folder} does not")
        if one != two:
            raise ConfigError(f"{refusal}: {name} has shape {list(two)}, expected {list(one)}")
    if "embeddings/language" in shapes[0] and first.languages != other.languages:
        raise ConfigError(
            f"{refusal}: its languages are {','.join(other.languages)}, expected "
            f"{','.join(first.languages)}"
        )
    if first.labels != other.labels:
        raise ConfigError(
            f"{refusal}: its labels are {','.join(other.labels)}, expected {','.join(first.labels)}"
        )


def _chunks(sources: Sequence[StoredModel], name: str) -> Iterator[list[np.ndarray]]:
    """Yields the chunks of a tensor, one of each model, float32 [n]."""
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
        agrees = np.sign(trimmed) == sign  # where the sum is 0, zeros agree; they add nothing
        total = np.where(agrees, trimmed, 0).sum(0, dtype=np.float64)
        return base + scale * total / np.maximum(agrees.sum(0), 1)

    return merge_chunks


@dataclasses.dataclass
class _Limit:
    """The smallest difference of one model that TIES uses; smaller ones become 0.

    Attributes:
      bits: the float32 bits of its absolute value, as an integer.
      equal: how many differences of exactly this size are still to be used.
    """

    bits: int
    equal: int

    def narrow(self, counts: np.ndarray) -> None:
        """Adds the next 16 bits.

        Args:
          counts: int [65536], for each value of these bits the number of differences that agree
            with `bits` so far.
        """
        from_top = np.cumsum(counts[::-1])
        place = int(np.searchsorted(from_top, self.equal))
        self.equal -= int(from_top[place] - counts[::-1][place])
        self.bits = self.bits << 16 | 0xFFFF - place

    def trim(self, difference: np.ndarray) -> np.ndarray:
        """Returns the differences [n] with zeros below the limit."""
        bits = _bits(difference)
        is_used = bits > self.bits
        at_limit = np.flatnonzero(bits == self.bits)[: self.equal]
        is_used[at_limit] = True
        self.equal -= len(at_limit)
        return np.where(is_used, difference, np.float32(0))


def _limits(share: float, models: Sequence[StoredModel]) -> list[_Limit]:
    """Computes the limit of each model; `models[0]` is the base.

    Each model is read twice. The first pass counts differences by the upper half of their bits, the
    second counts those at the limit by the lower half.
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
    """Returns the absolute values of float32 numbers as uint32, which sort in the same order."""
    return np.abs(difference).view(np.uint32)
