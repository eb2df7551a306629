"""One checkpoint of several models of the same shapes: means, and TIES (Yadav et al., 2023)."""

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
from xlj.conversion.importing import store
from xlj.sharding.trees import nested

Merge = Callable[[list[np.ndarray]], np.ndarray]
"""Of a piece of a tensor in each model, float32 [n] each, that of TIES' base first: the merged
piece, float [n]. The pieces of a tensor come one after another, and tensors in order of names."""

_PIECE = 1 << 22  # numbers that are merged at a time


@dataclasses.dataclass(frozen=True)
class Ties:
    """Trim, elect a sign, and merge: what each model has learned since a common base.

    Attributes:
      base: the model that the others were trained from.
      share: of each model's numbers, the share whose differences from the base are kept: the
        largest ones, `round(share * numbers)` in all, at least one. Of equal ones at that limit
        those come first whose tensor's name does, and within a tensor those of the lower index.
      scale: lambda, by which the merged differences are multiplied.
    """

    base: str
    share: float = 0.2
    scale: float = 1.0


def merge(
    models: Sequence[str], output: Path, weights: Sequence[float] = (), ties: Ties | None = None
) -> None:
    """Writes the checkpoint of merged parameters; the rest of it is the first model's.

    One tensor of each model is in memory at a time. Merged tensors lie in files beside the output
    until it is written. Sums are in float64.

    Args:
      weights: of each model in the mean; empty for equal ones.
      ties: None for the mean.

    Raises:
      ConfigError: if a model is not there, damaged, or differs from the first in its options, its
        vocabulary, or a tensor's name or shape.
    """
    if len(models) < 2:
        raise ConfigError("--models: name at least two models to merge")
    if ties and weights:
        raise ConfigError("--weights belong to a mean; leave them out with --base")
    if ties and not 0 < ties.share <= 1:
        raise ConfigError(f"--share={ties.share:g} must be above 0 and at most 1")
    if weights and (len(weights) != len(models) or min(weights) <= 0):
        raise ConfigError(
            f"--weights: {len(weights)} weights for {len(models)} models; name one above 0 for each"
        )
    sources = [stored_models.find(path, "--models") for path in models]
    base = stored_models.find(ties.base, "--base") if ties else None
    first = sources[0]
    for source in (*sources[1:], *([base] if base else [])):
        _check_alike(first, source)
    method: Merge = _mean(weights or [1.0] * len(models))
    record: dict[str, object] = {"weights": list(weights)} if weights else {}
    every = sources
    if ties and base:
        every = [base, *sources]
        method = _by_ties(ties.scale, _limits(ties.share, every))
        record = {"base": str(base.folder), "share": ties.share, "scale": ties.scale}
    record["models"] = [f"{source.folder} {source.digest()}" for source in sources]
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{output.name}.", dir=output.parent) as scratch:
        merged = {}
        for number, name in enumerate(sorted(first.leaves)):
            with Path(scratch, str(number)).open("wb") as file:
                for pieces in _pieces(every, name):
                    file.write(method(pieces).astype(np.float32).tobytes())
            kept = np.memmap(
                Path(scratch, str(number)), np.float32, "r", shape=first.leaves[name].shape
            )
            merged[name] = jnp.asarray(kept)
        print(f"merged: {len(models)} models, {len(merged)} tensors each")
        store(output, first, nested(merged), first.model, first.vocabulary(), merged=record)


def _check_alike(first: StoredModel, other: StoredModel) -> None:
    """Refuses a model that cannot be merged with the first, by what differs."""
    named = f"{other.folder} cannot be merged with {first.folder}"
    if found := compatibility.model_differences(first.model, other.model):
        raise ConfigError(f"{named}: {'; '.join(map(str, found))}")
    if first.vocabulary().digest != other.vocabulary().digest:
        raise ConfigError(
            f"{named}: it has another vocabulary ({other.vocabulary().size} ids, not "
            f"{first.vocabulary().size}, or other pieces)"
        )
    shapes = [{n: leaf.shape for n, leaf in model.leaves.items()} for model in (first, other)]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        one, two = (tensors.get(name) for tensors in shapes)
        if one != two:
            raise ConfigError(
                f"{named}: {name} is {list(two) if two is not None else 'not there'}, not "
                f"{list(one) if one is not None else 'left out'}"
            )
    if "embeddings/language" in shapes[0] and first.languages != other.languages:
        raise ConfigError(
            f"{named}: its language embeddings are of {','.join(other.languages)}, not "
            f"{','.join(first.languages)}"
        )
    if first.labels != other.labels:
        raise ConfigError(
            f"{named}: its labels are {','.join(other.labels)}, not {','.join(first.labels)}"
        )


