"""Makes a larger model by tiling a smaller one, as ModernBERT-large was made from
ModernBERT-base."""

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

Tiling = Callable[[Model, Model], np.ndarray | None]
"""Takes (smaller model, larger model). Returns, for each index of an axis of the larger model, the
index of the smaller model to copy, int [new size]; None for an axis whose size does not change."""


_NOISE_STD = 0.1


def tile_indices(old: int, new: int) -> np.ndarray:
    """Returns the old index to copy for each new index of an axis, int [new].

    The old indices are in the middle of the new axis, and repeat cyclically towards both ends
    (Warner et al., 2024, tile_weights_from_middle).

    Args:
      old, new: the sizes of the axis.
    """
    return (np.arange(new) - (new - old) // 2) % old


def layer_indices(old: int, new: int) -> np.ndarray:
    """Returns the old layer to copy for each new layer, int [new].

    This is the old layer at the same relative depth (Rae et al., 2021, Gopher).
    """
    return np.minimum([round(layer * old / new) for layer in range(new)], old - 1)


def _same(old: Model, new: Model) -> None:
    """Returns None: the size of the axis does not change."""


def _hidden(old: Model, new: Model) -> np.ndarray:
    return tile_indices(old.hidden, new.hidden)


def _heads(old: Model, new: Model) -> np.ndarray:
    return tile_indices(old.heads, new.heads)


def _queries(old: Model, new: Model) -> np.ndarray:
    return _by_head(_heads(old, new), old)


def _keys(old: Model, new: Model) -> np.ndarray:
    return _by_head(tile_indices(old.groups, new.groups), old)


def _by_head(heads: np.ndarray, old: Model) -> np.ndarray:
    """Returns the indices of dimensions for indices of heads; each head is copied as a whole."""
    size = old.hidden // old.heads
    return (heads[:, None] * size + np.arange(size)).reshape(-1)


def _intermediate(old: Model, new: Model) -> np.ndarray:
    return tile_indices(old.intermediate, new.intermediate)


def _inner(old: Model, new: Model) -> np.ndarray:
    """Returns the indices of the outputs of a feed-forward layer's first product.

    The two halves of a gated layer are tiled separately.
    """
    one = _intermediate(old, new)
    return one if old.feed_forward == "gelu" else np.concatenate([one, one + old.intermediate])


RULES: tuple[tuple[str, tuple[Tiling, ...]], ...] = (
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
"""(regular expression for a parameter's name, the `Tiling` of each axis after the layer axis).

The first match applies. A bias has only the last axis."""


def widen(checkpoint: str, sizes: Mapping[str, Any], output: Path, copied: bool = False) -> None:
    """Writes the checkpoint of the larger model; prints the parameters that are not written.

    Args:
      checkpoint: the path of the smaller model (`stored_models.find`).
      sizes: keys of `model` with their new values. Other sizes do not change.
      output: the path of the new checkpoint.
      copied: whether to copy weights without the division and noise of `widen_parameters`.

    Raises:
      ConfigError: if the model does not exist, a size is smaller than the model's, no size is
        larger, or sizes contradict each other.
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
        raise ConfigError(
            "no size is larger than the model's; set at least one, such as --hidden=1024"
        )
    size = old.hidden // old.heads
    if new.hidden != size * new.heads:
        raise ConfigError(
            f"--hidden={new.hidden} --heads={new.heads}: expected --hidden to be {size} times "
            f"--heads, because the heads of {checkpoint} have {size} dimensions and are copied as "
            "a whole"
        )
    check_model(new)
    leaves = named_leaves(source.params(meshes.one_device()))
    arrays = {name: np.asarray(leaf) for name, leaf in leaves.items()}
    larger = widen_parameters(arrays, old, new, copied)
    if left_out := sorted(leaves.keys() - larger.keys()):
        print(f"not written (runs initialise them): {', '.join(left_out)}")
    changed = ", ".join(f"{name} {getattr(old, name)} -> {size}" for name, size in sizes.items())
    print(f"tiled: {changed}")
    # Task heads are not tiled, so the new model has no task. Sentence modules have the old width.
    plain = dataclasses.replace(source, task=None, labels=(), separators=1, sentence=None)
    params = nested({name: jnp.asarray(array) for name, array in larger.items()})
    store(output, plain, params, new, source.vocabulary())
    print_next(output)


def widen_parameters(
    leaves: Mapping[str, np.ndarray], old: Model, new: Model, copied: bool
) -> dict[str, np.ndarray]:
    """Tiles the parameters of a model.

    Unless `copied` is true, two steps follow the copying:

    - Weights are divided by the number of copies of their input, so that matrix products do not
      change (Chen et al., 2016, Net2Net).
    - Normal noise is added to kernels, because equal copies have equal gradients and would remain
      equal. Its standard deviation is `_NOISE_STD` times that of the kernel.

    Args:
      leaves: the parameters by name.
      old, new: the options of the smaller and the larger model.
      copied: whether to only copy.

    Returns:
      The new parameters by name, without parameters that match no rule.
    """
    larger = {}
    for name, array in leaves.items():
        axes = _axes(name)
        if axes is None:
            continue
        axis_indices = [of_axis(old, new) for of_axis in axes]
        stacked = pattern.is_stacked(name)
        if stacked:
            # In some models the first layer has no norm before attention. The array of this norm
            # then has one row less, and row 0 belongs to layer 1.
            missing = old.layers - len(array)
            of_layers = layer_indices(old.layers, new.layers)[missing:] - missing
            array = array[np.maximum(of_layers, 0)]
        for axis, indices in enumerate(axis_indices, start=stacked):
            array = array if indices is None else np.take(array, indices, axis)
        if not copied:
            array = _divide_by_copies(array, axis_indices, _input_axis(name, old), stacked)
            array = _add_noise(array, name) if name.endswith("/kernel") else array
        larger[name] = array
    return larger


def _axes(name: str) -> tuple[Tiling, ...] | None:
    """Returns the functions that tile each axis after the layer axis; None if no rule matches."""
    axes = next((axes for rule, axes in RULES if re.fullmatch(rule, name)), None)
    return axes[-1:] if axes and name.endswith("/bias") else axes


def _input_axis(name: str, model: Model) -> int | None:
    """Returns the axis of a parameter over which a matrix product sums; None if there is none.

    The layer axis is not counted. If the head for masked tokens is tied to the word embeddings, it
    multiplies by their table, which must not be divided. The norm before this product is divided
    instead, so its axis is returned.
    """
    if name.endswith("/kernel"):
        return 0
    if not model.tied:
        return 1 if name == "prediction_head/word" else None
    last = "prediction_head/norm/" if model.prediction == "dense" else "final_norm/"
    return 0 if name.startswith(last) else None


def _divide_by_copies(
    array: np.ndarray, axis_indices: Sequence[np.ndarray | None], axis: int | None, stacked: bool
) -> np.ndarray:
    """Divides an array along an axis by the number of copies of each index."""
    indices = None if axis is None else axis_indices[axis]
    if axis is None or indices is None:
        return array
    copies = np.bincount(indices)[indices].astype(np.float32)
    return array / copies.reshape(-1, *[1] * (array.ndim - stacked - axis - 1))


def _add_noise(array: np.ndarray, name: str) -> np.ndarray:
    """Adds noise that depends only on the parameter's name and shape."""
    rng = jax.random.fold_in(jax.random.key(0), jnp.uint32(name_hash(name) & 0xFFFFFFFF))
    noise = np.asarray(jax.random.normal(rng, array.shape))
    return array + np.float32(_NOISE_STD * array.std()) * noise
