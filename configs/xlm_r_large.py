r"""XLM-R large (Conneau et al., 2020): XLM-R base's recipe with 24 layers and 550M parameters.

    python -m xlj.train --config=configs/xlm_r_large.py \
        --config.data.mono='/data/cc100/{language}.txt.xz'

From Table 8 of the paper: 24 layers, 1,024 wide, 16 heads. The paper does not state the learning
rate and the warm-up; here they are those of RoBERTa large (Liu et al., 2019, Table 9). `:tiny`
trains on the embedded corpus.
"""

import xlm_r_base

from xlj.config import variants


def get_config(variant=""):
    config = xlm_r_base.get_config()

    config.model.layers = 24
    config.model.hidden = 1024
    config.model.heads = 16
    config.model.intermediate = 4096
    config.model.remat = "all"

    config.optimizer.learning_rate = 4e-4
    config.optimizer.warmup_steps = 30_000
    return variants.apply(config, variant)
