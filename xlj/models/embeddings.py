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
"""Row of the position table for position 0, as in XLM-R (rows 0 and 1 belong to padding)."""


class Embeddings(nn.Module):
    """The sum of the model's embeddings of word, position, token type and language.

    A norm follows, unless `model.norm=pre`, then dropout.

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
        """Maps int32 [rows, length] each to float32 [rows, length, hidden].

        Arguments are as in `encoder.Inputs`; `rngs` is as in `dropout`.
        """
        model, normal = self.model, nn.initializers.normal(self.model.init_std)
        word = self.param("word", normal, (self.vocabulary_size, model.hidden))
        x = look_up(word, tokens)
        if model.absolute_positions:
            position = self.param("position", normal, (model.positions, model.hidden))
            x += look_up_small(position, positions + FIRST_POSITION)
        if model.token_types:
            token_type = self.param("token_type", normal, (model.token_types, model.hidden))
            types = sides if model.pair_token_types else None
            x += token_type[0] if types is None else look_up_small(token_type, types)
        if model.language_embeddings != "none":
            language = self.param("language", normal, (self.language_count, model.hidden))
            if languages is not None:
                marked = (languages >= 0)[..., None]
                x += jnp.where(marked, look_up_small(language, languages), 0)
        if model.norm != "pre":
            x = Norm(model, name="norm")(x)
        return dropout(x, rngs, 0, 0, model.dropout_of("embeddings"))


def restart_positions(positions: jax.Array, sides: jax.Array) -> jax.Array:
    """Restarts positions at 0 in the second sentence of a pair, as XLM does (section 3.3).

    Args:
      positions: int32 [rows, length], which continue across a pair.
      sides: int32 [rows, length].
    """
    check(
        "restart_positions",
        positions=("int32 [rows, length]", positions),
        sides=("int32 [rows, length]", sides),
    )
    place = jnp.broadcast_to(jnp.arange(sides.shape[1]), sides.shape)
    before = jnp.pad(sides, ((0, 0), (1, 0)))[:, :-1]
    begin = jax.lax.cummax(jnp.where((sides > 0) & (before == 0), place, 0), axis=1)
    return jnp.where(sides > 0, place - begin, positions)


def insert_separators(tokens: jax.Array, sides: jax.Array) -> jax.Array:
    """Replaces each `</s>` before a second sentence by EuroBERT's separator.

    EuroBERT reads parallel sentences as `<s> A <|parallel_sep|> B </s>`. Rows contain `</s>` there
    for all models, so that examples and sides are found in the same way. Arguments and result are
    int32 [rows, length].
    """
    check(
        "insert_separators",
        tokens=("int [rows, length]", tokens),
        sides=("int32 [rows, length]", sides),
    )
    after = jnp.pad(sides, ((0, 0), (0, 1)))[:, 1:]
    return jnp.where((tokens == EOS) & (sides == 0) & (after == 1), SEPARATOR, tokens)
