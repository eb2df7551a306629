r"""ModernBERT base (Warner et al., 2024): masked language modelling of English in three phases.

    python -m xlj.train --config=configs/modernbert_base.py \
        --config.data.vocabulary=tokenizer.json --config.data.mono='/data/english/*.jsonl.zst#text'

From the paper and the published yaml files (yamls/modernbert): StableAdamW with betas (0.9, 0.98),
epsilon 1e-6 and a fully decoupled weight decay of 1e-5, except for norms and biases; 30 % of the
tokens are masked; dropout is 0.1 after attention. The phases are:

- pretraining: 1.719T tokens in rows of 1,024 tokens, with rotary base 10,000. The learning rate
  warms up over 3B tokens to 8e-4 and is then constant. Batches grow from 96 to 4,608 rows over 50B
  tokens
- `context`: 250B tokens in rows of 8,192 tokens, with 576 rows per step, rotary base 160,000 in
  full layers, and learning rate 3e-4
- `decay`: 50B tokens, in which the learning rate falls as 1 - sqrt(x) to 0.001 of the peak

Our choices:

- the text, since the authors' 2T tokens are not published
- microbatches of 48 rows of 1,024 tokens, then of 16 rows of 8,192 tokens. Batches grow by one
  microbatch at a time
- initial weights N(0, 0.02) everywhere; in a model of L layers, the authors divide the initial
  weights of the projections out of a layer by sqrt(2 L)

`:tiny` trains on the embedded corpus.
"""

from xlj import config as schema
from xlj.config import families, variants


def get_config(variant=""):
    config = schema.default()

    config.data.mono = "data/english/*.jsonl.zst#text"
    config.data.languages = "en"
    config.data.vocabulary_type = "bpe"
    config.data.vocabulary_size = 50_368
    config.data.length = 1024

    families.set_family(config, "modernbert")
    config.model.layers = 22
    config.model.hidden = 768
    config.model.heads = 12
    config.model.intermediate = 1152
    config.model.positions = 8194
    config.model.rotary_base = config.model.rotary_local_base = 10_000.0
    config.model.dropout = 0.1
    config.model.dtype = "bfloat16"

    config.objectives.mmlm.batch_size = 4608
    config.objectives.mmlm.mask_rate = 0.3

    config.optimizer.name = "stable_adamw"
    config.optimizer.b1, config.optimizer.b2 = 0.9, 0.98
    config.optimizer.epsilon = 1e-6
    config.optimizer.learning_rate = 8e-4
    config.optimizer.weight_decay = 1e-5
    config.optimizer.decoupling = "fully"
    config.optimizer.schedule = "constant"
    config.optimizer.warmup_steps = "3_000_000_000tok"

    config.train.steps = "2_019_000_000_000tok"
    config.train.gradient_accumulation_steps = 96
    config.train.batch_warmup = "50_000_000_000tok"
    config.train.first_microbatches = 2

    config.phases = {
        "context": {
            "start_step": "1_719_000_000_000tok",
            "data": {"length": 8192},
            "model": {"rotary_base": 160_000.0, "rotary_local_base": 10_000.0},
            "objectives": {"mmlm": {"batch_size": 576}},
            "train": {"gradient_accumulation_steps": 36},
            "optimizer": {"learning_rate": 3e-4, "schedule": "constant", "warmup_steps": 0},
        },
        "decay": {
            "start_step": "1_969_000_000_000tok",
            "optimizer": {"schedule": "sqrt", "floor": 0.001},
        },
    }
    return variants.apply(config, variant)
