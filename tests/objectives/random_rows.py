"""Random rows of every kind."""

import jax.numpy as jnp
import numpy as np

from xlj.data.ragged import Ragged
from xlj.data.rows import packing
from xlj.data.rows.corpus import Corpus
from xlj.objectives.objective import Rows

SIZE = 60
CORPUS = Corpus(SIZE, ("en", "de", "sw"), (100, 50, 20))


def ragged(rng, count, low, high):
    lengths = rng.integers(low, high, count)
    return Ragged(rng.integers(4, SIZE - 1, lengths.sum()).astype(np.int32), lengths)


def rows_of(kind, seed=0, count=24, length=48, shortest=1):
    """Draws rows [n, length] of a kind, with a random language for each side, of sentences of at
    least `shortest` tokens."""
    rng, dtype = np.random.default_rng(seed), np.dtype(np.uint16)
    first, second = ragged(rng, count, shortest, 9), ragged(rng, count, shortest, 9)
    if kind == "text":
        packed = packing.pack_text(first, np.arange(count) // 3, length, dtype)
    elif kind == "pairs":
        packed = packing.pack_pairs(first, second, length, dtype)
    elif kind == "bitext":
        packed = packing.pack_bitext(first, second, length, dtype)
    else:
        packed = packing.pack_sentences(first, length, dtype, mask=SIZE - 1)
    languages = rng.integers(0, 3, (len(packed.rows), 2))
    if kind in ("text", "sentences"):
        languages[:, 1] = languages[:, 0]
    return Rows(jnp.asarray(packed.rows, jnp.int32), jnp.asarray(languages, jnp.int32))
