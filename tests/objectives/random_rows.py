"""Random rows of every kind."""

import jax.numpy as jnp
import numpy as np

from xlj.config import row_kinds
from xlj.data.rows.row_kind import count_rows
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer.layout import Ragged

SIZE = 60
CORPUS = Corpus(SIZE, ("en", "de", "sw"), (100, 50, 20))


def ragged(rng, count, low, high):
    lengths = rng.integers(low, high, count)
    return Ragged(rng.integers(4, SIZE - 1, lengths.sum()).astype(np.int32), lengths)


def rows_of(kind, seed=0, count=24, length=48, shortest=1):
    """Draws rows of a kind, with a random language for each side, of sentences of at least
    `shortest` tokens."""
    rng, dtype, row_kind = np.random.default_rng(seed), np.dtype(np.uint16), row_kinds.load(kind)
    columns = [ragged(rng, count, shortest, 9) for _ in range(2)][: len(row_kind.columns)]
    documents = np.arange(count) // 3
    packed = row_kind.pack(columns, length, dtype, documents=documents, mask=SIZE - 1)
    return as_batch(packed.rows, rng, two_languages=len(row_kind.columns) > 1)


def as_batch(rows, rng, two_languages=True):
    """Returns packed rows as arrays of JAX, with random languages."""
    languages = rng.integers(0, 3, (count_rows(rows), 2))
    if not two_languages:
        languages[:, 1] = languages[:, 0]
    return {name: jnp.asarray(x, jnp.int32) for name, x in {**rows, "languages": languages}.items()}


def tokens_of(rows):
    """Returns the tokens of rows of bitext, both sides in one array [rows, length]."""
    return jnp.concatenate([rows["first"], rows["second"]], axis=1)


def with_tokens(rows, tokens):
    """Returns rows of bitext with other tokens, both sides in one array [rows, length]."""
    half = tokens.shape[1] // 2
    return {**rows, "first": tokens[:, :half], "second": tokens[:, half:]}
