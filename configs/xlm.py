r"""XLM (Lample and Conneau, 2019): MLM on Wikipedia, TLM on parallel text, 15 languages.

    python -m xlj.train --config=configs/xlm.py --config.data.mono='/data/wiki/{language}.txt.gz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

From section 5.1 of the paper:

- model: 12 layers (the XNLI model), 1,024 hidden units, 8 heads, GELU, dropout 0.1
- batches of 64 streams of 256 tokens, and TLM batches of 4,000 tokens
- Adam with learning rates from 1e-4 to 5e-4 and linear warm-up
- 95k pieces; alpha = 0.7 for sampling and 0.5 for the vocabulary

From the released command: Adam's beta 2, no weight decay, and the feed-forward width.

Our choices:

- 500k steps with 10k steps of warm-up (not stated)
- linear decay (the released command has inverse square root)
- both objectives in every step (XLM alternates)
- BPE of text that is not tokenised

`:tiny` trains on the embedded corpus.
"""

from xlj import config as schema
from xlj.config import variants

LANGUAGES = "ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh"
"""The 15 languages of XNLI."""

PAIRS = "en-ar,en-bg,en-de,en-el,en-es,en-fr,en-hi,en-ru,en-sw,en-th,en-tr,en-ur,en-vi,en-zh"
"""English with each of the other 14 languages, as in InfoXLM and XLM-Align."""


def get_config(variant=""):
    config = schema.default()

    config.data.mono = "data/wiki/{language}.txt.gz"
    config.data.languages = LANGUAGES
    config.data.parallel = "data/parallel/{pair}.tsv.gz"
    config.data.pairs = PAIRS
    config.data.alpha = 0.7
    config.data.vocabulary_type = "bpe"
    config.data.vocabulary_alpha = 0.5
    config.data.vocabulary_size = 95_000
    config.data.length = 256
    config.data.pair_length = 256

    config.model.layers = 12
    config.model.hidden = 1024
    config.model.heads = 8
    config.model.intermediate = 4096
    config.model.language_embeddings = "all"
    config.model.pair_positions = "restart"
    config.model.dropout = 0.1
    config.model.attention_dropout = 0.1

    config.objectives.mmlm.batch_size = 64
    config.objectives.tlm.batch_size = 16  # 16 * 256 tokens: about 4,000

    config.optimizer.learning_rate = 1e-4
    config.optimizer.warmup_steps = 10_000
    config.optimizer.b2 = 0.98
    config.optimizer.weight_decay = 0.0

    config.train.steps = 500_000
    return variants.apply(config, variant)
