"""An encoder of eight languages on the embedded corpus, in minutes on a laptop.

    python -m xlj.train --config=configs/quickstart.py

The objective on text is masked language modelling. The objectives on sentence pairs are TLM,
ERNIE-M's CAMLM, and retrieval of translations among all sentences of the batch. The combination is
ours. The model finds translations and aligns words. Most of what it learns from a task in English
transfers to the other languages (docs/results.md).
Takes about 4 minutes on 2 CPU cores.
Nothing is downloaded, since the sentences come from xlj's phrasebook. The model is far too small
for real text; configs/xlm_tiny.py is the next larger recipe. The variant `tlm` is XLM, with TLM as
the only objective on pairs. This variant models text better, but aligns words poorly.
"""

from xlj import config as schema
from xlj.config import variants


def tlm(config):
    """Trains with MMLM and TLM only."""
    config.data.vocabulary_type, config.data.vocabulary_size = "unigram", 4_000
    config.data.pair_length = 64
    config.model.token_types = 0
    config.model.pair_marks = ""
    plain = schema.default()
    config.objectives, config.evaluation = plain.objectives, plain.evaluation
    config.objectives.mmlm.batch_size = config.objectives.tlm.batch_size = 16
    config.train.steps = 1_600


VARIANTS = {"tlm": tlm}


def get_config(variant=""):
    config = schema.default()

    config.data.languages = "en,de,fr,es,sw,tr,hi,zh"
    config.data.mono = "phrasebook:{language}"
    config.data.pairs = "en-de,en-fr,en-es,en-sw,en-tr,en-hi,en-zh"
    config.data.parallel = "phrasebook:{pair}"
    config.data.alpha = 0.5
    config.data.vocabulary_type = "bpe"  # unigram pieces spell rare forms letter by letter
    config.data.vocabulary_size = 6_000
    config.data.vocabulary_lines = 40_000
    config.data.length = 64
    config.data.pair_length = 40

    config.model.layers = 2
    config.model.hidden = 128
    config.model.heads = 4
    config.model.intermediate = 512
    config.model.positions = 66
    config.model.dtype = "auto"
    config.model.scan_layers = False  # a loop over two layers hardly saves compilation time
    config.model.token_types = 2
    config.model.pair_marks = "types"
    config.model.init_std = 0.05  # RoBERTa's 0.02 for a width of 768: 0.02 * sqrt(768 / 128)
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0

    config.objectives.masking.pair_rate = 0.25
    config.objectives.mmlm.batch_size = 8
    config.objectives.tlm.batch_size = 8
    config.objectives.camlm.batch_size = 16
    config.objectives.retrieval.batch_size = 64
    config.objectives.retrieval.loss = "softmax"
    config.objectives.retrieval.weight = 0.3
    config.objectives.retrieval.layer = 1

    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup_steps = 100
    config.optimizer.b2 = 0.98
    config.optimizer.clip_norm = 1.0

    config.train.steps = 2_000
    config.train.log_every = 25
    config.train.eval_every = 1_000
    config.train.checkpoint_every = 500

    config.evaluation.retrieval.source = "held_out"
    config.evaluation.retrieval.layer = 1
    return variants.apply(config, variant, VARIANTS)
