r"""MetaXLM's first phase, meta-pretraining (Chi et al., 2021, section 3.1): MLM on one language.

    python -m xlj.train --config=configs/meta_pretraining.py --workdir=runs/meta \
        --config.data.mono='/data/english/{language}.txt.gz'
    python -m xlj.train --config=configs/meta_xlm.py --config.init_from=runs/meta ...

The paper takes RoBERTa base (Liu et al., 2019) as it was released, and `configs/meta_xlm.py` does
too; this recipe makes such an encoder where there is none for your language or your text: 12
layers, 768 wide, rows of at most 512 tokens of several sentences. The rest is RoBERTa base's: 500k
updates of 8,192 sequences, 24k of warm-up to 6e-4, Adam with betas (0.9, 0.98) and epsilon 1e-6,
linear decay, a vocabulary of 50k pieces (here SentencePiece's, trained on your text).

`:tiny` trains on the English of the embedded corpus.
"""

import xlm_r_base

from xlj.config import variants


def get_config(variant=""):
    config = xlm_r_base.get_config()
    config.data.mono = "data/english/{language}.txt.gz"
    config.data.languages = "en"
    config.data.vocabulary_size = 50_265
    config.train.steps = 500_000
    return variants.apply(config, variant)