def _pieces(sources: Sequence[StoredModel], name: str) -> Iterator[list[np.ndarray]]:
    """The pieces of a tensor in each model, verified, float32 [n]."""
    tensors = [_read(source, name).reshape(-1) for source in sources]
    for start in range(0, tensors[0].size, _PIECE):
        yield [tensor[start : start + _PIECE] for tensor in tensors]


def _read(source: StoredModel, name: str) -> np.ndarray:
    tensor = np.asarray(source.leaves[name], np.float32)
    if not np.isfinite(tensor).all():
        raise ConfigError(f"{source.folder}: {name} is not finite everywhere; leave the model out")
    return tensor


def _mean(weights: Sequence[float]) -> Merge:
    shares = np.array(weights) / sum(weights)

    def mean(pieces: list[np.ndarray]) -> np.ndarray:
        return sum(share * piece for share, piece in zip(shares, pieces, strict=True))

    return mean


def _by_ties(scale: float, limits: Sequence["_Limit"]) -> Merge:
    def merged(pieces: list[np.ndarray]) -> np.ndarray:
        base, *others = pieces
        trimmed = np.stack(
            [limit.trimmed(piece - base) for limit, piece in zip(limits, others, strict=True)]
        )
        sign = np.sign(trimmed.sum(0, dtype=np.float64))
        agrees = np.sign(trimmed) == sign  # of zeros too where the sum is 0, which adds nothing
        total = np.where(agrees, trimmed, 0).sum(0, dtype=np.float64)
        return base + scale * total / np.maximum(agrees.sum(0), 1)

    return merged


@dataclasses.dataclass
class _Limit:
    """Keeps the largest differences of a model.

    Attributes:
      bits: of the smallest difference that is kept, as an integer.
      equal: how many more of exactly this size are kept.
    """

    bits: int
    equal: int

    def narrow(self, counts: np.ndarray) -> None:
        """Takes the next 16 bits, of int [65536] differences that have the bits so far."""
        from_top = np.cumsum(counts[::-1])
        place = int(np.searchsorted(from_top, self.equal))
        self.equal -= int(from_top[place] - counts[::-1][place])
        self.bits = self.bits << 16 | 0xFFFF - place

    def trimmed(self, difference: np.ndarray) -> np.ndarray:
        """Differences [n] with zeros where one is not kept."""
        bits = _bits(difference)
        kept = bits > self.bits
        some = np.flatnonzero(bits == self.bits)[: self.equal]
        kept[some] = True
        self.equal -= len(some)
        return np.where(kept, difference, np.float32(0))


def _limits(share: float, models: Sequence[StoredModel]) -> list[_Limit]:
    """The limit of each model behind the first, their base. All are read twice: differences are
    counted by the upper half of their bits, then those at the limit by the lower half."""
    numbers = sum(math.prod(leaf.shape) for leaf in models[0].leaves.values())
    limits = [_Limit(0, max(1, round(share * numbers))) for _ in models[1:]]
    for shift in (16, 0):
        counts = np.zeros((len(limits), 1 << 16), np.int64)
        for name in models[0].leaves:
            for base, *pieces in _pieces(models, name):
                for piece, limit, count in zip(pieces, limits, counts, strict=True):
                    bits = _bits(piece - base) >> shift
                    count += np.bincount(bits[bits >> 16 == limit.bits] & 0xFFFF, minlength=1 << 16)
        for limit, count in zip(limits, counts, strict=True):
            limit.narrow(count)
    return limits


def _bits(difference: np.ndarray) -> np.ndarray:
    """Sizes of float32 numbers as uint32, in the same order."""
    return np.abs(difference).view(np.uint32)
