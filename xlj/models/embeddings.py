"""The embeddings of tokens: the input of an encoder's first layer."""

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
"""Row of the position table that position 0 reads, as in XLM-R (rows 0 and 1 belong to padding)."""


class Embeddings(nn.Module):
    """The sum of the embeddings of word, position, token type and language, as far as the model
    has them; a norm, unless all stand in the layers; dropout. `language_count` is the number of
    languages."""

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
        """int32 [rows, length] each, as in `encoder.Inputs` -> float32 [rows, length, hidden];
        `rngs` as in `dropout`."""
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


def restarted(positions: jax.Array, sides: jax.Array) -> jax.Array:
    """Positions that count from 0 again in the second sentence of a pair, as XLM's do (section
    3.3): int32 [rows, length] each, where they run on in each example."""
    check(
        "restarted",
        positions=("int32 [rows, length]", positions),
        sides=("int32 [rows, length]", sides),
    )
    place = jnp.broadcast_to(jnp.arange(sides.shape[1]), sides.shape)
    before = jnp.pad(sides, ((0, 0), (1, 0)))[:, :-1]
    begin = jax.lax.cummax(jnp.where((sides > 0) & (before == 0), place, 0), axis=1)
    return jnp.where(sides > 0, place - begin, positions)


def separated(tokens: jax.Array, sides: jax.Array) -> jax.Array:
    """Tokens as EuroBERT reads parallel sentences, `<s> A <|parallel_sep|> B </s>`: the separator
    in the place of each `</s>` before a second sentence. int32 [rows, length] each.

    Rows hold `</s>` there, whatever the model reads, so that examples and sides are found alike."""
    check(
        "separated",
        tokens=("int [rows, length]", tokens),
        sides=("int32 [rows, length]", sides),
    )
    after = jnp.pad(sides, ((0, 0), (0, 1)))[:, 1:]
    return jnp.where((tokens == EOS) & (sides == 0) & (after == 1), SEPARATOR, tokens)
