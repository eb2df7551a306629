"""Relative position bias: a number that depends on the distance of query and key, added to scores.

The bias d is that of T5 (Raffel et al., 2020, section 2.1): one learned number for each head and
bucket of distances, shared by all layers. In XLM-E (Chi et al., 2021, section 3.3) each layer
multiplies it by a gate that depends on the query.
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
    """Returns T5's bidirectional buckets: half for keys up to the query, half for keys after it.

    In each half, the first half of the buckets holds one distance each. The others grow
    logarithmically up to `distance`; all larger distances share the last bucket.

    Args:
      differences: integers, index of the key minus index of the query.
      count: number of buckets, even and at least 4.
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
    """The learned bias d. Parameter: `table` [buckets, heads], drawn from N(0, init_std) (ours)."""

    model: Model

    @nn.compact
    def __call__(self, length: int) -> jax.Array:
        """Returns the bias for each difference of places, key minus query.

        Distances are between places in the row. The tokens of an example are contiguous, so this
        equals the distance of positions for all tokens that see each other.

        Returns:
          float32 [heads, 2 length], for differences from -length to length - 1.
        """
        model = self.model
        normal = nn.initializers.normal(model.init_std)
        table = self.param("table", normal, (model.position_buckets, model.heads))
        differences = np.arange(-length, length)
        return table[buckets(differences, model.position_buckets, model.position_distance)].T


def bias_tiles(line: jax.Array, block: int) -> jax.Array:
    """Returns the bias of all pairs of query and key, as one tile for each distance of blocks.

    Args:
      line: [heads, 2 length], as returned by `PositionBias`; length is a multiple of block.

    Returns:
      [heads, 2 n - 1, block, block] for n = length / block. Tile t is for the queries of block i
      and the keys of block i + t - (n - 1). With one block, the only tile is for the whole row.
    """
    check("bias_tiles", line=("float [heads, twice_length]", line))
    message = f"line of bias_tiles must be [heads, 2 length], length a multiple of {block}"
    chex.assert_is_divisible(line.shape[1], 2 * block, custom_message=message)
    heads, count = line.shape[0], line.shape[1] // block
    parts = line.reshape(heads, count, block)
    # `place` has the differences of a tile, in an order in which index (j - i) modulo 2 * block
    # has difference j - i. It is repeated, then divided into rows that are one element shorter, so
    # that each row starts one place later and row i, column j has difference j - i. Unlike a
    # look-up, this has a gradient without scatter operations.
    place = jnp.concatenate([parts[:, 1:], parts[:, :-1]], axis=-1)
    repeated = jnp.tile(place, block)[..., : block * (2 * block - 1)]
    return repeated.reshape(heads, count - 1, block, 2 * block - 1)[..., :block]


class Gates(nn.Module):
    """The gates of the bias d in one layer (XLM-E, section 3.3).

    With g_u = sigmoid(q . u) and g_r = sigmoid(q . v), the paper's

        r = d + g_u d + (1 - g_u) w g_r d

    is d times a factor that depends on the query only. Parameters: `kernel` [head size, 2], whose
    columns are the update vector u and the reset vector v, and `scale` [heads], w. The kernel is
    drawn from N(0, init_std), and w starts at 1.

    The paper gives the equations for one head. It does not say which parameters heads share, nor
    initial values; we follow WavLM, which has authors in common. The heads of a layer share u and
    v, each head has its own w, and layers share nothing.
    """

    init_std: float

    @nn.compact
    def __call__(self, query: jax.Array) -> jax.Array:
        """Maps unscaled queries [rows, query, heads, head size] to float32 [rows, heads, query].

        The product is in float32: it is too small for a narrower type to save time.
        """
        normal = nn.initializers.normal(self.init_std)
        kernel = self.param("kernel", normal, (query.shape[-1], 2))
        scale = self.param("scale", nn.initializers.ones, (query.shape[-2],))
        gates = jnp.einsum("bqhd,dg->gbhq", query.astype(jnp.float32), kernel, precision="highest")
        update, reset = jax.nn.sigmoid(gates)
        return 1 + update + (1 - update) * scale[:, None] * reset
