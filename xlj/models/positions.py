"""Positions of tokens: rotary positions, and the relative position bias.

Rotary positions (Su et al., 2021) rotate queries and keys by angles. The bias is a number that
depends on the distance of query and key, and is added to scores. The bias d is the one of T5
(Raffel et al., 2020, section 2.1). It has one learned number for each head and each bucket of
distances, and all layers share it. In XLM-E (Chi et al., 2021, section 3.3) each layer multiplies d
by a gate that depends on the query.
"""

import math
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.contracts.arrays import check


class Rotations(NamedTuple):
    """Cosines and sines of the angles of each token, float32 [rows, length, 1, size / 2]."""

    cosines: jax.Array
    sines: jax.Array


def rotary_frequencies(size: int, base: float, factor: float) -> np.ndarray:
    """Returns the angle of each pair of dimensions at position 1, float32 [size / 2].

    The angle of pair j is base^(-2 j / size) / factor. The exponents, the powers and their
    reciprocals are each rounded to float32, as in the released code of models with rotary
    positions. Without this rounding, angles at position 300 would differ by up to 2e-5 radians from
    the angles of the released code.

    Args:
      size: of a head.
      base: of the powers; `model.rotary_base` or `model.rotary_local_base`.
      factor: `model.rotary_factor`, by which positions are divided.
    """
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    powers = (base ** exponents.astype(np.float64)).astype(np.float32)
    frequencies: np.ndarray = np.float32(1) / powers / np.float32(factor)
    return frequencies


def rotations(positions: jax.Array, size: int, base: float, factor: float) -> Rotations:
    """Returns the cosines and sines of the angles at the given positions.

    An angle is the position times a frequency, in float32.

    Args:
      positions: zero-based, int32 [rows, length].
      size, base, factor: the arguments of `rotary_frequencies`.
    """
    check("rotations", positions=("int32 [rows, length]", positions))
    frequencies = rotary_frequencies(size, base, factor)
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    return Rotations(jnp.cos(angles), jnp.sin(angles))


def rotations_of_layers(model: Model, positions: jax.Array) -> dict[bool, Rotations]:
    """Returns the rotations of local layers (key True) and of full layers (key False).

    The dict is empty for a model without rotary positions.

    Args:
      positions: zero-based, int32 [rows, length].
    """
    if not model.rotary_base:
        return {}
    size = model.hidden // model.heads
    full = rotations(positions, size, model.rotary_base, model.rotary_factor)
    base = model.rotary_local_base or model.rotary_base
    if base == model.rotary_base:
        return {False: full, True: full}
    return {False: full, True: rotations(positions, size, base, model.rotary_factor)}


def rotate(x: jax.Array, rotations: Rotations) -> jax.Array:
    """Rotates each pair of dimensions j and j + size / 2 by its angle, in float32.

    Args:
      x: queries or keys, float [rows, length, heads, size].

    Returns:
      [rows, length, heads, size], rounded to the dtype of x.
    """
    of_pairs = f"float32 [rows, length, 1, {x.shape[-1] // 2}]"
    check(
        "rotate",
        x=("float [rows, length, heads, size]", x),
        cosines=(of_pairs, rotations.cosines),
        sines=(of_pairs, rotations.sines),
    )
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cosines, sines = rotations
    rotated = first * cosines - second * sines, second * cosines + first * sines
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


def buckets(differences: np.ndarray, count: int, distance: int) -> np.ndarray:
    """Returns the bucket of each distance, by T5's bidirectional rule.

    The first half of the buckets is for keys up to the query, the second half for keys after it. In
    each half, the first count // 4 buckets have one distance each. The other buckets divide the
    distances from count // 4 to `distance` on a logarithmic scale. The last bucket also has all
    distances of at least `distance`.

    Args:
      differences: integers [...], index of the key minus index of the query.
      count: number of buckets, even and at least 4.
      distance: the end of the logarithmic scale, in tokens, more than count / 4.

    Returns:
      Integers in [0, count), of the shape of `differences`.
    """
    check("buckets", differences=("int [...]", differences))
    half, exact_buckets = count // 2, count // 4
    distances = np.abs(differences)
    growth = np.log(np.maximum(distances, exact_buckets) / exact_buckets) / math.log(
        distance / exact_buckets
    )
    logarithmic = exact_buckets + (growth * (half - exact_buckets)).astype(np.int64)
    bucket = np.where(distances < exact_buckets, distances, np.minimum(logarithmic, half - 1))
    return bucket + half * (differences > 0)


