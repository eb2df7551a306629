r"""EuroBERT 210m (Boizard et al., 2025): masked text and parallel documents, then longer rows.

    python -m xlj.train --config=configs/eurobert_210m.py --config.data.vocabulary=tokenizer.json \
        --config.data.mono='/data/text/{language}/*.parquet#text' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

From the paper and the authors' code (optimus):

- model: 12 layers, 768 wide, 12 heads, feed-forward layers of 3,072 gated by SiLU
- AdamW with betas (0.9, 0.95), epsilon 1e-5, weight decay 0.1, clipping at 1, peak rate 1e-4
- 5T tokens
- 50 % of the tokens are selected, 10 % in the annealing; every selected token becomes <mask>
- rows of 2,048 tokens with rotary base 10,000, then rows of 8,192 tokens with base 250,000
- a pair is one document, source `<|parallel_sep|>` target, which is masked like all text (`tlm`)

Our choices:

- 4.7T tokens, then 300B tokens of annealing with a linear decay
- a warm-up of 2,000 steps
- 2,304 rows per step, of which a ninth are pairs
- alpha = 0.5
- the paper's 15 languages, without code and mathematics; pairs of English with each other language

The released vocabulary has 128,256 ids, one of which is the separator. `data.vocabulary` must name
a vocabulary with this separator. `:tiny` trains on the embedded corpus, with `</s>` between
sentences.
"""

from xlj import config as schema
from xlj.config import families, variants

LANGUAGES = "en,fr,de,es,zh,it,ru,pl,pt,ja,vi,nl,ar,tr,hi"


def get_config(variant=""):
    config = schema.default()

    config.data.mono = "data/text/{language}/*.parquet#text"
    config.data.languages = LANGUAGES
    config.data.parallel = "data/parallel/{pair}.tsv.gz"
    config.data.pairs = ",".join(f"en-{name}" for name in LANGUAGES.split(",")[1:])
    config.data.alpha = 0.5
    config.data.vocabulary_type = "bpe"
    config.data.vocabulary_size = 128_256
    config.data.length = config.data.pair_length = 2048

    families.set_family(config, "eurobert")
    config.model.layers = 12
    config.model.hidden = 768
    config.model.heads = 12
    config.model.intermediate = 3072
    config.model.positions = 8194
    config.model.rotary_base = 10_000.0
    config.model.pair_separator = "parallel"
    config.model.dtype = "bfloat16"

    for objective, rows in ((config.objectives.mmlm, 2048), (config.objectives.tlm, 256)):
        objective.batch_size = rows
        objective.mask_rate = 0.5
        objective.mask_share, objective.random_share = 1.0, 0.0

    config.optimizer.learning_rate = 1e-4
    config.optimizer.b1, config.optimizer.b2 = 0.9, 0.95
    config.optimizer.epsilon = 1e-5
    config.optimizer.weight_decay = 0.1
    config.optimizer.clip_norm = 1.0
    config.optimizer.schedule = "constant"
    config.optimizer.warmup_steps = 2_000

    config.train.steps = "5_000_000_000_000tok"
    config.train.gradient_accumulation_steps = 16
    config.phases = {
        "annealing": {
            "start_step": "4_700_000_000_000tok",
            "data": {"length": 8192},
            "model": {"rotary_base": 250_000.0},
            "objectives": {
                "mmlm": {"mask_rate": 0.1, "batch_size": 512},
                "tlm": {"mask_rate": 0.1},
            },
            "optimizer": {"schedule": "linear", "warmup_steps": 0},
        },
    }
    return variants.apply(config, variant)
