r"""XLM-Align's objectives with mmBERT's encoder (ours).

    python -m xlj.train --config=configs/modern_xlm_align.py --config.init_from=mmBERT-base \
        --config.data.mono='/data/wiki/{language}.txt.gz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

The run continues mmBERT base for 150k steps with DWA, TLM and MLM of `xlm_align.py`, and with the
vocabulary of `init_from`. The layers of the objectives have the same relative depth as in
`xlm_align.py`: labels come from layer 18 of 22, whose vectors pass through the last norm. The
learning rate falls as 1 - sqrt(x) over the last 15k steps. `:tiny` trains on the embedded corpus.
"""

import mmbert_base
import xlm_align

from xlj.config import variants


def get_config(variant=""):
    config = xlm_align.get_config("modern")
    encoder = mmbert_base.get_config()
    config.init_from = "checkpoints/mmbert_base"
    config.model = encoder.model
    config.model.rotary_base = config.model.rotary_local_base = 160_000.0
    config.model.middle_norm = True
    optimizer = config.optimizer
    optimizer.name, optimizer.b2, optimizer.epsilon = "stable_adamw", 0.95, 1e-8
    optimizer.weight_decay, optimizer.decoupling = 8e-5, "fully"
    optimizer.schedule, optimizer.decay, optimizer.decay_steps = "wsd", "sqrt", 15_000
    return variants.apply(config, variant)
