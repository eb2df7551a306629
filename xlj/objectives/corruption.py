"""Masks: selects the tokens to predict and replaces them."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xlj.contracts.arrays import Specified, check
from xlj.data.tokenizer.layout import SPECIALS
from xlj.objectives.masking.options import MaskingOptions
from xlj.objectives.objective import Rows, check_rows


class Masked(NamedTuple):
    """Masked rows. Each row has as many slots as the largest possible number of predictions."""

    tokens: jax.Array
    """Token ids after masking, int32 [rows, length]."""
    positions: jax.Array
    """Index in the row of each slot's token, int32 [rows, slots]; all different within a row."""
    labels: jax.Array
    """The original token at each position, int32 [rows, slots]."""
    weights: jax.Array
    """1 for slots with a prediction, 0 for unused slots, float32 [rows, slots]."""
    languages: jax.Array
    """The language of each side of a row, int32 [rows, 2]."""

    def check(self, function: str, **more: Specified) -> None:
        """Checks the arrays, and more arguments, with `xlj.contracts.arrays.check`."""
        check(
            function,
            tokens=("int32 [rows, length]", self.tokens),
            positions=("int32 [rows, slots]", self.positions),
            labels=("int32 [rows, slots]", self.labels),
            weights=("float32 [rows, slots]", self.weights),
            languages=("int32 [rows, 2]", self.languages),
            **more,
        )

    def selected(self) -> jax.Array:
        """Returns the tokens that are predicted, as a mask bool [rows, length]."""
        return at_positions(self.positions, self.weights, self.tokens.shape[1]) > 0

    def original(self) -> jax.Array:
        """Returns the rows before masking, int32 [rows, length]."""
        rows = jnp.arange(len(self.tokens))[:, None]
        return self.tokens.at[rows, self.positions].set(self.labels)


def split(rngs: jax.Array, count: int = 2) -> jax.Array:
    """Splits the random key of each row: keys [rows] -> keys [count, rows]."""
    check("split", rngs=("key [rows]", rngs))
    return jax.vmap(lambda rng: jax.random.split(rng, count), out_axes=1)(rngs)


def at_positions(positions: jax.Array, values: jax.Array, length: int) -> jax.Array:
    """Returns rows that have values at some positions, and zeros elsewhere.

    Args:
      positions: indices in the row, int32 [rows, n].
      values: any dtype [rows, n].
      length: of a row.

    Returns:
      [rows, length], of the dtype of `values`.
    """
    check(
        "at_positions", positions=("int32 [rows, n]", positions), values=("any [rows, n]", values)
    )
    rows = jnp.arange(len(positions))[:, None]
    return jnp.zeros((len(positions), length), values.dtype).at[rows, positions].set(values)


def max_predictions(length: int, rate: float) -> int:
    """Returns the largest number of predictions in a row of `length` tokens.

    A row has at least two special tokens, which are never predicted. The number is at least 1.
    """
    # 1e-9 keeps rounding errors from raising the result: 0.07 * 100 is 7.000000000000001.
    return max(1, math.ceil(rate * (length - 2) - 1e-9))


def mask_tokens(
    rows: Rows, rngs: jax.Array, options: MaskingOptions, vocabulary_size: int
) -> Masked:
    """Selects a share of each row's tokens and replaces them.

    Of n text tokens, floor(mask_rate * n + u) are selected, where u is uniform in [0, 1). This is
    fairseq's rule, except that n does not count specials (`<s>`, `</s>`, `<pad>`, `<unk>`,
    `<mask>`). Specials are never selected, and random tokens are never specials. The masks of a row
    depend only on its tokens and its random key.

    Args:
      rows: tokens int [rows, length].
      rngs: a random key for each row, [rows], of JAX's implementation threefry.
      options: `mask_rate` is the share of tokens to select. Of the selected tokens, the share
        `masking.mask_share` becomes `<mask>`, the share `masking.random_share` becomes a random
        piece, and the rest stays unchanged (BERT's shares are 80 %, 10 % and 10 %).
      vocabulary_size: number of token ids. The last id is `<mask>`.
    """
    check_rows("mask_tokens", rows, rngs=("key [rows]", rngs))
    rate, mask_share = options.mask_rate, options.masking.mask_share
    random_share = options.masking.random_share
    size = max_predictions(rows["tokens"].shape[1], rate)
    first, mask = len(SPECIALS), vocabulary_size - 1

    def of_row(row: jax.Array, languages: jax.Array, rng: jax.Array) -> Masked:
        count_rng, order_rng, action_rng, random_rng = jax.random.split(rng, 4)
        is_text = (row >= first) & (row < mask)
        count = (rate * is_text.sum() + jax.random.uniform(count_rng)).astype(jnp.int32)
        # Sorting puts text tokens first, in random order: they get random numbers below 2^31, and
        # all other tokens get 2^32 - 1.
        order = jax.random.bits(order_rng, row.shape, jnp.uint32) >> 1
        order = jnp.where(is_text, order, jnp.uint32(0xFFFFFFFF))
        positions = jnp.argsort(order)[:size].astype(jnp.int32)
        labels = row[positions]
        selected = jnp.arange(size) < count
        # The first numbers of a long draw are those of a short one. XLA unrolls loops over a few
        # numbers, which takes longer to compile.
        action = jax.random.uniform(action_rng, row.shape)[:size]
        pieces = jax.random.randint(random_rng, row.shape, first, mask)[:size]
        corrupted = jnp.where(action < mask_share + random_share, pieces, labels)
        corrupted = jnp.where(action < mask_share, mask, corrupted)
        corrupted = jnp.where(selected, corrupted, labels)
        return Masked(
            row.at[positions].set(corrupted),
            positions,
            labels,
            selected.astype(jnp.float32),
            languages,
        )

    return jax.vmap(of_row)(rows["tokens"].astype(jnp.int32), rows["languages"], rngs)
