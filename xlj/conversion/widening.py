"""Makes a larger model by tiling a smaller one, as ModernBERT-large was made of ModernBERT-base."""

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
from xlj.conversion.importing import print_next, store
from xlj.io.hashing import name_hash
from xlj.models import pattern
from xlj.sharding import meshes
from xlj.sharding.trees import named_leaves, nested

Places = Callable[[Model, Model], np.ndarray | None]
"""Takes (smaller model, larger model) and returns, for each index of an axis of the larger one, the
index of the smaller one to copy: int [new size]. None for an axis whose size does not change."""


_NOISE = 0.1


def tile_indices(old: int, new: int) -> np.ndarray:
    """Returns the index to copy for each index of an axis, int [new].

    The old indices are in the middle. They repeat cyclically to both sides (Warner et al., 2024,
    tile_weights_from_middle).
    """
    return (np.arange(new) - (new - old) // 2) % old


def layers(old: int, new: int) -> np.ndarray:
    """Returns the layer to copy for each layer, int [new]: the one at the same share of the depth
    (Rae et al., 2021, Gopher)."""
    return np.minimum([round(layer * old / new) for layer in range(new)], old - 1)


def _same(old: Model, new: Model) -> None:
    """An axis whose size does not change."""


def _hidden(old: Model, new: Model) -> np.ndarray:
    return tile_indices(old.hidden, new.hidden)


def _heads(old: Model, new: Model) -> np.ndarray:
    return tile_indices(old.heads, new.heads)


def _queries(old: Model, new: Model) -> np.ndarray:
    return _by_head(_heads(old, new), old)


def _keys(old: Model, new: Model) -> np.ndarray:
    return _by_head(tile_indices(old.groups, new.groups), old)


def _by_head(heads: np.ndarray, old: Model) -> np.ndarray:
    """Returns the indices of the heads' dimensions, so that each head is copied whole."""
    size = old.hidden // old.heads
    return (heads[:, None] * size + np.arange(size)).reshape(-1)


def _intermediate(old: Model, new: Model) -> np.ndarray:
    return tile_indices(old.intermediate, new.intermediate)


def _inner(old: Model, new: Model) -> np.ndarray:
    """Tiles the two halves of a gated layer separately."""
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
"""(regular expression for a parameter's name, how to tile each axis after the layers' axis). The
first match applies. Of two axes, a bias has the last one."""


def widen(checkpoint: str, sizes: Mapping[str, Any], output: Path, copied: bool = False) -> None:
    """Writes the checkpoint of the larger model; prints which parameters it lacks.

    Args:
      sizes: keys of `model` with their new values; other sizes do not change.
      copied: copies weights unchanged, without the division and noise of `widen_parameters`.

    Raises:
      ConfigError: if the model does not exist, a size is smaller than the model's, or sizes
        contradict each other.
    """
    source = stored_models.find(checkpoint, "--checkpoint")
    old, new = source.model, dataclasses.replace(source.model, **sizes)
    for name, size in sizes.items():
        if size < getattr(old, name):
            raise ConfigError(
                f"--{name}={size} is smaller than the {getattr(old, name)} of {checkpoint}; tiling "
                "only makes models larger"
            )
    if new == old:
        raise ConfigError("give at least one size above the model's, such as --hidden=1024")
    size = old.hidden // old.heads
    if new.hidden != size * new.heads:
        raise ConfigError(
            f"--hidden={new.hidden} --heads={new.heads}: --hidden must be {size} times --heads, "
            f"because heads are copied whole and those of {checkpoint} have {size} dimensions"
        )
    check_model(new)
    leaves = named_leaves(source.params(meshes.one_device()))
    arrays = {name: np.asarray(leaf) for name, leaf in leaves.items()}
    larger = widen_parameters(arrays, old, new, copied)
    if left_out := sorted(leaves.keys() - larger.keys()):
        print(f"left out (runs will initialise them): {', '.join(left_out)}")
    changed = ", ".join(f"{name} {getattr(old, name)} -> {size}" for name, size in sizes.items())
    print(f"tiled: {changed}")
    # Task heads are not tiled, so the task is dropped too. Sentence modules have the old width.
    plain = dataclasses.replace(source, task=None, labels=(), separators=1, sentence=None)
    params = nested({name: jnp.asarray(array) for name, array in larger.items()})
    store(output, plain, params, new, source.vocabulary())
    print_next(output)


def widen_parameters(
    leaves: Mapping[str, np.ndarray], old: Model, new: Model, copied: bool
) -> dict[str, np.ndarray]:
    """Tiles the parameters of a model, by name; parameters without a rule are left out.

    Unless `copied` is true, weights are divided by the number of copies of their input, so that
    products do not change (Chen et al., 2016, Net2Net). Kernels get normal noise of `_NOISE` times
    their standard deviation: without it, copies have equal gradients and remain equal.
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
        for axis, indices in enumerate(places, start=stacked):
            array = array if indices is None else np.take(array, indices, axis)
        if not copied:
            array = _divide_by_copies(array, places, _input_axis(name, old), stacked)
            array = _add_noise(array, name) if name.endswith("/kernel") else array
        larger[name] = array
    return larger


def _axes(name: str) -> tuple[Places, ...] | None:
    """Returns how to tile each axis after the layers' axis; None if no rule matches the name."""
    axes = next((axes for rule, axes in RULES if re.fullmatch(rule, name)), None)
    return axes[-1:] if axes and name.endswith("/bias") else axes


def _input_axis(name: str, model: Model) -> int | None:
    """Returns the axis that a product sums over, not counting the layers' axis; None without one.

    If the head uses the word embeddings as its table, the norm before it is divided instead.
    """
    if name.endswith("/kernel"):
        return 0
    if not model.tied:
        return 1 if name == "prediction_head/word" else None
    last = "prediction_head/norm/" if model.prediction == "dense" else "final_norm/"
    return 0 if name.startswith(last) else None


def _divide_by_copies(
    array: np.ndarray, places: Sequence[np.ndarray | None], axis: int | None, stacked: bool
) -> np.ndarray:
    """Divides an array along an axis by the number of copies of each index."""
    indices = None if axis is None else places[axis]
    if axis is None or indices is None:
        return array
    copies = np.bincount(indices)[indices].astype(np.float32)
    return array / copies.reshape(-1, *[1] * (array.ndim - stacked - axis - 1))


def _add_noise(array: np.ndarray, name: str) -> np.ndarray:
    """Adds noise that depends only on the parameter's name and shape."""
    rng = jax.random.fold_in(jax.random.key(0), jnp.uint32(name_hash(name) & 0xFFFFFFFF))
    noise = np.asarray(jax.random.normal(rng, array.shape))
    return array + np.float32(_NOISE * array.std()) * noise
