r"""XLM-E's objectives with mmBERT's encoder and optimizer (ours).

    python -m xlj.train --config=configs/modern_xlm_e.py \
        --config.data.mono='/data/fineweb2/{language}/*.parquet#text' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

The objectives are MRTD and TRTD of `xlm_e.py`: lambda = 50, a generator of a third of the depth,
and text and pairs of CC-100's languages. The encoder is that of `mmbert_base.py`: 22 local and full
layers, rotary positions, 256,000 ids. The optimizer is also mmBERT's, but with XLM-E's peak rate
5e-4 and clipping at 2.0. XLM-E's 125k steps of about 1M tokens per objective are 262B tokens here.
The learning rate falls as 1 - sqrt(x) over the last tenth of these tokens. `:tiny` trains on the
embedded corpus.
"""

import mmbert_base
import xlm_e

from xlj.config import variants


def get_config(variant=""):
    config = xlm_e.get_config("modern")
    encoder = mmbert_base.get_config()
    config.model = encoder.model
    config.model.positions = 1026
    config.data.vocabulary_type = encoder.data.vocabulary_type
    config.data.vocabulary_size = encoder.data.vocabulary_size
    config.optimizer = encoder.optimizer
    config.optimizer.learning_rate = 5e-4
    config.optimizer.clip_norm = 2.0
    config.optimizer.schedule = "wsd"
    config.optimizer.decay = "sqrt"
    config.optimizer.decay_steps = "26_200_000_000tok"
    config.train.steps = "262_000_000_000tok"
    return variants.apply(config, variant)
