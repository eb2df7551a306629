"""Tokens that may be aligned: the two sides of one example, wherever it stands in a row."""

import jax


def same_example(source_ids: jax.Array, target_ids: jax.Array) -> jax.Array:
    """Which source and target tokens belong to the same example.

    Every function of this room takes the same two id arrays, so that one matrix may hold one pair
    or all the pairs of a packed row.

    Args:
      source_ids: int32 [..., m], the example of each token, from 1; 0 is not a token of the source.
      target_ids: int32 [..., n], likewise.

    Returns:
      bool [..., m, n].
    """
    source, target = source_ids[..., :, None], target_ids[..., None, :]
    return (source == target) & (source != 0)
