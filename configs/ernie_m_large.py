r"""ERNIE-M large (Ouyang et al., 2021): ERNIE-M base's recipe with 24 layers, from XLM-R large.

    python -m xlj.train --config=configs/ernie_m_large.py \
        --config.init_from=checkpoints/xlm_r_large \
        --config.data.mono='/data/cc100/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

From section 4 of the paper: 24 layers, 1,024 wide, 16 heads, peak rate 1e-4. All other values are
those of ernie_m_base.py. The paper does not state the feed-forward width; 4,096 is the width of
XLM-R large. `:tiny` trains on the embedded corpus.
"""

import ernie_m_base

from xlj.config import variants


def get_config(variant=""):
    config = ernie_m_base.get_config()
    config.init_from = "checkpoints/xlm_r_large"

    config.model.layers = 24
    config.model.hidden = 1024
    config.model.heads = 16
    config.model.intermediate = 4096
    config.model.remat = "all"

    config.optimizer.learning_rate = 1e-4
    return variants.apply(config, variant)
