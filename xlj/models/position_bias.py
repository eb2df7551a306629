"""Relative position bias: what attention adds to its scores for the distance of query and key.

The bias d is T5's (Raffel et al., 2020, section 2.1): one learned number for each head and bucket
of distances, shared by all layers. XLM-E (Chi et al., 2021, section 3.3) lets each layer gate it by
the query's content.
"""

import math

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.contracts.arrays import check


def buckets(differences: np.ndarray, count: int, distance: int) -> np.ndarray:
    """T5's bidirectional buckets: half for keys up to the query, half for keys after it.

    Half of each half holds one distance a bucket; the other grows logarithmically and ends at
    `distance`, beyond which all share the last.

    Args:
      differences: integers, a key's index minus its query's.
      count: buckets in all, even and at least 4.
      distance: more than count / 4.

    Returns:
      Integers in [0, count), shaped as `differences`.
    """
    check("buckets", differences=("int [...]", differences))
    half, exact = count // 2, count // 4
    far = np.abs(differences)
    growth = np.log(np.maximum(far, exact) / exact) / math.log(distance / exact)
    logarithmic = exact + (growth * (half - exact)).astype(np.int64)
    bucket = np.where(far < exact, far, np.minimum(logarithmic, half - 1))
    return bucket + half * (differences > 0)


class PositionBias(nn.Module):
    """The learned bias d, parameter `table` [buckets, heads], drawn from N(0, init_std) (ours)."""

    model: Model

    @nn.compact
    def __call__(self, length: int) -> jax.Array:
        """The bias of each difference of places, key's minus query's: float32 [heads, 2 length],
        from -length to length - 1.

        The distance is that of places in the row. An example's tokens are contiguous, so this is
        the distance of positions wherever one token sees another.
        """
        model = self.model
        normal = nn.initializers.normal(model.init_std)
        table = self.param("table", normal, (model.position_buckets, model.heads))
        differences = np.arange(-length, length)
        return table[buckets(differences, model.position_buckets, model.position_distance)].T


def bias_tiles(line: jax.Array, block: int) -> jax.Array:
    """The bias of all pairs of a query and a key in blocks of each distance.

    Args:
      line: [heads, 2 length], as `PositionBias` gives it; length is a multiple of block.

    Returns:
      [heads, 2 n - 1, block, block] for n = length / block. Tile t holds the queries of block i and
      the keys of block i + t - (n - 1); with one block, those of the whole row.
    """
    check("bias_tiles", line=("float [heads, twice_length]", line))
    message = f"line of bias_tiles is to be [heads, 2 length], length a multiple of {block}"
    chex.assert_is_divisible(line.shape[1], 2 * block, custom_message=message)
    heads, count = line.shape[0], line.shape[1] // block
    parts = line.reshape(heads, count, block)
    # A tile's differences, ordered so that place (j - i) modulo 2 * block holds j - i. Repeated and
    # cut into rows that are one place shorter, each row starts one place later: row i, column j
    # holds j - i. Unlike a look-up, this has a gradient without scattering.
    place = jnp.concatenate([parts[:, 1:], parts[:, :-1]], axis=-1)
    repeated = jnp.tile(place, block)[..., : block * (2 * block - 1)]
    return repeated.reshape(heads, count - 1, block, 2 * block - 1)[..., :block]


class Gates(nn.Module):
    """The factor that gates d in one layer (XLM-E, section 3.3).

    With g_u = sigmoid(q . u) and g_r = sigmoid(q . v), the paper's

        r = d + g_u d + (1 - g_u) w g_r d

    is d times a factor of the query alone. Parameters: `kernel` [head size, 2], whose columns are
    the update vector u and the reset vector v, and `scale` [heads], w. The paper writes the
    equations of one head and does not say what heads share. As in WavLM, by some of its authors, u
    and v are shared by a layer's heads and w is each head's own; no layer shares any. The kernel is
    drawn from N(0, init_std), w starts at 1 (WavLM's; the paper gives neither).
    """

    init_std: float

    @nn.compact
    def __call__(self, query: jax.Array) -> jax.Array:
        """[rows, query, heads, head size], not scaled -> float32 [rows, heads, query].

        All in float32: the product is too small to gain from less.
        """
        normal = nn.initializers.normal(self.init_std)
        kernel = self.param("kernel", normal, (query.shape[-1], 2))
        scale = self.param("scale", nn.initializers.ones, (query.shape[-2],))
        gates = jnp.einsum("bqhd,dg->gbhq", query.astype(jnp.float32), kernel, precision="highest")
        update, reset = jax.nn.sigmoid(gates)
        return 1 + update + (1 - update) * scale[:, None] * reset
