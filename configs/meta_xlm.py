r"""MetaXLM (Chi et al., 2021): MLM on 94 languages, from a monolingual encoder.

    python -m xlj.train --config=configs/meta_xlm.py \
        --config.init_from=checkpoints/roberta-base \
        --config.data.vocabulary=checkpoints/xlm-roberta-base/sentencepiece.bpe.model \
        --config.data.mono='/data/wiki/{language}.txt.gz'

From section 4.1, Appendix A and Table 7:

- model: 12 layers, 768 wide, 12 heads, feed-forward width 3,072, dropout 0.1
- 200k steps with batches of 64 sequences
- Adam with betas (0.9, 0.98) and epsilon 1e-6, peak rate 1e-4, 10k steps of warm-up, linear decay,
  clipping at 1.0, weight decay 0.01
- Wikipedia in 94 languages, with alpha = 0.7 and XLM-R's vocabulary

The paper does not state the length (here 512, as in its meta-pretraining) and the mask rate (here
15 %).

This is the second phase of MetaXLM, the cross-lingual phase. `init_from` is the folder of the
English encoder (RoBERTa base, from Hugging Face). The word embedding of a piece of XLM-R's
vocabulary starts from the embedding of the encoder's piece with the same text, or else the same
normalised text (section 3.2). No other matches are used. Variants:

- `xlm`: trains the baseline from scratch
- `dict`: MetaXLM+Dict, which first looks words up in MUSE's bilingual dictionaries
- `body`, `embeddings`: load only the layers, or only the embeddings, of the encoder (Table 5)
- `kd`: XLM+KD (Table 3) trains from scratch, with the matched encoder as the teacher of English
  rows. The teacher is the checkpoint of this recipe after one step with
  `--config.optimizer.learning_rate=0`. The paper gives no loss, weight or batch size;
  docs/fidelity.md describes our choices
- `freezing`: MetaXLM+freezing (Table 4) trains only embeddings and head

`:tiny` trains on the embedded corpus. `:kd,tiny` needs a teacher of the same size, such as

    python -m xlj.train --config=configs/meta_xlm.py:tiny --workdir=runs/teacher
    python -m xlj.train --config=configs/meta_xlm.py:kd,tiny \
        --config.objectives.distillation.teacher=runs/teacher
"""

import xlm_r_base
import xlm_r_tlm

from xlj.config import variants


def dictionaries(config):
    config.transfer.dictionaries = "data/muse/{pair}.txt"
    config.transfer.dictionaries_first = True


def body(config):
    config.transfer.parts = "body"


def embeddings(config):
    config.transfer.parts = "embeddings"


def kd(config):
    variants.from_scratch(config)
    config.objectives.distillation.batch_size = config.objectives.mmlm.batch_size
    config.objectives.distillation.teacher = "runs/roberta_base_matched"
    config.objectives.distillation.language = "en"


def freezing(config):
    config.optimizer.frozen = "layers"


VARIANTS = {
    "xlm": variants.from_scratch,
    "dict": dictionaries,
    "body": body,
    "embeddings": embeddings,
    "kd": kd,
    "freezing": freezing,
}


def get_config(variant=""):
    config = xlm_r_base.get_config()
    config.init_from = "checkpoints/roberta-base"
    config.transfer.vocabulary = "matched"
    config.transfer.accents = False
    config.transfer.place = False

    config.data.mono = "data/wiki/{language}.txt.gz"
    config.data.vocabulary = "checkpoints/xlm-roberta-base/sentencepiece.bpe.model"
    config.data.languages = xlm_r_tlm.LANGUAGES
    config.data.alpha = 0.7

    config.objectives.mmlm.batch_size = 64

    config.optimizer.learning_rate = 1e-4
    config.optimizer.warmup_steps = 10_000
    config.optimizer.clip_norm = 1.0

    config.train.steps = 200_000
    return variants.apply(config, variant, VARIANTS)
