"""Rotary positions (Su et al., 2021): queries and keys turned by angles that grow with position."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Model
from xlj.contracts.arrays import check


class Turns(NamedTuple):
    """Cosines and sines of the angles of each token, float32 [rows, length, 1, size / 2]."""

    cosines: jax.Array
    sines: jax.Array


def turns(positions: jax.Array, size: int, base: float, factor: float) -> Turns:
    """The angles of positions, int32 [rows, length], in heads of a size: position / factor times
    base^(-2 j / size) for the pair j of dimensions, in float32.

    Exponents, powers and their reciprocals are each rounded to float32, as in the code that models
    were released with: an angle at position 300 would differ by up to 2e-5 else.
    """
    check("turns", positions=("int32 [rows, length]", positions))
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    powers = (base ** exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / powers / np.float32(factor)
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    return Turns(jnp.cos(angles), jnp.sin(angles))


def of_layers(model: Model, positions: jax.Array) -> dict[bool, Turns]:
    """The angles in local layers (True) and in full ones (False); none of a model without rotary
    positions."""
    if not model.rotary_base:
        return {}
    size = model.hidden // model.heads
    full = turns(positions, size, model.rotary_base, model.rotary_factor)
    base = model.rotary_local_base or model.rotary_base
    if base == model.rotary_base:
        return {False: full, True: full}
    return {False: full, True: turns(positions, size, base, model.rotary_factor)}


def rotate(x: jax.Array, turns: Turns) -> jax.Array:
    """x [rows, length, heads, size], of which the dimensions j and j + size / 2 are turned; in
    float32, rounded to the type of x."""
    of_pairs = f"float32 [rows, length, 1, {x.shape[-1] // 2}]"
    check(
        "rotate",
        x=("float [rows, length, heads, size]", x),
        cosines=(of_pairs, turns.cosines),
        sines=(of_pairs, turns.sines),
    )
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cosines, sines = turns
    turned = first * cosines - second * sines, second * cosines + first * sines
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
