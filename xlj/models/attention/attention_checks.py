"""A check that an attention function keeps packed examples apart, for xlj's functions or your own.

    check_attention(my_attention)

Attention between packed examples causes no error, so it can remain unnoticed. This happened in
MaxText, for example (maxtext#4476).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from xlj.models.attention.interface import Mask

Attention = Callable[[jax.Array, jax.Array, jax.Array, Mask], jax.Array]
"""An attention function without dropout: (query, key, value, mask) -> output. Query, key, value and
output are float [rows, length, heads, size]."""


def check_attention(
    attention: Attention,
    *,
    rows: int = 2,
    length: int = 150,
    heads: int = 2,
    size: int = 16,
    seed: int = 0,
    tolerance: float = 1e-4,
    window: int | None = None,
) -> None:
    """Checks an attention function with two patterns of segment ids.

    The pattern "packed" has packed examples of random lengths. In the pattern "redirected", some
    queries have the ids of other examples, some keys are hidden, and some queries see no key at
    all.

    Args:
      attention: the function to check.
      rows, length, heads, size: the shape of the random arrays [rows, length, heads, size].
      seed: of the random arrays.
      tolerance: the largest allowed difference between an output and the reference formula,
        computed in float64. Leaks between examples have no tolerance: any dependence is an error.
      window: the window of the masks, that is, the largest distance in the row at which a query
        sees a key, inclusive; None for no window.

    Raises:
      AssertionError: in any of these cases:

        - An output differs from the formula.
        - The output of a query that sees no key is not exactly 0.
        - The output of a query depends on a key or value that the query must not see.
        - The output of a query does not depend on the query, or on a value that the query must see.

        The message names the pattern or the window. In the last two cases, it also names the array
        and the index (row, index in the row).
    """
    rng = np.random.default_rng(seed)
    q, k, v, weights = (
        jnp.asarray(rng.normal(size=(rows, length, heads, size)), jnp.float32) for _ in range(4)
    )
    packed = np.sort(rng.integers(1, 6, (rows, length)), axis=1)
    packed[:, -length // 10 :] = 0  # padding, which sees itself
    is_redirected, is_hidden = rng.random((2, rows, length)) < 0.2
    redirected = np.where(is_redirected, rng.integers(1, 9, (rows, length)), packed)
    is_near = _within_window(length, window)
    patterns = {
        "packed": (packed, packed),
        "redirected": (redirected, np.where(is_hidden, -1, packed)),
    }
    for name, (query_ids, key_ids) in patterns.items():
        ids = jnp.asarray(query_ids, jnp.int32), jnp.asarray(key_ids, jnp.int32)
        mask = Mask(*ids, window)
        sees = (query_ids[:, :, None] == key_ids[:, None, :]) & is_near
        output = np.asarray(attention(q, k, v, mask), np.float64)
        q64, k64, v64 = (np.asarray(x, np.float64) for x in (q, k, v))
        error = np.abs(output - _reference_attention(q64, k64, v64, sees)).max()
        assert error <= tolerance, (
            f"{name}: an output differs from the reference formula by {error:.3g}, more than "
            f"tolerance={tolerance:g}"
        )
        sees_no_key = ~sees.any(2)
        assert (output[sees_no_key] == 0).all(), (
            f"{name}: a query that sees no key has a non-zero output"
        )
        for segment_id in np.unique(query_ids):
            _check_gradients(
                attention, (q, k, v), mask, weights, query_ids == segment_id, sees, name
            )
    if window is not None:
        _check_window_ends(attention, (q, k, v), weights, window)


def _check_gradients(
    attention: Attention,
    arrays: tuple[jax.Array, jax.Array, jax.Array],
    mask: Mask,
    weights: jax.Array,
    is_selected: np.ndarray,
    sees: np.ndarray,
    name: str,
) -> None:
    """Checks by gradients on which queries, keys and values the outputs of some queries depend.

    The outputs must depend on each value that the selected queries see, and on each selected query
    that sees more than one key. They must not depend on other queries, or on keys and values that
    no selected query sees.

    Args:
      attention: the function to check.
      arrays: query, key and value, float32 [rows, length, heads, size] each.
      mask: segment ids of queries and of keys, and the window.
      weights: random factors of the outputs, float32 [rows, length, heads, size].
      is_selected: the queries whose outputs are differentiated, bool [rows, length].
      sees: which key each query sees, bool [rows, query, key].
      name: of the pattern, for the message.
    """

    def weighted_sum(arrays: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return (attention(*arrays, mask) * weights * is_selected[..., None, None]).sum()

    has_gradient = [np.abs(np.asarray(x)).sum((2, 3)) > 0 for x in jax.grad(weighted_sum)(arrays)]
    is_seen = (sees & is_selected[:, :, None]).any(1)
    # A query that sees only one key returns the value of this key. Its output does not depend on
    # the query, so queries with one key are left out.
    has_choice = is_selected & (sees.sum(2) > 1)
    for kind, array, is_allowed in zip(
        ("query", "key", "value"), has_gradient, (is_selected, is_seen, is_seen), strict=True
    ):
        leaks = np.argwhere(array & ~is_allowed)
        assert not len(leaks), (
            f"{name}: the {kind} at {leaks[0]} changes the outputs of queries that must not see it"
        )
    missing = np.argwhere(is_seen & ~has_gradient[2])
    assert not len(missing), (
        f"{name}: the value at {missing[0]} does not change the outputs of the queries that see it"
    )
    missing = np.argwhere(has_choice & ~has_gradient[0])
    assert not len(missing), (
        f"{name}: the output of the query at {missing[0]} does not depend on this query"
    )


def _within_window(length: int, window: int | None) -> np.ndarray:
    """Returns which indices of a row are at most `window` apart: bool [length, length]."""
    positions = np.arange(length)
    distance = np.abs(positions[:, None] - positions)
    return distance <= (length if window is None else window)


def _check_window_ends(
    attention: Attention,
    arrays: tuple[jax.Array, jax.Array, jax.Array],
    weights: jax.Array,
    window: int,
) -> None:
    """Checks both ends of the window, in rows of one example.

    The gradient of a query's output must reach all values within the window, and no key or value
    outside it. A changed key and value must change exactly the outputs of the queries within the
    window.
    """
    q, k, v = arrays
    rows, length = q.shape[:2]
    sees = np.broadcast_to(_within_window(length, window), (rows, length, length))
    ids = jnp.zeros((rows, length), jnp.int32)
    mask = Mask(ids, ids, window)
    old_output = np.asarray(attention(q, k, v, mask))
    for index in (0, length // 3, length - 1):
        is_selected = np.broadcast_to(np.arange(length) == index, (rows, length))
        name = f"the window of index {index}"
        _check_gradients(attention, arrays, mask, weights, is_selected, sees, name)
        new_output = attention(q, k.at[:, index].add(1), v.at[:, index].add(1), mask)
        is_changed = (np.asarray(new_output) != old_output).any((2, 3))
        differences = np.argwhere(is_changed != sees[:, :, index])
        assert not len(differences), (
            f"{name}: the outputs that depend on the key at this index are not exactly the outputs "
            f"within the window; the first wrong output is at {differences[0]}"
        )


def _reference_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, sees: np.ndarray
) -> np.ndarray:
    """Computes attention by its formula, with zeros for a query that sees no key.

    Args:
      q, k, v: float64 [rows, length, heads, size].
      sees: bool [rows, query, key].

    Returns:
      float64 [rows, length, heads, size].
    """
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(sees[:, None], scores, -np.inf)
    largest = np.maximum(scores.max(-1, keepdims=True), -1e30)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1)
    return np.einsum("bhqk,bkhd->bqhd", weights, v)
