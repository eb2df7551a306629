r"""A word aligner from parallel text alone, in minutes (ours).

    python -m xlj.train --config=configs/aligner.py --workdir=runs/aligner \
        --config.data.parallel='my.{pair}.tsv' --config.data.pairs=en-fr
    python -m xlj.align --checkpoint=runs/aligner --input=pairs.tsv --output=links.txt

The model is a hidden Markov model of translation over word vectors, in both directions
(`objectives.word_hmm`). The text should be tokenised; a BPE vocabulary is trained on the text. One
model can align several language pairs. If you have no gold links, observe `word_hmm/accuracy` on
held-out pairs: the share of tokens for which both directions choose the same link.

A run makes two passes over the pairs (`train.steps=2ep`), but at least 800 steps, which are two
passes over 50,000 pairs.
Takes about 5 minutes on 2 CPU cores, for up to 50,000 pairs.

`:tiny` trains on the embedded corpus.
"""

from xlj import config as schema
from xlj.config import variants


def get_config(variant=""):
    config = schema.default()

    config.data.vocabulary_type = "bpe"
    config.data.vocabulary_lowercase = True
    config.data.vocabulary_size = 0  # a small vocabulary, in which rare words share pieces
    config.data.pair_length = "auto"
    config.data.held_out_share = 0.005

    config.model.layers = 1
    config.model.hidden = 128
    config.model.heads = 2
    config.model.intermediate = 512
    config.model.absolute_positions = False
    config.model.position_bias = "t5"
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0

    config.objectives.word_hmm.batch_size = 32

    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup_steps = 100
    config.optimizer.schedule = "linear"
    config.optimizer.weight_decay = 0.3  # without it, more steps make alignments worse

    config.evaluation.alignment.method = "hmm"
    config.evaluation.alignment.encode = "apart"
    config.evaluation.alignment.layer = 0

    config.train.steps = "2ep"
    config.train.fewest_steps = 800  # small data needs 800 steps, but overfits with more
    config.train.log_every = 50
    config.train.eval_every = 400
    config.train.checkpoint_every = 400
    return variants.apply(config, variant)
