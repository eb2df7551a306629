r"""XLM-R, or another encoder, continued on your own languages with CAMLM, then BTMLM (ERNIE-M).

    python -m xlj.train --config=configs/continue_pretraining.py \
        --config.init_from=DIR --config.data.languages=en,ha,yo --config.data.pairs=en-ha,en-yo \
        --config.data.mono='DIR/{language}.txt.gz' --config.data.parallel='DIR/{pair}.tsv.gz'

`init_from` is a Hugging Face folder (XLM-R base's sizes are below), or a checkpoint whose
vocabulary `python -m xlj.convert extend` has extended. docs/continue_pretraining.md has each step.

ERNIE-M's objectives, for a little parallel text and one GPU. Ours: all but those; few steps, and
a small rate, so that other languages are not forgotten. `:tiny` is from scratch, on the embedded
corpus.
"""

import ernie_m_base

from xlj.config import variants


def get_config(variant=""):
    config = ernie_m_base.get_config()
    config.init_from = "checkpoints/xlm-roberta-base"

    config.data.languages = "en,ha,yo"
    config.data.mono = "data/mono/{language}.txt.gz"
    config.data.pairs = "en-ha,en-yo"
    config.data.parallel = "data/parallel/{pair}.tsv.gz"
    config.data.length = 256
    config.data.pair_length = "auto"

    config.objectives.mmlm.batch_rows = 32
    config.objectives.tlm.batch_rows = 32
    config.objectives.camlm.batch_rows = 32
    config.phases.back_translation.start_step = 5_000
    config.phases.back_translation.objectives.btmlm.batch_rows = 32

    config.optimizer.learning_rate = 5e-5
    config.optimizer.warmup_steps = 500

    config.train.steps = 10_000
    config.train.accumulation = 1
    config.train.eval_every = config.train.checkpoint_every = 1_000
    return variants.apply(config, variant)
