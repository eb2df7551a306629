r"""MetaXLM's first phase, meta-pretraining (Chi et al., 2021, section 3.1): MLM on one language.

    python -m xlj.train --config=configs/meta_pretraining.py --workdir=runs/meta \
        --config.data.mono='/data/english/{language}.txt.gz'
    python -m xlj.train --config=configs/meta_xlm.py --config.init_from=runs/meta ...

The paper and `configs/meta_xlm.py` use the released RoBERTa base (Liu et al., 2019). This recipe
trains such an encoder for languages or text without a released encoder. The encoder has 12 layers
of width 768. A row has several sentences, at most 512 tokens. All other values are those of RoBERTa
base: 500k steps of 8,192 sequences, 24k steps of warm-up to 6e-4, linear decay, Adam with betas
(0.9, 0.98) and epsilon 1e-6, and a vocabulary of 50k pieces (here by SentencePiece, trained on your
text).

`:tiny` trains on the English text of the embedded corpus.
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
