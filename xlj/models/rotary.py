"""Rotary positions (Su et al., 2021): angles, and the rotation of queries and keys by them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.contracts.arrays import check


class Rotations(NamedTuple):
    """Cosines and sines of the angles of each token, float32 [rows, length, 1, size / 2]."""

    cosines: jax.Array
    sines: jax.Array


def rotations(positions: jax.Array, size: int, base: float, factor: float) -> Rotations:
    """Returns the cosines and sines of the angles at the given positions.

    The angle of pair j of dimensions is position / factor * base^(-2 j / size), in float32. The
    exponents, the powers and their reciprocals are each rounded to float32, as in the released code
    of models with rotary positions. Without this rounding, angles at position 300 would differ by
    up to 2e-5 radians from the angles of the released code.

    Args:
      positions: zero-based, int32 [rows, length].
      size: of a head.
      base: of the powers; `model.rotary_base` or `model.rotary_local_base`.
      factor: `model.rotary_factor`, by which positions are divided.
    """
    check("rotations", positions=("int32 [rows, length]", positions))
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    powers = (base ** exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / powers / np.float32(factor)
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    return Rotations(jnp.cos(angles), jnp.sin(angles))


def of_layers(model: Model, positions: jax.Array) -> dict[bool, Rotations]:
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
