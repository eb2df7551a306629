"""Embeddings of tokens: the input of an encoder's first layer.

Look-ups are for tables with sharded columns and ids with sharded rows.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.data.tokenizer.layout import EOS, SEPARATOR
from xlj.models.dropout import Rngs, dropout
from xlj.models.lowering import with_gradient
from xlj.models.norms import Norm
from xlj.sharding import devices
from xlj.sharding.devices import ROWS, TABLE

FIRST_POSITION = 2
"""Row of the position table for position 0. In XLM-R, rows 0 and 1 are reserved for padding."""


class Embeddings(nn.Module):
    """The sum of the embeddings of word, position, token type and language that the model has.

    A norm (unless `model.norm=pre`) and dropout follow the sum.

    Parameters are float32 and drawn from N(0, init_std^2): `word` [vocabulary, hidden] and, if the
    model has them, `position` [positions, hidden], `token_type` [types, hidden] and `language`
    [languages, hidden].

    Attributes:
      language_count: number of languages.
    """

    model: Model
    vocabulary_size: int
    language_count: int

    @nn.compact
    def __call__(
        self,
        tokens: jax.Array,
        positions: jax.Array,
        languages: jax.Array | None,
        sides: jax.Array | None,
        rngs: Rngs,
    ) -> jax.Array:
        """Computes the vectors that the first layer reads.

        Args:
          tokens: token ids, int32 [rows, length].
          positions: zero-based positions in the example, int32 [rows, length].
          languages: rows of `language`, int32 [rows, length]; -1 adds no language embedding, and
            None adds none anywhere.
          sides: 1 in the second sentence of a pair, else 0, int32 [rows, length]; None means 0
            everywhere.
          rngs: a random key for each row [rows], for dropout; None in evaluation.

        Returns:
          float32 [rows, length, hidden].
        """
        model, normal = self.model, nn.initializers.normal(self.model.init_std)
        word = self.param("word", normal, (self.vocabulary_size, model.hidden))
        x = look_up(word, tokens)
        if model.absolute_positions:
            position = self.param("position", normal, (model.positions, model.hidden))
            x += look_up_small(position, positions + FIRST_POSITION)
        if model.token_types:
            token_type = self.param("token_type", normal, (model.token_types, model.hidden))
            types = sides if "types" in model.pair_marks else None
            x += token_type[0] if types is None else look_up_small(token_type, types)
        if model.language_embeddings != "none":
            language = self.param("language", normal, (self.language_count, model.hidden))
            if languages is not None:
                has_language = (languages >= 0)[..., None]
                x += jnp.where(has_language, look_up_small(language, languages), 0)
        if model.norm != "pre":
            x = Norm(model, name="norm")(x)
        return dropout(x, rngs, 0, 0, model.dropout_of("embeddings"))


def restart_positions(positions: jax.Array, sides: jax.Array) -> jax.Array:
    """Restarts positions at 0 in the second sentence of a pair, as XLM does (section 3.4).

    Args:
      positions: zero-based positions that continue across a pair, int32 [rows, length].
      sides: 1 in the second sentence of a pair, else 0, int32 [rows, length].

    Returns:
      int32 [rows, length].
    """
    check(
        "restart_positions",
        positions=("int32 [rows, length]", positions),
        sides=("int32 [rows, length]", sides),
    )
    index = jnp.broadcast_to(jnp.arange(sides.shape[1]), sides.shape)
    side_before = jnp.pad(sides, ((0, 0), (1, 0)))[:, :-1]
    begin = jax.lax.cummax(jnp.where((sides > 0) & (side_before == 0), index, 0), axis=1)
    return jnp.where(sides > 0, index - begin, positions)


def insert_separators(tokens: jax.Array, sides: jax.Array) -> jax.Array:
    """Replaces each `</s>` between the sentences of a pair by the separator of the vocabulary.

    Stored rows contain `</s>` between A and B for all models, so that one rule finds examples and
    sides (`models/segments.py`).

    Args:
      tokens: token ids, int32 [rows, length].
      sides: 1 in the second sentence of a pair, else 0, int32 [rows, length].

    Returns:
      int32 [rows, length].
    """
    check(
        "insert_separators",
        tokens=("int [rows, length]", tokens),
        sides=("int32 [rows, length]", sides),
    )
    side_after = jnp.pad(sides, ((0, 0), (0, 1)))[:, 1:]
    return jnp.where((tokens == EOS) & (sides == 0) & (side_after == 1), SEPARATOR, tokens)


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
