r"""A small XLM (Lample and Conneau, 2019): MLM on monolingual text and TLM on sentence pairs.

The model is for one workstation: 4 layers, 256 wide, with a vocabulary of 16,384 pieces that is
trained on your text. The recipe needs text in any languages, and sentence pairs of some of these
languages:

    python -m xlj.train --config=configs/xlm_tiny.py --workdir=/tmp/xlm \
        --config.data.mono='DIR/{language}.txt.gz' --config.data.languages=en,de,sw \
        --config.data.parallel='DIR/{pair}.tsv.gz' --config.data.pairs=en-de,en-sw

Takes 90 to 150 minutes on 2 CPU cores if pairs fit 128 tokens, more if they are longer.
The recipe is ours; its proportions follow XLM-R base. `:tiny` trains an even smaller model on the
embedded corpus.
"""

from xlj import config as schema
from xlj.config import variants


def get_config(variant=""):
    config = schema.default()

    config.data.alpha = 0.7
    config.data.vocabulary_size = 16_384
    config.data.length = 128
    config.data.pair_length = "auto"

    config.model.layers = 4
    config.model.hidden = 256
    config.model.heads = 4
    config.model.intermediate = 1024
    config.model.positions = 514
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0

    config.objectives.mmlm.batch_size = 16
    config.objectives.tlm.batch_size = 16

    config.optimizer.learning_rate = 5e-4
    config.optimizer.warmup_steps = 500
    config.optimizer.b2 = 0.98
    config.optimizer.clip_norm = 1.0

    config.train.steps = 6_000
    config.train.log_every = 50
    config.train.eval_every = 500
    config.train.checkpoint_every = 500
    return variants.apply(config, variant)
