"""The random draws for a row depend only on its key and never change, in every objective."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rows import CORPUS, SIZE

from xlj.config import Model, row_kinds
from xlj.data.rows.row_kind import count_rows
from xlj.data.tokenizer.layout import Ragged
from xlj.objectives.btmlm import loss as btmlm
from xlj.objectives.btmlm.options import BackTranslation
from xlj.objectives.dwa import loss as dwa
from xlj.objectives.dwa.options import WordAlignment
from xlj.objectives.masking.options import Masking
from xlj.objectives.mlm import loss as mlm
from xlj.objectives.mlm.options import TranslationLM
from xlj.objectives.rtd import loss as rtd
from xlj.objectives.rtd.options import TranslationRTD
from xlj.objectives.xlco import loss as xlco
from xlj.objectives.xlco.options import CrossLingualContrast

MODEL = Model(layers=3, hidden=8, heads=2)
SHARES = {"masking": Masking(rate=0.3, mask_share=0.5, random_share=0.3)}
OBJECTIVES = {
    "mlm": (mlm, "pairs", TranslationLM(**SHARES)),
    "btmlm": (btmlm, "sentences", BackTranslation(**SHARES)),
    "rtd": (rtd, "pairs", TranslationRTD(**SHARES)),
    "dwa": (dwa, "pairs", WordAlignment(**SHARES)),
    "xlco": (xlco, "bitext", CrossLingualContrast(**SHARES)),
}
CHECKSUMS = {
    "mlm": 1323406309,
    "btmlm": 1810326633,
    "rtd": 1671887700,
    "dwa": 1757165666,
    "xlco": 3087548438,
}


def sentences(count, factor):
    """Returns sentences without NumPy's random numbers, which another release may change."""
    lengths = 2 + np.arange(count) * factor % 7
    ids = 4 + np.arange(lengths.sum()) * factor * 13 % (SIZE - 5)
    return Ragged(ids.astype(np.int32), lengths)


def rows(kind):
    row_kind = row_kinds.load(kind)
    columns = [sentences(16, 3), sentences(16, 5)][: len(row_kind.columns)]
    packed = row_kind.pack(columns, 48, np.dtype(np.uint16), documents=np.arange(16), mask=SIZE - 1)
    numbers = np.arange(count_rows(packed.rows))
    languages = np.stack([numbers % 3, numbers % 2], 1)
    rows = {**packed.rows, "languages": languages}
    return {name: jnp.asarray(array, jnp.int32) for name, array in rows.items()}


def checksum(name):
    module, kind, options = OBJECTIVES[name]
    objective, batch = module.objective(name, options, MODEL, CORPUS), rows(kind)
    result = jax.jit(objective.corrupt)(
        batch, jax.random.split(jax.random.key(3), len(batch["languages"]))
    )
    checksum_of_leaves = 0
    as_pair = jax.tree.map(
        lambda part: (part["tokens"], part["languages"]) if isinstance(part, dict) else part,
        result,
        is_leaf=lambda part: isinstance(part, dict),
    )
    for leaf in jax.tree.leaves(as_pair):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        checksum_of_leaves = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), checksum_of_leaves)
    return checksum_of_leaves


@pytest.mark.parametrize("name", OBJECTIVES)
def test_draws_never_change(name):
    assert checksum(name) == CHECKSUMS[name]
