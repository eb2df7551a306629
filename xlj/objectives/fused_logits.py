"""`logits` in kernels for GPUs: logits are not written to memory, only what is made of them.

XLA writes the float32 logits of each block and reads them again, forward and backward.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Ref
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from xlj.contracts.arrays import check
from xlj.models.fused_attention.tiles import dot
from xlj.objectives.logits import check_block
from xlj.sharding import devices

PRODUCTS = {"logits_statistics": 1, "logits_gradient": 1}
"""Products of vectors and weights that each kernel makes, by its name in compiled programs."""

VECTORS, IDS = 64, 128
"""Of a tile of logits."""
_DEPTH = 64
"""Dimensions that are multiplied at a time."""


def is_used(size: int, hidden: int, dtype: jnp.dtype) -> bool:
    """Whether blocks of `size` ids are for these kernels."""
    fits = size % IDS == 0 and hidden % _DEPTH == 0
    return devices.platform() == "gpu" and dtype == jnp.bfloat16 and fits


def statistics(
    vectors: jax.Array, weights: jax.Array, bias: jax.Array, labels: jax.Array, first: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """As `logits.statistics`."""
    check_block("statistics", vectors, weights, bias, first, labels)

    def kernel(*refs: Ref) -> None:
        *inputs, labels_ref, largest_ref, total_ref, place_ref, picked_ref = refs
        logits, places, counts = _tile(*inputs)
        largest = logits.max(1)
        finite = jnp.where(largest == -jnp.inf, 0.0, largest)
        largest_ref[...] = largest
        total_ref[...] = jnp.exp(logits - finite[:, None]).sum(1)
        is_largest = logits == largest[:, None]
        place_ref[...] = jnp.where(is_largest, places, jnp.iinfo(jnp.int32).max).min(1)
        is_label = (places == labels_ref[...][:, None]) & counts
        picked_ref[...] = jnp.where(is_label, logits, 0.0).sum(1)

    n, tiles = len(vectors), len(weights) // IDS
    vectors, labels = filled(vectors), filled(labels, -1)
    kinds = (jnp.float32, jnp.float32, jnp.int32, jnp.float32)
    largest, total, place, picked = _call(
        kernel,
        "logits_statistics",
        (vectors, weights, bias, first, labels),
        pl.BlockSpec((None, VECTORS), lambda j, i: (j, i)),
        [jax.ShapeDtypeStruct((tiles, len(vectors)), kind) for kind in kinds],
    )
    overall = largest.max(0)
    of_tile = jnp.where(largest == overall, 1.0, jnp.exp(largest - overall))
    place = jnp.where(largest == overall, place, jnp.iinfo(jnp.int32).max).min(0)
    return overall[:n], (total * of_tile).sum(0)[:n], place[:n], picked.sum(0)[:n]


def gradient(
    vectors: jax.Array,
    weights: jax.Array,
    bias: jax.Array,
    labels: jax.Array,
    first: jax.Array,
    normaliser: jax.Array,
    of_loss: jax.Array,
) -> jax.Array:
    """As `logits.gradient`, of vectors that are `filled`."""
    check_block("gradient", vectors, weights, bias, first, labels, normaliser, of_loss)

    def kernel(*refs: Ref) -> None:
        *inputs, labels_ref, normaliser_ref, of_loss_ref, out_ref = refs
        logits, places, counts = _tile(*inputs)
        probabilities = jnp.exp(logits - normaliser_ref[...][:, None])
        is_label = (places == labels_ref[...][:, None]) & counts
        out = (probabilities - is_label.astype(jnp.float32)) * of_loss_ref[...][:, None]
        out_ref[...] = out.astype(out_ref.dtype)

    return _call(
        kernel,
        "logits_gradient",
        (vectors, weights, bias, first, labels, normaliser, of_loss),
        pl.BlockSpec((VECTORS, IDS), lambda j, i: (i, j)),
        [jax.ShapeDtypeStruct((len(vectors), len(weights)), vectors.dtype)],
    )[0]


def filled(x: jax.Array, value: float = 0) -> jax.Array:
    """x [n, ...] with as many more as make n a multiple of `VECTORS`."""
    check("filled", x=("any [n, ...]", x))
    more = [(0, -len(x) % VECTORS)] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, more, constant_values=value)


def _tile(
    vectors_ref: Ref, weights_ref: Ref, bias_ref: Ref, first_ref: Ref
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A tile's logits float32 [VECTORS, IDS], their places in the block, and which places count."""

    def add(number: jax.Array, total: jax.Array) -> jax.Array:
        some = pl.ds(number * _DEPTH, _DEPTH)
        return total + dot(vectors_ref[:, some], weights_ref[:, some], (1, 1))

    total = jnp.zeros((VECTORS, IDS), jnp.float32)
    logits = jax.lax.fori_loop(0, vectors_ref.shape[1] // _DEPTH, add, total)
    places = (pl.program_id(0) * IDS + jnp.arange(IDS, dtype=jnp.int32))[None, :]
    counts = places >= first_ref[0]
    return jnp.where(counts, logits + bias_ref[...][None, :], -jnp.inf), places, counts


def _call(
    kernel: Callable[..., None],
    name: str,
    inputs: tuple[jax.Array, ...],
    out: pl.BlockSpec,
    shapes: Sequence[jax.ShapeDtypeStruct],
) -> list[jax.Array]:
    """Tiles of one column of the block come after each other, so that its weights stay in cache."""
    vectors, weights, bias, first, *of_vectors = inputs
    hidden = vectors.shape[1]
    of_vector = pl.BlockSpec((VECTORS,), lambda j, i: (i,))
    specs = [
        pl.BlockSpec((VECTORS, hidden), lambda j, i: (i, 0)),
        pl.BlockSpec((IDS, hidden), lambda j, i: (j, 0)),
        pl.BlockSpec((IDS,), lambda j, i: (j,)),
        pl.BlockSpec((1,), lambda j, i: (0,)),
    ]
    return pl.pallas_call(
        kernel,
        grid=(len(weights) // IDS, len(vectors) // VECTORS),
        in_specs=specs + [of_vector] * len(of_vectors),
        out_specs=[out] * len(shapes),
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=devices.platform() != "gpu",
        name=name,
    )(vectors, weights, bias, first.reshape(1), *of_vectors)
