"""A larger model made of a smaller one by tiling, as ModernBERT-large was of ModernBERT-base."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlj.checkpoints import stored_models
from xlj.config import ConfigError, Model
from xlj.config.checks import check_model
from xlj.conversion.importing import store
from xlj.io.hashing import name_hash
from xlj.models import pattern
from xlj.sharding import meshes
from xlj.sharding.trees import named_leaves, nested

Places = Callable[[Model, Model], np.ndarray | None]
"""Of the smaller and the larger model: for each place of an axis of the larger one, the place of
the smaller one that it is a copy of, int [places]; None for an axis that stays as it is."""


_NOISE = 0.1


def tiled(old: int, new: int) -> np.ndarray:
    """Places of an axis, int [new]: the old ones in the middle, and around them the same again, as
    if the axis went round (Warner et al., 2024, tile_weights_from_middle)."""
    return (np.arange(new) - (new - old) // 2) % old


def layers(old: int, new: int) -> np.ndarray:
    """The layer that each layer is a copy of, int [new]: at the same share of the depth (Rae et
    al., 2021, Gopher)."""
    return np.minimum([round(layer * old / new) for layer in range(new)], old - 1)


def _same(old: Model, new: Model) -> None:
    """An axis that stays as it is."""


def _hidden(old: Model, new: Model) -> np.ndarray:
    return tiled(old.hidden, new.hidden)


def _heads(old: Model, new: Model) -> np.ndarray:
    return tiled(old.heads, new.heads)


def _queries(old: Model, new: Model) -> np.ndarray:
    return _by_head(_heads(old, new), old)


def _keys(old: Model, new: Model) -> np.ndarray:
    return _by_head(tiled(old.groups, new.groups), old)


def _by_head(heads: np.ndarray, old: Model) -> np.ndarray:
    """Dimensions of heads side by side, each head copied whole."""
    size = old.hidden // old.heads
    return (heads[:, None] * size + np.arange(size)).reshape(-1)


def _intermediate(old: Model, new: Model) -> np.ndarray:
    return tiled(old.intermediate, new.intermediate)


def _inner(old: Model, new: Model) -> np.ndarray:
    """The halves of a gated layer are tiled apart."""
    one = _intermediate(old, new)
    return one if old.feed_forward == "gelu" else np.concatenate([one, one + old.intermediate])


RULES: tuple[tuple[str, tuple[Places, ...]], ...] = (
    (r"embeddings/(word|position|token_type|language)", (_same, _hidden)),
    (r"layers/attention/query/(kernel|bias)", (_hidden, _queries)),
    (r"layers/attention/(key|value)/(kernel|bias)", (_hidden, _keys)),
    (r"layers/attention/output/(kernel|bias)", (_queries, _hidden)),
    (r"layers/attention/gates/kernel", (_same, _same)),
    (r"layers/attention/gates/scale", (_heads,)),
    (r"layers/feed_forward/inner/(kernel|bias)", (_hidden, _inner)),
    (r"layers/feed_forward/outer/(kernel|bias)", (_intermediate, _hidden)),
    (r"((layers|embeddings|prediction_head)/)?\w*norm/(scale|bias)", (_hidden,)),
    (r"position_bias/table", (_same, _heads)),
    (r"prediction_head/dense/(kernel|bias)", (_hidden, _hidden)),
    (r"prediction_head/bias", (_same,)),
    (r"prediction_head/word", (_same, _hidden)),
)
"""(regular expression over a parameter's name, how each of its axes is tiled, behind that of the
layers): the first that matches holds. A bias has the last of two axes."""


def widen(checkpoint: str, sizes: Mapping[str, Any], output: Path, copied: bool = False) -> None:
    """Writes the checkpoint of the larger model, and tells what is not in it.

    Args:
      sizes: keys of `model` with their new values; others stay.
      copied: weights are copied as they are; else as `widened` says.

    Raises:
      ConfigError: if there is no such model, or a size is smaller than the model's, or sizes
        contradict each other.
    """
    source = stored_models.find(checkpoint, "--checkpoint")
    old, new = source.model, dataclasses.replace(source.model, **sizes)
    for name, size in sizes.items():
        if size < getattr(old, name):
            raise ConfigError(
                f"--{name}={size} is less than the {getattr(old, name)} of {checkpoint}; tiling "
                "only makes models larger"
            )
    if new == old:
        raise ConfigError("name a size that is larger than the model's, such as --hidden=1024")
    size = old.hidden // old.heads
    if new.hidden != size * new.heads:
        raise ConfigError(
            f"--hidden={new.hidden} --heads={new.heads}: heads are copied whole, and those of "
            f"{checkpoint} have {size} dimensions; --hidden must be {size} times --heads"
        )
    check_model(new)
    leaves = named_leaves(source.params(meshes.one_device()))
    larger = widened({n: np.asarray(leaf) for n, leaf in leaves.items()}, old, new, copied)
    if left_out := sorted(leaves.keys() - larger.keys()):
        print(f"left out, for runs to initialise: {', '.join(left_out)}")
    changed = ", ".join(f"{name} {getattr(old, name)} -> {size}" for name, size in sizes.items())
    print(f"tiled: {changed}")
    # A head that is left out takes its task along, and modules of sentence vectors have a width.
    plain = dataclasses.replace(source, task=None, labels=(), separators=1, sentence=None)
    params = nested({name: jnp.asarray(array) for name, array in larger.items()})
    store(output, plain, params, new, source.vocabulary())


def widened(
    leaves: Mapping[str, np.ndarray], old: Model, new: Model, copied: bool
) -> dict[str, np.ndarray]:
    """The parameters of the larger model by name; those that no rule names are left out.

    Unless they are only `copied`, weights are divided by the number of copies of their input, so
    that products stay what they were (Chen et al., 2016, Net2Net), and kernels get noise of
    `_NOISE` times their standard deviation: without it copies have equal gradients, and stay equal.
    """
    larger = {}
    for name, array in leaves.items():
        axes = _axes(name)
        if axes is None:
            continue
        places = [of_axis(old, new) for of_axis in axes]
        stacked = pattern.is_stacked(name)
        if stacked:
            missing = old.layers - len(array)  # the first layer may have no norm before attention
            of_layers = layers(old.layers, new.layers)[missing:] - missing
            array = array[np.maximum(of_layers, 0)]
        for axis, found in enumerate(places, start=stacked):
            array = array if found is None else np.take(array, found, axis)
        if not copied:
            array = _divided(array, places, _input_of(name, old), stacked)
            array = _with_noise(array, name) if name.endswith("/kernel") else array
        larger[name] = array
    return larger


def _axes(name: str) -> tuple[Places, ...] | None:
    """How the axes of a parameter are tiled, behind that of the layers; None if no rule says so."""
    found = next((axes for rule, axes in RULES if re.fullmatch(rule, name)), None)
    return found[-1:] if found and name.endswith("/bias") else found


def _input_of(name: str, model: Model) -> int | None:
    """The axis of a parameter, behind that of the layers, that a product sums over; None if there
    is none. If the head's table is the word embeddings, the norm before it is divided instead."""
    if name.endswith("/kernel"):
        return 0
    if not model.tied:
        return 1 if name == "prediction_head/word" else None
    last = "prediction_head/norm/" if model.prediction == "dense" else "final_norm/"
    return 0 if name.startswith(last) else None


def _divided(
    array: np.ndarray, places: Sequence[np.ndarray | None], axis: int | None, stacked: bool
) -> np.ndarray:
    """The array, divided along an axis by the number of copies of each place."""
    found = None if axis is None else places[axis]
    if axis is None or found is None:
        return array
    copies = np.bincount(found)[found].astype(np.float32)
    return array / copies.reshape(-1, *[1] * (array.ndim - stacked - axis - 1))


def _with_noise(array: np.ndarray, name: str) -> np.ndarray:
    """The array with noise, which follows from its name."""
    rng = jax.random.fold_in(jax.random.key(0), jnp.uint32(name_hash(name) & 0xFFFFFFFF))
    noise = np.asarray(jax.random.normal(rng, array.shape))
    return array + np.float32(_NOISE * array.std()) * noise
