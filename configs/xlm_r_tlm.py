r"""XLM-R base continued with MLM and TLM: the baseline of InfoXLM and XLM-Align.

    python -m xlj.train --config=configs/xlm_r_tlm.py --config.init_from=checkpoints/xlm_r_base \
        --config.data.mono='/data/ccnet/{language}.txt.xz' \
        --config.data.parallel='/data/parallel/{pair}.tsv.gz'

From InfoXLM's released command (unilm, infoxlm/README.md):

- 200k steps with batches of 2,048 sequences of up to 512 tokens
- Adam with betas (0.9, 0.98) and epsilon 1e-6, peak rate 2e-4, 10k steps of warm-up, linear decay,
  weight decay 0.01, clipping at 1.0
- no dropout
- one denominator for all losses (released code)

Languages and pairs are those of XLM-Align (Tables 8 to 10). alpha = 0.7 is from Appendix A of
MetaXLM, which follows XLM-Align. The mask rate is not stated; 0.15 is the rate of XLM-R.

Packing several pairs into a row is our choice: 256 rows hold about 2,048 pairs of about 60 tokens.
`:mmlm` continues with MLM only. `:tiny` trains on the embedded corpus.
"""

import xlm
import xlm_r_base

from xlj.config import variants

LANGUAGES = (
    "af,am,ar,as,az,ba,be,bg,bn,ca,ckb,cs,cy,da,de,el,en,eo,es,et,eu,fa,fi,fr,ga,gl,gu,he,hi,hr,hu,"
    "hy,id,is,it,ja,ka,kk,km,kn,ko,ky,la,lo,lt,lv,mk,ml,mn,mr,ms,mt,my,ne,nl,nn,no,or,pa,pl,ps,pt,"
    "ro,ru,sa,sd,si,sk,sl,sq,sr,sv,sw,ta,te,tg,th,tl,tr,tt,ug,uk,ur,uz,vi,yi,zh"
)
"""The 94 languages of XLM-Align (Tables 8 and 9) and MetaXLM (Table 6); some share a code."""


VARIANTS = {"mmlm": variants.without("tlm")}


def get_config(variant=""):
    config = xlm_r_base.get_config()
    config.init_from = "checkpoints/xlm_r_base"

    config.data.mono = "data/ccnet/{language}.txt.xz"
    config.data.languages = LANGUAGES
    config.data.parallel = "data/parallel/{pair}.tsv.gz"
    config.data.pairs = xlm.PAIRS
    config.data.alpha = 0.7
    config.data.pair_length = 512

    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0

    config.objectives.normalisation = "global"
    config.objectives.mmlm.batch_size = 2048
    config.objectives.tlm.batch_size = 256

    config.optimizer.learning_rate = 2e-4
    config.optimizer.warmup_steps = 10_000
    config.optimizer.clip_norm = 1.0

    config.train.steps = 200_000
    return variants.apply(config, variant, VARIANTS)
