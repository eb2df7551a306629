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
    """Returns the rotations for positions, in heads of a size.

    The angle of pair j of dimensions is position / factor * base^(-2 j / size), in float32.
    Exponents, powers and their reciprocals are each rounded to float32, as in the released code of
    models. Otherwise angles at position 300 would differ by up to 2e-5.

    Args:
      positions: int32 [rows, length].
    """
    check("rotations", positions=("int32 [rows, length]", positions))
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    powers = (base ** exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / powers / np.float32(factor)
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    return Rotations(jnp.cos(angles), jnp.sin(angles))


def of_layers(model: Model, positions: jax.Array) -> dict[bool, Rotations]:
    """Returns the rotations in local layers (True) and full layers (False).

    The dict is empty for a model without rotary positions.
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
    """Rotates dimensions j and j + size / 2 of x [rows, length, heads, size].

    It computes in float32 and rounds to the type of x.
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
