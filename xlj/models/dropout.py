"""Dropout from one random key a row, so that sharding and accumulation never change a mask."""

import math

import jax
import jax.numpy as jnp

Rngs = jax.Array | None
"""A threefry key of each row [rows]; None means no dropout (evaluation)."""


def dropout(x: jax.Array, rngs: Rngs, site: int, rate: float) -> jax.Array:
    """Zeroes elements of x with probability `rate` and scales the others up.

    Args:
      x: [rows, ...].
      site: a number that tells this place in the layer from the others.
      rate: is rounded to a multiple of 1 / 65,536, since 16 random bits an element are drawn.
    """
    threshold = round(rate * 65_536)
    if rngs is None or not threshold:
        return x
    shape = x.shape[1:]
    words = -(-math.prod(shape) // 2)

    def kept(rng: jax.Array) -> jax.Array:
        bits = jax.random.bits(jax.random.fold_in(rng, site), (words,), jnp.uint32)
        halves = jnp.stack([bits & 0xFFFF, bits >> 16])
        return halves.reshape(-1)[: math.prod(shape)].reshape(shape) >= threshold

    return jnp.where(jax.vmap(kept)(rngs), x * (65_536 / (65_536 - threshold)), 0)
