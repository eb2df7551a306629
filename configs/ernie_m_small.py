r"""ERNIE-M small (Ouyang et al., 2021, Table 8): ERNIE-M's recipe from scratch, on a small model.

    python -m xlj.train --config=configs/ernie_m_small.py \
        --config.data.mono='/data/cc100/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

The paper says only "small-sized" and "from scratch". Our choice is 6 layers, 384 wide, 12 heads,
and the schedule and batches of ernie_m_base.py. A vocabulary of 250,002 pieces is trained, unless
`data.vocabulary` names the vocabulary of XLM-R. `:xlm_r` is XLM-R small: the same run with MMLM
only. `:tiny` trains on the embedded corpus.
"""

import ernie_m_ablations
import ernie_m_base

from xlj.config import variants

VARIANTS = {"xlm_r": ernie_m_ablations.VARIANTS["exp1"]}


def get_config(variant=""):
    config = ernie_m_base.get_config()
    config.init_from = ""

    config.model.layers = 6
    config.model.hidden = 384
    config.model.heads = 12
    config.model.intermediate = 1536
    return variants.apply(config, variant, VARIANTS)
