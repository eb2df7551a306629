r"""A modern encoder of 3 to 20 languages from your text, on one GPU in a day.

    python -m xlj.train --config=configs/one_gpu.py --workdir=runs/mine \
        --config.data.mono='corpus/{language}.txt' --config.data.languages=en,de,sw \
        --config.data.parallel='corpus/{pair}.tsv' --config.data.pairs=en-de,en-sw

The recipe has ModernBERT's architecture, in 12 layers of 512, and a vocabulary of 64,000 pieces
that is trained on your text. Small encoders with this architecture learn faster than with XLM-R's
(docs/experiments/modern.md). The objectives are MMLM on text, and TLM and retrieval on sentence
pairs: without retrieval, sentence vectors of translations are not similar
(docs/experiments/what_aligns.md). All values are ours. No GPU has run the recipe yet;
docs/experiments/one_gpu.md has compiled figures for 24 and 80 GB, and a small copy on real text.

A step reads 256 rows of text with 512 tokens, which is 131,072 tokens. 50,000 steps are 20 passes
over 330 million tokens of text. If you have less text, shorten the run: warm-up and decay are
shares of the run, so only `--config.train.steps` changes. The learning rate is constant before the
decay, so a longer run can start from the checkpoint before the decay.

Variants:

- `text`: trains without sentence pairs
- `base`: has the layers of ModernBERT base (22 of 768), for a GPU with 80 GB
- `tiny`: trains a small model on the embedded corpus
"""

from xlj import config as schema
from xlj.config import families, variants


def base(config):
    """Enlarges the encoder to ModernBERT base."""
    config.model.layers, config.model.hidden, config.model.heads = 22, 768, 12
    config.model.intermediate = 1152


VARIANTS = {"text": variants.text_only, "base": base}


def get_config(variant=""):
    config = schema.default()

    config.data.alpha = 0.5
    config.data.duplicates = "drop"
    config.data.vocabulary_type = "bpe"
    config.data.vocabulary_size = 64_000
    config.data.length = 512
    config.data.pair_length = 256

    families.set_family(config, "modernbert")
    config.model.layers = 12
    config.model.hidden = 512
    config.model.heads = 8
    config.model.intermediate = 1024
    config.model.positions = 514
    config.model.dropout = 0.1
    config.model.attention_dropout = 0.0
    config.model.dtype = "auto"

    config.objectives.masking.rate = 0.3
    config.objectives.mmlm.batch_size = 256
    config.objectives.tlm.batch_size = 64
    config.objectives.retrieval.batch_size = 128
    config.objectives.retrieval.loss = "softmax"
    config.objectives.retrieval.weight = 0.3

    config.optimizer.name = "stable_adamw"
    config.optimizer.learning_rate = 8e-4
    config.optimizer.b2 = 0.98
    config.optimizer.schedule, config.optimizer.decay = "wsd", "sqrt"
    config.optimizer.warmup_steps, config.optimizer.decay_steps = "5%", "20%"
    config.optimizer.clip_norm = 1.0

    config.evaluation.retrieval.source = "held_out"

    config.train.steps = 50_000
    config.train.gradient_accumulation_steps = 4
    config.train.log_every = 50
    config.train.eval_every = config.train.checkpoint_every = 1_000
    return variants.apply(config, variant, VARIANTS)
