r"""mmBERT small (Marone et al., 2025): `mmbert_base.py` with vectors of half the width.

    python -m xlj.train --config=configs/mmbert_small.py --config.data.vocabulary=tokenizer.json \
        --config.data.mono='/data/fineweb2/{language}/*.parquet#text'

From the published configs:

- model: 22 layers, 384 wide, 6 heads
- a warm-up of 4B tokens; batches grow over 100B tokens
- after pretraining, learning rate and weight decay are half of 8e-4 and 8e-5
- in the decay phase, the learning rate falls linearly to 0.04 of the peak

`:tiny` trains on the embedded corpus.
"""

import mmbert_base

from xlj.config import variants


def get_config(variant=""):
    config = mmbert_base.get_config()

    config.model.hidden = 384
    config.model.heads = 6

    config.optimizer.warmup_steps = "4_000_000_000tok"
    config.train.batch_warmup = "100_000_000_000tok"
    with config.phases.unlocked():
        config.phases.context.optimizer.learning_rate = 4e-4
        config.phases.context.optimizer.weight_decay = 4e-5
        config.phases.decay.optimizer.schedule = "linear"
        config.phases.decay.optimizer.floor = 0.04
    return variants.apply(config, variant)
