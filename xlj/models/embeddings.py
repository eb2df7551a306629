"""Embeddings of tokens: the input of an encoder's first layer."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from xlj.config import Model
from xlj.contracts.arrays import check
from xlj.data.tokenizer.layout import EOS, SEPARATOR
from xlj.models.dropout import Rngs, dropout
from xlj.models.lookup import look_up, look_up_small
from xlj.models.norms import Norm

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
    sides (`objectives/segments.py`).

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
