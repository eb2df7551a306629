"""Embedding look-ups for tables with sharded columns and ids with sharded rows."""

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import check
from xlj.models.gradients import with_gradient
from xlj.sharding import devices
from xlj.sharding.rules import ROWS, TABLE


def look_up_small(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Computes table[ids], for a table that is smaller than the result.

    Each device gathers the whole table and looks up its own rows.

    Args:
      table: float [ids, hidden].
      ids: int [rows, ...].

    Returns:
      [rows, ..., hidden], of the table's dtype.
    """
    check("look_up_small", table=("float [ids, hidden]", table), ids=("int [rows, ...]", ids))

    def compute_on_device(table: jax.Array, ids: jax.Array) -> jax.Array:
        return devices.all_gather(table, 1)[ids]

    return devices.per_device(compute_on_device, (TABLE, ROWS), ROWS)(table, ids)


def look_up(table: jax.Array, ids: jax.Array) -> jax.Array:
    """Computes table[ids], for a table that is sharded over devices.

    Each device looks up its columns for the rows of all devices that share the table. Then the
    devices exchange the results. The gradient is exchanged in the opposite direction. XLA's own
    look-up would instead gather the gradient of the global batch on each device.

    Args:
      table: float32 [vocabulary, hidden].
      ids: int [rows, ...].

    Returns:
      float32 [rows, ..., hidden].
    """
    check("look_up", table=("float32 [vocabulary, hidden]", table), ids=("int [rows, ...]", ids))
    return _look_up(table, ids)


def _forward(table: jax.Array, ids: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    def compute_on_device(table: jax.Array, ids: jax.Array) -> jax.Array:
        columns = table[devices.all_gather(ids, 0)]
        return devices.all_to_all(columns, 0, ids.ndim)

    return devices.per_device(compute_on_device, (TABLE, ROWS), ROWS)(table, ids), (table, ids)


def _backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None]:
    def compute_on_device(table: jax.Array, ids: jax.Array, gradient: jax.Array) -> jax.Array:
        columns = devices.all_to_all(gradient, ids.ndim, 0)
        grad_table = jnp.zeros_like(table).at[devices.all_gather(ids, 0)].add(columns)
        return devices.sum_over_replicas(grad_table)

    per_device = devices.per_device(compute_on_device, (TABLE, ROWS, ROWS), TABLE)
    return per_device(*saved, gradient), None


_look_up = with_gradient(_forward, _backward)