class PositionBias(nn.Module):
    """The learned bias d.

    Parameter: `table` float32 [buckets, heads], drawn from N(0, init_std^2) (ours).
    """

    model: Model

    @nn.compact
    def __call__(self, length: int) -> jax.Array:
        """Returns the bias for each difference between the indices of key and query in a row.

        The tokens of an example are contiguous. So for tokens that see each other, the difference
        of their indices in the row equals the difference of their positions in the example.

        Args:
          length: number of tokens in a row.

        Returns:
          float32 [heads, 2 length], for differences (key minus query) from -length to length - 1.
        """
        model = self.model
        normal = nn.initializers.normal(model.init_std)
        table = self.param("table", normal, (model.position_buckets, model.heads))
        differences = np.arange(-length, length)
        return table[buckets(differences, model.position_buckets, model.position_distance)].T


def bias_tiles(bias: jax.Array, block: int) -> jax.Array:
    """Returns the bias of all pairs of query and key, as one tile for each distance of blocks.

    Pairs of blocks at the same distance have the same bias, so they share a tile.

    Args:
      bias: the bias of each difference, float32 [heads, 2 length], from `PositionBias`.
      block: number of queries and of keys in a tile; it divides the length.

    Returns:
      Tiles [queries, keys], float32 [heads, 2 n - 1, block, block] for n = length / block. Tile t
      has the bias between the queries of block i and the keys of block i + t - (n - 1), for any i.
      With n = 1, the only tile has the whole row.
    """
    check("bias_tiles", bias=("float [heads, twice_length]", bias))
    message = f"bias of bias_tiles must be [heads, 2 length], length a multiple of {block}"
    chex.assert_is_divisible(bias.shape[1], 2 * block, custom_message=message)
    heads, count = bias.shape[0], bias.shape[1] // block
    blocks = bias.reshape(heads, count, block)
    # The last axis of `biases` has the biases of one tile, in which i is the index of a query and j
    # of a key. Index (j - i) modulo (2 * block) has the bias of difference j - i. The axis is
    # repeated and then cut into rows of 2 * block - 1 elements. So, modulo 2 * block, each row
    # starts one element earlier than the row before it: row i and column j have difference j - i. A
    # look-up by index would do the same, but its gradient would need scatter operations.
    biases = jnp.concatenate([blocks[:, 1:], blocks[:, :-1]], axis=-1)
    repeated = jnp.tile(biases, block)[..., : block * (2 * block - 1)]
    return repeated.reshape(heads, count - 1, block, 2 * block - 1)[..., :block]


class Gates(nn.Module):
    """The gates of the bias d in one layer (XLM-E, section 3.3).

    With g_u = sigmoid(q . u) and g_r = sigmoid(q . v), the paper's

        r = d + g_u d + (1 - g_u) w g_r d

    is d times a factor that depends on the query only. The parameters are float32:

    - `kernel` [head size, 2]: its columns are the update vector u and the reset vector v. It is
      drawn from N(0, init_std^2).
    - `scale` [heads]: the numbers w, which start at 1.

    The paper gives the equations for one head. It specifies neither initial values nor which
    parameters the heads share. We follow WavLM, which has some of the same authors: the heads of a
    layer share u and v, each head has its own w, and layers share no parameters.
    """

    init_std: float

    @nn.compact
    def __call__(self, query: jax.Array) -> jax.Array:
        """Computes the factor of the bias for each query.

        The product is in float32: it is too small for a narrower dtype to save time.

        Args:
          query: queries before scaling, float [rows, length, heads, head size].

        Returns:
          float32 [rows, heads, length].
        """
        normal = nn.initializers.normal(self.init_std)
        kernel = self.param("kernel", normal, (query.shape[-1], 2))
        scale = self.param("scale", nn.initializers.ones, (query.shape[-2],))
        gates = jnp.einsum("bqhd,dg->gbhq", query.astype(jnp.float32), kernel, precision="highest")
        update, reset = jax.nn.sigmoid(gates)
        return 1 + update + (1 - update) * scale[:, None] * reset
