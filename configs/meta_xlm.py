r"""MetaXLM (Chi et al., 2021): MLM on 94 languages, from a monolingual encoder.

    python -m xlj.train --config=configs/meta_xlm.py \
        --config.init_from=checkpoints/roberta_base_matched \
        --config.data.mono='/data/wiki/{language}.txt.gz'

Section 4.1, Appendix A and Table 7: 12 layers, 768 wide, 12 heads, feed-forward width 3,072; 200k
steps of batches of 64; Adam with betas (0.9, 0.98) and epsilon 1e-6, peak rate 1e-4, linear,
warm-up 10k, clipping at 1.0, decay 0.01, dropout 0.1; alpha = 0.7; Wikipedia in 94 languages,
XLM-R's vocabulary. Not stated: length (512, as in its meta-pretraining) and mask rate (15 %).

This is the second of its phases, the cross-lingual one. `init_from` names a checkpoint of the
English encoder (RoBERTa base) whose word embeddings were matched to XLM-R's vocabulary. What makes
it is still to come (docs/roadmap.md), and with it Table 5's body-only and embedding-only starts.

- `xlm`: the baseline, from scratch
- `dict`: MetaXLM+Dict, from a checkpoint matched through bilingual dictionaries
- `kd`: XLM+KD (Table 3), from scratch, with the matched encoder as the teacher of English rows. The
  paper gives no loss, weight or batch; see docs/fidelity.md for ours
- `freezing`: MetaXLM+freezing (Table 4), embeddings and head only

`:tiny` trains on the embedded corpus. `:kd,tiny` needs a teacher of its size first, such as

    python -m xlj.train --config=configs/meta_xlm.py:tiny --workdir=runs/teacher
    python -m xlj.train --config=configs/meta_xlm.py:kd,tiny \
        --config.objectives.distillation.teacher=runs/teacher
"""

import xlm_r_base
import xlm_r_tlm

from xlj import variants


def xlm(config):
    config.init_from = ""


def dictionaries(config):
    config.init_from = "checkpoints/roberta_base_matched_by_dictionaries"


def kd(config):
    config.objectives.distillation.batch_rows = config.objectives.mmlm.batch_rows
    config.objectives.distillation.teacher = config.init_from
    config.objectives.distillation.language = "en"
    config.init_from = ""


def freezing(config):
    config.optimizer.frozen = "layers"


VARIANTS = {"xlm": xlm, "dict": dictionaries, "kd": kd, "freezing": freezing}


def get_config(variant=""):
    config = xlm_r_base.get_config()
    config.init_from = "checkpoints/roberta_base_matched"

    config.data.mono = "data/wiki/{language}.txt.gz"
    config.data.languages = xlm_r_tlm.LANGUAGES
    config.data.alpha = 0.7

    config.objectives.mmlm.batch_rows = 64

    config.optimizer.learning_rate = 1e-4
    config.optimizer.warmup_steps = 10_000
    config.optimizer.clip_norm = 1.0

    config.train.steps = 200_000
    return variants.apply(config, variant, VARIANTS)
